"""Results of inspecting a dataset folder, and previews of augmented images."""

from __future__ import annotations

import re

import msgspec

from engine.contract.catalogue import Catalogue
from engine.contract.images import LegendEntry
from engine.contract.job import Job
from engine.contract.messages import Done, Refused
from engine.contract.problems import Problem


def inspector_options(job: Job, catalogue: Catalogue, samples: int = 0) -> list[str]:
    """Return the options of `python -m engine.data` for a job. `samples` is the number of samples to list."""
    options = ["--val-fraction", str(job.data.val_fraction), "--seed", str(job.training.seed)]
    task = catalogue.task(job.task)
    if task is not None:
        options += ["--kinds", ",".join(task.annotations)]
    if job.data.format and (task is None or not task.file):  # a file's own annotations are known only when it runs
        options += ["--format", job.data.format]
    if samples:
        options += ["--samples", str(samples)]
    if job.data.ignore_value is not None:
        options += ["--ignore-value", str(job.data.ignore_value)]
    return options


class UnreadableImage(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Image file that can't be used. `path` is relative to the dataset folder."""

    path: str
    reason: str


class SplitReport(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Report on one split of a dataset.

    Attributes:
        counts: Number of readable images by class name. If images have several classes, the number of inspected images
            with each class.
        is_drawn: True if the folder has no such split, so that it is sampled from the training images.
        total: Number of images, if images have several classes.
        shares: Fraction of the inspected pixels that belong to each class.
        objects: Number of annotated objects of each class in the inspected images.
        object_sides: 5th, 50th and 95th percentile of the square roots of the objects' areas, in pixels.
    """

    name: str
    counts: dict[str, int]
    is_drawn: bool = False
    total: int | None = None
    shares: dict[str, float] = {}
    objects: dict[str, int] = {}
    object_sides: tuple[float, float, float] | None = None

    @property
    def images(self) -> int:
        return sum(self.counts.values()) if self.total is None else self.total


def crop_margin(size: int) -> int:
    """Return the number of pixels that loaded images have in addition to `size`, for the light augmentation to crop.

    The margin is one eighth, as for cropping 256 to 224 pixels.
    """
    return max(1, round(size / 8))


class Example(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Image for display, as PNG bytes (longest side 384 px), with its annotations drawn on it.

    `class_name` is "" for images with several classes. `sample` is the index in the split, if known.
    """

    class_name: str
    split: str
    png: bytes
    sample: int | None = None


class MaskValue(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Value that occurs in the inspected masks.

    `value` is given as text. `class_name` is None if pixels with this value have no class. `share` is the fraction of
    inspected pixels with this value, and `masks` the number of inspected masks that contain it.
    """

    value: str
    share: float
    masks: int
    class_name: str | None = None


class ImageSizes(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Width and height in pixels of the smallest, median and largest inspected image, by area."""

    smallest: tuple[int, int]
    middle: tuple[int, int]
    largest: tuple[int, int]
    inspected: int


class SampleBox(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Box in pixels with its class."""

    label: str
    x1: float
    y1: float
    x2: float
    y2: float


class Sample(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Sample with its annotations as they were read.

    Attributes:
        file: Path relative to the dataset folder. For images in one file, the row is appended.
        split: "train", "val" or "test".
        label: Class, if a sample has exactly one.
        labels: Labels, if a sample may have several.
        pixels: Number of pixels (or points) of each class. Those without a class are counted under "".
        problem: Reason why the annotations can't be read, or "" if they can.
    """

    file: str
    split: str
    label: str | None = None
    labels: tuple[str, ...] | None = None
    boxes: tuple[SampleBox, ...] | None = None
    pixels: dict[str, int] | None = None
    problem: str = ""


class Interpretation(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Possible interpretation of a folder with conflicting evidence.

    Attributes:
        format: Value of the job's `format` that selects it.
        task: Id of the task that learns from such annotations.
        title: Name in messages.
        evidence: Facts that support it.
        against: Facts that contradict it.
        examples: A few samples, drawn with their annotations.
    """

    format: str
    task: str
    title: str
    evidence: tuple[str, ...] = ()
    against: tuple[str, ...] = ()
    examples: tuple[Example, ...] = ()


def describe_channels(channels: int) -> str:
    """Describe images by their number of channels: "gray", "color" or "8 bands"."""
    return {1: "gray", 3: "color"}.get(channels, f"{channels} bands")


READ_AS = "Read as "
"""Beginning of the title of a `Choice` that only selects an interpretation of the folder. The title of that follows."""


class DatasetReport(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Result of inspecting one folder.

    Attributes:
        format: Id of the format, with its variant after a colon, or "" if none was chosen.
        kind: Kind of the annotations.
        title: Name of the format for messages.
        certain: True if the evidence is complete, so that users need not check samples before training.
        other: Kind of annotations that the folder has instead of the requested ones, or "" if none.
        readings: Possible interpretations of the folder, if the evidence conflicts.
        channels: 1 for gray images, 3 for color images, and the number of bands for multi-band TIFFs.
        unreadable: Files that can't be used, at most the first thousand. Images with a valid beginning and end count as
            readable. In a large folder, only a sample is decoded.
        legend: Meaning of the colors in the examples, with one entry for each class.
        mask_values: Values in the masks in ascending order. If there are many, only the most frequent ones.
        samples: Samples with their annotations, if requested.
    """

    folder: str
    format: str
    kind: str = ""
    title: str = ""
    evidence: tuple[str, ...] = ()
    certain: bool = True
    other: str = ""
    readings: tuple[Interpretation, ...] = ()
    classes: tuple[str, ...] = ()
    splits: tuple[SplitReport, ...] = ()
    channels: int = 3
    unreadable: tuple[UnreadableImage, ...] = ()
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
    """Progress of inspecting a dataset. `total` is 0 while files are being listed."""

    done: int
    total: int


INSPECTION = msgspec.json.Decoder(InspectionProgress | Done[DatasetReport])
"""Decoder for the messages of the inspector (``python -m engine.data FOLDER``)."""


_FOLD = re.compile(r"(\d{1,3})/(\d{1,3})", re.ASCII)


def parse_fold(text: str) -> tuple[int, int] | None:
    """Parse the text for a fold: (2, 5) for "2/5", the second of five folds. Returns None for other text."""
    match = _FOLD.fullmatch(text)
    if match is None:
        return None
    number, count = int(match[1]), int(match[2])
    return (number, count) if 1 <= number <= count > 1 else None


PREVIEW_EPOCHS = 3
"""Number of epochs whose augmented images are previewed."""
MAX_PREVIEW_SIDE = 384
"""Maximum side length of a preview image in pixels."""


class PreviewRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Request for previews of training images, given by their indices in the split."""

    job: Job
    samples: tuple[int, ...]


class PreviewImage(msgspec.Struct, tag="image", tag_field="type", frozen=True, forbid_unknown_fields=True):
    """Training image as the model sees it in `epoch` (from 1): a PNG of `size` pixels, with its mask or boxes."""

    sample: int
    epoch: int
    size: int
    png: bytes


PREVIEW = msgspec.json.Decoder(PreviewImage | Refused | Done[bool])
