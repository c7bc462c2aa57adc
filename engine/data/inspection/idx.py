"""Inspection of images in idx files. Torch-free."""

from __future__ import annotations

import numpy as np
from PIL import Image

from engine.contract.dataset import Example, SplitReport
from engine.data.decoding.idx import Bytes
from engine.data.formats.idx import open_idx_images
from engine.data.inspection.base import Inspection, LeaveOut, Progress, splits_of_type, spread_by_class, thumbnail
from engine.data.splits import IdxSplit, RecognizedDataset


def inspect_idx(found: RecognizedDataset, progress: Progress, leave_out: LeaveOut, threads: int) -> Inspection:
    """Count the images in idx files by class."""
    result = Inspection(channels=1)
    opened: dict[str, Bytes | None] = {}
    splits = splits_of_type(found, IdxSplit)
    total = sum(len(split.labels) for _, split in splits)
    done = 0
    for name, split in splits:
        if split.images not in opened:
            opened[split.images] = open_idx_images(split, result.problems)
        pixels = opened[split.images]
        if pixels is None:
            continue
        counts = np.bincount(split.labels, minlength=len(found.classes))
        result.splits.append(SplitReport(name, dict(zip(found.classes, counts.tolist(), strict=True)), split.is_drawn))
        done += len(split.labels)
        progress(done, total)
        if name == "train":
            for index in spread_by_class(split.labels, np.arange(min(len(split.labels), 4096))):
                row = index if split.rows is None else int(split.rows[index])
                png = thumbnail(Image.fromarray(np.array(pixels[row])))
                result.examples.append(Example(found.classes[split.labels[index]], name, png, int(index)))
    return result
