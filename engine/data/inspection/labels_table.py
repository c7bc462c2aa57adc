"""Inspection of images with several labels each. Torch-free."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from engine.contract.dataset import Example, SplitReport
from engine.data.decoding.reading import folder_channels, is_gray
from engine.data.decoding.tiff import open_to_show
from engine.data.decoding.transparency import opaque
from engine.data.inspection.base import (
    EXAMPLE_SIDE,
    FileChecker,
    Inspection,
    LeaveOut,
    Progress,
    splits_of_type,
    spread_by_class,
    thumbnail,
)
from engine.data.inspection.imagefolder import ImageCheck
from engine.data.splits import LabelSplit, RecognizedDataset, dataset_error


def inspect_labels(found: RecognizedDataset, progress: Progress, leave_out: LeaveOut, threads: int) -> Inspection:
    """Inspect all images with labels of a dataset."""
    splits = splits_of_type(found, LabelSplit)
    result = Inspection(channels=folder_channels(*(split.files for _, split in splits)))
    total = sum(len(split.files) for _, split in splits)
    checker, image_check = FileChecker(total, progress, leave_out), ImageCheck.at(total)
    for name, split in splits:
        readable = checker.usable_indices(split.files, image_check.check_files(split.files, threads))
        counts = dict(zip(found.classes, split.labels[readable].sum(0).tolist(), strict=True))
        result.splits.append(SplitReport(name, counts, split.is_drawn, total=len(readable)))
        if len(split.files) and not readable:
            title = "training" if name == "train" else "validation"
            remedy = "Choose a folder with readable images."
            result.problems.append(
                dataset_error(f"None of the {len(split.files):,} {title} images can be read.", remedy)
            )
        if name == "train":
            result.examples += _examples(name, found.classes, split, readable)
    result.problems += image_check.problems()
    return result


def _examples(name: str, classes: Sequence[str], split: LabelSplit, readable: list[int]) -> list[Example]:
    """Return some images, of as many rare labels as possible."""
    counts = split.labels.sum(0)
    rarest = np.where(split.labels, counts, counts.max(initial=0) + 1).argmin(1)
    examples = []
    for index in spread_by_class(rarest, np.array(readable, np.int64)):
        try:
            with open_to_show(split.files[index]) as image:
                image.draft(image.mode, (EXAMPLE_SIDE * 2, EXAMPLE_SIDE * 2))
                png = thumbnail(opaque(image).convert("L" if is_gray(image) else "RGB"))
        except Exception:
            continue  # it could be read a moment ago; an image fewer is shown
        labels = ", ".join(label for label, is_set in zip(classes, split.labels[index], strict=True) if is_set)
        examples.append(Example(labels, name, png, int(index)))
    return examples
