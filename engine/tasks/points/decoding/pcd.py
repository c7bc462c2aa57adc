"""Reader for the Point Cloud Library's PCD files: text, binary and compressed. Torch-free.

Sources: The PCD file format, pointclouds.org; Lehmann, LibLZF (the compression).
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from io import BytesIO, TextIOWrapper
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from engine.data.decoding.reading import Unfit
from engine.data.memory_limit import allow
from engine.system.regular_files import open_regular
from engine.tasks.points.decoding.fields import (
    AT_ONCE,
    FEATURES,
    MAX_DIGITS,
    MAX_HEADER_BYTES,
    Columns,
    Head,
    find_fields,
    integer_labels,
    require,
    stack,
)
from engine.tasks.points.decoding.tables import read_numbers

_TYPES = {"I": "i", "U": "u", "F": "f"}
_MAX_RATIO = 88
"""Largest compression ratio of LZF, which needs at least 3 bytes to encode a copy of 264 bytes."""
_PACKED = ("rgb", "rgba")
_SHIFTS = {"red": 16, "green": 8, "blue": 0}
"""Bit positions of the colors in a packed number."""

Values = npt.NDArray[np.generic]


class _Field(NamedTuple):
    name: str
    type: np.dtype[Any]
    repeats: int

    @property
    def size(self) -> int:
        """Size of this field in bytes per point."""
        return self.type.itemsize * self.repeats


class _Header(NamedTuple):
    fields: tuple[_Field, ...]
    points: int
    data: str
    """Encoding of the points: "ascii", "binary" or "binary_compressed"."""
    length: int
    """Length of the header in bytes."""

    @property
    def fields_by_meaning(self) -> dict[str, str]:
        """Mapping from the meanings in `find_fields` to field names.

        The meaning of a field with packed colors is "packed".
        """
        names = [field.name for field in self.fields]
        known = find_fields(names)
        packed = next((name for name in names if name.lower() in _PACKED), None)
        return known if packed is None or "red" in known else {**known, "packed": packed}

    @property
    def point_bytes(self) -> int:
        """Number of bytes per point."""
        return sum(field.size for field in self.fields)


def read_head(path: str) -> Head:
    """Return the number of points and their fields. Raises Unfit."""
    header = _read_header(path)
    known = header.fields_by_meaning
    colors = _SHIFTS.keys() if "packed" in known else ()
    features = tuple(name for name in FEATURES if name in known or name in colors)
    return Head(header.points, features, "label" in known)


def read_parts(path: str, features: Sequence[str], with_labels: bool) -> Iterator[Columns]:
    """Yield the points of a file in chunks. Raises Unfit."""
    require(read_head(path), features, with_labels)
    header = _read_header(path)
    known = header.fields_by_meaning
    colors = _SHIFTS if "packed" in known else {}
    read = {"ascii": _text, "binary": _binary, "binary_compressed": _compressed}[header.data]
    count = 0
    for fields in read(path, header):
        positions = np.stack([fields[known[axis]] for axis in "xyz"], 1).astype(np.float64)
        columns = [
            (_bits(fields[known["packed"]]) >> colors[name]) & 0xFF if name in colors else fields[known[name]]
            for name in features
        ]
        labels = integer_labels(fields[known["label"]]) if with_labels else np.zeros(len(positions), np.int64)
        count += len(positions)
        yield positions, stack(columns, len(positions)), labels
    if count < header.points:
        raise Unfit(f"it is truncated: its header announces {header.points:,} points, it has {count:,}")


def _read_header(path: str) -> _Header:
    """Read the header of a PCD file. Raises Unfit if it is invalid or announces more points than the file can hold."""
    with open_regular(path) as stream:
        head, length = stream.read(MAX_HEADER_BYTES), os.fstat(stream.fileno()).st_size
    if not head:
        raise Unfit("it is empty")
    entries: dict[str, list[str]] = {}
    at = 0
    while "DATA" not in entries:
        end = head.find(b"\n", at)
        if end < 0:
            raise Unfit("it is not a PCD file")
        key, *values = head[at:end].decode("ascii", "replace").split() or ("#",)
        at = end + 1
        if not key.startswith("#"):
            entries[key.upper()] = values
    header = _parse_header(entries, at)
    min_bytes = {"ascii": 2 * len(header.fields), "binary": header.point_bytes, "binary_compressed": 0}[header.data]
    if header.points * min_bytes > length - header.length + 1:
        raise Unfit("it is truncated: its header announces more points than there are")
    return header


def _parse_header(entries: Mapping[str, list[str]], length: int) -> _Header:
    """Parse the entries of a header. Raises Unfit if they are inconsistent or unsupported."""
    names = entries.get("FIELDS") or entries.get("COLUMNS") or []
    sizes, types = entries.get("SIZE", []), entries.get("TYPE", [])
    counts = entries.get("COUNT", ["1"] * len(names))
    data = entries["DATA"][0].lower() if entries["DATA"] else ""
    if not len(names) == len(sizes) == len(types) == len(counts):
        raise Unfit("FIELDS, SIZE, TYPE and COUNT in its header differ in length")
    if data not in ("ascii", "binary", "binary_compressed"):
        raise Unfit("its header gives another DATA than ascii, binary or binary_compressed")
    fields = []
    for name, size, kind, count in zip(names, sizes, types, counts, strict=True):
        if kind.upper() not in _TYPES or size not in ("1", "2", "4", "8") or (kind.upper() == "F" and size == "1"):
            raise Unfit(f"its field {name} is of the unknown type {kind}{size}")
        fields.append(_Field(name, np.dtype(f"<{_TYPES[kind.upper()]}{size}"), _parse_count("COUNT", count)))
    extent = [_parse_count(key, entries[key][0]) for key in ("WIDTH", "HEIGHT") if entries.get(key)]
    points = _parse_count("POINTS", entries["POINTS"][0]) if entries.get("POINTS") else int(np.prod(extent or [0]))
    header = _Header(tuple(fields), points, data, length)
    used = set(header.fields_by_meaning.values())
    if not {"x", "y", "z"} <= header.fields_by_meaning.keys():
        raise Unfit("its points have no x, y and z")
    if any(field.repeats != 1 for field in fields if field.name in used):
        raise Unfit("its header gives a COUNT other than 1 for a coordinate, color or label")
    return header


def _parse_count(key: str, text: str) -> int:
    if not text.isdecimal() or len(text) >= MAX_DIGITS:
        raise Unfit(f"{key} in its header is not a number")
    return int(text)


def _text(path: str, header: _Header) -> Iterator[dict[str, Values]]:
    """Yield the known fields of some points at a time from a file with text. A packed color becomes an integer."""
    used = sorted(set(header.fields_by_meaning.values()))
    columns = []
    for name in used:
        before = [field.name for field in header.fields].index(name)
        columns.append(sum(field.repeats for field in header.fields[:before]))
    types = {field.name: field.type for field in header.fields}
    with open_regular(path) as binary:
        binary.seek(header.length)
        with TextIOWrapper(binary, "ascii", "replace") as text:
            lines = (line for line in text if not line.isspace())
            for numbers in read_numbers(lines, columns, None):
                fields: dict[str, Values] = dict(zip(used, numbers.T, strict=True))
                packed = header.fields_by_meaning.get("packed")
                if packed is not None and types[packed].kind != "f":
                    fields[packed] = np.nan_to_num(numbers[:, used.index(packed)]).astype(np.int64)
                yield fields


def _binary(path: str, header: _Header) -> Iterator[dict[str, Values]]:
    """Yield the fields of up to `AT_ONCE` points at a time from a file with uncompressed binary data."""
    offsets = np.cumsum([0, *(field.size for field in header.fields)]).tolist()
    used = {field.name: (field.type, at) for field, at in zip(header.fields, offsets, strict=False)}
    layout = np.dtype(
        {
            "names": list(used),
            "formats": [kind for kind, _ in used.values()],
            "offsets": [at for _, at in used.values()],
            "itemsize": header.point_bytes,
        }
    )
    remaining = header.points
    with open_regular(path) as stream:
        stream.seek(header.length)
        while remaining and (content := stream.read(min(remaining, AT_ONCE) * header.point_bytes)):
            points = np.frombuffer(content, layout, len(content) // header.point_bytes)
            remaining -= len(points)
            yield {name: points[name] for name in used}


def _compressed(path: str, header: _Header) -> Iterator[dict[str, Values]]:
    """Yield all points of a compressed file at once, as arrays by field name.

    The file stores its fields one after the other, each for all points.
    """
    with open_regular(path) as stream:
        stream.seek(header.length)
        sizes = stream.read(8)
        if len(sizes) < 8:
            raise Unfit("it is truncated")
        packed, unpacked = np.frombuffer(sizes, "<u4").tolist()
        if unpacked != header.points * header.point_bytes:
            raise Unfit("its header announces another number of points than its compressed data")
        content = stream.read(packed)
    if len(content) < packed:
        raise Unfit("it is truncated")
    if unpacked > _MAX_RATIO * packed:
        raise Unfit("its compressed points are damaged")
    allow(2 * unpacked)
    data = _decompress(content, unpacked)
    fields, at = {}, 0
    for field in header.fields:
        if field.repeats == 1:
            fields[field.name] = np.frombuffer(data, field.type, header.points, at)
        at += field.size * header.points
    yield fields


def _decompress(content: bytes, size: int) -> bytearray:
    """Decompress LZF data. Raises Unfit unless the result has `size` bytes."""
    found, stream = bytearray(), BytesIO(content)
    while len(found) <= size and (code := stream.read(1)):
        control = code[0]
        if control < 32:
            found += stream.read(control + 1)
            continue
        length = control >> 5
        rest = stream.read(2 if length == 7 else 1)
        if not rest:
            break
        length += 2 + (rest[0] if length == 7 else 0)
        distance = ((control & 31) << 8) + rest[-1] + 1
        if distance > len(found):
            break
        piece = found[-distance:][:length]
        found += piece if len(piece) == length else (piece * (length // distance + 1))[:length]
    if len(found) != size:
        raise Unfit("its compressed points are damaged")
    return found


def _bits(packed: Values) -> npt.NDArray[np.uint32]:
    """Convert packed colors to integers. PCL stores the bits of these integers as floating-point numbers."""
    return packed.astype("<f4").view("<u4") if packed.dtype.kind == "f" else packed.astype(np.uint32)
