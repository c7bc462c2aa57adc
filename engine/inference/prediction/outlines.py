"""Convert the masks of objects to the formats of COCO and YOLO: compressed run lengths and polygons."""

from __future__ import annotations

import numpy as np

from engine.data.decoding.outlines import Window

Outlines = tuple[tuple[float, ...], ...]


def encode_runs(window: Window, height: int, width: int) -> str:
    """Encode the pixels of an object as COCO's compressed RLE, column by column, starting with background.

    `height` and `width` are those of the image. The text format is that of cocoapi's `rleToString` (maskApi.c).
    """
    if not window.pixels.any():
        return _encode_counts([height * width])
    window_height = len(window.pixels)
    changes = np.flatnonzero(np.diff(np.pad(window.pixels.T, ((0, 0), (1, 1))).astype(np.int8).ravel()))
    # Each row of the padded array contains the run ends of one column, which are shifted to image positions.
    columns, rows = np.divmod(changes, window_height + 2)
    edges = (window.left + columns) * height + window.top + rows
    begins, ends = edges[::2], edges[1::2]
    # Runs that continue at the top of the next column are joined.
    is_separate = begins[1:] != ends[:-1]
    begins, ends = begins[np.append(True, is_separate)], ends[np.append(is_separate, True)]
    bounds = np.stack([begins, ends], 1).ravel()
    counts = np.diff(np.concatenate([[0], bounds, [height * width]]))
    if counts[-1] == 0:  # the last run ends at the last pixel
        counts = counts[:-1]
    return _encode_counts(counts.tolist())


def _encode_counts(counts: list[int]) -> str:
    """Encode run lengths like `rleToString` of cocoapi.

    From the fourth run on, each length is replaced by its difference from the length two runs before. The lengths are
    split into groups of five bits, the lowest first. Each group becomes a character whose sixth bit is 1 if more groups
    follow.
    """
    text = bytearray()
    for index, count in enumerate(counts):
        value = count - counts[index - 2] if index > 2 else count
        has_more = True
        while has_more:
            low_bits = value & 0x1F
            value >>= 5
            has_more = value != -1 if low_bits & 0x10 else value != 0
            text.append((low_bits | (0x20 if has_more else 0)) + 48)
    return text.decode()


def trace_polygons(window: Window) -> Outlines:
    """Return the outer boundary of each connected component of a mask, along pixel edges.

    A boundary alternates x and y coordinates in pixels of the image.
    """
    from scipy.ndimage import find_objects, label

    components, _ = label(window.pixels)
    outlines: list[tuple[float, ...]] = []
    for number, slices in enumerate(find_objects(components), 1):
        top, left = slices[0].start + window.top, slices[1].start + window.left
        points = _trace_boundary(components[slices] == number) + np.array([left, top])
        outlines.append(tuple(points.astype(float).ravel().tolist()))
    return tuple(outlines)


def measure_boundary(outline: tuple[float, ...]) -> float:
    """Return the length in pixels of a boundary from `trace_polygons`."""
    corners = np.array(outline).reshape(-1, 2)
    return float(np.abs(corners - np.roll(corners, 1, 0)).sum())


def _trace_boundary(pixels: np.ndarray) -> np.ndarray:
    """Return the corners of a component's outer boundary, int64 [k, 2] of x and y, in clockwise order.

    `pixels` are those of the component, cropped to its bounding box, so that the first row has some. The path follows
    the edges between pixels, and the corner (0, 0) is at the top left. The path has the component on its right side.
    Where the component continues only diagonally, the path turns right to follow it.
    """
    padded = np.pad(pixels, 1)
    x, y = int(np.flatnonzero(pixels[0])[0]), 0
    start, heading = (x, y), 0
    corners = [start]
    while True:
        right, down = _STEPS[heading]
        x, y = x + right, y + down
        quarter_turns = next(turn for turn in (1, 0, 3) if _is_edge(padded, x, y, (heading + turn) % 4))  # right first
        heading = (heading + quarter_turns) % 4
        if (x, y) == start:  # the path passes it only once, because no pixel is above or to the left of it
            return np.array(corners, np.int64)
        if quarter_turns:
            corners.append((x, y))


_STEPS = ((1, 0), (0, 1), (-1, 0), (0, -1))
"""Steps (x, y) in the directions right, down, left and up."""
_RIGHT_PIXELS = ((0, 0), (-1, 0), (-1, -1), (0, -1))
"""Offsets (x, y) from the start of an edge to the pixel on its right, by the direction of the edge as in `_STEPS`.

Pixel (0, 0) has its top left corner at (0, 0). The right side of an edge to the right is below it.
"""
_LEFT_PIXELS = ((0, -1), (0, 0), (-1, 0), (-1, -1))
"""Offsets (x, y) from the start of an edge to the pixel on its left, by the direction of the edge as in `_STEPS`."""


def _is_edge(padded: np.ndarray, x: int, y: int, heading: int) -> bool:
    """Return True if an edge from corner (x, y) has the component on its right side and not on its left side.

    `padded` are the pixels of the component with a margin of one pixel, and `heading` is the direction of the edge, an
    index into `_STEPS`.
    """
    (right_x, right_y), (left_x, left_y) = _RIGHT_PIXELS[heading], _LEFT_PIXELS[heading]
    is_right_covered = bool(padded[y + 1 + right_y, x + 1 + right_x])  # the margin shifts the pixels by one
    return is_right_covered and not padded[y + 1 + left_y, x + 1 + left_x]
