"""Detect masks that number their objects instead of giving their classes. Torch-free."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from engine.data.decoding.mask_values import Values, find_distinct_values, read_values
from engine.data.decoding.reading import read_image
from engine.data.decoding.unnamed_values import MAX_CLASSES
from engine.data.splits import sample_evenly

SAMPLED_MASKS = 20
"""Number of evenly spaced masks that are examined to find out if masks number objects."""
MANY = 8
"""Number of objects that a mask must have for its values to count as object numbers.

With fewer, classes look the same.
"""
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

It is below 1 because a partly hidden object may consist of several components.
"""


def count_numbered_objects(masks: Sequence[str]) -> int:
    """Return the largest number of objects in a mask, or 0 if the values of the masks don't seem to number objects.

    Values seem to number objects if nearly every value except 0 forms one connected component, unlike a class, and if
    the number of values differs between masks. The values must also count from 1 without gaps, or exceed the largest
    class number. Lossy, unreadable and very large masks are left out.
    """
    counts: list[int] = []  # of values in each mask
    components = gapless = 0  # connected components of all values, and masks without gaps between the values
    exceeds_classes = False
    for path in sample_evenly(masks, SAMPLED_MASKS):
        try:
            mask = read_values(read_image(path))
        except Exception:  # a broken file may raise nearly anything in a decoder; loading it reports the error
            continue
        if mask.lossy or mask.values.size > MAX_PIXELS:
            continue
        values = find_distinct_values(mask)
        values = values[values > 0]
        largest = values.max(initial=0)
        exceeds_classes |= bool(largest >= MAX_CLASSES)
        gapless += len(values) >= NEARLY_ALL * largest
        counts.append(len(values))
        components += _count_components(mask.values, values)
    if max(counts, default=0) < MANY or len(set(counts)) == 1:
        return 0
    # A value of an object forms one component. A value of a class forms one for each object of the class.
    are_single_components = sum(counts) >= NEARLY_ALL * components
    are_numbers = exceeds_classes or gapless >= NEARLY_ALL * len(counts)
    return max(counts) if are_single_components and are_numbers else 0


def _count_components(plane: Values, values: Values) -> int:
    """Return the total number of connected components of all `values` in the mask `plane` [h, w].

    `values` are the positive values in the mask, in ascending order. Other pixels are background. For noise, for which
    counting would take minutes, return `MAX_SCATTERED` times the number of values instead, too many for objects.
    """
    from scipy.ndimage import find_objects, label

    numbers = np.searchsorted(values, plane) + 1  # values numbered from 1, since `find_objects` needs small numbers
    numbers[plane <= 0] = 0
    boxes = find_objects(numbers)  # in the order of the numbers, as pairs of slices
    box_area = sum((rows.stop - rows.start) * (columns.stop - columns.start) for rows, columns in boxes)
    if box_area > MAX_SCATTERED * plane.size:
        return MAX_SCATTERED * len(values)
    corners_join = np.ones((3, 3))  # pixels that touch at a corner are connected
    return sum(label(numbers[box] == number, corners_join)[1] for number, box in enumerate(boxes, 1))
