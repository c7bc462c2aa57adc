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
from engine.system.format import counted
from engine.system.regular_files import open_regular
from engine.tasks.points.decoding.fields import (
    CHUNK_POINTS,
    FEATURES,
    MAX_DIGITS,
    MAX_HEADER_BYTES,
    Columns,
    Head,
    convert_labels,
    find_fields,
    require_fields,
    stack_columns,
)
from engine.tasks.points.decoding.tables import read_numbers

_TYPES = {
    f"{code}{size}": np.dtype(f"<{code.lower()}{size}")
    for code in "IUF"
    for size in (1, 2, 4, 8)
    if code + str(size) != "F1"
}
"""Types of values, by the letter under TYPE and the number of bytes under SIZE in a header."""
_FIRST_COMMENT = b"# .PCD"
_KEYWORDS = {"VERSION", "FIELDS", "COLUMNS", "SIZE", "TYPE", "COUNT", "WIDTH", "HEIGHT", "VIEWPOINT", "POINTS"}
"""Keywords of the header before DATA, which ends it."""
_MAX_COMPRESSION_RATIO = 88
"""Largest compression ratio of LZF, which needs at least 3 bytes to encode a copy of 264 bytes."""
_PACKED_COLORS = ("rgb", "rgba")
_COLOR_SHIFTS = {"red": 16, "green": 8, "blue": 0}
"""Bit positions of the colors in a packed number."""

Values = npt.NDArray[np.generic]


class _Field(NamedTuple):
    """Field of the points: its name, the type of its values, and its number of values per point."""

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
        """Field names by meaning, such as "x" or "red" (see `find_fields`).

        The meaning of a field that stores a color in one number is "packed".
        """
        names = [field.name for field in self.fields]
        field_of = find_fields(names)
        packed = next((name for name in names if name.lower() in _PACKED_COLORS), None)
        return field_of if packed is None or "red" in field_of else {**field_of, "packed": packed}

    @property
    def point_bytes(self) -> int:
        """Number of bytes per point."""
        return sum(field.size for field in self.fields)


def read_head(path: str) -> Head:
    """Return the number of points in a PCD file and their fields. Raises Unfit."""
    header = _read_header(path)
    field_of = header.fields_by_meaning
    colors = _COLOR_SHIFTS.keys() if "packed" in field_of else ()
    features = tuple(name for name in FEATURES if name in field_of or name in colors)
    return Head(header.points, features, "label" in field_of)


def read_chunks(path: str, features: Sequence[str], with_labels: bool) -> Iterator[Columns]:
    """Yield the points of a PCD file in chunks: positions [n, 3], features [n, f] and labels [n].

    If `with_labels` is False, the labels are 0. Raises Unfit.
    """
    require_fields(read_head(path), features, with_labels)
    header = _read_header(path)
    field_of = header.fields_by_meaning
    color_shifts = _COLOR_SHIFTS if "packed" in field_of else {}
    read_data = {"ascii": _read_text, "binary": _read_binary, "binary_compressed": _read_compressed}[header.data]
    count = 0
    for fields in read_data(path, header):
        positions = np.stack([fields[field_of[axis]] for axis in "xyz"], 1).astype(np.float64)
        columns = [
            (_unpack_colors(fields[field_of["packed"]]) >> color_shifts[name]) & 0xFF
            if name in color_shifts
            else fields[field_of[name]]
            for name in features
        ]
        labels = convert_labels(fields[field_of["label"]]) if with_labels else np.zeros(len(positions), np.int64)
        count += len(positions)
        yield positions, stack_columns(columns, len(positions)), labels
    if count < header.points:
        raise Unfit(f"it is truncated: its header announces {counted(header.points, 'point')}, it has {count:,}")


def _read_header(path: str) -> _Header:
    """Read the header of a PCD file. Raises Unfit if it is invalid or announces more points than the file can hold."""
    with open_regular(path) as stream:
        content, file_bytes = stream.read(MAX_HEADER_BYTES), os.fstat(stream.fileno()).st_size
    if not content:
        raise Unfit("it is empty")
    entries: dict[str, list[str]] = {}
    line_start = 0
    while "DATA" not in entries:
        line_end = content.find(b"\n", line_start)
        if line_end < 0:
            if not entries.keys() & _KEYWORDS and not content.startswith(_FIRST_COMMENT):
                raise Unfit("it is not a PCD file")
            is_complete_file = len(content) < MAX_HEADER_BYTES
            raise Unfit(
                "it is truncated" if is_complete_file else f"its header has more than {MAX_HEADER_BYTES:,} bytes"
            )
        key, *values = content[line_start:line_end].decode("ascii", "replace").split() or ("#",)
        line_start = line_end + 1
        if not key.startswith("#"):
            entries[key.upper()] = values
    header = _parse_header(entries, line_start)
    min_bytes = {"ascii": 2 * len(header.fields), "binary": header.point_bytes, "binary_compressed": 0}[header.data]
    if header.points * min_bytes > file_bytes - header.length + 1:
        raise Unfit("it is truncated: its header announces more points than there are")
    return header


def _parse_header(entries: Mapping[str, list[str]], header_bytes: int) -> _Header:
    """Parse a header, given the words of each entry by keyword, such as "FIELDS", and its length in bytes.

    Raises Unfit if the entries are inconsistent or unsupported.
    """
    names = entries.get("FIELDS") or entries.get("COLUMNS") or []
    sizes, types = entries.get("SIZE", []), entries.get("TYPE", [])
    counts = entries.get("COUNT", ["1"] * len(names))
    encoding = entries["DATA"][0].lower() if entries["DATA"] else ""
    if not len(names) == len(sizes) == len(types) == len(counts):
        raise Unfit("FIELDS, SIZE, TYPE and COUNT in its header differ in length")
    if encoding not in ("ascii", "binary", "binary_compressed"):
        raise Unfit("its header gives another DATA than ascii, binary or binary_compressed")
    fields = []
    for name, size, type_code, count in zip(names, sizes, types, counts, strict=True):
        if f"{type_code}{size}".upper() not in _TYPES:
            raise Unfit(f"its field {name} is of the unknown type {type_code}{size}")
        fields.append(_Field(name, _TYPES[f"{type_code}{size}".upper()], _parse_count("COUNT", count)))
    sides = [_parse_count(key, entries[key][0]) for key in ("WIDTH", "HEIGHT") if entries.get(key)]
    points = _parse_count("POINTS", entries["POINTS"][0]) if entries.get("POINTS") else int(np.prod(sides or [0]))
    header = _Header(tuple(fields), points, encoding, header_bytes)
    used = set(header.fields_by_meaning.values())
    if not {"x", "y", "z"} <= header.fields_by_meaning.keys():
        raise Unfit("its points have no x, y and z")
    if any(field.repeats != 1 for field in fields if field.name in used):
        raise Unfit("its header gives a COUNT other than 1 for a coordinate, color or label")
    return header


def _parse_count(key: str, text: str) -> int:
    """Parse the number in the header's entry `key`. Raises Unfit for `MAX_DIGITS` or more digits, or for other text."""
    if not text.isdecimal() or len(text) >= MAX_DIGITS:
        raise Unfit(f"{key} in its header is not a number")
    return int(text)


def _read_text(path: str, header: _Header) -> Iterator[dict[str, Values]]:
    """Yield the points of a PCD file with text in chunks: the coordinates, features and labels by field name.

    Packed colors that the file stores as integers are converted to int64.
    """
    used = sorted(set(header.fields_by_meaning.values()))
    columns = []  # of the first value of each field, since a field may have several values
    for name in used:
        field_index = [field.name for field in header.fields].index(name)
        columns.append(sum(field.repeats for field in header.fields[:field_index]))
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


def _read_binary(path: str, header: _Header) -> Iterator[dict[str, Values]]:
    """Yield up to `CHUNK_POINTS` points at a time from a file with uncompressed data, as arrays by field name."""
    offsets = np.cumsum([0, *(field.size for field in header.fields)]).tolist()
    # Type and offset of each field by name, since NumPy rejects several fields with the same name.
    used = {field.name: (field.type, offset) for field, offset in zip(header.fields, offsets[:-1], strict=True)}
    layout = np.dtype(
        {
            "names": list(used),
            "formats": [field_type for field_type, _ in used.values()],
            "offsets": [offset for _, offset in used.values()],
            "itemsize": header.point_bytes,
        }
    )
    remaining = header.points
    with open_regular(path) as stream:
        stream.seek(header.length)
        while remaining and (content := stream.read(min(remaining, CHUNK_POINTS) * header.point_bytes)):
            points = np.frombuffer(content, layout, len(content) // header.point_bytes)
            remaining -= len(points)
            yield {name: points[name] for name in used}


def _read_compressed(path: str, header: _Header) -> Iterator[dict[str, Values]]:
    """Yield all points of a compressed file at once, as arrays by field name.

    The file stores its fields one after the other, each for all points.
    """
    with open_regular(path) as stream:
        stream.seek(header.length)
        sizes = stream.read(8)
        if len(sizes) < 8:
            raise Unfit("it is truncated")
        packed_bytes, unpacked_bytes = np.frombuffer(sizes, "<u4").tolist()
        if unpacked_bytes != header.points * header.point_bytes:
            raise Unfit("its header announces another number of points than its compressed data")
        content = stream.read(packed_bytes)
    if len(content) < packed_bytes:
        raise Unfit("it is truncated")
    if unpacked_bytes > _MAX_COMPRESSION_RATIO * packed_bytes:
        raise Unfit("its compressed points are damaged")
    allow(2 * unpacked_bytes)
    data = _decompress(content, unpacked_bytes)
    fields, offset = {}, 0
    for field in header.fields:
        if field.repeats == 1:
            fields[field.name] = np.frombuffer(data, field.type, header.points, offset)
        offset += field.size * header.points
    yield fields


def _decompress(content: bytes, size: int) -> bytearray:
    """Decompress LZF data. Raises Unfit unless the result has `size` bytes.

    The data consists of runs. A control byte below 32 announces up to 32 literal bytes. A larger one announces a copy
    of earlier output: its upper three bits hold the length, and the lower ones the beginning of the distance.
    """
    decompressed, stream = bytearray(), BytesIO(content)
    while len(decompressed) <= size and (control_byte := stream.read(1)):
        control = control_byte[0]
        if control < 32:
            decompressed += stream.read(control + 1)
            continue
        length = control >> 5
        operands = stream.read(2 if length == 7 else 1)
        if not operands:
            break
        length += 2 + (operands[0] if length == 7 else 0)
        distance = ((control & 31) << 8) + operands[-1] + 1
        if distance > len(decompressed):
            break
        copied = decompressed[-distance:][:length]
        if len(copied) < length:  # a copy that overlaps its result repeats the bytes
            copied = (copied * (length // distance + 1))[:length]
        decompressed += copied
    if len(decompressed) != size:
        raise Unfit("its compressed points are damaged")
    return decompressed


def _unpack_colors(packed: Values) -> npt.NDArray[np.uint32]:
    """Return the bits of packed colors as integers. PCL stores these bits as floating-point numbers."""
    return packed.astype("<f4").view("<u4") if packed.dtype.kind == "f" else packed.astype(np.uint32)
