"""Detect masks that number their objects instead of giving their classes. Torch-free."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from engine.data.decoding.masks import MAX_CLASSES, Values, read_values, values_in
from engine.data.decoding.reading import read_image
from engine.data.splits import spread_evenly

SAMPLED_MASKS = 20
"""Number of evenly spaced masks that are opened."""
MANY = 8
"""Minimum number of values in masks of numbered objects. With fewer, a scan with classes looks the same."""
MAX_PIXELS = 1 << 25
"""Number of pixels in the largest mask that is inspected.

Finding connected components takes 40 bytes for each pixel.
"""
MAX_SCATTERED = 64
"""Limit for the total area of the bounding boxes of all values, as a multiple of the mask's area.

Above this limit the values are noise, and counting its components would take minutes.
"""
NEARLY_ALL = 0.9
"""Fraction of values that must form a single component.

Other objects may be partly hidden and consist of several pieces.
"""


def count_numbered_objects(masks: Sequence[str]) -> int:
    """Return the largest number of objects in any of the masks, or 0 if their values don't seem to number objects.

    Values seem to number objects if nearly every value except 0 forms one connected component, unlike a class, and if
    the values differ between masks. They must also count from 1 without gaps, or exceed the largest class number.
    """
    values, pieces, counts, gapless = 0, 0, [], 0
    beyond = False
    for index in spread_evenly(len(masks), SAMPLED_MASKS)[:SAMPLED_MASKS]:
        try:
            mask = read_values(read_image(masks[index]))
        except Exception:  # a broken file may raise nearly anything in a decoder; loading it reports the error
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
    """Count the connected components of each value in a mask and return their total number."""
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
