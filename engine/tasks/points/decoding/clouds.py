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
TABLE_EXTENSIONS = frozenset({".xyz", ".asc", ".txt", ".csv"})
SCAN_EXTENSIONS = frozenset({".bin"})
"""File extensions of scans by Velodyne sensors."""
AMBIGUOUS = frozenset({".txt", ".csv", ".bin"})
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
    """Functions that read one type of point cloud file.

    Attributes:
        head: Reads the fields and the number of the points.
        chunks: Yields the points in chunks.
        fields: Reads the fields without counting the points, or None if `head` is as fast.
    """

    head: Callable[[str], Head]
    chunks: Callable[[str, Sequence[str], bool], Iterator[Columns]]
    fields: Callable[[str], Fields] | None = None


_LAS = _Reader(las.read_head, las.read_chunks)
_TABLE = _Reader(tables.read_head, tables.read_chunks, tables.read_fields)
_ROOM = _Reader(rooms.read_head, rooms.read_chunks, rooms.read_fields)
_READERS = {
    ".ply": _Reader(ply.read_head, ply.read_chunks),
    ".las": _LAS,
    ".laz": _LAS,
    ".pcd": _Reader(pcd.read_head, pcd.read_chunks),
    **dict.fromkeys(SCAN_EXTENSIONS, _Reader(velodyne.read_head, velodyne.read_chunks)),
    **dict.fromkeys(TABLE_EXTENSIONS, _TABLE),
}


def is_cloud(path: str) -> bool:
    """Return True if a file is a point cloud, judging by its extension.

    If the extension is one of `AMBIGUOUS`, the content decides.
    """
    extension = _get_extension(path)
    if extension in SCAN_EXTENSIONS:
        return velodyne.is_scan(path)
    if extension not in AMBIGUOUS:
        return extension in EXTENSIONS
    if os.path.basename(os.path.dirname(path)) == rooms.ANNOTATIONS:
        return False  # the labels of a room, which are read with the room's file
    try:
        read_fields(path)
    except (Unfit, ValueError, OSError):
        return False
    return True


def is_las(path: str) -> bool:
    """Return True if a file is LAS or LAZ, judging by its extension."""
    return _get_extension(path) in (".las", ".laz")


def is_upright(path: str) -> bool:
    """Return True if the z coordinate of the points in a file is known to be their height."""
    return is_las(path) or _get_extension(path) in SCAN_EXTENSIONS


def read_fields(path: str) -> Fields:
    """Return the fields of the points in a file. Raises Unfit, OSError, and exceptions of laspy."""
    reader = _choose_reader(path)
    if reader.fields is not None:
        return reader.fields(path)
    head = reader.head(path)
    return Fields(head.features, head.has_labels)


def read_head(path: str) -> Head:
    """Return the number of points in a file and their fields. Raises Unfit, OSError, and exceptions of laspy."""
    return _choose_reader(path).head(path)


def read_cloud(path: str, features: Sequence[str], *, with_labels: bool = True) -> Cloud:
    """Read all points in a file, with the requested features, and with labels if `with_labels` is True.

    Raises Unfit, and nearly any other exception, since readers may raise anything for a broken file.
    """
    chunks = zip(*read_chunks(path, features, with_labels=with_labels), strict=True)
    positions, columns, labels, rows = (np.concatenate(each) for each in chunks)
    # Survey coordinates have more digits than float32.
    positions = positions - (positions.min(0) + positions.max(0)) / 2
    return Cloud(positions.astype(np.float32), np.nan_to_num(columns), labels, rows)


def count_labels(path: str) -> tuple[Labels, Labels]:
    """Return the sorted labels in a file, and the number of points with each label: both int64 [k].

    Only a chunk of the points is in memory at any time. Raises the same exceptions as `read_cloud`.
    """
    counts: Counter[int] = Counter()
    for _, _, labels, _ in read_chunks(path, ()):
        chunk_labels, chunk_counts = np.unique(labels, return_counts=True)
        counts.update(dict(zip(chunk_labels.tolist(), chunk_counts.tolist(), strict=True)))
    sorted_labels = sorted(counts)
    return np.array(sorted_labels, np.int64), np.array([counts[label] for label in sorted_labels], np.int64)


def read_chunks(path: str, features: Sequence[str], *, with_labels: bool = True) -> Iterator[_Chunk]:
    """Yield the points of a file in chunks: positions [n, 3], features [n, f], labels [n] and indices in the file [n].

    If `with_labels` is False, the labels are 0. Points without a position are skipped. Raises Unfit if no point has a
    position.
    """
    first_row, has_points = 0, False
    for positions, columns, labels in _choose_reader(path).chunks(path, features, with_labels):
        rows = np.arange(first_row, first_row + len(labels))
        first_row += len(labels)
        is_valid = np.isfinite(positions).all(1)
        has_points |= bool(is_valid.any())
        chunk = (positions, columns, labels, rows)
        yield chunk if is_valid.all() else tuple(each[is_valid] for each in chunk)  # type: ignore[misc]
    if not has_points:
        raise Unfit("it has no points")


def _get_extension(path: str) -> str:
    return os.path.splitext(path)[1].lower()


def _choose_reader(path: str) -> _Reader:
    """Return the reader for the type of a file, determined by its extension.

    A file with an unknown extension is read as PLY, and its reader reports that it isn't PLY.
    """
    extension = _get_extension(path)
    if extension in TABLE_EXTENSIONS and rooms.is_room(path):
        return _ROOM
    return _READERS.get(extension, _READERS[".ply"])
