"""Decode image files to uint8 pixels in a requested size."""

from __future__ import annotations

import threading
from collections.abc import Callable
from io import BytesIO

import numpy as np
import simplejpeg
import torch
from PIL import Image
from torch import Tensor
from torch.nn import functional

from engine.contract.images import Framing
from engine.data.decoding.idx import Bytes
from engine.data.decoding.limits import MAX_PIXELS
from engine.data.decoding.orientation import QUARTER, TAG, turn_upright
from engine.data.decoding.pixels import decode_pixels
from engine.data.decoding.tiff import Bands
from engine.data.decoding.view import extend_edges, find_letterbox

VERSION = 3
"""Version of the decoding code, which is part of the identity of cached images.

Increase it with any change to the decoded pixels, so that older caches are not used.
"""

REDUCING_GAP = 3
"""Minimum ratio of the short side of a reduced JPEG to the requested size.

Large JPEGs are decoded at 1/2, 1/4 or 1/8 of their size if this ratio is met. From a ratio of 3, Pillow's documentation
of `Image.resize` calls the result nearly indistinguishable from a result of the full image. Measured on photographs, a
ratio of 2 differs by 2.3 of 255 levels on average, and a ratio of 3 by 1.6.
"""

SCRATCH_BYTES = 16 << 20
"""Maximum size in bytes of the memory that each thread reuses for decoding. Larger images get memory of their own."""

_APP1, _START_OF_SCAN = 0xE1, 0xDA
"""Markers of two JPEG segments: Exif or XMP metadata, and the last segment before the pixels."""


def decode(content: bytes, size: int, channels: int, bands: Bands | None = None) -> Bytes:
    """Decode an image, turn it upright, and resize its center square to uint8 [channels, size, size].

    Transparency is removed. `bands` converts multi-band images to channels. The GIL is released nearly all of the time,
    and torch's intra-op threads are not used. Raises Unfit, and nearly any other exception, since decoders may raise
    anything for a broken file.
    """
    return _decode(content, size, channels, bands, _fit)[0]


def decode_stretched(content: bytes, size: int, channels: int, bands: Bands | None = None) -> tuple[Bytes, float]:
    """Decode an image like `decode`, but stretch it to uint8 [channels, size, size] instead of cropping it.

    Returns the pixels, and the original width divided by the original height.
    """
    return _decode(content, size, channels, bands, _stretch)


def _decode(
    content: bytes, size: int, channels: int, bands: Bands | None, resize: Callable[[Bytes, int], Bytes]
) -> tuple[Bytes, float]:
    """Decode an image, turn it upright, and resize it with the function `resize`.

    `resize` converts an image, uint8 [h, w, C] or [h, w], to [C, size, size]. Returns the result, and the original
    width divided by the original height.
    """
    is_jpeg = content.startswith(b"\xff\xd8")
    if bands is None and is_jpeg:
        fast_result = _decode_jpeg(content, size, channels, resize)
        if fast_result is not None:
            return fast_result
    pixels = decode_pixels(content, channels, bands)
    height, width = pixels.shape[:2]
    return resize(pixels, size), width / height


def decode_letterboxed(
    content: bytes, channels: int, size: int, bands: Bands | None = None
) -> tuple[Bytes, tuple[int, int]]:
    """Decode an image like `decode`, but letterbox it to uint8 [channels, size, size] instead of cropping it.

    The full image is centered on a black square and as large as possible (see `find_letterbox`). Returns the square,
    and the height and width of the original image.
    """
    pixels = decode_pixels(content, channels, bands)
    return letterbox(pixels, size), pixels.shape[:2]


def letterbox(pixels: Bytes, size: int) -> Bytes:
    """Center an image, uint8 [h, w, C], on a black square, uint8 [C, size, size].

    The image is as large as possible (see `find_letterbox`).
    """
    height, width, channels = pixels.shape
    image = torch.from_numpy(pixels).permute(2, 0, 1)[None]
    top, left, tall, wide = find_letterbox(height, width, size)
    if (tall, wide) != (height, width):
        image = functional.interpolate(image, (tall, wide), mode="bilinear", antialias=True)
    out = np.zeros((channels, size, size), np.uint8)
    out[:, top : top + tall, left : left + wide] = image[0].numpy()
    return out


def frame(pixels: Bytes, size: int, framing: Framing) -> Bytes:
    """Make an image, uint8 [h, w, C], square (see `Framing`) and resize it to uint8 [C, size, size]."""
    if framing == "crop":
        return _fit(pixels, size)
    image = letterbox(pixels, size)
    return extend_edges(image, pixels.shape[:2]) if framing == "continued" else image


def fit(image: Tensor, size: int) -> Tensor:
    """Resize images, uint8 [N, C, h, w], until the shorter side is `size`, and crop the center to [N, C, size, size].

    The interpolation is bilinear with antialiasing. The result may be a view, because a copy would start torch's
    threads and take CPU time from the training.
    """
    height, width = image.shape[-2:]
    if (height, width) != (size, size):
        scale = size / min(height, width)
        target = (round(height * scale), round(width * scale))
        if target != (height, width):
            image = functional.interpolate(image, target, mode="bilinear", antialias=True)
        top, left = (target[0] - size) // 2, (target[1] - size) // 2
        image = image[..., top : top + size, left : left + size]
    return image


def _decode_jpeg(
    content: bytes, size: int, channels: int, resize: Callable[[Bytes, int], Bytes]
) -> tuple[Bytes, float] | None:
    """Decode a JPEG, resize it to `size` and turn it upright.

    Returns the pixels and the original aspect ratio (width / height), or None if the fast decoder does not support the
    file. `resize` is called with the pixels [h, w, C] and `size`.
    """
    pixels = decode_jpeg_pixels(content, size, channels)
    if pixels is None:
        return None
    height, width = pixels.shape[:2]
    resized = resize(pixels, size)
    orientation = _read_orientation(content)
    if orientation > 1:
        aspect = height / width if orientation in QUARTER else width / height
        return np.array(turn_upright(resized, orientation), order="C"), aspect
    # `pixels` may be in memory that the next image overwrites.
    return resized.copy() if np.may_share_memory(resized, pixels) else resized, width / height


def decode_jpeg_pixels(content: bytes, size: int, channels: int) -> Bytes | None:
    """Decode a JPEG with libjpeg-turbo to uint8 [h, w, channels], reduced if it is much larger than `size`.

    The result is not turned upright, and is only valid until this thread decodes another image. Returns None for CMYK
    images and for files that the library rejects or warns about. Pillow decodes these.
    """
    try:
        height, width, colors, _subsampling = simplejpeg.decode_jpeg_header(content)
        if height * width > MAX_PIXELS or colors in ("CMYK", "YCCK"):
            return None
        # Only these scales have vectorized code. Scales in between are slower than decoding the full image.
        scale = next((s for s in (8, 4, 2) if min(height, width) >= s * REDUCING_GAP * size), 1)
        height, width = -(-height // scale), -(-width // scale)
        pixels: Bytes = simplejpeg.decode_jpeg(
            content,
            "GRAY" if channels == 1 else "RGB",
            min_height=height,
            min_width=width,
            buffer=_get_scratch(channels * height * width),
        )
    except (ValueError, KeyError, RuntimeError):
        return None
    return pixels


_of_thread = threading.local()


def _get_scratch(count: int) -> Bytes | None:
    """Return memory for `count` bytes that the calling thread reuses for each image, or None if `count` is too large.

    Allocating memory for each image would take a third of the decoding time.
    """
    if count > SCRATCH_BYTES:
        return None
    scratch: Bytes | None = getattr(_of_thread, "scratch", None)
    if scratch is None or scratch.size < count:
        scratch = _of_thread.scratch = np.empty(count, np.uint8)
    return scratch


def _read_orientation(content: bytes) -> int:
    """Return the orientation of a JPEG from its Exif or XMP data, 1 to 8.

    Pillow, which is slow, is only used if the file contains such data. Otherwise the orientation is 1.
    """
    offset = 2  # of a segment, which has a marker of 2 bytes and then its length
    while content[offset : offset + 1] == b"\xff" and content[offset + 1] != _APP1:
        if content[offset + 1] == _START_OF_SCAN:
            return 1
        offset += 2 + int.from_bytes(content[offset + 2 : offset + 4], "big")
    with Image.open(BytesIO(content)) as image:
        return int(image.getexif().get(TAG, 1))


def _fit(pixels: Bytes, size: int) -> Bytes:
    """Resize the center square of an image, uint8 [h, w, C] or [h, w], to [C, size, size]."""
    fitted: Bytes = fit(_to_channels_first(pixels), size)[0].numpy()
    return fitted


def _stretch(pixels: Bytes, size: int) -> Bytes:
    """Stretch an image of any aspect ratio, uint8 [h, w, C] or [h, w], to [C, size, size]."""
    image = _to_channels_first(pixels)
    if image.shape[-2:] != (size, size):
        image = functional.interpolate(image, (size, size), mode="bilinear", antialias=True)
    stretched: Bytes = image[0].numpy()
    return stretched


def _to_channels_first(pixels: Bytes) -> Tensor:
    """Return a view of uint8 [h, w, C] or [h, w] with the shape [1, C, h, w]."""
    return torch.from_numpy(pixels if pixels.ndim == 3 else pixels[:, :, None]).permute(2, 0, 1)[None]
