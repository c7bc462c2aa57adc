"""Detection of masks whose values number objects rather than classes. Torch-free."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from engine.data.decoding.masks import MAX_CLASSES, Values, read_values, values_in
from engine.data.decoding.reading import read_image
from engine.data.splits import spread_evenly

SAMPLED_MASKS = 20
"""Number of masks, evenly spread, that are opened."""
MANY = 8
"""Smallest number of values in a mask that may number objects; medical scans with fewer organs look the same."""
MAX_PIXELS = 1 << 25
"""Largest mask, in pixels, that is inspected: the search for connected pieces takes forty bytes for each pixel."""
MAX_SCATTERED = 64
"""Limit on the total area of the rectangles around all values, in areas of the mask, above which values are noise.

Counting the pieces of noise would take minutes.
"""
NEARLY_ALL = 0.9
"""Share of values that must be in one piece; others may be objects that are partly hidden and visible in two pieces."""


def count_numbered_objects(masks: Sequence[str]) -> int:
    """Return the largest number of objects in one of some masks; 0 if their values don't seem to number objects.

    Values seem to number objects if nearly every value except 0 forms one connected piece, as classes do not, and if
    the values differ from mask to mask. They must also count from 1 without gaps, or be higher than class numbers may
    be.
    """
    values, pieces, counts, gapless = 0, 0, [], 0
    beyond = False
    for index in spread_evenly(len(masks), SAMPLED_MASKS)[:SAMPLED_MASKS]:
        try:
            mask = read_values(read_image(masks[index]))
        except Exception:  # a broken file may raise nearly anything in a decoder; its loading will report it
            continue
        if mask.lossy or mask.values.size > MAX_PIXELS:
            continue
        found = values_in(mask)
        found = found[found > 0]
        beyond |= bool(found.max(initial=0) >= MAX_CLASSES)
        gapless += len(found) >= NEARLY_ALL * found.max(initial=0)
        counts.append(len(found))
        values += len(found)
        pieces += _count_pieces(mask.values, found)
    numbered = (
        max(counts, default=0) >= MANY
        and values >= NEARLY_ALL * pieces
        and len(set(counts)) > 1
        and (beyond or gapless >= NEARLY_ALL * len(counts))
    )
    return max(counts) if numbered else 0


def _count_pieces(plane: Values, values: Values) -> int:
    """Count the connected areas that the `values` of a mask form."""
    from scipy.ndimage import find_objects, label

    order = np.searchsorted(values, plane) + 1
    order[plane <= 0] = 0
    found = find_objects(order)
    outside = sum((y.stop - y.start) * (x.stop - x.start) for index in found if index is not None for y, x in [index])
    if outside > MAX_SCATTERED * plane.size:
        return MAX_SCATTERED * len(values)
    corners_join = np.ones((3, 3))
    return sum(
        label(order[index] == number, corners_join)[1] for number, index in enumerate(found, 1) if index is not None
    )
