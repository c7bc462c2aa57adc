"""Validation samples that training sees, too: files that are the same byte by byte, whatever they are called.
Torch-free.

An image that was saved anew, or cut out of the same photograph, is not found by this.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Sequence

import numpy as np

from engine.contract.problems import Problem
from engine.data.decoding.idx import Bytes, IdxError, read_idx
from engine.data.splits import IdxSplit, Recognised, shown, warn
from engine.system.regular_files import UnusableFile, open_descriptor

END_BYTES = 4096
"""So much of the beginning and of the end of files of the same size is compared before all of it: most differ there,
and a disk reads as much in one go."""
BLOCK_BYTES = 1 << 20
MOST_BYTES = 1 << 30
"""Larger files are not compared, nor are more bytes of images in one file: that takes seconds."""
NAMED = 3

Pair = tuple[str, str]
"""A validation sample and the training sample that it is a copy of, by names fit to print."""


def leaks(found: Recognised, folder: str) -> list[Problem]:
    """Says which samples of the dataset in `folder` are in both of its splits; nothing of splits that are not of "
    "files."""
    train, val = found.train, found.val
    if isinstance(train, IdxSplit) and isinstance(val, IdxSplit):
        noun, count, copies = "images", len(val.labels), same_rows(train, val)
    else:
        of_train, of_val = (getattr(split, "files", ()) for split in (train, val))
        noun, count, copies = "files", len(of_val), same_files(of_train, of_val, folder)
    if not copies:
        return []
    named = "; ".join(f"{one} of {other}" for one, other in copies[:NAMED]) + ("; …" if len(copies) > NAMED else "")
    are_copies = "1 is a copy of a training one" if len(copies) == 1 else f"{len(copies):,} are copies of training ones"
    message = f"Of the {count:,} validation {noun}, {are_copies} ({named}), so validation overrates the model."
    if getattr(val, "made", False):
        remedy = "Remove the copies: the random split puts some of them into training and some into validation."
    else:
        remedy = "Remove the copies from one of the two splits."
    return [warn(message, remedy)]


def same_files(train: Sequence[str], val: Sequence[str], folder: str) -> list[Pair]:
    """The files of `val` that hold what a file of `train` holds, in their order. Files that cannot be read are passed
    over.

    By size first, then by their ends, then by all of their bytes, so that of a hundred thousand photographs few are
    opened.
    """
    sizes_of_train, sizes_of_val = (np.fromiter(map(_size, files), np.int64, len(files)) for files in (train, val))
    shared = np.intersect1d(sizes_of_train, sizes_of_val)
    shared = shared[(shared > 0) & (shared <= MOST_BYTES)]
    of_train = np.flatnonzero(np.isin(sizes_of_train, shared)).tolist()
    of_val = np.flatnonzero(np.isin(sizes_of_val, shared)).tolist()
    in_train: dict[bytes, int] = {}
    in_val: dict[int, bytes] = {}
    for digest_of in (_digest_of_ends, _digest_of_all):
        by_index = _digests(train, of_train, digest_of)
        in_val = _digests(val, of_val, digest_of)
        there, wanted = set(by_index.values()), set(in_val.values())
        of_train = [index for index, digest in by_index.items() if digest in wanted]
        of_val = [index for index, digest in in_val.items() if digest in there]
        in_train = {by_index[index]: index for index in reversed(of_train)}
    return [(_name(val[index], folder), _name(train[in_train[in_val[index]]], folder)) for index in of_val]


def same_rows(train: IdxSplit, val: IdxSplit) -> list[Pair]:
    """As `same_files`, of images in idx files."""
    try:
        opened = {path: read_idx(path) for path in dict.fromkeys((train.images, val.images))}
    except (IdxError, OSError, UnusableFile):
        return []  # which whoever opens them tells
    if sum(pixels.nbytes for pixels in opened.values()) > MOST_BYTES:
        return []
    rows_of_train, rows_of_val = (_rows(split, opened[split.images]) for split in (train, val))
    first = {digest: row for row, digest in reversed(list(rows_of_train))}
    names = [os.path.basename(split.images) for split in (train, val)]
    return [
        (shown(f"{names[1]} image {row}"), shown(f"{names[0]} image {first[digest]}"))
        for row, digest in rows_of_val
        if digest in first
    ]


def _rows(split: IdxSplit, pixels: Bytes) -> Iterable[tuple[int, bytes]]:
    rows = range(len(pixels)) if split.rows is None else split.rows.tolist()
    return ((row, _hash(pixels[row].tobytes())) for row in rows)


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return 0


def _name(path: str, folder: str) -> str:
    return shown(os.path.relpath(path, folder))


def _digests(files: Sequence[str], indices: Sequence[int], digest_of: Callable[[str], bytes]) -> dict[int, bytes]:
    """By index, of those of the files at `indices` that can be read."""
    found = {}
    for index in indices:
        try:
            found[index] = digest_of(files[index])
        except (OSError, UnusableFile):
            continue  # which whoever looks at the files tells
    return found


def _digest_of_ends(path: str) -> bytes:
    descriptor = open_descriptor(path)
    try:
        begin = os.read(descriptor, END_BYTES)
        size = os.fstat(descriptor).st_size
        os.lseek(descriptor, max(size - END_BYTES, 0), os.SEEK_SET)
        return _hash(begin, os.read(descriptor, END_BYTES), size.to_bytes(8, "little"))
    finally:
        os.close(descriptor)


def _digest_of_all(path: str) -> bytes:
    digest = hashlib.blake2b(digest_size=16)
    descriptor = open_descriptor(path)
    try:
        while block := os.read(descriptor, BLOCK_BYTES):
            digest.update(block)
    finally:
        os.close(descriptor)
    return digest.digest()


def _hash(*parts: bytes) -> bytes:
    return hashlib.blake2b(b"".join(parts), digest_size=16).digest()
