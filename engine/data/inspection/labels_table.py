"""Looks images with tables of labels through. Torch-free."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from engine.contract.dataset import Example, SplitReport
from engine.data.decoding.reading import folder_channels, is_grey
from engine.data.decoding.tiff import open_to_show
from engine.data.decoding.transparency import opaque
from engine.data.formats.labels_table import LabelSplit
from engine.data.inspection.base import (
    EXAMPLE_SIDE,
    LeaveOut,
    Looked,
    Progress,
    Tally,
    splits_of,
    spread_by_class,
    thumbnail,
)
from engine.data.inspection.imagefolder import Look
from engine.data.splits import Recognised, wrong


def look_through_labels(found: Recognised, progress: Progress, leave_out: LeaveOut, threads: int) -> Looked:
    """Looks at every image of `found`, whose splits are of labels."""
    splits = splits_of(found, LabelSplit)
    looked = Looked(channels=folder_channels(*(split.files for _, split in splits)))
    total = sum(len(split.files) for _, split in splits)
    tally, look = Tally(total, progress, leave_out), Look.at(total)
    for name, split in splits:
        readable = tally.usable(split.files, look.through(split.files, threads))
        counts = dict(zip(found.classes, split.labels[readable].sum(0).tolist(), strict=True))
        looked.splits.append(SplitReport(name, counts, split.made, total=len(readable)))
        if len(split.files) and not readable:
            title = "training" if name == "train" else "validation"
            remedy = "Choose a folder with readable images."
            looked.problems.append(wrong(f"None of the {len(split.files):,} {title} images can be read.", remedy))
        if name == "train":
            looked.examples += _examples(name, found.classes, split, readable)
    looked.problems += look.problems()
    return looked


def _examples(name: str, classes: Sequence[str], split: LabelSplit, readable: list[int]) -> list[Example]:
    """Some images, of as many rarest labels as possible in turn."""
    counts = split.labels.sum(0)
    rarest = np.where(split.labels, counts, counts.max(initial=0) + 1).argmin(1)
    examples = []
    for index in spread_by_class(rarest, np.array(readable, np.int64)):
        try:
            with open_to_show(split.files[index]) as image:
                image.draft(image.mode, (EXAMPLE_SIDE * 2, EXAMPLE_SIDE * 2))
                png = thumbnail(opaque(image).convert("L" if is_grey(image) else "RGB"))
        except Exception:
            continue  # it could be read a moment ago; an image fewer is shown
        labels = ", ".join(label for label, there in zip(classes, split.labels[index], strict=True) if there)
        examples.append(Example(labels, name, png, int(index)))
    return examples
