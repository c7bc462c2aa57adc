"""Read idx files, the format of MNIST: a big-endian header followed by bytes. Torch-free.

Source: yann.lecun.com/exdb/mnist.
"""

from __future__ import annotations

import math
import os
import re
import struct
import zlib
from typing import IO

import msgspec
import numpy as np
import numpy.typing as npt

from engine.system.regular_files import open_regular

Bytes = npt.NDArray[np.uint8]

_NAME = re.compile(
    r"(train|t10k|test|val|valid|validation)[-_.](images|labels)[-_.]idx([13])[-_.]ubyte(\.gz)?", re.IGNORECASE
)
_CHUNK_BYTES = 1 << 20
MAX_UNZIPPED_BYTES = 1 << 29
"""Maximum size in bytes of an unzipped idx file. Files that are not gzipped are memory-mapped and have no limit."""
_SUBFOLDERS = ("", "raw", "MNIST/raw", "FashionMNIST/raw")


class IdxError(ValueError):
    """Raised when an idx file can't be used. The message gives the reason without the file name."""


class IdxFiles(msgspec.Struct, frozen=True):
    """Paths of the idx files in a folder, with None for missing files."""

    train_images: str | None = None
    train_labels: str | None = None
    val_images: str | None = None
    val_labels: str | None = None


def find_idx(folder: str) -> IdxFiles | None:
    """Return the idx files in `folder`, or else in a subfolder that torchvision creates, or None if there are none.

    Test images ("t10k") are used for validation. If a file exists both plain and gzipped, the plain one is used.
    """
    for subfolder in _SUBFOLDERS:
        found: dict[str, str] = {}
        try:
            names = os.listdir(os.path.join(folder, subfolder))
        except OSError:
            continue
        for name in sorted(names, key=lambda name: not name.endswith(".gz")):  # plain files last, so that they are used
            match = _NAME.fullmatch(name)
            # The name contains the number of dimensions: 3 for images and 1 for labels.
            if match and (match[2].lower() == "images") == (match[3] == "3"):
                split = "train" if match[1].lower() == "train" else "val"
                field = f"{split}_{match[2].lower()}"  # of `IdxFiles`, such as "train_images"
                found[field] = os.path.join(folder, subfolder, name)
        if found:
            return IdxFiles(**found)
    return None


def read_idx(path: str) -> Bytes:
    """Return the array in an idx file of unsigned bytes. It is memory-mapped if the file is not gzipped.

    Raises IdxError if the file is invalid or truncated, and OSError if it can't be read.
    """
    try:
        with open_regular(path) as file:
            if path.lower().endswith(".gz"):
                return _unzip_array(_GzipMember(file))
            shape = _read_shape(file)
            expected = math.prod(shape)
            _check_length(os.fstat(file.fileno()).st_size - file.tell(), expected)
            if not expected:  # an empty file can't be mapped
                return np.empty(shape, np.uint8)
            return np.memmap(file, np.uint8, mode="r", offset=file.tell(), shape=shape)
    except (EOFError, zlib.error) as error:
        raise IdxError(f"its gzip stream is broken ({error})") from None
    except MemoryError:
        raise IdxError("it does not fit in memory; unpack it with gunzip, so that it can be read in parts") from None


def _read_shape(stream: IO[bytes] | _GzipMember) -> tuple[int, ...]:
    """Read the header of an idx file and return the shape of the array. Raises IdxError for an invalid header."""
    start = stream.read(4)  # two zeros, the type (8 for unsigned bytes), and the number of dimensions
    if len(start) < 4 or start[:3] != b"\0\0\x08" or not 1 <= start[3] <= 4:
        raise IdxError("it is not an idx file of unsigned bytes")
    dimensions = start[3]
    header = stream.read(4 * dimensions)
    if len(header) < 4 * dimensions:
        raise IdxError("it ends within its header")
    return struct.unpack(f">{dimensions}I", header)


def _unzip_array(stream: _GzipMember) -> Bytes:
    """Read the array in a gzipped idx file into memory. Raises IdxError if it is invalid, truncated or too large."""
    shape = _read_shape(stream)
    expected = math.prod(shape)
    if expected > MAX_UNZIPPED_BYTES:
        raise IdxError(f"it unpacks to {expected:,} bytes; unpack it with gunzip, so that it can be read in parts")
    # Read one more byte than announced to detect longer files, in chunks to avoid a second copy in memory.
    content = bytearray()
    while chunk := stream.read(min(_CHUNK_BYTES, expected + 1 - len(content))):
        content += chunk
    _check_length(len(content), expected)
    return np.frombuffer(content, np.uint8).reshape(shape)


class _GzipMember:
    """Reader for the first member of a gzip file.

    Bytes after the member are ignored, whereas Python's gzip module would read all of them. Raises EOFError or
    zlib.error for a damaged file.
    """

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._unpacker = zlib.decompressobj(zlib.MAX_WBITS | 16)  # with the header and checksum of gzip

    def read(self, size: int) -> bytes:
        """Return the next `size` uncompressed bytes, or fewer at the end of the gzip member."""
        unpacked = bytearray()
        while len(unpacked) < size and not self._unpacker.eof:
            # Packed bytes that `decompress` has not used yet, because it returns only as many bytes as requested.
            packed = self._unpacker.unconsumed_tail or self._file.read(_CHUNK_BYTES)
            chunk = self._unpacker.decompress(packed, size - len(unpacked))
            if not packed and not chunk:
                raise EOFError("it ends too early")
            unpacked += chunk
        return bytes(unpacked)


def _check_length(found: int, expected: int) -> None:
    """Raise IdxError if the number of bytes in an idx file differs from the number that its header announces."""
    if found < expected:
        raise IdxError(f"it is truncated: {expected:,} bytes announced, {found:,} found")
    if found > expected:
        raise IdxError("it is longer than its header announces")
