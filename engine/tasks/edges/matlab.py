"""Check Matlab version 5 files before they are read. Torch-free.

A few bytes in such a file may announce billions of cells.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from math import prod

from engine.data.decoding.reading import MAX_PIXELS, Unfit

MAX_BYTES = 256 << 20
"""Largest size of an unpacked file in bytes: edges from eight annotators in an image of 30 megapixels."""
_HEADER_BYTES = 128
_DIMENSIONS, _MATRIX, _COMPRESSED = 5, 14, 15
_SPARSE = 5
"""Number of the array class for sparse arrays in Matlab, which store only nonzero values."""
_MAX_DEEP = 8
"""Maximum depth of nested cells and structs."""


def check_mat(content: bytes) -> None:
    """Raise Unfit if a file contains less data than it announces, or unpacks to more than `MAX_BYTES`."""
    if len(content) < _HEADER_BYTES:
        raise Unfit("it is not a MATLAB file")
    order = ">" if content[126:128] == b"MI" else "<"
    room = MAX_BYTES
    for kind, element in _elements(memoryview(content)[_HEADER_BYTES:], order):
        if kind == _COMPRESSED:
            unpacked = zlib.decompressobj().decompress(element, room + 1)
            room -= len(unpacked)
            if room < 0:
                raise Unfit(f"it unpacks to more than {MAX_BYTES:,} bytes")
            for inner_kind, inner in _elements(memoryview(unpacked), order):
                _check(inner_kind, inner, order, 0)
        else:
            _check(kind, element, order, 0)


def _check(kind: int, content: memoryview, order: str, depth: int) -> None:
    """Raise Unfit if an element declares an array larger than its content, or is nested too deeply.

    `kind` and `content` are the type and the bytes of the element, `order` is the byte order, and `depth` the level of
    nesting.
    """
    if kind != _MATRIX:
        return
    if depth > _MAX_DEEP:
        raise Unfit("it is nested too deeply")
    limit = len(content)  # a cell, struct or number takes at least a byte
    for number, (inner_kind, inner) in enumerate(_elements(content, order)):
        if number == 0 and len(inner) >= 4 and struct.unpack_from(f"{order}I", inner)[0] & 0xFF == _SPARSE:
            limit = MAX_PIXELS
        if number == 1 and inner_kind == _DIMENSIONS:
            shape = struct.unpack(f"{order}{len(inner) // 4}i", inner[: len(inner) // 4 * 4])
            if min(shape, default=0) < 0 or prod(shape) > limit:
                raise Unfit(f"it declares an array of {' x '.join(map(str, shape))}")
        _check(inner_kind, inner, order, depth + 1)


def _elements(content: memoryview, order: str) -> Iterator[tuple[int, memoryview]]:
    """Yield the type and content of consecutive data elements. Raises Unfit if one is truncated.

    `order` is the byte order, "<" or ">".
    """
    at = 0
    while at + 8 <= len(content):
        kind, length = struct.unpack_from(f"{order}II", content, at)
        if small := kind >> 16:  # up to four bytes are stored in the tag itself
            kind, length, start, end = kind & 0xFFFF, small, at + 4, at + 8
        else:
            start = at + 8
            end = start + length + (-length % 8 if kind != _COMPRESSED else 0)
        if start + length > len(content):
            raise Unfit("it is truncated")
        yield kind, content[start : start + length]
        at = end
