"""The folds of a cross-validation (Stone 1974): the training images divided into parts, of which one is held out.
Torch-free."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from engine.contract.folds import fold_of
from engine.data.files import Files
from engine.data.formats.labels_table import LabelSplit
from engine.data.formats.splitting import keys, select, strata
from engine.data.splits import FileSplit, IdxSplit, Recognised, hash_order, wrong


def with_fold(found: Recognised, folder: str, fold: str, seed: int) -> Recognised:
    """What was found in `folder`, with the part `fold` of the training images for validation: "2/5" is the second of
    five.

    Each image is in one of the parts, and each class spread evenly over them. A validation split that was drawn from
    the training images is part of these; one of the folder's own stays out of it.
    """
    parts = fold_of(fold)
    train: Any = found.train
    val: Any = found.val
    if parts is None or not isinstance(train, FileSplit | IdxSplit | LabelSplit):
        message = f"A dataset of the format “{found.format}” has no fold “{fold}”."
        return replace(found, problems=(*found.problems, wrong(message, "Leave the fold empty.")))
    number, count = parts
    whole = _joined(train, val) if val.made else train
    labels = strata(whole)
    held_out = np.zeros(len(labels), bool)
    held_out[hash_order(keys(whole, folder), labels, seed)[number - 1 :: count]] = True
    if held_out.all() or not held_out.any():
        message = f"{len(labels)} images can't be divided into {count} folds."
        return replace(found, problems=(*found.problems, wrong(message, "Use fewer folds.")))
    return replace(found, train=select(whole, ~held_out), val=select(whole, held_out, made=True))


def _joined(train: Any, val: Any) -> Any:
    labels = np.concatenate([train.labels, val.labels])
    if isinstance(train, IdxSplit):
        assert train.rows is not None
        return replace(train, labels=labels, rows=np.concatenate([train.rows, val.rows]))
    files = train.files.joined(val.files) if isinstance(train.files, Files) else [*train.files, *val.files]
    return replace(train, files=files, labels=labels)
