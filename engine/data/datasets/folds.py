"""Folds of a cross-validation (Stone 1974). Torch-free."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from engine.contract.folds import fold_of
from engine.data.files import Files
from engine.data.formats.shared.splitting import sample_keys, select_samples, strata
from engine.data.splits import FileSplit, IdxSplit, LabelSplit, RecognizedDataset, dataset_error, hash_order


def with_fold(found: RecognizedDataset, folder: str, fold: str, seed: int) -> RecognizedDataset:
    """Return a dataset with one fold of the training images for validation: "2/5" is the second of five.

    Each image is in one fold, and classes are spread evenly over them. A validation split that was drawn from the
    training images belongs to these; a validation split of the folder is not used.
    """
    fold_number = fold_of(fold)
    train: Any = found.train
    val: Any = found.val
    if fold_number is None or not isinstance(train, FileSplit | IdxSplit | LabelSplit):
        message = f"A dataset of the format “{found.format}” has no fold “{fold}”."
        return replace(found, problems=(*found.problems, dataset_error(message, "Leave the fold empty.")))
    number, count = fold_number
    samples = _joined(train, val) if val.is_drawn else train
    labels = strata(samples)
    held_out = np.zeros(len(labels), bool)
    held_out[hash_order(sample_keys(samples, folder), labels, seed)[number - 1 :: count]] = True
    if held_out.all() or not held_out.any():
        message = f"{len(labels)} images can't be divided into {count} folds."
        return replace(found, problems=(*found.problems, dataset_error(message, "Use fewer folds.")))
    return replace(
        found, train=select_samples(samples, ~held_out), val=select_samples(samples, held_out, is_drawn=True)
    )


def _joined(train: Any, val: Any) -> Any:
    labels = np.concatenate([train.labels, val.labels])
    if isinstance(train, IdxSplit):
        assert train.rows is not None
        return replace(train, labels=labels, rows=np.concatenate([train.rows, val.rows]))
    files = train.files.joined(val.files) if isinstance(train.files, Files) else [*train.files, *val.files]
    return replace(train, files=files, labels=labels)
