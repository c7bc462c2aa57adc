"""Decode image files to uint8 pixels in their original size. Torch-free."""

from __future__ import annotations

from io import BytesIO

import numpy as np
from PIL import Image, ImageOps

from engine.data.decoding.deep import Facts, to_levels
from engine.data.decoding.idx import Bytes
from engine.data.decoding.limits import Unfit
from engine.data.decoding.reading import decode_header
from engine.data.decoding.tiff import (
    Bands,
    is_opacity,
    open_to_show,
    read_bands,
    read_facts,
    read_values,
    scale_opacity,
)
from engine.data.decoding.transparency import blend, choose_background, remove_transparency
from engine.system.format import counted


def decode_pixels(content: bytes, channels: int, bands: Bands | None = None) -> Bytes:
    """Decode an image in its original size, upright and without transparency, to uint8 [h, w, channels].

    `bands` converts the bands of multi-band images to channels. Raises Unfit, and nearly any other exception, since
    decoders may raise anything for a broken file.
    """
    levels = read_bands(content, bands) if bands is not None else None  # None for an ordinary image
    if levels is not None:
        # The number of channels is the number of bands, except that a single band may be repeated.
        return levels if levels.shape[2] == channels else np.repeat(levels, channels, 2)
    if channels not in (1, 3):  # the dataset consists of multi-band images, but this image is an ordinary one
        raise Unfit(f"it is not an image of {counted(channels, 'band')}, unlike most of the others")
    facts = read_facts(BytesIO(content))
    if facts is not None and facts.is_deep:
        levels = _decode_deep(content, facts)
        image = Image.fromarray(levels[:, :, 0] if levels.shape[2] == 1 else levels)
    else:
        with decode_header(content) as opened:
            image = _convert_to_8_bits(ImageOps.exif_transpose(opened))
    pixels = np.array(image.convert("L" if channels == 1 else "RGB"))
    return pixels if pixels.ndim == 3 else pixels[:, :, None]


def read_to_show(path: str) -> Image.Image:
    """Open the image at `path` for display, upright and without transparency. Raises any exception of the decoder."""
    with open_to_show(path) as image:
        return remove_transparency(ImageOps.exif_transpose(image))


def _convert_to_8_bits(image: Image.Image) -> Image.Image:
    """Convert an opened image to 8 bits without transparency. Raises Unfit if the scale of its values is unknown."""
    if image.mode in ("I", "F") or image.mode.startswith("I;16"):
        levels = to_levels(np.asarray(image), 65535 if image.mode.startswith("I;16") else None)
        return Image.fromarray(levels)
    return remove_transparency(image)


def _decode_deep(content: bytes, facts: Facts) -> Bytes:
    """Return the 8-bit levels [h, w, 1 or 3] of an image with more than 8 bits and a known scale."""
    values, _ = read_values(content, facts)
    count = values.shape[2]
    alpha = None
    # The last of 2 or 4 bands is the opacity if the header or the values show this.
    if count in (2, 4) and (facts.has_alpha or is_opacity(values.reshape(-1, count).T)):
        values, alpha = values[:, :, :-1], scale_opacity(values[:, :, -1])
    if values.shape[2] not in (1, 3):
        raise Unfit(f"it has {counted(count, 'band')}, and the model was trained on images of one or three")
    levels = to_levels(values, facts.largest)
    return levels if alpha is None else blend(levels, alpha, choose_background(levels, alpha))
