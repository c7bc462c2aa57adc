"""Detect masks that number their objects instead of giving their classes. Torch-free."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from engine.data.decoding.mask_values import Values, read_values, values_in
from engine.data.decoding.reading import read_image
from engine.data.decoding.unnamed_values import MAX_CLASSES
from engine.data.splits import spread_evenly

SAMPLED_MASKS = 20
"""Number of evenly spaced masks that are examined."""
MANY = 8
"""Minimum number of objects in the mask with the most objects. With fewer, masks of classes look the same."""
MAX_PIXELS = 1 << 25
"""Maximum number of pixels in a mask that is examined.

Finding connected components takes 40 bytes for each pixel.
"""
MAX_SCATTERED = 64
"""Maximum total area of the bounding boxes of all values, as a multiple of the mask's area.

Above this limit, the values are noise, and counting their components would take minutes.
"""
NEARLY_ALL = 0.9
"""Minimum ratio of values to connected components in masks that number objects.

It is below 1 because a partly hidden object may consist of several pieces.
"""


def count_numbered_objects(masks: Sequence[str]) -> int:
    """Return the largest number of objects in a mask, or 0 if the values of the masks don't seem to number objects.

    Values seem to number objects if nearly every value except 0 forms one connected component, unlike a class, and if
    the number of values differs between masks. The values must also count from 1 without gaps, or exceed the largest
    class number. Lossy, unreadable and very large masks are left out.
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
    """Return the total number of connected components of all `values` in a mask, [h, w].

    For noise, counting would take minutes, and a large number is returned instead.
    """
    from scipy.ndimage import find_objects, label

    order = np.searchsorted(values, plane) + 1
    order[plane <= 0] = 0
    found = find_objects(order)
    box_area = sum((y.stop - y.start) * (x.stop - x.start) for index in found if index is not None for y, x in [index])
    if box_area > MAX_SCATTERED * plane.size:
        return MAX_SCATTERED * len(values)
    corners_join = np.ones((3, 3))
    return sum(
        label(order[index] == number, corners_join)[1] for number, index in enumerate(found, 1) if index is not None
    )
