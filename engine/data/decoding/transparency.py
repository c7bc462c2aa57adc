"""Replace the transparency of images with a background. Torch-free.

The background is white, or black if the visible pixels are nearly white.
"""

from __future__ import annotations

import numpy as np
from PIL import Image

from engine.data.decoding.idx import Bytes

NEARLY_WHITE = 230
"""Minimum average level of the visible pixels for choosing a black background. Darker images get a white one."""
WHITE, BLACK = 255, 0


def choose_background(levels: Bytes, alpha: Bytes) -> int | None:
    """Choose the level of the background for an image [..., c] with opacity `alpha` [...]: black or white.

    Returns None if the opacity is constant. It then carries no information, and blending would only reduce the
    contrast, so the colors are used unchanged.
    """
    if alpha.min(initial=255) == alpha.max(initial=0):
        return None
    mean = float((levels.mean(-1) * alpha).sum(dtype=np.float64)) / float(alpha.sum(dtype=np.float64))
    return BLACK if mean >= NEARLY_WHITE else WHITE


def blend(levels: Bytes, alpha: Bytes, background: int | None) -> Bytes:
    """Blend an image [..., c] with the level `background` according to its opacity `alpha` [...].

    Returns the image unchanged if `background` is None.
    """
    if background is None:
        return levels
    weight = alpha[..., None].astype(np.uint16)
    return ((levels * weight + np.uint16(background) * (255 - weight) + 127) // 255).astype(np.uint8)


def remove_transparency(image: Image.Image) -> Image.Image:
    """Convert an 8-bit image with transparency to RGB. An opaque image is returned unchanged."""
    if not image.has_transparency_data:
        return image
    pixels = np.asarray(image.convert("RGBA"))
    levels, alpha = pixels[..., :3], pixels[..., 3]
    return Image.fromarray(blend(levels, alpha, choose_background(levels, alpha)))
