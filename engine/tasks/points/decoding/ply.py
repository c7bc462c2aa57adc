"""Reader for PLY files (Turk: The PLY Polygon File Format, 1994). Torch-free."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from io import TextIOWrapper
from typing import NamedTuple

import numpy as np

from engine.data.decoding.reading import Unfit
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

_TYPE_BYTES = {
    name: int(size)
    for names, size in (
        (("char", "uchar", "int8", "uint8"), 1),
        (("short", "ushort", "int16", "uint16"), 2),
        (("int", "uint", "int32", "uint32", "float", "float32"), 4),
        (("double", "float64"), 8),
    )
    for name in names
}
"""Size in bytes of each number type in a binary PLY file."""


class _Element(NamedTuple):
    """Element in the header of a PLY file, such as "vertex".

    `properties` are the types and names of its properties. A type is a list of words: ["float"] for a number, or
    ["list", "uchar", "int"] for a list, with the type of its length and the type of its items.
    """

    name: str
    item_count: int
    properties: list[tuple[list[str], str]]

    def compute_min_bytes(self, *, is_text: bool) -> int:
        """Return the smallest number of bytes that the element can take in a file."""
        types = [words for words, _ in self.properties if words]
        if is_text:  # a number needs at least a digit and a separator, and an empty list only its length
            return self.item_count * 2 * len(types)
        sizes = (_TYPE_BYTES.get(words[-2 if "list" in words else -1], 1) for words in types)
        return self.item_count * sum(sizes)


def read_head(path: str) -> Head:
    """Return the number of points in a PLY file and their fields. Raises Unfit."""
    head, _ = _read_header(path)
    return head


def _read_header(path: str) -> tuple[Head, bool]:
    """Return the header of a PLY file, and True if its points are written as text. Raises Unfit."""
    with open_regular(path) as stream:
        content, file_bytes = stream.read(MAX_HEADER_BYTES), os.fstat(stream.fileno()).st_size
    elements, is_text = _parse_elements(_split_header(content))
    if sum(element.compute_min_bytes(is_text=is_text) for element in elements) > file_bytes:
        raise Unfit("it is truncated")
    points = next((element for element in elements if element.name == "vertex"), _Element("vertex", 0, []))
    field_of = find_fields([name for _, name in points.properties])
    if not {"x", "y", "z"} <= field_of.keys():
        raise Unfit("its points have no x, y and z")
    return Head(points.item_count, tuple(name for name in FEATURES if name in field_of), "label" in field_of), is_text


def _split_header(content: bytes) -> list[list[str]]:
    """Return the words of each line in the header of a PLY file.

    `content` are the first `MAX_HEADER_BYTES` of the file. Raises Unfit if they don't contain a complete header.
    """
    line_end = re.match(rb"ply(\r\n|\r|\n)", content)  # the file type, and the line ending of the header
    if line_end is None:
        raise Unfit("it is empty" if not content else "it is not a PLY file")
    lines = content.split(line_end[1])
    end = next((index for index, line in enumerate(lines) if line.strip() == b"end_header"), None)
    # A header's last line ends, too, so that another item follows it in `lines`.
    if end is None or end + 1 == len(lines):
        is_complete_file = len(content) < MAX_HEADER_BYTES
        raise Unfit("it is truncated" if is_complete_file else f"its header has more than {MAX_HEADER_BYTES:,} bytes")
    return [line.decode("ascii", "replace").split() for line in lines[:end]]


def _parse_elements(header: list[list[str]]) -> tuple[list[_Element], bool]:
    """Return the elements in a header, given as the words of its lines, and True if they are written as text.

    Raises Unfit.
    """
    is_text = True
    elements: list[_Element] = []
    for line in header:
        match line:
            case ["format", encoding, *_]:
                is_text = encoding == "ascii"
            case ["element", name, number] if number.isdecimal() and len(number) < MAX_DIGITS:
                elements.append(_Element(name, int(number), []))
            case ["element", *_]:
                raise Unfit("its header gives counts that are not numbers")
            case ["property", *type_words, name] if elements:
                elements[-1].properties.append((type_words, name))
    return elements, is_text


def read_chunks(path: str, features: Sequence[str], with_labels: bool) -> Iterator[Columns]:
    """Yield the points of a PLY file in chunks: positions [n, 3], features [n, f] and labels [n].

    If `with_labels` is False, the labels are 0. Raises Unfit and errors of plyfile.
    """
    from plyfile import PlyData

    head, is_text = _read_header(path)
    require_fields(head, features, with_labels)
    with open_regular(path) as binary, TextIOWrapper(binary, "ascii") if is_text else binary as stream:
        data = PlyData.read(stream, mmap="r")["vertex"].data
    field_of = find_fields(data.dtype.names)
    for first in range(0, len(data), CHUNK_POINTS):
        chunk = data[first : first + CHUNK_POINTS]
        positions = np.stack([chunk[field_of[name]] for name in "xyz"], 1).astype(np.float64)
        labels = convert_labels(chunk[field_of["label"]]) if with_labels else np.zeros(len(chunk), np.int64)
        yield positions, stack_columns([chunk[field_of[name]] for name in features], len(chunk)), labels
