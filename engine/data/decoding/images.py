"""From an image file's content to uint8 pixels of the size asked for."""

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
from engine.data.decoding.orientation import QUARTER, TAG, upright
from engine.data.decoding.pixels import decode_pixels
from engine.data.decoding.tiff import Bands
from engine.data.decoding.view import boxed, extend_edges

VERSION = 3
"""Raised by any change that makes other pixels come out, so that none kept from before are taken for them."""

REDUCING_GAP = 3
"""A large JPEG is decoded at a half, a quarter or an eighth of its scale where that still holds so many times the
size asked for. From this gap up, Pillow's documentation of `Image.resize` finds the result nearly indistinguishable
from that of the whole image; measured on photographs, a gap of 2 differs by 2.3 levels of 255 on average, 3 by
1.6."""

SCRATCH_BYTES = 16 << 20
"""Memory that a thread reuses for decoding; larger images get memory of their own."""

_APP1, _START_OF_SCAN = 0xE1, 0xDA
"""Markers of JPEG's segments: that of Exif and XMP, and the last before the pixels."""


def decode(content: bytes, size: int, channels: int, bands: Bands | None = None) -> Bytes:
    """Decode an image, turn it upright, and return its center square as uint8 [channels, size, size], without alpha.

    If `bands` are given, they become the channels of TIFFs. Releases the GIL for nearly all of the time, and leaves
    torch's intra-op threads alone. Raises Unfit, or nearly anything that a decoder may raise for a broken file.
    """
    return _decode(content, size, channels, bands, _fit)[0]


def decode_stretched(content: bytes, size: int, channels: int, bands: Bands | None = None) -> tuple[Bytes, float]:
    """Decode an image, turn it upright, and stretch all of it to uint8 [channels, size, size].

    Return that and the original's width over height.

    `bands`, and what is raised, are as for `decode`.
    """
    return _decode(content, size, channels, bands, _stretch)


def _decode(
    content: bytes, size: int, channels: int, bands: Bands | None, resize: Callable[[Bytes, int], Bytes]
) -> tuple[Bytes, float]:
    """Decode an image, `resize` it from [h, w, C] or [h, w] to [C, size, size], and return its width over height."""
    if bands is not None:
        pixels = decode_pixels(content, channels, bands)
    else:
        resized = _decode_jpeg(content, size, channels, resize) if content.startswith(b"\xff\xd8") else None
        if resized is not None:
            return resized
        pixels = decode_pixels(content, channels)
    height, width = pixels.shape[:2]
    return resize(pixels, size), width / height


def decode_letterboxed(
    content: bytes, channels: int, size: int, bands: Bands | None = None
) -> tuple[Bytes, tuple[int, int]]:
    """Decode an image upright and letterboxed: uint8 [channels, size, size], and its height and width.

    It is centered as large as it fits, on black (`boxed`). `bands` and errors are as for `decode`.
    """
    pixels = decode_pixels(content, channels, bands)
    return letterbox(pixels, size), pixels.shape[:2]


def letterbox(pixels: Bytes, size: int) -> Bytes:
    """Fit an image uint8 [h, w, C] into a square, uint8 [C, size, size], centered on black (`boxed`)."""
    height, width, channels = pixels.shape
    image = torch.from_numpy(pixels).permute(2, 0, 1)[None]
    top, left, tall, wide = boxed(height, width, size)
    if (tall, wide) != (height, width):
        image = functional.interpolate(image, (tall, wide), mode="bilinear", antialias=True)
    out = np.zeros((channels, size, size), np.uint8)
    out[:, top : top + tall, left : left + wide] = image[0].numpy()
    return out


def frame(pixels: Bytes, size: int, framing: Framing) -> Bytes:
    """Return an image uint8 [h, w, C] as a square, uint8 [C, size, size], by the rule `framing`."""
    if framing == "crop":
        return _fit(pixels, size)
    image = letterbox(pixels, size)
    return extend_edges(image, pixels.shape[:2]) if framing == "continued" else image


def fit(image: Tensor, size: int) -> Tensor:
    """uint8 [N,C,h,w] to [N,C,size,size]: the short side is resized (bilinear, antialiased), the middle is cut out.

    The result may be a view: copying it here would wake torch's threads, of which the training has need.
    """
    height, width = image.shape[-2:]
    if (height, width) != (size, size):
        scale = size / min(height, width)
        target = (max(size, round(height * scale)), max(size, round(width * scale)))
        if target != (height, width):
            image = functional.interpolate(image, target, mode="bilinear", antialias=True)
        top, left = (target[0] - size) // 2, (target[1] - size) // 2
        image = image[..., top : top + size, left : left + size]
    return image


def _decode_jpeg(
    content: bytes, size: int, channels: int, resize: Callable[[Bytes, int], Bytes]
) -> tuple[Bytes, float] | None:
    pixels = jpeg_pixels(content, size, channels)
    if pixels is None:
        return None
    height, width = pixels.shape[:2]
    resized = resize(pixels, size)
    orientation = _orientation(content)
    if orientation > 1:
        return np.array(
            upright(resized, orientation), order="C"
        ), height / width if orientation in QUARTER else width / height
    return resized.copy() if np.may_share_memory(resized, pixels) else resized, width / height


def jpeg_pixels(content: bytes, size: int, channels: int) -> Bytes | None:
    """Return a JPEG as uint8 [h, w, channels], to be resized to `size`; valid until this thread decodes the next.

    Decoded by libjpeg-turbo. Returns None for CMYK and for files that it rejects or warns about, which Pillow then
    decodes.
    """
    try:
        height, width, colours, _ = simplejpeg.decode_jpeg_header(content)
        if height * width > MAX_PIXELS or colours in ("CMYK", "YCCK"):
            return None
        # Only these scales have vectorised code; those between take longer than the whole image.
        scale = next((s for s in (8, 4, 2) if min(height, width) >= s * REDUCING_GAP * size), 1)
        height, width = -(-height // scale), -(-width // scale)
        pixels: Bytes = simplejpeg.decode_jpeg(
            content,
            "GRAY" if channels == 1 else "RGB",
            min_height=height,
            min_width=width,
            buffer=_scratch(channels * height * width),
        )
    except (ValueError, KeyError, RuntimeError):
        return None
    return pixels


_of_thread = threading.local()


def _scratch(count: int) -> Bytes | None:
    """Return memory for `count` bytes that is valid until the thread's next image.

    Allocating it anew takes a third of the decoding time.
    """
    if count > SCRATCH_BYTES:
        return None
    scratch: Bytes | None = getattr(_of_thread, "scratch", None)
    if scratch is None or scratch.size < count:
        scratch = _of_thread.scratch = np.empty(count, np.uint8)
    return scratch


def _orientation(content: bytes) -> int:
    """Return the orientation of a JPEG from EXIF or XMP. Pillow is slow, so it is used only if there may be one."""
    offset = 2
    while content[offset : offset + 1] == b"\xff" and content[offset + 1] != _APP1:
        if content[offset + 1] == _START_OF_SCAN:
            return 1
        offset += 2 + int.from_bytes(content[offset + 2 : offset + 4], "big")
    with Image.open(BytesIO(content)) as image:
        return int(image.getexif().get(TAG, 1))


def _fit(pixels: Bytes, size: int) -> Bytes:
    """Resize the center square of uint8 [h, w, C] or [h, w] to [C, size, size]."""
    fitted: Bytes = fit(_channels_first(pixels), size)[0].numpy()
    return fitted


def _stretch(pixels: Bytes, size: int) -> Bytes:
    """Resize all of uint8 [h, w, C] or [h, w] to [C, size, size], whatever its shape."""
    image = _channels_first(pixels)
    if image.shape[-2:] != (size, size):
        image = functional.interpolate(image, (size, size), mode="bilinear", antialias=True)
    stretched: Bytes = image[0].numpy()
    return stretched


def _channels_first(pixels: Bytes) -> Tensor:
    """View uint8 [h, w, C] or [h, w] as [1, C, h, w]."""
    return torch.from_numpy(pixels if pixels.ndim == 3 else pixels[:, :, None]).permute(2, 0, 1)[None]
