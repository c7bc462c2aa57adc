"""Detection of boxes that are written in other units or in another order than their format defines. Torch-free."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

from engine.contract.problems import Problem
from engine.data.formats.shapes import ShapedImage
from engine.data.splits import warn, wrong

_ROUNDING = 0.01
_MOST_BEYOND = 0.25
"""Share of boxes beyond their images above which other units are considered."""
_FEWEST = 4
"""Boxes by which the order of their numbers can be told."""

Anchor = Literal["corner", "center"]


def check_units(splits: Mapping[str, Sequence[ShapedImage]], problems: list[Problem], anchor: Anchor) -> None:
    """Mark boxes that are in fractions of their images, and report those whose units can't be told.

    Args:
        splits: Annotated images; `fractions` is set on them.
        problems: Where warnings and errors are added.
        anchor: What the format says that x and y are: the left top corner of the box, or its center.
    """
    images = [image for split in splits.values() for image in split]
    boxes = [shape.box for image in images for shape in image.shapes]
    if not boxes:
        return
    if any(shape.outline is not None for image in images for shape in image.shapes):
        if all(max(map(abs, box)) <= 1 + _ROUNDING for box in boxes):
            message = (
                "All outlines are smaller than one pixel: they seem to be fractions of the image's width and height."
            )
            problems.append(wrong(message, "Write them in pixels."))
        return
    if all(max(map(abs, box)) <= 1 + _ROUNDING for box in boxes):
        message = "All boxes are smaller than one pixel: they seem to be fractions of the image's width and height."
        if anchor == "corner" and all(_could_be_centered(*box) for box in boxes):
            remedy = "It can't be told whether x and y are corners or centers; write the boxes in pixels."
            problems.append(wrong(message, remedy))
            return
        problems.append(warn(message, "They are read as fractions; write them in pixels to avoid doubt."))
        for image in images:
            image.fractions = True
    elif anchor == "corner" and _are_corners(images):
        problems.append(
            wrong(
                "The boxes seem to be left, top, right and bottom, as many extend beyond their images otherwise.",
                "Write each bbox as left, top, width and height.",
            )
        )


def _could_be_centered(left: float, top: float, right: float, bottom: float) -> bool:
    """Return True if left and top could be the center of a box of this width and height within the image."""
    width, height = right - left, bottom - top
    return min(left - width / 2, top - height / 2) >= -_ROUNDING and (
        max(left + width / 2, top + height / 2) <= 1 + _ROUNDING
    )


def _are_corners(images: Iterable[ShapedImage]) -> bool:
    """Return True if width and height can only be the right and bottom edges of the boxes."""
    boxes = beyond = 0
    for image in images:
        if image.size is None:
            continue
        height, width = image.size
        for shape in image.shapes:
            left, top, right, bottom = shape.box
            # What was read as width and height would be the edges.
            if not (left < right - left <= width + 1 and top < bottom - top <= height + 1):
                return False
            boxes += 1
            beyond += right > width + 1 or bottom > height + 1
    return boxes >= _FEWEST and beyond > _MOST_BEYOND * boxes
