"""Read point clouds from files of all known types, with the labels of the points. Torch-free."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from engine.data.decoding.reading import Unfit
from engine.data.splits import Labels
from engine.tasks.points.decoding import (
    las,
    pcd,
    ply,
    rooms,
    tables,
    velodyne,
)
from engine.tasks.points.decoding.fields import Columns, Fields, Head, Points

EXTENSIONS = frozenset({".ply", ".las", ".laz", ".pcd", ".xyz", ".asc"})
"""File extensions that are used only for point clouds."""
TABLES = frozenset({".xyz", ".asc", ".txt", ".csv"})
SCANS = frozenset({".bin"})
"""File extensions of scans by Velodyne sensors."""
UNSURE = frozenset({".txt", ".csv", ".bin"})
"""File extensions that are used for point clouds and for other files."""

_Chunk = tuple[npt.NDArray[np.float64], Points, Labels, Labels]
"""Positions [n, 3], features [n, f], labels [n], and indices in the file [n] of some points."""


class Cloud(NamedTuple):
    """Points in a file, excluding points without a position.

    Attributes:
        positions: Coordinates in the unit of the file, relative to the center of their bounding box, float32 [n, 3].
        features: Values of the requested features, float32 [n, f].
        labels: Labels, int64 [n], or zeros if none were requested.
        rows: Indices of the points in the file, int64 [n].
    """

    positions: Points
    features: Points
    labels: Labels
    rows: Labels


class _Reader(NamedTuple):
    head: Callable[[str], Head]
    parts: Callable[[str, Sequence[str], bool], Iterator[Columns]]
    fields: Callable[[str], Fields] | None = None
    """Function that reads only the fields, or None if `head` is as fast.

    It is used for files whose points must be counted.
    """


_LAS = _Reader(las.read_head, las.read_parts)
_TABLE = _Reader(tables.read_head, tables.read_parts, tables.read_fields)
_ROOM = _Reader(rooms.read_head, rooms.read_parts, rooms.read_fields)
_READERS = {
    ".ply": _Reader(ply.read_head, ply.read_parts),
    ".las": _LAS,
    ".laz": _LAS,
    ".pcd": _Reader(pcd.read_head, pcd.read_parts),
    **dict.fromkeys(SCANS, _Reader(velodyne.read_head, velodyne.read_parts)),
    **dict.fromkeys(TABLES, _TABLE),
}


def is_cloud(path: str) -> bool:
    """Return True if a file is a point cloud, judging by its extension.

    If the extension is one of `UNSURE`, the content decides.
    """
    ending = _ending(path)
    if ending in SCANS:
        return velodyne.is_scan(path)
    if ending not in UNSURE:
        return ending in EXTENSIONS
    if os.path.basename(os.path.dirname(path)) == rooms.ANNOTATIONS:
        return False  # the labels of a room, which are read with the room's file
    try:
        read_fields(path)
    except (Unfit, ValueError, OSError):
        return False
    return True


def is_las(path: str) -> bool:
    """Return True if a file is LAS or LAZ, judging by its extension."""
    return _ending(path) in (".las", ".laz")


def is_upright(path: str) -> bool:
    """Return True if z is known to be the height of the points in this file."""
    return is_las(path) or _ending(path) in SCANS


def read_fields(path: str) -> Fields:
    """Return the fields of the points in a file. Raises Unfit, OSError, and exceptions of laspy."""
    reader = _reader(path)
    if reader.fields is not None:
        return reader.fields(path)
    head = reader.head(path)
    return Fields(head.features, head.has_labels)


def read_head(path: str) -> Head:
    """Return the number of points in a file and their fields. Raises Unfit, OSError, and exceptions of laspy."""
    return _reader(path).head(path)


def read_cloud(path: str, features: Sequence[str], *, with_labels: bool = True) -> Cloud:
    """Read all points in a file, with the requested features, and with labels if `with_labels` is True.

    Raises Unfit, and nearly any other exception, since readers may raise anything for a broken file.
    """
    parts = zip(*read_parts(path, features, with_labels=with_labels), strict=True)
    positions, columns, labels, rows = (np.concatenate(each) for each in parts)
    positions = (
        positions - (positions.min(0) + positions.max(0)) / 2
    )  # survey coordinates have more digits than float32
    return Cloud(positions.astype(np.float32), np.nan_to_num(columns), labels, rows)


def count_labels(path: str) -> tuple[Labels, Labels]:
    """Return the sorted labels in a file, and the number of points with each label: both int64 [k].

    Only a chunk of the points is in memory at any time. Raises the same exceptions as `read_cloud`.
    """
    counts: Counter[int] = Counter()
    for _, _, labels, _ in read_parts(path, ()):
        values, count = np.unique(labels, return_counts=True)
        counts.update(dict(zip(values.tolist(), count.tolist(), strict=True)))
    values_found = sorted(counts)
    return np.array(values_found, np.int64), np.array([counts[value] for value in values_found], np.int64)


def read_parts(path: str, features: Sequence[str], *, with_labels: bool = True) -> Iterator[_Chunk]:
    """Yield the points of a file in chunks, with the requested features, and with labels if `with_labels` is True.

    Points that have no position are skipped. Raises Unfit if none has a position.
    """
    first, has_points = 0, False
    for positions, columns, labels in _reader(path).parts(path, features, with_labels):
        rows = np.arange(first, first := first + len(labels))
        is_valid = np.isfinite(positions).all(1)
        has_points |= bool(is_valid.any())
        chunk = (positions, columns, labels, rows)
        yield chunk if is_valid.all() else tuple(each[is_valid] for each in chunk)  # type: ignore[misc]
    if not has_points:
        raise Unfit("it has no points")


def _ending(path: str) -> str:
    return os.path.splitext(path)[1].lower()


def _reader(path: str) -> _Reader:
    """Return the reader for the type of a file, determined by its extension.

    A file with an unknown extension is read as PLY, and its reader reports that it isn't PLY.
    """
    ending = _ending(path)
    return _ROOM if ending in TABLES and rooms.is_room(path) else _READERS.get(ending, _READERS[".ply"])
