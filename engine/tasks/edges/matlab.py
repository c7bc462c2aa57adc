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
_MAX_DEPTH = 8
"""Maximum depth of nested cells and structs."""


def check_mat(content: bytes) -> None:
    """Raise Unfit if a MAT file contains less data than it announces, or unpacks to more than `MAX_BYTES`."""
    if len(content) < _HEADER_BYTES:
        raise Unfit("it is truncated" if content.startswith(b"MATLAB") else "it is not a MATLAB file")
    byte_order = ">" if content[126:128] == b"MI" else "<"
    remaining_bytes = MAX_BYTES
    for element_type, element in _iterate_elements(memoryview(content)[_HEADER_BYTES:], byte_order):
        if element_type == _COMPRESSED:
            unpacked = zlib.decompressobj().decompress(element, remaining_bytes + 1)
            remaining_bytes -= len(unpacked)
            if remaining_bytes < 0:
                raise Unfit(f"it unpacks to more than {MAX_BYTES:,} bytes")
            for inner_type, inner in _iterate_elements(memoryview(unpacked), byte_order):
                _check_element(inner_type, inner, byte_order, depth=0)
        else:
            _check_element(element_type, element, byte_order, depth=0)


def _check_element(element_type: int, content: memoryview, byte_order: str, depth: int) -> None:
    """Raise Unfit if an element of a MAT file declares an array larger than its content, or is nested too deeply.

    `element_type` and `content` are the type and the bytes of the element, `byte_order` is "<" or ">", and `depth` the
    level of nesting.
    """
    if element_type != _MATRIX:
        return
    if depth > _MAX_DEPTH:
        raise Unfit("it is nested too deeply")
    max_values = len(content)  # a cell, struct or number takes at least a byte
    for index, (inner_type, inner) in enumerate(_iterate_elements(content, byte_order)):
        # The first element holds the array's class. Sparse arrays store only values that are not 0.
        if index == 0 and len(inner) >= 4 and struct.unpack_from(f"{byte_order}I", inner)[0] & 0xFF == _SPARSE:
            max_values = MAX_PIXELS
        # The second element holds the dimensions.
        if index == 1 and inner_type == _DIMENSIONS:
            shape = struct.unpack(f"{byte_order}{len(inner) // 4}i", inner[: len(inner) // 4 * 4])
            if min(shape, default=0) < 0 or prod(shape) > max_values:
                raise Unfit(f"it declares an array of {' x '.join(map(str, shape))}")
        _check_element(inner_type, inner, byte_order, depth + 1)


def _iterate_elements(content: memoryview, byte_order: str) -> Iterator[tuple[int, memoryview]]:
    """Yield the type and content of consecutive data elements of a MAT file. Raises Unfit if one is truncated.

    `byte_order` is "<" or ">".
    """
    offset = 0
    while offset + 8 <= len(content):
        element_type, length = struct.unpack_from(f"{byte_order}II", content, offset)
        if small_bytes := element_type >> 16:  # up to four bytes are stored in the tag itself
            element_type, length, start, end = element_type & 0xFFFF, small_bytes, offset + 4, offset + 8
        else:
            start = offset + 8
            end = start + length + (-length % 8 if element_type != _COMPRESSED else 0)
        if start + length > len(content):
            raise Unfit("it is truncated")
        yield element_type, content[start : start + length]
        offset = end
