"""Whether a file is a whole image, judged by its first and last bytes: some hundred times as fast as decoding."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable
from typing import NamedTuple

from engine.data.decoding.reading import MAX_PIXELS

HEAD_BYTES = 4096
END_BYTES = 12
MAX_SEGMENTS = 1000
"""Of a JPEG before its image begins; more are there to keep a reader busy."""
_READ = os.O_RDONLY | getattr(os, "O_BINARY", 0) | getattr(os, "O_NONBLOCK", 0)
"""A FIFO is not waited for; that it has no end to be read shows as for all that is no regular file."""

_JPEG_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
"""Markers of the segment that tells a JPEG's height and width (ITU-T T.81, table B.1); those three mean other
things."""


class _Kind(NamedTuple):
    """How files of a format begin and end; `pixels(head, descriptor)` is width x height."""

    begin: bytes
    end: bytes
    pixels: Callable[[bytes, int], int]


def seems_whole(path: str) -> bool:
    """True for a JPEG, PNG or GIF that begins and ends as a whole one does, and is not too large.

    False says nothing yet: whether such a file can be read shows when it is decoded.
    """
    try:
        descriptor = os.open(path, _READ)
    except OSError:
        return False
    try:
        head = os.read(descriptor, HEAD_BYTES)
        os.lseek(descriptor, -END_BYTES, os.SEEK_END)
        end = os.read(descriptor, END_BYTES)
        for kind in _KINDS:
            if head.startswith(kind.begin):
                return end.endswith(kind.end) and 0 < kind.pixels(head, descriptor) <= MAX_PIXELS
        return False
    except (OSError, struct.error, IndexError):  # it ends before its header does
        return False
    finally:
        os.close(descriptor)


def _jpeg_pixels(head: bytes, descriptor: int) -> int:
    at, start = 2, 0
    for _ in range(MAX_SEGMENTS):
        mark, marker = head[at - start], head[at - start + 1]
        if mark != 0xFF:
            break
        if marker in _JPEG_FRAMES:
            height, width = struct.unpack_from(">HH", head, at - start + 5)
            return int(height * width)
        at += 2 + int.from_bytes(head[at - start + 2 : at - start + 4])
        if at + 9 > start + len(head):  # behind metadata, often with a small image of their own
            start = os.lseek(descriptor, at, os.SEEK_SET)
            head = os.read(descriptor, HEAD_BYTES)
    return 0


def _png_pixels(head: bytes, _: int) -> int:
    width, height = struct.unpack_from(">II", head, 16)
    return int(width * height)


def _gif_pixels(head: bytes, _: int) -> int:
    width, height = struct.unpack_from("<HH", head, 6)
    return int(width * height)


_KINDS = (
    _Kind(b"\xff\xd8\xff", b"\xff\xd9", _jpeg_pixels),
    _Kind(b"\x89PNG\r\n\x1a\n", b"\0\0\0\0IEND\xaeB`\x82", _png_pixels),
    _Kind(b"GIF8", b";", _gif_pixels),
)
