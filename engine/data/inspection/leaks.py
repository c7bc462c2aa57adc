"""Find leaks: validation and test samples that are also in the training split. Torch-free."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from engine.contract.problems import Problem
from engine.data.decoding.idx import Bytes, IdxError, read_idx
from engine.data.formats.shared.unpacking import name_within
from engine.data.inspection.contents import MAX_BYTES, Contents, digest
from engine.data.splits import IdxSplit, RecognizedDataset, dataset_warning, printable
from engine.system.regular_files import UnusableFile

NAMED = 3  # examples in a warning

Pair = tuple[str, str]
"""Names of a validation or test sample and of an identical training sample."""


def find_leaks(found: RecognizedDataset, folder: str, contents: Contents) -> list[Problem]:
    """Return warnings about validation and test samples that are copies of training samples.

    Only splits that consist of files and splits in idx files are compared. `contents` finds identical files, and can be
    shared with other checks.
    """
    problems: list[Problem] = []
    for name, title, subject in (("val", "validation", "validation"), ("test", "test", "the test")):
        if name in found.splits:
            problems += _report_leaks(found.splits[name], found.train, folder, contents, title=title, subject=subject)
    return problems


def _report_leaks(
    split: Any, train: Any, folder: str, contents: Contents, *, title: str, subject: str
) -> list[Problem]:
    """Return a warning if samples in `split` are copies of training samples, otherwise an empty list.

    `title` is the adjective for the split in the warning, such as "test". `subject` is the subject of "overrates the
    model" in the warning, such as "the test".
    """
    if isinstance(train, IdxSplit) and isinstance(split, IdxSplit):
        noun, count, copies = "images", len(split.labels), find_same_rows(train, split)
        names = copies[:NAMED]
    else:
        train_files, split_files = (getattr(each, "files", ()) for each in (train, split))
        noun, count, copies = "files", len(split_files), find_same_files(train_files, split_files, contents)
        names = [(name_within(copy, folder), name_within(original, folder)) for copy, original in copies[:NAMED]]
    if not copies:
        return []
    named = "; ".join(f"{copy} of {original}" for copy, original in names) + ("; …" if len(copies) > NAMED else "")
    are_copies = "1 is a copy of a training one" if len(copies) == 1 else f"{len(copies):,} are copies of training ones"
    message = f"Of the {count:,} {title} {noun}, {are_copies} ({named}), so {subject} overrates the model."
    if getattr(split, "is_drawn", False):
        remedy = "Remove the copies: the random split puts some of them into training and some into validation."
    else:
        remedy = "Remove the copies from one of the two splits."
    return [dataset_warning(message, remedy)]


def find_same_files(train: Sequence[str], val: Sequence[str], contents: Contents) -> list[Pair]:
    """Return the files in `val` that are identical to a file in `train`, each together with that file."""
    splits = np.repeat(np.array([0, 1]), [len(train), len(val)])
    pairs: list[tuple[int, int]] = []
    for indices in contents.find_equal([train, val], splits):
        # The indices ascend and count the files of train, then those of val. Each list has at least one of both.
        train_row = indices[0]
        pairs += [(index - len(train), train_row) for index in indices if index >= len(train)]
    return [(val[val_row], train[train_row]) for val_row, train_row in sorted(pairs)]


def find_same_rows(train: IdxSplit, val: IdxSplit) -> list[Pair]:
    """Return the images in `val` that are identical to an image in `train`, each together with that image.

    Both splits are in idx files. Returns [] if these are unreadable or very large.
    """
    try:
        opened = {path: read_idx(path) for path in dict.fromkeys((train.images, val.images))}
    except (IdxError, OSError, UnusableFile):
        return []  # the inspection of the files reports this error
    if sum(pixels.nbytes for pixels in opened.values()) > MAX_BYTES:
        return []
    rows_of_train, rows_of_val = (_iterate_rows(split, opened[split.images]) for split in (train, val))
    first_rows = {digest: row for row, digest in reversed(list(rows_of_train))}  # the first row replaces later ones
    train_name, val_name = (os.path.basename(split.images) for split in (train, val))
    return [
        (printable(f"{val_name} image {row}"), printable(f"{train_name} image {first_rows[digest]}"))
        for row, digest in rows_of_val
        if digest in first_rows
    ]


def _iterate_rows(split: IdxSplit, pixels: Bytes) -> Iterable[tuple[int, bytes]]:
    """Yield the row of each image of a split in its idx file, and a digest of its pixels."""
    rows = range(len(pixels)) if split.rows is None else split.rows.tolist()
    return ((row, digest(pixels[row].tobytes())) for row in rows)
