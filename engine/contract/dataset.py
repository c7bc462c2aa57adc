"""What is found on looking through a dataset folder, as the inspector reports it, and what that is told."""

from __future__ import annotations

import msgspec

from engine.contract.catalogue import Catalogue
from engine.contract.job import Job
from engine.contract.legend import LegendEntry
from engine.contract.problems import Problem


def inspector_options(job: Job, catalogue: Catalogue, samples: int = 0) -> list[str]:
    """Return the options of `python -m engine.data` for a job; `samples` are listed with their labels."""
    options = ["--val-fraction", str(job.data.val_fraction), "--seed", str(job.training.seed)]
    task = catalogue.task(job.task)
    if task is not None:
        options += ["--kinds", ",".join(task.annotations)]
    if job.data.format and (task is None or not task.file):  # a file's own annotations are known only when it runs
        options += ["--format", job.data.format]
    if samples:
        options += ["--samples", str(samples)]
    return options if job.data.ignore_value is None else [*options, "--ignore-value", str(job.data.ignore_value)]


class Unreadable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A file among the images that cannot be used; `path` is relative to the dataset's folder."""

    path: str
    reason: str


class SplitReport(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One split. `counts` holds the readable images of each class, by class name.

    `made` is true where the folder has no such split and it is drawn from the training images. Where an image holds
    several classes, `counts` tells of how many of those looked into each class is in, `shares` its share of their
    pixels, and `total` how many images there are. Where they show things that are marked one by one, `objects` tells
    how many of each class those looked into hold, and `object_sides` how large: the 5th, 50th and 95th percentile of
    the square roots of their areas, in pixels.
    """

    name: str
    counts: dict[str, int]
    made: bool = False
    total: int | None = None
    shares: dict[str, float] = {}
    objects: dict[str, int] = {}
    object_sides: tuple[float, float, float] | None = None

    @property
    def images(self) -> int:
        return sum(self.counts.values()) if self.total is None else self.total


def crop_margin(size: int) -> int:
    """How many pixels larger than `size` images are loaded to leave room for the light augmentation's crop: 1/8, as
    256 is to 224.
    """
    return max(1, round(size / 8))


class Example(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An image to show, as PNG bytes (longest side 384 px), with what is marked on it; of no class where there is
    more than one. `sample` is its place in its split, where that is known.
    """

    class_name: str
    split: str
    png: bytes
    sample: int | None = None


class MaskValue(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A value in the masks, as text, and its class; None if its pixels are of no class.

    `share` is its share of the inspected pixels, and `masks` the number of inspected masks that hold it.
    """

    value: str
    share: float
    masks: int
    class_name: str | None = None


class ImageSizes(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Width and height in pixels of the smallest, the middle and the largest of so many images `looked_at`, by area."""

    smallest: tuple[int, int]
    middle: tuple[int, int]
    largest: tuple[int, int]
    looked_at: int


class SampleBox(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A box in pixels with its class."""

    label: str
    x1: float
    y1: float
    x2: float
    y2: float


class Sample(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A sample with its annotations as they are read.

    Attributes:
        file: Path relative to the dataset's folder; with the row behind for images in one file.
        split: "train", "val" or "test".
        label: Class, if a sample has exactly one.
        labels: Labels, if it may have several.
        boxes: Boxes of its objects.
        pixels: Pixels (or points) of each class; those of no class are under "".
        problem: Why the annotations can't be read; "" if they can.
    """

    file: str
    split: str
    label: str | None = None
    labels: tuple[str, ...] | None = None
    boxes: tuple[SampleBox, ...] | None = None
    pixels: dict[str, int] | None = None
    problem: str = ""


class Reading(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One way to read a folder whose evidence conflicts.

    Attributes:
        format: Value of the job's `format` that chooses it.
        task: Id of the task that learns from such annotations.
        title: Name in messages.
        evidence: What speaks for it.
        against: What speaks against it.
        examples: A few samples, drawn with their annotations.
    """

    format: str
    task: str
    title: str
    evidence: tuple[str, ...] = ()
    against: tuple[str, ...] = ()
    examples: tuple[Example, ...] = ()


def channels_in_words(channels: int) -> str:
    """What images of so many channels are called: grey, colour, or by their number of bands."""
    return {1: "grey", 3: "colour"}.get(channels, f"{channels} bands")


class DatasetReport(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Result of inspecting one folder.

    Attributes:
        format: Id of the format, with its variant behind a colon; "" if none was chosen.
        kind: Kind of annotations that were read.
        title: Name of the format in messages.
        evidence: What the format was recognized by.
        certain: True if the evidence is full, so that nobody needs to see samples before training.
        other: Kind of annotations that the folder has instead of those asked for; "" if none.
        readings: Ways to read the folder, if the evidence conflicts.
        channels: 1 for grey images, 3 for color; the number of bands of TIFFs of bands.
        unreadable: Files that can't be used, at most the first thousand. Images that begin and end as they should
            count as readable; of a large folder only a sample is decoded.
        legend: Meaning of the colors in the examples, an entry for each class; empty if they have none.
        mask_values: Values in the masks, in their order; the most frequent ones if there are many.
        samples: Samples with their annotations as read, if they were asked for.
    """

    folder: str
    format: str
    kind: str = ""
    title: str = ""
    evidence: tuple[str, ...] = ()
    certain: bool = True
    other: str = ""
    readings: tuple[Reading, ...] = ()
    classes: tuple[str, ...] = ()
    splits: tuple[SplitReport, ...] = ()
    channels: int = 3
    unreadable: tuple[Unreadable, ...] = ()
    unreadable_count: int = 0
    examples: tuple[Example, ...] = ()
    legend: tuple[LegendEntry, ...] = ()
    mask_values: tuple[MaskValue, ...] = ()
    sizes: ImageSizes | None = None
    samples: tuple[Sample, ...] = ()
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
