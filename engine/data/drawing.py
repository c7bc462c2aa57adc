"""Draw annotations or predictions on images. Torch-free."""

from __future__ import annotations

from collections.abc import Sequence
from io import BytesIO
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageDraw
from PIL.PngImagePlugin import PngInfo

from engine.contract.images import CLOUD_TEXT, LegendEntry
from engine.data.decoding.idx import Bytes
from engine.data.decoding.mask_values import NO_CLASS, class_colors

FRAME_RATIO, LABEL_RATIO = 200, 40
"""Longer side of an image divided by the width of a box's frame, and by the height of the label on it."""


def color_legend(names: Sequence[str], colors: Bytes) -> tuple[LegendEntry, ...]:
    """Return the legend for the classes called `names` and their `colors`, uint8 [n, 3].

    A black color means that the image is unchanged at pixels of the class.
    """
    codes = ("#{:02x}{:02x}{:02x}".format(*color) if any(color) else "" for color in colors.tolist())
    return tuple(LegendEntry(name, color) for name, color in zip(names, codes, strict=True))


def mask_legend(classes: Sequence[str]) -> tuple[LegendEntry, ...]:
    """Return the legend for images drawn by `overlay_mask`."""
    return color_legend(classes, class_colors(len(classes)))


def frame_legend(classes: Sequence[str]) -> tuple[LegendEntry, ...]:
    """Return the legend for images drawn by `draw_boxes`."""
    return color_legend(classes, _frame_colors(np.arange(len(classes))))


def find_classes(plane: Bytes) -> tuple[int, ...]:
    """Return the classes that occur in `plane`, uint8 [h, w], sorted. NO_CLASS is left out."""
    return tuple(np.unique(plane[plane != NO_CLASS]).tolist())


def _frame_colors(classes: npt.NDArray[np.int64]) -> Bytes:
    """Return the frame color for each of `classes` [n], uint8 [n, 3]. It is never black."""
    return class_colors(NO_CLASS + 1)[classes % NO_CLASS + 1]


def get_class_colors(classes: Bytes) -> Bytes:
    """Return the color of each of `classes`, uint8 [...], as [..., 3]. It is black for the first class and NO_CLASS."""
    return np.concatenate([class_colors(NO_CLASS), np.zeros((1, 3), np.uint8)])[classes]


def overlay_mask(image: Bytes, plane: Bytes) -> Bytes:
    """Blend `image`, uint8 [h, w, 3], with the colors of the classes in `plane`, uint8 [h, w].

    The image stays unchanged at pixels without a class, and at pixels of the first class, whose color is black.
    """
    overlay = get_class_colors(plane)
    is_colored = overlay.any(2, keepdims=True)
    return np.where(is_colored, image // 2 + overlay // 2, image).astype(np.uint8)


def draw_boxes(
    image: Bytes, boxes: npt.NDArray[np.float64], classes: Sequence[int], labels: Sequence[str] = ()
) -> Bytes:
    """Draw a frame around each of `boxes` [n, 4] (x1, y1, x2, y2 in pixels) on `image`, uint8 [h, w, 3].

    Each frame has the color of its class, and a label if `labels` are given. Frames and labels scale with the image, so
    that they remain visible in thumbnails.
    """
    colors = _frame_colors(np.asarray(classes, np.int64)).tolist()
    side = max(image.shape[:2])
    width, font_size = max(1, round(side / FRAME_RATIO)), max(10, side // LABEL_RATIO)
    canvas = Image.fromarray(image)
    draw = ImageDraw.Draw(canvas)
    for number, (box, color) in enumerate(zip(boxes.tolist(), map(tuple, colors), strict=True)):
        left, top, right, bottom = box
        draw.rectangle((left, top, max(left, right - 1), max(top, bottom - 1)), outline=color, width=width)
        if number < len(labels):
            draw.text((left + width + 1, top + width), labels[number], fill=color, font_size=font_size)
    return np.asarray(canvas)


def encode_png(image: Bytes, cloud: str = "") -> bytes:
    """Encode `image`, uint8 [h, w] or [h, w, 3], as PNG.

    `cloud` holds the points of a point cloud that the image shows, encoded as described at `CLOUD_TEXT`, or is "" for
    other images. This text is stored in the file.
    """
    stream, texts = BytesIO(), PngInfo()
    if cloud:
        texts.add_text(CLOUD_TEXT, cloud)
    Image.fromarray(image).save(stream, "PNG", pnginfo=texts)
    return stream.getvalue()


def to_rgb(image: npt.NDArray[np.floating[Any]]) -> Bytes:
    """Convert an image, float [C, h, w] in 0..1, to uint8 [h, w, 3] for display.

    The first three channels are shown, or the first one as gray if there are fewer.
    """
    channels = image[:3] if len(image) >= 3 else image[:1].repeat(3, 0)
    return np.ascontiguousarray((channels * 255).round().clip(0, 255).astype(np.uint8).transpose(1, 2, 0))
