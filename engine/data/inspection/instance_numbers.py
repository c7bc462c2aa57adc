"""Whether masks give a number to each class, or to each thing in them. Torch-free."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from engine.contract.problems import Problem
from engine.data.decoding.masks import MOST_CLASSES, Values, read_values, values_in
from engine.data.decoding.reading import read_image
from engine.data.splits import spread_evenly, warn

LOOKED_INTO = 20
"""Masks that are looked into, evenly spread."""
MANY = 8
"""From so many values in one mask on, things may be numbered in it; with fewer, organs in a scan look the same."""
MOST_PIXELS = 1 << 25
"""Larger masks are not looked into: searching for pieces takes memory for forty bytes a pixel."""
STREWN = 64
"""Where the rectangles around all values take so many times as much as the mask, they lie strewn over it, as those of
things do not; counting their pieces would take minutes."""
NEARLY_ALL = 0.9
"""Things overlap, and what shows of one may be in two pieces."""
REMEDY = (
    "To find objects one by one, choose the task Instance segmentation. To learn only where they are, give all of "
    "them the same value."
)


def numbered_things(masks: Sequence[str]) -> int:
    """How many things there are in the fullest of some of `masks`, where they seem to be numbered in them; else 0.

    That is so where nearly every value but 0 lies in one piece, which of classes some never do, and where there are
    not the same values in all masks: they either count from 1 on without a gap, or are beyond what a class may have.
    """
    values, pieces, counts, gapless = 0, 0, [], 0
    beyond = False
    for index in spread_evenly(len(masks), LOOKED_INTO)[:LOOKED_INTO]:
        try:
            mask = read_values(read_image(masks[index]))
        except Exception:
            continue  # a decoder may raise nearly anything; whoever looks at the pair names it
        if mask.lossy or mask.values.size > MOST_PIXELS:
            continue
        there = values_in(mask)
        there = there[there > 0]
        beyond |= bool(there.max(initial=0) >= MOST_CLASSES)
        gapless += len(there) >= NEARLY_ALL * there.max(initial=0)
        counts.append(len(there))
        values += len(there)
        pieces += _pieces(mask.values, there)
    numbered = (
        max(counts, default=0) >= MANY
        and values >= NEARLY_ALL * pieces
        and len(set(counts)) > 1
        and (beyond or gapless >= NEARLY_ALL * len(counts))
    )
    return max(counts) if numbered else 0


def _pieces(plane: Values, there: Values) -> int:
    """In how many pieces the values `there` lie in all."""
    from scipy.ndimage import find_objects, label

    order = np.searchsorted(there, plane) + 1
    order[plane <= 0] = 0
    found = find_objects(order)
    around = sum((y.stop - y.start) * (x.stop - x.start) for index in found if index is not None for y, x in [index])
    if around > STREWN * plane.size:
        return STREWN * len(there)
    joined = np.ones((3, 3))  # corners join, too
    return sum(label(order[index] == number, joined)[1] for number, index in enumerate(found, 1) if index is not None)


def told_of_numbers(masks: Sequence[str]) -> list[Problem]:
    """The problem of `masks` that should hold classes and seem to number objects."""
    most = numbered_things(masks)
    if not most:
        return []
    message = (
        f"The masks seem to number objects, {most:,} or more in one of them, but this task takes each number for "
        f"a class."
    )
    return [warn(message, REMEDY)]
