"""Detect boxes that are written in other units, or another order of numbers, than their format defines. Torch-free."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

from engine.contract.problems import Problem
from engine.data.formats.shared.shapes import Edges, ShapedImage
from engine.data.splits import dataset_error, dataset_warning

_ROUNDING = 0.01
"""Tolerance for rounded coordinates of boxes, as a fraction of the image size."""
_MAX_BEYOND = 0.25
"""Fraction of boxes beyond the edges of their images above which another meaning of the numbers is considered."""
_FEWEST = 4
"""Minimum number of boxes for considering that their numbers mean something else than in their format."""

_CENTERED = "a center, width and height"

Anchor = Literal["corner", "center"]


def check_units(splits: Mapping[str, Sequence[ShapedImage]], problems: list[Problem], anchor: Anchor) -> None:
    """Detect boxes in fractions of the image size, and report boxes whose numbers are ambiguous.

    Outlines have no ambiguous order, but are only accepted in pixels. If there are any, boxes aren't examined.

    Args:
        splits: Annotated images. Their `fractions` is set to True if the boxes are fractions.
        problems: List to which warnings and errors are appended.
        anchor: Point that x and y denote in this format: the top-left "corner" or the "center" of the box.
    """
    images = [image for split in splits.values() for image in split]
    boxes = [shape.box for image in images for shape in image.shapes]
    if not boxes:
        return
    are_fractions = all(max(map(abs, box)) <= 1 + _ROUNDING for box in boxes)
    has_outlines = any(shape.outline is not None for image in images for shape in image.shapes)
    if has_outlines:  # the points of an outline have no other order
        if are_fractions:
            message = (
                "All outlines are smaller than one pixel: they seem to be fractions of the image's width and height."
            )
            problems.append(dataset_error(message, "Write them in pixels."))
        return
    if are_fractions:
        message = "All boxes are smaller than one pixel: they seem to be fractions of the image's width and height."
        if anchor == "corner" and all(_could_be_centered(*box) for box in boxes):
            remedy = "It can't be told whether x and y are corners or centers; write the boxes in pixels."
            problems.append(dataset_error(message, remedy))
            return
        problems.append(dataset_warning(message, "They are read as fractions; write them in pixels to avoid doubt."))
        for image in images:
            image.fractions = True
    elif (other := _find_other_order(images, anchor)) is not None:
        message = f"Many boxes extend beyond their images, as their numbers seem to be {other}."
        problems.append(dataset_error(message, f"Write the {anchor} of each box and its width and height."))


def _could_be_centered(left: float, top: float, right: float, bottom: float) -> bool:
    """Return True if a box would be inside the image even if its left and top were its center.

    All numbers are fractions of the image size, and the box itself is inside the image.
    """
    width, height = right - left, bottom - top
    return min(left - width / 2, top - height / 2) >= -_ROUNDING


def _find_other_order(images: Iterable[ShapedImage], anchor: Anchor) -> str | None:
    """Describe another order of the numbers in boxes that fits all boxes, such as "left, top, right and bottom".

    `anchor` gives the order that the format defines (see `check_units`). Returns None if it fits most boxes, or if no
    other order fits.
    """
    boxes = beyond = 0
    # Orders that fit all boxes so far. A format checked here never defines left, top, right and bottom itself.
    fitting = {"left, top, right and bottom", "a corner, width and height" if anchor == "center" else _CENTERED}
    for image in images:
        height, width = image.size or (math.inf, math.inf)
        for shape in image.shapes:
            left, top, right, bottom = shape.box
            box_width, box_height = right - left, bottom - top
            boxes += 1
            beyond += not _is_within((left, top, right, bottom), width, height)
            # The numbers in the file are x, y, box_width and box_height.
            x, y = (left, top) if anchor == "corner" else (left + box_width / 2, top + box_height / 2)
            edges_by_order = {
                "left, top, right and bottom": (x, y, box_width, box_height),
                "a corner, width and height": (x, y, x + box_width, y + box_height),
                _CENTERED: (x - box_width / 2, y - box_height / 2, x + box_width / 2, y + box_height / 2),
            }
            fitting = {name for name in fitting if _is_within(edges_by_order[name], width, height)}
    if boxes < _FEWEST or beyond <= _MAX_BEYOND * boxes:
        return None
    return min(fitting, default=None)


def _is_within(box: Edges, width: float, height: float) -> bool:
    """Return True if a box has a positive size and extends at most one pixel beyond the image."""
    left, top, right, bottom = box
    return -1 <= left < right <= width + 1 and -1 <= top < bottom <= height + 1
