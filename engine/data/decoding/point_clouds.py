"""Reads point clouds: PLY, and LAS or LAZ, with what each point is labelled as. Torch-free."""

from __future__ import annotations

import logging
import os
import re
import struct
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from io import BufferedReader, TextIOWrapper
from itertools import takewhile
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from engine.data.decoding.reading import Unfit
from engine.data.splits import Labels
from engine.system.regular_files import open_regular

if TYPE_CHECKING:
    from laspy import LasReader

EXTENSIONS = frozenset({".ply", ".las", ".laz"})
LABELS = (
    "label", "labels", "class", "classification", "scalar_label", "scalar_labels", "scalar_class", "scalar_classification",
    "semantic", "sem_class", "category",
)  # fmt: skip
"""What people and programs call a point's class in a PLY file, in lower case; CloudCompare puts scalar_ before it."""
FEATURES = ("red", "green", "blue", "intensity", "return_number", "number_of_returns")
"""What may be known of a point besides its place, in the order in which it is given to a model."""
_ALIASES = {
    "r": "red",
    "g": "green",
    "b": "blue",
    "diffuse_red": "red",
    "diffuse_green": "green",
    "diffuse_blue": "blue",
}
_MOST_HEADER = 1 << 16
_MOST_DIGITS = 13
_AT_ONCE = 1 << 20
"""Points of a file that are read in one go."""
_BYTES = {
    name: int(size)
    for names, size in (
        (("char", "uchar", "int8", "uint8"), 1),
        (("short", "ushort", "int16", "uint16"), 2),
        (("int", "uint", "int32", "uint32", "float", "float32"), 4),
        (("double", "float64"), 8),
    )
    for name in names
}
"""What a number of each kind takes in a binary PLY."""
_LAS_LEAST_BYTES, _LAS_HEADER_BYTES, _VLR_BYTES = 227, 375, 54

Points = npt.NDArray[np.float32]
_Columns = tuple[npt.NDArray[np.float64], Points, Labels]
"""Positions [n, 3], features [n, f] and labels [n] of some points, zeros where none were asked for."""
_Part = tuple[npt.NDArray[np.float64], Points, Labels, Labels]
"""Positions [n, 3], features [n, f] and labels [n] of some points, and which of the file's points they are [n]."""


class Head(NamedTuple):
    """A file's header: the number of points, which of `FEATURES` they have, and whether they are labelled."""

    points: int
    features: tuple[str, ...]
    labelled: bool


class Cloud(NamedTuple):
    """The points of a file that have a position: float32 [n, 3], in the file's unit from their middle on; the
    features asked for, float32 [n, f]; their labels, int64 [n], zeros where none were asked for; and which point of
    the file each is, int64 [n]."""

    positions: Points
    features: Points
    labels: Labels
    rows: Labels


def is_cloud(name: str) -> bool:
    return os.path.splitext(name)[1].lower() in EXTENSIONS


def is_las(name: str) -> bool:
    """Whether a file is LAS or LAZ, in which z is the height."""
    return os.path.splitext(name)[1].lower() != ".ply"


def read_head(path: str) -> Head:
    """Without reading the points. Raises Unfit, or what laspy or the system raises."""
    return _las_head(path) if is_las(path) else _ply_head(path)[0]


def read_cloud(path: str, features: Sequence[str], *, labelled: bool = True) -> Cloud:
    """The whole file; without labels unless it is to be `labelled`. Raises Unfit, or nearly anything that a reader
    may raise for a broken file."""
    parts = zip(*_parts(path, features, labelled=labelled), strict=True)
    positions, columns, labels, rows = (np.concatenate(each) for each in parts)
    positions = (
        positions - (positions.min(0) + positions.max(0)) / 2
    )  # survey coordinates have more digits than float32
    return Cloud(positions.astype(np.float32), np.nan_to_num(columns), labels, rows)


def count_labels(path: str) -> tuple[Labels, Labels]:
    """The labels in a file, and how many points have each: int64 [k] both, in memory for some points of it. Raises as
    `read_cloud`."""
    counts: Counter[int] = Counter()
    for _, _, labels, _ in _parts(path, ()):
        values, count = np.unique(labels, return_counts=True)
        counts.update(dict(zip(values.tolist(), count.tolist(), strict=True)))
    there = sorted(counts)
    return np.array(there, np.int64), np.array([counts[value] for value in there], np.int64)


def _parts(path: str, features: Sequence[str], *, labelled: bool = True) -> Iterator[_Part]:
    """A file in parts, without the points that have no position. Raises Unfit where none has one."""
    first, some = 0, False
    for positions, columns, labels in (_las if is_las(path) else _ply)(path, features, labelled):
        rows = np.arange(first, first := first + len(labels))
        whole = np.isfinite(positions).all(1)
        some |= bool(whole.any())
        part = (positions, columns, labels, rows)
        yield part if whole.all() else tuple(each[whole] for each in part)  # type: ignore[misc]
    if not some:
        raise Unfit("it has no points")


# PLY (Turk: The PLY Polygon File Format, 1994)


def _ply_head(path: str) -> tuple[Head, bool]:
    """And whether the points are written as text."""
    with open_regular(path) as stream:
        begun, length = stream.read(_MOST_HEADER), os.fstat(stream.fileno()).st_size
    line_end = re.match(rb"ply(\r\n|\r|\n)", begun)
    lines = iter(begun.split(line_end[1]) if line_end is not None else ())
    header = [
        line.decode("ascii", "replace").split() for line in takewhile(lambda line: line.strip() != b"end_header", lines)
    ]
    if next(lines, None) is None:
        raise Unfit("it is empty" if not begun else "it is not a PLY file")
    text = True
    elements: list[tuple[str, int, list[tuple[list[str], str]]]] = []
    for words in header:
        match words:
            case ["format", kind, *_]:
                text = kind == "ascii"
            case ["element", name, number] if number.isdecimal() and len(number) < _MOST_DIGITS:
                elements.append((name, int(number), []))
            case ["element", *_]:
                raise Unfit("its header gives counts that are not numbers")
            case ["property", *kind, name] if elements:
                elements[-1][2].append((kind, name))
    # A number in text has a digit and what parts it from the next; of a list nothing but its length is there for sure.
    least = sum(
        count * sum(2 if text else _BYTES.get(kind[-2 if "list" in kind else -1], 1) for kind, _ in properties if kind)
        for _, count, properties in elements
    )
    if least > length:
        raise Unfit("it is truncated")
    count, properties = next(((count, properties) for name, count, properties in elements if name == "vertex"), (0, []))
    known = _columns([name for _, name in properties])
    if not {"x", "y", "z"} <= known.keys():
        raise Unfit("its points have no x, y and z")
    return Head(count, tuple(name for name in FEATURES if name in known), "label" in known), text


def _columns(names: Sequence[str]) -> dict[str, str]:
    """A vertex's properties by what they are: x, y, z, those of `FEATURES`, and "label"."""
    lower = {name.lower(): name for name in reversed(names)}
    found = {name: lower[name] for name in ("x", "y", "z", *FEATURES) if name in lower}
    for alias, name in _ALIASES.items():
        if alias in lower:
            found.setdefault(name, lower[alias])
    if "intensity" not in found and "scalar_intensity" in lower:
        found["intensity"] = lower["scalar_intensity"]
    label = next((lower[name] for name in LABELS if name in lower), None)
    return found if label is None else {**found, "label": label}


def _ply(path: str, features: Sequence[str], labelled: bool) -> Iterator[_Columns]:
    from plyfile import PlyData

    head, text = _ply_head(path)
    _need(head, features, labelled)
    with open_regular(path) as binary, TextIOWrapper(binary, "ascii") if text else binary as stream:
        data = PlyData.read(stream, mmap="r")["vertex"].data
    known = _columns(data.dtype.names)
    for first in range(0, len(data), _AT_ONCE):
        part = data[first : first + _AT_ONCE]
        positions = np.stack([part[known[name]] for name in "xyz"], 1).astype(np.float64)
        labels = _whole(part[known["label"]]) if labelled else np.zeros(len(part), np.int64)
        yield positions, _stacked([part[known[name]] for name in features], len(part)), labels


def _whole(values: npt.NDArray[np.generic]) -> Labels:
    """Labels as int64; CloudCompare writes them as floating-point numbers, and no number where there is none."""
    if not np.issubdtype(values.dtype, np.floating):
        return values.astype(np.int64)
    numbers = np.nan_to_num(values.astype(np.float64), nan=-1.0)
    if (numbers != np.round(numbers)).any():
        raise Unfit("its labels are not whole numbers")
    return numbers.astype(np.int64)


# LAS (ASPRS: LAS Specification 1.4)


def _las_head(path: str) -> Head:
    with _open_las(path) as reader:
        names = set(reader.header.point_format.dimension_names)
        return Head(reader.header.point_count, tuple(name for name in FEATURES if name in names), True)


def _las(path: str, features: Sequence[str], labelled: bool) -> Iterator[_Columns]:
    _need(_las_head(path), features, labelled)
    count = 0
    with _open_las(path) as reader:
        for points in reader.chunk_iterator(_AT_ONCE):
            labels: Labels = np.asarray(points.classification).astype(np.int64)
            positions = np.stack([np.asarray(points.x), np.asarray(points.y), np.asarray(points.z)], 1)
            count += len(labels)
            yield positions, _stacked([np.asarray(points[name]) for name in features], len(labels)), labels
        if count < reader.header.point_count:
            raise Unfit("it is truncated")


@contextmanager
def _open_las(path: str) -> Iterator[LasReader]:
    """Raises Unfit for a file that announces more than it holds: laspy would look for all of it."""
    import laspy

    logging.getLogger("laspy").setLevel(logging.CRITICAL)
    with open_regular(path) as stream:
        _check_las(stream)
        with laspy.open(stream, closefd=False, read_evlrs=False) as reader:
            yield reader


def _check_las(stream: BufferedReader) -> None:
    """By the header block of the specification, and the chunk table of LAZ (Isenburg: LASzip, 2013, section 6)."""
    length, head = os.fstat(stream.fileno()).st_size, stream.read(_LAS_HEADER_BYTES)
    if not head:
        raise Unfit("it is empty")
    if not head.startswith(b"LASF") or len(head) < _LAS_LEAST_BYTES:
        raise Unfit("it is not a LAS file")
    own, begin, records, kind, width, count = struct.unpack_from("<HIIBHI", head, 94)
    if head[25] >= 4 and len(head) == _LAS_HEADER_BYTES:
        (count,) = struct.unpack_from("<Q", head, 247)
    zipped = kind & 0xC0
    if begin > length or _VLR_BYTES * records > begin - own or (not zipped and count * width > length - begin):
        raise Unfit("it is truncated: its header announces more points than there are")
    if zipped and count:
        stream.seek(begin)
        (table,) = struct.unpack("<q", stream.read(8))
        if table == -1:  # it was written as a stream, and tells it at its end
            stream.seek(-8, os.SEEK_END)
            (table,) = struct.unpack("<q", stream.read(8))
        stream.seek(max(begin, min(table, length)))
        _, chunks = struct.unpack("<II", stream.read(8))
        if chunks * width > length:  # each holds its first point as it is
            raise Unfit("it is truncated: its header announces more points than there are")
    stream.seek(0)


def _need(head: Head, features: Sequence[str], labelled: bool) -> None:
    missing = [name for name in features if name not in head.features]
    if missing:
        raise Unfit(f"its points have no {', '.join(missing)}, unlike others")
    if labelled and not head.labelled:
        raise Unfit("its points have no label")


def _stacked(columns: Sequence[npt.NDArray[np.generic]], count: int) -> Points:
    if not columns:
        return np.empty((count, 0), np.float32)
    return np.stack([column.astype(np.float32) for column in columns], 1)
