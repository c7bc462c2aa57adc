"""Decode masks of objects, or of rectangles around them, that annotation tools embed in their files. Torch-free."""

from __future__ import annotations

import base64
import zlib
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from engine.data.decoding.reading import MAX_PIXELS, Unfit, decode_header, describe_failure
from engine.data.formats.shared.shapes import Shape
from engine.system.format import counted

Mask = npt.NDArray[np.bool_]
_PNG = b"\x89PNG"
_MAX_PNG_BYTES = 64 << 20
"""Maximum size in bytes of an embedded PNG. PNGs of masks are far smaller than their pixels."""


def make_patch_shape(
    name: str, inside: Mask, left: int, top: int, size: tuple[int, int], *, ignored: bool = False
) -> Shape:
    """Convert the mask of an object to a shape. Raises Unfit if no pixel is set.

    Args:
        name: Class of the object.
        inside: Mask of a rectangle in the image, bool [h, w], which is True for pixels of the object.
        left: Column of the image where the rectangle begins.
        top: Row of the image where the rectangle begins.
        size: Height and width of the image. Pixels outside the image are dropped.
        ignored: True if the object is neither learned nor counted as missed.
    """
    height, width = size
    inside = inside[max(-top, 0) : max(height - top, 0), max(-left, 0) : max(width - left, 0)]
    left, top = max(left, 0), max(top, 0)
    rows, columns = np.flatnonzero(inside.any(1)), np.flatnonzero(inside.any(0))
    if not len(rows):
        raise Unfit("it is empty")
    # COCO's run lengths: the pixels are numbered column by column, and runs outside and inside the object alternate.
    steps = np.diff(np.pad(inside.T, ((0, 0), (1, 1))).astype(np.int8), axis=1)  # 1 where a run starts, -1 after it
    start_columns, start_rows = np.nonzero(steps == 1)
    end_columns, end_rows = np.nonzero(steps == -1)
    starts = (left + start_columns) * height + top + start_rows
    ends = (left + end_columns) * height + top + end_rows
    limits = np.stack([starts, ends], 1).reshape(-1)
    counts = np.diff([0, *limits.tolist(), height * width]).tolist()
    outline = msgspec.Raw(msgspec.json.encode({"size": [height, width], "counts": counts}))
    edges = (left + columns[0], top + rows[0], left + columns[-1] + 1, top + rows[-1] + 1)
    x1, y1, x2, y2 = map(float, edges)
    return Shape(name, (x1, y1, x2, y2), outline, ignored)


def decode_png(text: Any, size: tuple[int, int]) -> Mask:
    """Decode a mask, bool [h, w], from a PNG in base64, which may be compressed with zlib.

    The mask consists of the pixels that are not fully transparent, or of the nonzero pixels if the PNG has no
    transparency. Raises Unfit if it can't be decoded, or is larger than `size`, the height and width of the image.
    """
    if not isinstance(text, str):
        raise Unfit("its mask is missing")
    if len(text) > 2 * _MAX_PNG_BYTES:
        raise Unfit(f"its mask has {len(text):,} bytes, which is too many")
    try:
        content = base64.b64decode(text)
        if not content.startswith(_PNG):
            packed = zlib.decompressobj()
            content = packed.decompress(content, _MAX_PNG_BYTES)
            if not packed.eof:
                raise Unfit("its mask can't be decoded (it is truncated or too large)")
        image = decode_header(content)
        if image.height > size[0] or image.width > size[1]:
            raise Unfit(f"its mask has {image.width} x {image.height} pixels, the image {size[1]} x {size[0]}")
        if image.mode in ("RGBA", "LA", "PA") or "transparency" in image.info:
            return np.array(np.asarray(image.convert("RGBA"))[..., 3] > 0)
        values = np.asarray(image)
        return np.array(values.reshape(*values.shape[:2], -1).any(2))  # [h, w] or [h, w, bands]
    except Unfit:
        raise
    except Exception as error:  # a decoder may raise nearly anything for a damaged file
        raise Unfit(f"its mask can't be decoded ({describe_failure(error)})") from None


def decode_runs(counts: Sequence[int], height: int, width: int) -> Mask:
    """Decode a mask, bool [height, width], from the lengths of runs along its rows.

    The runs are alternately outside and inside the object, and the first one is outside. Raises Unfit if they don't
    fill the mask.
    """
    pixels = height * width
    if not 0 < pixels <= MAX_PIXELS or any(not 0 <= run <= pixels for run in counts) or sum(counts) != pixels:
        raise Unfit("its mask has runs that do not fill its rectangle")
    return np.repeat(np.arange(len(counts)) % 2 == 1, counts).reshape(height, width)


def decode_brush(content: Any, height: int, width: int) -> Mask:
    """Decode a mask, bool [height, width], from Label Studio's brush data. Raises Unfit if the data are invalid.

    The data are packed RGBA pixels whose alpha channel is the mask. The encoding is that of the package
    @thi.ng/rle-pack. The header has 32 bits for the number of values, 5 bits for the bits per value minus 1, and 4
    times 4 bits for the bits of a length minus 1. Each run then has 1 bit, which is 1 for a repeated value, 2 bits that
    choose one of the four widths, the length minus 1, and the value or values.
    """
    try:
        bits = _Bits(bytes(content if isinstance(content, list) else [content]))
    except (TypeError, ValueError):
        raise Unfit("its brush is not a list of bytes") from None
    count = bits.read(32)
    if count != 4 * height * width or count > 4 * MAX_PIXELS:
        raise Unfit(f"its brush has {counted(count // 4, 'pixel')}, the image has {height * width:,}")
    value_bits = bits.read(5) + 1
    length_bits = [bits.read(4) + 1 for _ in range(4)]
    values = np.zeros(count, np.uint8)
    position = 0
    while position < count:
        is_run = bits.read(1)
        length = bits.read(length_bits[bits.read(2)]) + 1
        if position + length > count:
            raise Unfit("its brush has runs that do not fill its image")
        if is_run:
            values[position : position + length] = min(bits.read(value_bits), 255)
        else:
            values[position : position + length] = [min(bits.read(value_bits), 255) for _ in range(length)]
        position += length
    return values.reshape(height, width, 4)[..., 3] > 0


class _Bits:
    """Reader for numbers of any width in bits, starting at the highest bit of each byte."""

    def __init__(self, content: bytes) -> None:
        self._content = content
        self._position = 0

    def read(self, count: int) -> int:
        """Return the next `count` bits as a number. Raises Unfit at the end of the data."""
        end = self._position + count
        first, last = self._position // 8, -(-end // 8)
        if last > len(self._content):
            raise Unfit("its brush ends too early")
        number = int.from_bytes(self._content[first:last], "big") >> (8 * last - end)
        self._position = end
        return number & ((1 << count) - 1)
