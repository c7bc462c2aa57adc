"""Divide the samples in a folder into training, validation and test samples. Torch-free."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from engine.contract.problems import Problem
from engine.data.files import Files
from engine.data.formats.shared.unpacking import stable_root
from engine.data.splits import FileSplit, IdxSplit, Labels, LabelSplit, dataset_error, dataset_warning, draw_validation


class Divided(NamedTuple):
    """Training, validation and test samples of a dataset.

    `test` is None if there are no test samples, and the same object as `val` if one split serves both purposes.
    """

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
    """Choose the training, validation and test samples of a dataset.

    Returns None if there are no training samples.

    Args:
        splits: Samples by "train", "val" and "test", or by "" if the folder has no splits.
        folder: Folder of the dataset.
        problems: List to which problems are appended.
        val_fraction: Fraction of the training samples in each class to hold out if there is no validation split. If it
            is 0, nothing is held out, and the training samples may be missing.
        seed: Seed for drawing the validation samples.
        layout: Remedy to show if there are no training samples.
        nothing: Message to show if there are no training samples.
    """
    present = {name: split for name, split in splits.items() if count_samples(split)}
    if val_fraction and "val" not in present and "test" in present and "train" in present:
        problems.append(
            dataset_warning(
                "There is no validation split; the test images serve as one.",
                "Add one to keep the test images for a final, independent evaluation.",
            )
        )
        present["val"] = present["test"]
    samples = present.get("train") or present.get("")
    if samples is None and present and not val_fraction:  # not for training, such as a folder to evaluate
        other = next(iter(present.values()))
        samples = select_samples(other, np.zeros(count_samples(other), bool))  # an empty split
    if samples is None:
        problems.append(dataset_error(nothing, layout))
        return None
    if "val" in present:
        return Divided(samples, present["val"], present.get("test"))
    is_held_out = draw_validation(sample_keys(samples, folder), list_strata(samples), val_fraction, seed)
    if val_fraction and not is_held_out.any():
        message = "There are too few samples to hold any out for validation."
        problems.append(dataset_error(message, "Add at least two of each class, or a val folder."))
    return Divided(
        select_samples(samples, ~is_held_out), select_samples(samples, is_held_out, is_drawn=True), present.get("test")
    )


def count_samples(split: Any) -> int:
    """Return the number of samples in a split of any type."""
    return len(split.labels) if isinstance(split, IdxSplit) else len(split.files)


def list_strata(split: Any) -> Labels:
    """Return a class for each sample, int64 [n], for stratified sampling.

    For samples with several labels, it is the rarest of them. In datasets without classes, it is 0.
    """
    if isinstance(split, LabelSplit):
        return _find_rarest_labels(split)
    return split.labels if isinstance(split, FileSplit | IdxSplit) else np.zeros(count_samples(split), np.int64)


def sample_keys(split: Any, folder: str) -> Iterable[bytes]:
    """Yield bytes for each sample that identify it in the same way on every computer.

    These are the path relative to the dataset folder `folder`, or the row in a file with many samples.
    """
    if isinstance(split, IdxSplit):
        rows = range(len(split.labels)) if split.rows is None else split.rows.tolist()
        return (row.to_bytes(8, "little") for row in rows)
    folder = stable_root(split.files[0], folder) if len(split.files) else folder
    if isinstance(split.files, Files):
        return split.files.iterate_relative_paths(folder)
    return (os.fsencode(os.path.relpath(path, folder)) for path in split.files)


def select_samples(split: Any, which: npt.NDArray[np.bool_], *, is_drawn: bool = False) -> Any:
    """Return a split with only the samples for which `which`, bool [n], is True.

    `is_drawn` is True if the new split is sampled from the training samples and does not exist in the folder.
    """
    if hasattr(split, "select"):
        return split.select(which, is_drawn=is_drawn)
    indices = np.flatnonzero(which).tolist()
    per_sample = {name: getattr(split, name) for name in getattr(split, "per_sample", ("files",))}
    chosen = {
        name: values[which] if isinstance(values, np.ndarray) else [values[row] for row in indices]
        for name, values in per_sample.items()
    }
    return replace(split, **chosen, is_drawn=is_drawn)


def _find_rarest_labels(split: LabelSplit) -> Labels:
    """Return the rarest label of each image, int64 [N].

    For images without a label, it is the number of labels.
    """
    has_label = np.column_stack([split.labels, ~split.labels.any(1)])  # with a column for "no label"
    # Number of images with each label. That of "no label" is never the lowest in a row with labels.
    counts = np.append(split.labels.sum(0), split.labels.size + 1)
    counts_of_own_labels = np.where(has_label, counts, counts.max() + 1)
    return counts_of_own_labels.argmin(1).astype(np.int64)
