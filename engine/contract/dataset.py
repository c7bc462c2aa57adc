"""What is found on looking through a dataset folder, as the inspector reports it."""

from __future__ import annotations

import msgspec

from engine.contract.problems import Problem


class Unreadable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A file among the pictures that cannot be used; `path` is relative to the dataset's folder."""

    path: str
    reason: str


class SplitReport(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One split. `counts` holds the readable pictures of each class, by class name.

    `made` is true where the folder has no such split and it is drawn from the training pictures. Where a picture holds
    several classes, `counts` tells of how many of those looked into each class is in, `shares` its share of their pixels,
    and `total` how many pictures there are. Where they show things that are marked one by one, `objects` tells how many of
    each class those looked into hold, and `object_sides` how large: the 5th, 50th and 95th percentile of the square roots of
    their areas, in pixels.
    """

    name: str
    counts: dict[str, int]
    made: bool = False
    total: int | None = None
    shares: dict[str, float] = {}
    objects: dict[str, int] = {}
    object_sides: tuple[float, float, float] | None = None

    @property
    def pictures(self) -> int:
        return sum(self.counts.values()) if self.total is None else self.total


class Example(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A small picture to show, as PNG bytes (longest side 256 px), with what is marked on it; of no class where there is
    more than one. `sample` is its place in its split; `augmented` is what the light augmentation would make of it in the
    first epochs, as PNG bytes, where that is known."""

    class_name: str
    split: str
    png: bytes
    sample: int | None = None
    augmented: tuple[bytes, ...] = ()


class PictureSizes(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Width and height in pixels of the smallest, the middle and the largest of so many pictures `looked_at`, by area."""

    smallest: tuple[int, int]
    middle: tuple[int, int]
    largest: tuple[int, int]
    looked_at: int


def channels_in_words(channels: int) -> str:
    """What pictures of so many channels are called: grey, colour, or by their number of bands."""
    return {1: "grey", 3: "colour"}.get(channels, f"{channels} bands")


class DatasetReport(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The outcome of looking through one folder.

    `format` is the id of a format, or "" where nothing was recognised. `channels` is 1 for grey
    pictures, 3 for colour, and of TIFFs of bands their number. `unreadable` holds at most the first thousand; the count is whole. Pictures that
    begin and end as they should count as readable; of a large folder only a sample is decoded.
    """

    folder: str
    format: str
    classes: tuple[str, ...] = ()
    splits: tuple[SplitReport, ...] = ()
    channels: int = 3
    unreadable: tuple[Unreadable, ...] = ()
    unreadable_count: int = 0
    examples: tuple[Example, ...] = ()
    sizes: PictureSizes | None = None
    problems: tuple[Problem, ...] = ()
    seconds: float = 0.0

    def split(self, name: str) -> SplitReport | None:
        return next((split for split in self.splits if split.name == name), None)


class InspectionProgress(msgspec.Struct, tag="progress", tag_field="type", frozen=True, forbid_unknown_fields=True):
    """How far the look-through has come; `total` is 0 while files are still being listed."""

    done: int
    total: int


class InspectionDone(msgspec.Struct, tag="done", tag_field="type", frozen=True, forbid_unknown_fields=True):
    report: DatasetReport


InspectionMessage = InspectionProgress | InspectionDone
"""One line of the inspector's output (``python -m engine.data FOLDER``)."""

INSPECTION = msgspec.json.Decoder(InspectionMessage)
