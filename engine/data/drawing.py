"""Images with what is known of them drawn on them, for people to look at. Torch-free."""

from __future__ import annotations

from collections.abc import Sequence
from io import BytesIO
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageDraw

from engine.contract.legend import LegendEntry
from engine.data.decoding.idx import Bytes
from engine.data.decoding.masks import NO_CLASS

FRAME_SHARE, WORDS_SHARE = 200, 40
"""The longer side of an image over the width of a frame in it, and over the height of the words at it."""


def class_colours(count: int) -> Bytes:
    """A colour for each class, uint8 [count, 3]: PASCAL VOC's, which takes the bits of the class's number in turn as
    the highest ones of red, green and blue (its development kit, `VOClabelcolormap`).
    """
    numbers = np.arange(count)
    colours = np.zeros((count, 3), np.uint8)
    for bit in range(8):
        for band in range(3):
            colours[:, band] |= (((numbers >> (3 * bit + band)) & 1) << (7 - bit)).astype(np.uint8)
    return colours


def legend_of(names: Sequence[str], colours: Bytes) -> tuple[LegendEntry, ...]:
    """The legend of colours uint8 [n, 3], of which black leaves an image as it is."""
    told = ("#{:02x}{:02x}{:02x}".format(*colour) if any(colour) else "" for colour in colours.tolist())
    return tuple(LegendEntry(name, colour) for name, colour in zip(names, told, strict=True))


def mask_legend(classes: Sequence[str]) -> tuple[LegendEntry, ...]:
    """The legend of what `lay_mask` draws."""
    return legend_of(classes, class_colours(len(classes)))


def frame_legend(classes: Sequence[str]) -> tuple[LegendEntry, ...]:
    """The legend of what `outline` draws."""
    return legend_of(classes, _frame_colours(np.arange(len(classes))))


def classes_in(plane: Bytes) -> tuple[int, ...]:
    """The classes in a plane of them, in order."""
    return tuple(np.unique(plane[plane != NO_CLASS]).tolist())


def _frame_colours(classes: npt.NDArray[np.int64]) -> Bytes:
    """The colours of the frames around things of such classes, uint8 [n, 3]: none of them black."""
    return class_colours(NO_CLASS + 1)[classes % NO_CLASS + 1]


def lay_mask(image: Bytes, plane: Bytes) -> Bytes:
    """`image`, uint8 [h, w, 3], under the colours of the classes in `plane`, uint8 [h, w]; what is of no class, and the
    first class, which is black, shows the image.
    """
    colours = np.concatenate([class_colours(NO_CLASS), np.zeros((1, 3), np.uint8)])
    laid = colours[plane]
    there = laid.any(2, keepdims=True)
    return np.where(there, image // 2 + laid // 2, image).astype(np.uint8)


def outline(image: Bytes, boxes: npt.NDArray[np.float64], classes: Sequence[int], words: Sequence[str] = ()) -> Bytes:
    """`image`, uint8 [h, w, 3], with a frame around each of `boxes` [n, 4] (x1, y1, x2, y2 in its pixels), in the
    colour of its class, with a few words each if there are any; both so large that they are seen where the image is
    shown small.
    """
    colours = _frame_colours(np.asarray(classes, np.int64)).tolist()
    side = max(image.shape[:2])
    width, font_size = max(1, round(side / FRAME_SHARE)), max(10, side // WORDS_SHARE)
    canvas = Image.fromarray(image)
    draw = ImageDraw.Draw(canvas)
    for number, (box, colour) in enumerate(zip(boxes.tolist(), map(tuple, colours), strict=True)):
        left, top, right, bottom = box
        draw.rectangle((left, top, max(left, right - 1), max(top, bottom - 1)), outline=colour, width=width)
        if number < len(words):
            draw.text((left + width + 1, top + width), words[number], fill=colour, font_size=font_size)
    return np.asarray(canvas)


def png(image: Bytes) -> bytes:
    """`image`, uint8 [h, w] or [h, w, 3], as a PNG file's content."""
    stream = BytesIO()
    Image.fromarray(image).save(stream, "PNG")
    return stream.getvalue()


def seen(image: npt.NDArray[np.floating[Any]]) -> Bytes:
    """[C, h, w] of 0 to 1 as people see it, uint8 [h, w, 3]: of many channels the first three, of fewer the first."""
    shown = image[:3] if len(image) >= 3 else image[:1].repeat(3, 0)
    return np.ascontiguousarray((shown * 255).round().clip(0, 255).astype(np.uint8).transpose(1, 2, 0))
