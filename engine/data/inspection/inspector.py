"""Inspect a dataset folder and return a report about its contents and problems. Torch-free."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import msgspec
import numpy as np

from engine.contract.catalogue import load_catalogue
from engine.contract.dataset import DatasetReport, Example, ImageSizes, Interpretation, SplitReport, UnreadableImage
from engine.contract.images import LegendEntry
from engine.contract.problems import Problem, errors
from engine.data.decoding.reading import silence_pillow
from engine.data.decoding.tiff import count_channels, learn_bands, open_to_show
from engine.data.drawing import frame_legend, mask_legend
from engine.data.formats import registry
from engine.data.formats.format import resolve
from engine.data.formats.registry import FORMATS, IMAGES_BY_CLASS, explain_failure, recognize
from engine.data.formats.shared.boxes import BoxSplit
from engine.data.formats.shared.ignored_class import drop_ignored_class
from engine.data.formats.shared.instances import InstanceSplit
from engine.data.formats.shared.splitting import count_samples, select_samples
from engine.data.formats.shared.unpacking import name_within
from engine.data.inspection.base import Inspection, LeaveOut, Progress
from engine.data.inspection.contents import Contents
from engine.data.inspection.doubts import find_doubts
from engine.data.inspection.imagefolder import inspect_any_files, inspect_files, inspect_idx, inspect_labels
from engine.data.inspection.leaks import find_leaks
from engine.data.inspection.masks import check_numbered_masks, inspect_masks
from engine.data.inspection.objects import inspect_boxes, inspect_instances
from engine.data.inspection.pixels import check_pixels
from engine.data.inspection.samples import list_samples
from engine.data.splits import (
    AnySplit,
    FileSplit,
    IdxSplit,
    LabelSplit,
    MaskSplit,
    RecognizedDataset,
    dataset_warning,
    printable,
    spread_evenly,
)
from engine.system.format import listed
from engine.system.plain_text import shorten_texts
from engine.system.regular_files import UnusableFile

MAX_UNREADABLE_LISTED = 1000

INSPECTORS: dict[type, Callable[[RecognizedDataset, Progress, LeaveOut, int], Inspection]] = {
    FileSplit: inspect_files,
    MaskSplit: inspect_masks,
    BoxSplit: inspect_boxes,
    InstanceSplit: inspect_instances,
    LabelSplit: inspect_labels,
    IdxSplit: inspect_idx,
    AnySplit: inspect_any_files,
}
"""Functions that inspect a dataset, keyed by the type of its splits.

They take the dataset, callbacks for the progress and for unusable files, and the number of threads.
"""


@dataclass
class _UnusableFiles:
    """Collector for the unusable files of the dataset in `folder`, which are left out.

    Only the first ones are listed in `unreadable`. `unreadable_count` counts all of them.
    """

    folder: str
    unreadable: list[UnreadableImage] = field(default_factory=list)
    unreadable_count: int = 0

    def leave_out(self, path: str, reason: str) -> None:
        """Record that the file at the full path `path` is unusable."""
        self.unreadable_count += 1
        if len(self.unreadable) < MAX_UNREADABLE_LISTED:
            self.unreadable.append(UnreadableImage(name_within(path, self.folder), reason))

    def problems(self) -> list[Problem]:
        """Return a warning about the unusable files, or [] if there are none."""
        count = self.unreadable_count
        if not count:
            return []
        named = "; ".join(f"{each.path}: {each.reason}" for each in self.unreadable[:3])
        more = f"; and {count - 3:,} more" if count > 3 else ""
        files = "1 file is" if count == 1 else f"{count:,} files are"
        them = "it" if count == 1 else "them"
        message = f"{files} left out ({named}{more})."
        return [dataset_warning(message, f"Repair or remove {them}; training continues without {them}.")]


def inspect(
    folder: str,
    *,
    val_fraction: float,
    seed: int,
    progress: Progress,
    kinds: Sequence[str] = IMAGES_BY_CLASS,
    format: str = "",
    samples: int = 0,
    ignored: int | None = None,
    threads: int | None = None,
) -> DatasetReport:
    """Inspect a dataset folder and return a report. Faults in the dataset become problems and raise no exception.

    Args:
        folder: Folder of the dataset.
        val_fraction: Fraction of the images to hold out if there is no validation split.
        seed: Seed for drawing the validation images.
        progress: Callback that receives the number of inspected images and the total number of images.
        kinds: Kinds of annotations that the task accepts, the preferred one first.
        format: Name of the interpretation that the user chose, or "" to decide by the evidence.
        samples: Maximum number of samples to list with their annotations.
        ignored: Value in masks or labels to ignore, or None to use the value that the folder defines.
        threads: Number of threads, or None for one per core, but at most four.
    """
    started = time.perf_counter()
    silence_pillow()
    folder = os.path.abspath(os.path.expanduser(folder))
    progress(0, 0)
    try:
        found = recognize(folder, val_fraction=val_fraction, seed=seed, kinds=kinds, format=format)
        found = drop_ignored_class(found, folder, ignored)
        report = _make_report(found, folder, progress, threads, is_of_masks=kinds[0] == "masks")
        if not found.format:
            readings = find_candidate_readings(folder, val_fraction=val_fraction, seed=seed)
            report = msgspec.structs.replace(report, readings=readings)
        if samples and not errors(found.problems):
            report = msgspec.structs.replace(report, samples=tuple(list_samples(found, folder, samples)))
    except (UnusableFile, MemoryError) as error:
        report = DatasetReport(folder=printable(folder), format="", problems=(explain_failure(error, folder),))
    return msgspec.structs.replace(shorten_texts(report), seconds=time.perf_counter() - started)


def _make_report(
    found: RecognizedDataset, folder: str, progress: Progress, threads: int | None, *, is_of_masks: bool
) -> DatasetReport:
    """Inspect the splits of a dataset, unless it has errors, and return a report. Raises UnusableFile and MemoryError.

    `is_of_masks` is True for a task that learns the classes in masks.
    """
    left_out = _UnusableFiles(folder)
    numbering_warnings = (
        check_numbered_masks(found.train.masks) if is_of_masks and isinstance(found.train, MaskSplit) else []
    )
    masks_number_objects = bool(numbering_warnings)
    result = Inspection()
    if found.train is not None and not errors(found.problems):
        result = _inspect_splits(found, folder, progress, left_out, threads, drops_class_warnings=masks_number_objects)
    return DatasetReport(
        folder=printable(folder),
        format=found.format,
        kind=found.kind,
        title=found.title,
        evidence=found.evidence,
        certain=found.certain,
        other=found.other,
        classes=found.classes,
        splits=tuple(result.splits),
        channels=result.channels or 3,  # unknown if the images were not inspected
        unreadable=tuple(left_out.unreadable),
        unreadable_count=left_out.unreadable_count,
        examples=tuple(result.examples),
        legend=_make_legend(found),
        mask_values=result.mask_values,
        sizes=measure_image_sizes(getattr(found.train, "files", ())),
        problems=(*numbering_warnings, *found.problems, *result.problems, *left_out.problems()),
    )


def _inspect_splits(
    found: RecognizedDataset,
    folder: str,
    progress: Progress,
    left_out: _UnusableFiles,
    threads: int | None,
    *,
    drops_class_warnings: bool,
) -> Inspection:
    """Inspect the splits of a dataset that can be used for training. `left_out` collects unusable files.

    If `drops_class_warnings` is True, the warnings of the inspection that is specific to the type of the splits are
    dropped. This is used for masks whose values seem to number objects, since warnings about their classes would mean
    nothing.
    """
    result = _get_inspector(found)(found, progress, left_out.leave_out, threads or min(4, os.cpu_count() or 1))
    if drops_class_warnings:
        result.problems = errors(result.problems)
    if result.splits:
        result.problems += check_imbalance(result.splits[0])  # of the training split
    files = getattr(found.train, "files", ()) if getattr(found.train, "holds_images", True) else ()
    learned = learn_bands(folder, files)
    result.channels = result.channels if learned is None else count_channels(learned.bands, result.channels)
    result.problems += check_pixels(files, result.channels or 3, learned)
    if not errors(result.problems):
        contents = Contents()
        result.problems += find_leaks(found, folder, contents)
        result.problems += find_doubts(found, folder, contents, has_bands=learned is not None)
    result.splits += _report_test_split(found)
    return result


def _get_inspector(found: RecognizedDataset) -> Callable[[RecognizedDataset, Progress, LeaveOut, int], Inspection]:
    """Return the function that inspects a dataset: that of its format, or else the one for the type of its splits."""
    return resolve(FORMATS[found.format_id].inspect) or INSPECTORS[type(found.train)]


def _draw_examples(found: RecognizedDataset) -> tuple[Example, ...]:
    """Inspect a dataset that has been reduced to a few samples, and return its example images with annotations."""
    return tuple(_get_inspector(found)(found, lambda _done, _total: None, lambda _path, _reason: None, 1).examples)


def _report_test_split(found: RecognizedDataset) -> list[SplitReport]:
    """Return a report with the number of samples in the test split, or [] without one. Its files are not checked."""
    test = found.splits.get("test")
    if test is None:
        return []
    labels = getattr(test, "labels", None) if found.kind == "classes" else None
    if labels is None:
        return [SplitReport("test", {}, total=count_samples(test))]
    counts = np.bincount(labels, minlength=len(found.classes)).tolist()
    return [SplitReport("test", dict(zip(found.classes, counts, strict=True)))]


def _make_legend(found: RecognizedDataset) -> tuple[LegendEntry, ...]:
    """Return the legend for the colors of classes in the examples.

    Returns () for outlined objects, whose colors distinguish objects instead of classes.
    """
    format = FORMATS.get(found.format_id)
    if format is not None and format.legend is not None and found.classes:
        return format.legend(found.classes)
    if isinstance(found.train, MaskSplit):
        return mask_legend(found.classes)
    return frame_legend(found.classes) if isinstance(found.train, BoxSplit) else ()


STRONG_IMBALANCE = 10
"""Minimum ratio of the number of samples in the largest class to that in a class that is reported as rare.

A model that never predicts the smaller of two such classes is right in 10 of 11 cases.
"""


def check_imbalance(train: SplitReport) -> list[Problem]:
    """Return a warning about classes that are rare in the training split, compared with the largest class.

    Empty classes are reported elsewhere. Classes of masks are not checked, since the background always dominates.
    """
    counts = {name: count for name, count in train.counts.items() if count}
    if len(counts) < 2 or train.shares:
        return []
    largest = max(counts, key=lambda name: counts[name])
    rare = sorted(
        (name for name in counts if counts[largest] >= STRONG_IMBALANCE * counts[name]), key=lambda name: counts[name]
    )
    if not rare:
        return []
    named = listed([f"{name} ({counts[name]:,})" for name in rare], most=5)
    message = (
        f"Class {largest} has {counts[largest]:,} training samples, at least {STRONG_IMBALANCE} times as many as {named}: "
        f"a model that ignores the rare classes still looks accurate."
    )
    remedy = (
        "Add samples of the rare classes, balance the class weights, or oversample; and check the metrics of each "
        "class."
    )
    return [dataset_warning(message, remedy)]


SIZES_SAMPLED = 64
"""Maximum number of files whose headers are read to report image sizes."""


def measure_image_sizes(files: Sequence[str]) -> ImageSizes | None:
    """Return the smallest, median and largest image size, by area, in a sample of files.

    Returns None if no file can be read.
    """
    sizes = []
    for index in spread_evenly(len(files), SIZES_SAMPLED):
        try:
            with open_to_show(files[index]) as image:
                sizes.append(image.size)
        except Exception:  # a broken file may raise nearly anything; the inspection of all files reports it
            continue
    sizes.sort(key=lambda size: size[0] * size[1])
    return ImageSizes(sizes[0], sizes[len(sizes) // 2], sizes[-1], len(sizes)) if sizes else None


MAX_READINGS = 4
READING_EXAMPLES = 3


def find_candidate_readings(folder: str, *, val_fraction: float, seed: int) -> tuple[Interpretation, ...]:
    """Return up to `MAX_READINGS` likely interpretations of a folder, strongest first, with examples for each.

    `val_fraction` and `seed` have the same meaning as for `inspect`.
    """
    catalogue = load_catalogue()
    candidates: list[Interpretation] = []
    for reading in registry.find_readings(folder):
        task = catalogue.task_of(reading.kind)
        # Any folder can be read as files, so that this says nothing about it.
        if task is None or reading.kind == "files" or len(candidates) == MAX_READINGS:
            continue
        found = registry.read_as(reading, task.annotations, val_fraction=val_fraction, seed=seed)
        examples = () if errors(found.problems) else _draw_examples(_select_few_samples(found))
        detection = reading.detection
        candidates.append(
            Interpretation(
                reading.name, task.id, reading.title, detection.evidence, detection.against, examples[:READING_EXAMPLES]
            )
        )
    return tuple(candidates)


def _select_few_samples(found: RecognizedDataset) -> RecognizedDataset:
    """Return a copy of a dataset with only a few evenly spaced training samples, and no validation or test split."""
    is_chosen = np.zeros(count_samples(found.train), bool)
    is_chosen[spread_evenly(len(is_chosen), READING_EXAMPLES)] = True
    return replace(found, train=select_samples(found.train, is_chosen), val=None, test=None)
