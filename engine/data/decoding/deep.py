"""Read image files whose values Pillow can't read or would reduce to 8 bits. Torch-free.

These are PNG, PNM and JPEG 2000 files with more than 8 bits, and NumPy arrays.
"""

from __future__ import annotations

import math
import re
import struct
from io import BytesIO
from typing import IO, Any, NamedTuple

import numpy as np
import numpy.typing as npt
from PIL import Image

from engine.data.decoding.limits import MAX_PIXELS, MAX_VALUES, Unfit
from engine.system.format import counted

Values = npt.NDArray[Any]

NUMPY = b"\x93NUMPY"
_PNG = b"\x89PNG\r\n\x1a\n"
_JP2 = (b"\0\0\0\x0cjP  \r\n\x87\n", b"\xff\x4f\xff\x51")
_SIZE_OF_JP2 = b"\xff\x4f\xff\x51"
"""First bytes of a JPEG 2000 codestream: the markers SOC and SIZ (ITU-T T.800, annex A). The image size follows."""
_PNM = (b"P2", b"P3", b"P5", b"P6")
_PNM_HEADER = re.compile(rb"(?:\s|#[^\n]*(?:\n|\Z))*+(\d++)" * 3)
"""Pattern for the three numbers of a PNM header, with whitespace and comments before them."""
_PNG_BANDS = {0: 1, 2: 3, 4: 2, 6: 4}
"""Number of bands for each color type of PNG."""
_PNG_ALPHAS = (4, 6)
"""PNG color types whose last band is opacity."""
_HEAD_BYTES = 4096
COMPLEX_NUMBERS = "its values are complex numbers; save their magnitude and phase as bands instead"
"""Message for files with complex numbers."""
_MAX_CHANNELS = 4


class Facts(NamedTuple):
    """Facts about an image file from its header: size, number of bands, and number type of the values (`kind`).

    `largest` is the value for white, or None if the header does not determine it. `has_alpha` is True if the header
    declares the last band as opacity, and `is_white_zero` is True for gray values whose 0 is white (TIFF 6.0).
    """

    height: int
    width: int
    bands: int
    kind: np.dtype[Any]
    largest: int | None = None
    has_alpha: bool = False
    is_white_zero: bool = False

    @property
    def is_deep(self) -> bool:
        """True if the image's values don't fit into 8 bits."""
        return self.kind not in (np.uint8, np.bool_)


def is_array(content: bytes) -> bool:
    """Return True if `content` begins with the signature of a NumPy file."""
    return content.startswith(NUMPY)


def read_deep_facts(stream: IO[bytes]) -> Facts | None:
    """Return the facts about a NumPy array or an image with more than 8 bits, or None for any other file.

    Raises Unfit for an array that can't be an image.
    """
    head = stream.read(_HEAD_BYTES)
    if is_array(head):
        stream.seek(0)
        return read_array_facts(stream)
    if head.startswith(_PNG) and len(head) > 25 and head[24] == 16:  # the bit depth
        width, height, color = int.from_bytes(head[16:20]), int.from_bytes(head[20:24]), head[25]
        return Facts(height, width, _PNG_BANDS.get(color, 1), np.dtype(np.uint16), 65535, color in _PNG_ALPHAS)
    if head.startswith(_JP2):
        return _read_jp2_facts(head)
    return _read_pnm_facts(head) if head.startswith(_PNM) else None


def read_deep(content: bytes, facts: Facts) -> Values:
    """Decode an image to its values [h, w, bands], given the facts from its header.

    Raises Unfit, and any exception of the decoder.
    """
    if facts.height * facts.width > MAX_PIXELS or facts.height * facts.width * facts.bands > MAX_VALUES:
        raise Unfit(f"it is too large ({facts.width:,} x {facts.height:,} pixels)")
    if is_array(content):
        values = _read_array(content)
    elif content.startswith(_PNG):
        from imagecodecs import png_decode

        values = png_decode(content)
    elif content.startswith(_JP2):
        from imagecodecs import jpeg2k_decode

        values = jpeg2k_decode(content)
    else:
        values = _read_pnm(content, facts)
    return values[:, :, None] if values.ndim == 2 else values


def _read_jp2_facts(head: bytes) -> Facts | None:
    """Return the facts in the header of a JPEG 2000 file with more than 8 bits, otherwise None.

    They are in the segment SIZ of its codestream (ITU-T T.800, table A.9).
    """
    start = head.find(_SIZE_OF_JP2)
    siz = head[start:] if start >= 0 else b""
    # The field Ssiz has a bit for the sign, and 7 bits for the bit depth minus 1.
    bits = (siz[42] & 0x7F) + 1 if len(siz) > 42 else 0
    if not 8 < bits <= 16:
        return None
    right, bottom, left, top, bands = struct.unpack_from(">4I16xH", siz, 8)
    return Facts(bottom - top, right - left, bands, np.dtype(np.uint16), (1 << bits) - 1)


def _read_pnm_facts(head: bytes) -> Facts | None:
    """Return size, channels and value range of a PGM or PPM file, or None if it has at most 8 bits per sample."""
    header = read_pnm_header(head)
    if header is None:
        return None
    (width, height, largest), _ = header
    if not 255 < largest <= 65535:
        return None
    return Facts(height, width, 3 if head[:2] in (b"P3", b"P6") else 1, np.dtype(np.uint16), largest)


def read_pnm_header(head: bytes) -> tuple[list[int], int] | None:
    """Return [width, height, largest value] from a PNM header and the offset of the first pixel value in the file.

    Returns None for a broken header.
    """
    match = _PNM_HEADER.match(head, 2)  # after the 2 bytes of the signature
    return (list(map(int, match.groups())), match.end() + 1) if match else None


def _read_pnm(content: bytes, facts: Facts) -> Values:
    """Return the values [h, w, bands] in a binary or text PNM with 16 bits. Raises Unfit if it is truncated."""
    header = read_pnm_header(content[:_HEAD_BYTES])
    assert header is not None
    start = header[1]
    count = facts.height * facts.width * facts.bands
    if content[:2] in (b"P5", b"P6"):
        if len(content) < start + 2 * count:
            raise Unfit("it is truncated")
        values = np.frombuffer(content, ">u2", count, start).astype(np.uint16)
    else:
        values = np.array(content[start:].split()[:count], np.uint16)
        if len(values) < count:
            raise Unfit("it is truncated")
    return values.reshape(facts.height, facts.width, facts.bands)


def read_array_header(stream: IO[bytes]) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """Read the header of a NumPy file and return the shape and number type of the array.

    Raises Unfit if the array does not contain real numbers.
    """
    readers = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
    read = readers.get(np.lib.format.read_magic(stream))
    if read is None:
        raise Unfit("its array is of a kind that is not an image")
    shape, _, kind = read(stream)
    if kind.hasobject:
        raise Unfit("it holds Python objects, which are never loaded; save the image as an array of numbers")
    if kind.kind == "c":
        raise Unfit(COMPLEX_NUMBERS)
    if kind.kind not in "uifb":
        raise Unfit(f"its array holds no numbers ({kind})")
    return shape, kind


def read_array_facts(stream: IO[bytes]) -> Facts:
    """Read the header of a NumPy file and return the facts about the image. `stream` is left at the first value.

    Raises Unfit if the array can't be an image.
    """
    shape, kind = read_array_header(stream)
    height, width, bands = _interpret_shape(shape)
    largest = int(np.iinfo(kind).max) if kind in (np.uint8, np.uint16) else None
    return Facts(height, width, bands, kind.newbyteorder("="), largest)


def _interpret_shape(shape: tuple[int, ...]) -> tuple[int, int, int]:
    """Return the height, width and number of channels of an array with the shape [h, w], [h, w, c] or [c, h, w].

    Raises Unfit for other shapes.
    """
    described = " x ".join(map(str, shape)) or "a single number"
    is_empty = 0 in shape
    if len(shape) == 2 and not is_empty:
        return shape[0], shape[1], 1
    if len(shape) != 3 or is_empty or min(shape[0], shape[2]) > _MAX_CHANNELS:
        raise Unfit(f"its array is not one image of up to {_MAX_CHANNELS} channels ({described})")
    if max(shape[0], shape[2]) <= _MAX_CHANNELS:
        raise Unfit(f"the first and the last axis of its array could both be the channels ({described})")
    if shape[2] <= _MAX_CHANNELS:
        return shape[0], shape[1], shape[2]
    return shape[1], shape[2], shape[0]


def _read_array(content: bytes) -> Values:
    """Return the array in an .npy file as [h, w] or [h, w, bands]. Raises Unfit if it is truncated or not an image.

    An array whose last dimension is too large for bands is taken as [bands, h, w] and transposed. Bits become 0 and 255.
    """
    stream = BytesIO(content)
    shape, kind = read_array_header(stream)
    _interpret_shape(shape)  # raises Unfit
    if len(content) - stream.tell() < math.prod(shape) * kind.itemsize:
        raise Unfit("it is truncated")
    stream.seek(0)
    values: Values = np.load(stream, allow_pickle=False)
    if values.dtype == bool:
        values = values.astype(np.uint8) * np.uint8(255)
    if values.ndim == 3 and values.shape[2] > _MAX_CHANNELS:
        values = np.moveaxis(values, 0, 2)
    return values


def make_image(values: Values) -> Image.Image:
    """Convert values [h, w, bands] to a Pillow image without loss of precision.

    Raises Unfit if Pillow has no suitable mode.
    """
    values = values[:, :, 0] if values.shape[2] == 1 else values
    if values.dtype != np.uint8 and values.ndim == 3:
        raise Unfit(f"its values are {describe_number_type(values.dtype)}, which no color image of 8 bits can hold")
    if values.ndim == 3 and values.shape[2] > _MAX_CHANNELS:
        raise Unfit(f"it has {counted(values.shape[2], 'band')}")
    if values.dtype.kind == "f":
        values = values.astype(np.float32, copy=False)
    elif values.dtype != np.uint8:
        limits = np.iinfo(np.int32)
        if values.size and (values.min() < limits.min or values.max() > limits.max):
            raise Unfit("its values are too large for 32 bits")
        values = values.astype(np.int32)
    return Image.fromarray(np.ascontiguousarray(values))


MODES = ("L", "LA", "RGB", "RGBA")
"""Pillow's modes for 8-bit images with one, two, three and four bands."""


def choose_mode(facts: Facts) -> str:
    """Return the Pillow mode of the image that `make_image` creates.

    For color images with more than 8 bits, which `make_image` rejects, it is the mode for 8 bits.
    """
    if facts.bands == 1 and facts.is_deep:
        return "F" if facts.kind.kind == "f" else "I"
    return MODES[min(facts.bands, len(MODES)) - 1]


def describe_number_type(kind: np.dtype[Any]) -> str:
    """Describe a number type for users, for example "16-bit numbers"."""
    bits = 8 * kind.itemsize
    return f"{bits}-bit floating-point numbers" if kind.kind == "f" else f"{bits}-bit numbers"


def to_levels(values: Values, largest: int | None) -> npt.NDArray[np.uint8]:
    """Convert values [h, w, bands] with more than 8 bits to 8-bit levels.

    `largest` is the value for white (see `Facts`). Floating-point values must be in 0..1. Raises Unfit if the scale is
    unknown or the values use only a small part of it, since wrong levels would mislead the model.
    """
    remedy = "Convert it to 8 bits with the same range for all images."
    kind = describe_number_type(values.dtype)
    low, high = (float(values.min()), float(values.max())) if values.size else (0.0, 0.0)
    if values.dtype.kind == "f":
        if not (low >= 0 and 1 / 255 < high <= 1):  # True for NaN, too
            raise Unfit(f"its values are {kind} from {low:,.6g} to {high:,.6g}, of no known scale. {remedy}")
        return np.rint(values * 255.0).astype(np.uint8)
    if largest is None:
        raise Unfit(f"its values are {kind} from {low:,.0f} to {high:,.0f}, of no known scale. {remedy}")
    if 0 < high <= largest / NARROW:
        message = f"its values go only to {high:,.0f} of {largest:,}, so that 8 bits would show nearly nothing"
        raise Unfit(f"{message}. {remedy}")
    return np.rint(values * (255.0 / largest)).astype(np.uint8)


NARROW = 16
"""Ratio of the value for white to a file's largest value above which the file probably has unused bits.

For example, 12-bit values may be stored in 16 bits.
"""
