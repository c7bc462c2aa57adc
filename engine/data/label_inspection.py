"""Looks pictures with tables of labels through. Torch-free."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from engine.contract.dataset import Example, SplitReport
from engine.data.file_inspection import Look
from engine.data.found import Recognised, wrong
from engine.data.labels_table import LabelSplit
from engine.data.looking import EXAMPLE_SIDE, LeaveOut, Looked, Progress, spread_by_class, thumbnail
from engine.data.reading import folder_channels, is_grey
from engine.data.tiff import open_to_show


def look_through_labels(found: Recognised, progress: Progress, leave_out: LeaveOut, threads: int) -> Looked:
    """Looks at every picture of `found`, whose splits are of labels."""
    looked = Looked()
    halves = (("train", found.train), ("val", found.val))
    splits = [(name, split) for name, split in halves if isinstance(split, LabelSplit)]
    looked.channels = folder_channels(*(split.files for _, split in splits))
    total, done = sum(len(split.files) for _, split in splits), 0
    look = Look.at(total)
    for name, split in splits:
        readable = np.ones(len(split.files), bool)
        for place, reason in enumerate(look.through(split.files, threads)):
            done += 1
            progress(done, total)
            if reason is not None:
                readable[place] = False
                leave_out(split.files[place], reason)
        counts = dict(zip(found.classes, split.labels[readable].sum(0).tolist(), strict=True))
        looked.splits.append(SplitReport(name, counts, split.made, total=int(readable.sum())))
        if len(readable) and not readable.any():
            title = "training" if name == "train" else "validation"
            remedy = "Choose a folder of whole pictures."
            looked.problems.append(wrong(f"None of the {len(readable):,} {title} pictures can be read.", remedy))
        if name == "train":
            looked.examples += _examples(name, found.classes, split, readable)
    looked.problems += look.problems()
    return looked


def _examples(name: str, classes: Sequence[str], split: LabelSplit, readable: npt.NDArray[np.bool_]) -> list[Example]:
    """Some pictures, of as many rarest labels as possible in turn."""
    counts = split.labels.sum(0)
    rarest = np.where(split.labels, counts, counts.max(initial=0) + 1).argmin(1)
    examples = []
    for place in spread_by_class(rarest, np.flatnonzero(readable)):
        try:
            with open_to_show(split.files[place]) as image:
                image.draft(image.mode, (EXAMPLE_SIDE * 2, EXAMPLE_SIDE * 2))
                png = thumbnail(image.convert("L" if is_grey(image) else "RGB"))
        except Exception:
            continue  # it could be read a moment ago; a picture fewer is shown
        labels = ", ".join(label for label, there in zip(classes, split.labels[place], strict=True) if there)
        examples.append(Example(labels, name, png, int(place)))
    return examples
