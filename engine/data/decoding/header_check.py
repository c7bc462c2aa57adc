"""Check if an image file is complete from its first and last bytes, which is a hundred times as fast as decoding it."""

from __future__ import annotations

import os
import re
import struct
from collections.abc import Callable
from io import BytesIO
from typing import NamedTuple

from engine.data.decoding.deep import NUMPY, read_array_facts, read_pnm_header
from engine.data.decoding.limits import MAX_PIXELS, Unfit

HEAD_BYTES = 4096
END_BYTES = 12
MAX_SEGMENTS = 1000
"""Number of segments of a JPEG, or boxes of an AVIF or HEIF file, that are read. Only hostile files have more."""
_READ = os.O_RDONLY | getattr(os, "O_BINARY", 0) | getattr(os, "O_NONBLOCK", 0)
"""Flags for opening a file without waiting.

With these flags, opening a FIFO returns immediately. A FIFO then fails the check, as it is not a regular file.
"""

_JPEG_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
"""Possible markers of the JPEG segment that contains the height and width (ITU-T T.81, table B.1).

The three excluded markers have other meanings.
"""


_SIZE_OF_BMFF = re.compile(rb"ispe")
"""Pattern for the type of the box that contains the image size in AVIF and HEIF files.

After the type come 4 bytes with the version and flags, then the width and the height.
"""


class _Signature(NamedTuple):
    """Signature of one image format: the bytes at the beginning and at the end of a complete file.

    `count_pixels(head, descriptor)` returns the number of pixels, given the first bytes and the descriptor of a file,
    or 0 for an incomplete file.
    """

    begin: bytes
    end: bytes
    count_pixels: Callable[[bytes, int], int]
    offset: int = 0
    """Position in the file of the bytes `begin`."""


def seems_complete(path: str) -> bool:
    """Return True if a file begins and ends like a complete image and has an acceptable number of pixels.

    If the result is False, only decoding can show if the file is readable. Formats without an end marker, such as TGA
    and BMP, always return False.
    """
    try:
        descriptor = os.open(path, _READ)
    except OSError:
        return False
    try:
        head = os.read(descriptor, HEAD_BYTES)
        os.lseek(descriptor, -END_BYTES, os.SEEK_END)
        end = os.read(descriptor, END_BYTES)
        for signature in _SIGNATURES:
            if head.startswith(signature.begin, signature.offset):
                return end.endswith(signature.end) and 0 < signature.count_pixels(head, descriptor) <= MAX_PIXELS
        return False
    except (OSError, struct.error, IndexError, Unfit, ValueError):  # the header is truncated or missing
        return False
    finally:
        os.close(descriptor)


def _count_jpeg_pixels(head: bytes, descriptor: int) -> int:
    """Return the number of pixels that the header of a JPEG declares, or 0 if it is not found.

    `head` are the first bytes. More are read from `descriptor` where metadata are long.
    """
    # Positions in the file of the next segment, which follows the marker SOI of 2 bytes, and of `head`.
    segment, start = 2, 0
    for _ in range(MAX_SEGMENTS):
        first_byte, marker = head[segment - start], head[segment - start + 1]
        if first_byte != 0xFF:  # not a segment
            break
        if marker in _JPEG_FRAMES:
            height, width = struct.unpack_from(">HH", head, segment - start + 5)
            return int(height * width)
        segment += 2 + int.from_bytes(head[segment - start + 2 : segment - start + 4])
        # The first 9 bytes of a segment suffice. They are beyond `head` after metadata, which may contain a thumbnail.
        if segment + 9 > start + len(head):
            start = os.lseek(descriptor, segment, os.SEEK_SET)
            head = os.read(descriptor, HEAD_BYTES)
    return 0


def _make_pixel_counter(layout: str, offset: int, marker: bytes = b"") -> Callable[[bytes, int], int]:
    """Return a function that reads the two sides of an image from its first bytes and returns their product.

    `layout` is the format of the sides (see `struct`), and `offset` their position after the first `marker`.
    """

    def count_pixels(head: bytes, _descriptor: int) -> int:
        width, height = struct.unpack_from(layout, head, head.index(marker) + offset)  # in either order
        return int(width * height)

    return count_pixels


def _count_bmff_pixels(head: bytes, descriptor: int) -> int:
    """Return the number of pixels in the largest image of an AVIF or HEIF file, or 0 if the file is incomplete.

    See `_Signature` for the arguments. Source: ISO/IEC 14496-12, section 4.2.
    """
    file_bytes = os.fstat(descriptor).st_size
    position = 0  # of the next box
    types: list[bytes] = []
    while position < file_bytes and len(types) < MAX_SEGMENTS:
        os.lseek(descriptor, position, os.SEEK_SET)
        box = os.read(descriptor, 16)
        (size,) = struct.unpack_from(">I", box)
        if size == 1:  # the size follows as 64 bits
            (size,) = struct.unpack_from(">Q", box, 8)
        if size < 8:
            return 0  # a box without a size extends to the end of the file, which may be truncated
        types.append(box[4:8])
        position += size
    if position != file_bytes or b"mdat" not in types:  # the box "mdat" holds the coded pixels
        return 0
    # Width and height follow the type of the box, its version and its flags.
    sizes = [struct.unpack_from(">II", head, found.end() + 4) for found in _SIZE_OF_BMFF.finditer(head)]
    return max((int(width * height) for width, height in sizes), default=0)


def _count_pnm_pixels(head: bytes, descriptor: int) -> int:
    """Return the number of pixels in a binary PGM or PPM file, or 0 if the file is incomplete.

    See `_Signature` for the arguments.
    """
    header = read_pnm_header(head)
    if header is None:
        return 0
    (width, height, largest), begin = header
    bands = 3 if head.startswith(b"P6") else 1
    value_bytes = 1 if largest < 256 else 2
    end = begin + width * height * bands * value_bytes
    return width * height if os.fstat(descriptor).st_size >= end else 0


def _count_array_pixels(head: bytes, descriptor: int) -> int:
    """Return the number of pixels in a NumPy file, or 0 if the file is incomplete.

    See `_Signature` for the arguments. Raises Unfit if the array is not an image.
    """
    stream = BytesIO(head)
    facts = read_array_facts(stream)
    end = stream.tell() + facts.height * facts.width * facts.bands * facts.kind.itemsize
    return facts.height * facts.width if os.fstat(descriptor).st_size >= end else 0


_SIGNATURES = (
    _Signature(b"\xff\xd8\xff", b"\xff\xd9", _count_jpeg_pixels),
    _Signature(b"\x89PNG\r\n\x1a\n", b"\0\0\0\0IEND\xaeB`\x82", _make_pixel_counter(">II", 16)),
    _Signature(b"GIF8", b";", _make_pixel_counter("<HH", 6)),
    _Signature(b"\0\0\0\x0cjP  \r\n\x87\n", b"\xff\xd9", _make_pixel_counter(">II", 4, marker=b"ihdr")),
    _Signature(b"ftyp", b"", _count_bmff_pixels, offset=4),
    _Signature(b"P5", b"", _count_pnm_pixels),
    _Signature(b"P6", b"", _count_pnm_pixels),
    _Signature(NUMPY, b"", _count_array_pixels),
)
