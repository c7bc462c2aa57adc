"""Division of a folder's splits into training, validation and test samples. Torch-free."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from engine.contract.problems import Problem
from engine.data.files import Files
from engine.data.formats.labels_table import LabelSplit, rarest_labels
from engine.data.formats.unpacking import stable_root
from engine.data.splits import FileSplit, IdxSplit, Labels, draw_validation, warn, wrong


class Divided(NamedTuple):
    """Splits of a folder. `test` is None if it has none, and `val` if its samples serve for both."""

    train: Any
    val: Any
    test: Any


def divide(
    splits: Mapping[str, Any],
    folder: str,
    problems: list[Problem],
    *,
    val_fraction: float,
    seed: int,
    layout: str,
    nothing: str = "There are annotations, but none for training images.",
) -> Divided | None:
    """Return the training, validation and test samples; None if there is nothing to train on.

    Args:
        splits: By "train", "val" and "test", or "" if the folder has none.
        folder: Folder of the dataset.
        problems: Gets what is wrong.
        val_fraction: Share of the training samples to hold out if there is no validation split, of each class alike;
            0 to hold out nothing, in which case there may be nothing to train on.
        seed: Seed of the draw.
        layout: Remedy if there is nothing to train on.
        nothing: Message for that.
    """
    there = {name: split for name, split in splits.items() if count(split)}
    if val_fraction and "val" not in there and "test" in there and "train" in there:
        problems.append(
            warn(
                "There is no validation split; the test images serve as one.",
                "Add one to keep the test images for a final, independent evaluation.",
            )
        )
        there["val"] = there["test"]
    whole = there.get("train") or there.get("")
    if whole is None and there and not val_fraction:
        other = next(iter(there.values()))
        whole = select(other, np.zeros(count(other), bool))
    if whole is None:
        problems.append(wrong(nothing, layout))
        return None
    if "val" in there:
        return Divided(whole, there["val"], there.get("test"))
    chosen = draw_validation(keys(whole, folder), strata(whole), val_fraction, seed)
    if val_fraction and not chosen.any():
        message = "There are too few samples to hold any out for validation."
        problems.append(wrong(message, "Add at least two of each class, or a val folder."))
    return Divided(select(whole, ~chosen), select(whole, chosen, made=True), there.get("test"))


def count(split: Any) -> int:
    """Return the number of samples."""
    return len(split.labels) if isinstance(split, IdxSplit) else len(split.files)


def strata(split: Any) -> Labels:
    """Return the class by which each sample is drawn, [n]; of several labels the rarest, and 0 without classes."""
    if isinstance(split, LabelSplit):
        return rarest_labels(split)
    return split.labels if isinstance(split, FileSplit | IdxSplit) else np.zeros(count(split), np.int64)


def keys(split: Any, folder: str) -> Iterable[bytes]:
    """Yield what identifies each sample on every machine: its path within `folder`, or its row in a file."""
    if isinstance(split, IdxSplit):
        rows = range(len(split.labels)) if split.rows is None else split.rows.tolist()
        return (row.to_bytes(8, "little") for row in rows)
    folder = stable_root(split.files[0], folder) if len(split.files) else folder
    if isinstance(split.files, Files):
        return split.files.below(folder)
    return (os.fsencode(os.path.relpath(path, folder)) for path in split.files)


def select(split: Any, which: npt.NDArray[np.bool_], *, made: bool = False) -> Any:
    """Return the samples for which `which`, bool [n], is true; `made` if the folder has no such split."""
    if hasattr(split, "select"):
        return split.select(which, made=made)
    files = [split.files[row] for row in np.flatnonzero(which).tolist()]
    if isinstance(split, LabelSplit):
        return replace(split, files=files, labels=split.labels[which], made=made)
    return replace(split, files=files, made=made)
