"""Directions of roads, and of other long and thin objects, computed from masks. Torch-free."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from engine.data.decoding.idx import Bytes
from engine.data.decoding.mask_values import NO_CLASS

DIRECTIONS = 36
"""Number of direction classes, as in Batra et al. 2019 (section 3.1), who divide the full circle.

Lines in masks have no forward direction, so the classes divide the half circle: class k is k times `STEP` degrees from
the horizontal, counterclockwise. Its neighbors are k - 1 and k + 1, and the last class is next to the first.
"""
STEP = 180 / DIRECTIONS
BACKGROUND = DIRECTIONS
"""Direction class of pixels outside of lines."""
LINE = 1
"""Class number of lines in a mask with two classes."""
VERSION = 2
"""Version of the algorithm, which is part of the cache key.

Increase it with any change to the computed directions, so that old caches are not used.
"""

WEIGHT_DEVIATION_PX = 3.0
"""Standard deviation, in pixels, of the weights of nearby pixels that determine a pixel's direction.

Smaller values follow the steps between pixels, larger ones cut corners.
"""
WEIGHT_REACH_PX = 6
"""Distance in pixels beyond which nearby pixels have no weight: twice `WEIGHT_DEVIATION_PX`."""
MAX_CENTER_DISTANCE = 4.0
"""Maximum distance from the border of a line to its center, in blocks of pixels.

Blocks are made larger for wider lines, since the steps in their borders are farther apart than `WEIGHT_DEVIATION_PX`.
"""

Mask = npt.NDArray[np.bool_]


def compute_orientation_plane(plane: Bytes) -> Bytes:
    """Return the direction class of each pixel, uint8 [h, w], given the mask classes `plane`, uint8 [h, w].

    Pixels outside of lines get `BACKGROUND`. Pixels without a class, and dots, which have no direction, get `NO_CLASS`.
    """
    from scipy.ndimage import distance_transform_edt

    is_line = plane == LINE
    directions = np.full(plane.shape, BACKGROUND, np.uint8)
    if is_line.any():
        border_distances = distance_transform_edt(np.pad(is_line, 1))[1:-1, 1:-1]
        # Half of the pixels on a line are farther from its border than a quarter of its width.
        median_distance = float(np.median(border_distances[is_line]))
        step = max(1, round(2 * median_distance / MAX_CENTER_DISTANCE))
        center = find_center_lines(_combine_blocks(is_line, step))
        # Pixels of a line have the direction of its center line.
        nearest_center = distance_transform_edt(~center, return_distances=False, return_indices=True)
        rows, columns = np.nonzero(is_line)
        directions[is_line] = _find_line_directions(center)[tuple(nearest_center[:, rows // step, columns // step])]
    directions[plane == NO_CLASS] = NO_CLASS
    return directions


def _combine_blocks(mask: Mask, step: int) -> Mask:
    """Shrink `mask` by combining blocks of `step` x `step` pixels. A block is True if any of its pixels is True."""
    height, width = mask.shape
    padded = np.pad(mask, ((0, -height % step), (0, -width % step)))
    blocks: Mask = np.logical_or.reduce(padded.reshape(len(padded) // step, step, -1, step), axis=(1, 3))
    return blocks


def find_center_lines(mask: Mask) -> Mask:
    """Return the center lines of `mask`, bool [h, w], one pixel wide and connected like the mask.

    The algorithm is that of Rosenfeld 1975 (A characterization of parallel thinning algorithms). Pixels at the upper
    border that neither connect two parts nor end a line are removed at once, then those at the lower, right and left
    border, until nothing changes. Only pixels next to removed ones are tested again.
    """
    height, width = mask.shape
    pixels = np.pad(mask, 1).astype(np.uint8).ravel()
    offsets = _NEIGHBORS @ np.array([width + 2, 1])  # in the flattened array
    candidates = np.flatnonzero(pixels)
    while len(candidates):
        neighbor_lists = []  # of the pixels that each side's step has removed
        for side in _SIDES:
            # Each code has a bit for each neighbor that is set.
            codes = pixels[candidates[:, None] + offsets] @ _BITS
            removed = candidates[_REMOVABLE[codes] & (pixels[candidates + offsets[side]] == 0)]
            pixels[removed] = 0
            neighbors = np.unique(removed[:, None] + offsets)
            neighbor_lists.append(neighbors)
            candidates = np.union1d(candidates, neighbors) if len(removed) else candidates
            candidates = candidates[pixels[candidates] == 1]
        candidates = np.unique(np.concatenate(neighbor_lists))
        candidates = candidates[pixels[candidates] == 1]
    thinned: Mask = pixels.reshape(height + 2, width + 2)[1:-1, 1:-1].astype(bool)
    return thinned


_NEIGHBORS = np.array([(-1, 0), (-1, 1), (0, 1), (1, 1), (1, 0), (1, -1), (0, -1), (-1, -1)])
"""Row and column offsets of a pixel's neighbors, clockwise from the upper one."""
_SIDES = (0, 4, 2, 6)
"""Indices in `_NEIGHBORS` of the neighbors above, below, right and left."""
_BITS = (1 << np.arange(8)).astype(np.uint8)


def _create_removable_table() -> Mask:
    """Return a table [256] that is True for each combination of neighbors whose center pixel may be removed.

    The index of a combination has a bit for each neighbor. After the removal, the neighbors must still be connected,
    and the pixel must not end a line: Hilditch's crossing number is 1.
    """
    bits = (np.arange(256)[:, None] >> np.arange(8)) & 1
    crossings = sum((1 - bits[:, side]) & (bits[:, side + 1] | bits[:, (side + 2) % 8]) for side in range(0, 8, 2))
    removable: Mask = (crossings == 1) & (bits.sum(1) >= 2)
    return removable


_REMOVABLE = _create_removable_table()


def _find_line_directions(center: Mask) -> Bytes:
    """Return the direction class of each pixel on center lines, uint8 [h, w].

    The direction is the axis along which nearby line pixels vary most, computed from their second moments. All other
    pixels, and pixels without a dominant axis, get `NO_CLASS`.
    """
    rows, columns = np.nonzero(center)
    offsets = np.arange(-WEIGHT_REACH_PX, WEIGHT_REACH_PX + 1)
    down, right = (each.ravel() for each in np.meshgrid(offsets, offsets, indexing="ij"))
    weights = np.exp(-(down**2 + right**2) / (2 * WEIGHT_DEVIATION_PX**2))
    powers = np.stack([np.ones(len(down)), right, down, right**2, down**2, right * down], 1) * weights[:, None]
    padded = np.pad(center, WEIGHT_REACH_PX)
    is_line = padded[rows[:, None] + WEIGHT_REACH_PX + down, columns[:, None] + WEIGHT_REACH_PX + right]
    # Weighted sums over the line pixels near each pixel: their number, coordinates, and products of coordinates.
    count, x, y, xx, yy, xy = (is_line @ powers).T
    x, y = x / count, y / count
    variance_difference = xx / count - x**2 - (yy / count - y**2)
    double_covariance = 2 * (xy / count - x * y)
    degrees = np.degrees(np.arctan2(-double_covariance, variance_difference)) / 2  # rows run downwards
    classes = np.round(degrees / STEP).astype(np.int64) % DIRECTIONS
    directions = np.full(center.shape, NO_CLASS, np.uint8)
    directions[rows, columns] = np.where(np.hypot(variance_difference, double_covariance) > 1e-6, classes, NO_CLASS)
    return directions
