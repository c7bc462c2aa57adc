"""Outlines of objects in COCO's formats (polygons or run lengths), and the pixels inside them. Torch-free."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from engine.data.decoding.reading import MAX_PIXELS

Points = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]


MAX_CROSSINGS = 1 << 22
"""Maximum number of times that a polygon may cross a row of pixels, in total.

Hand-drawn outlines have a few thousand crossings.
"""
_MAX_BITS = 40
"""Maximum number of bits of a run length in COCO's text format."""


class OutlineError(ValueError):
    """Raised when an outline can't be used. The message gives the reason."""


class Window(NamedTuple):
    """Rectangle in an image, with `pixels`, bool [h, w], which are True where the rectangle is covered by an object."""

    top: int
    left: int
    pixels: Mask

    @property
    def slices(self) -> tuple[slice, slice]:
        """Slices of the image's rows and columns that the window covers."""
        height, width = self.pixels.shape
        return slice(self.top, self.top + height), slice(self.left, self.left + width)


class _Runs(msgspec.Struct):
    """Run-length encoding of COCO: the lengths of alternating runs outside and inside an object, column by column.

    The first run is outside. `counts` holds numbers or packed text, and `size` the height and width.
    """

    size: tuple[int, int]
    counts: list[int] | str


_DECODER = msgspec.json.Decoder(list[list[float]] | _Runs)


@dataclass(frozen=True, eq=False)
class Outline:
    """Outline of an object, given by polygons or by run lengths.

    The object consists of the pixels inside any of the `polygons`, each float64 [k, 2] with x and y. If `runs` is not
    None, it holds run lengths instead (see `_Runs`), and `size` the height and width of their image.
    """

    polygons: tuple[Points, ...] = ()
    runs: npt.NDArray[np.int64] | None = None
    size: tuple[int, int] = (0, 0)

    def edges(self) -> tuple[float, float, float, float]:
        """Return the left, top, right and bottom edge of the outline. All are NaN if it contains no pixels."""
        if self.runs is None:
            points = np.concatenate(self.polygons)
            (left, top), (right, bottom) = points.min(0).tolist(), points.max(0).tolist()
            return left, top, right, bottom
        window = self.window(*self.size)
        if window is None:
            return (math.nan, math.nan, math.nan, math.nan)
        height, width = window.pixels.shape
        return window.left, window.top, window.left + width, window.top + height

    def window(self, height: int, width: int) -> Window | None:
        """Return the smallest window that contains all pixels of the object, or None if the object has no pixels.

        `height` and `width` are those of the image. A pixel is inside a polygon if its center is, by the even-odd rule.
        Raises OutlineError if the run lengths are for another image size.
        """
        if self.runs is None:
            windows = [fill_polygon(each, height, width) for each in self.polygons]
            return _join_windows([window for window in windows if window is not None])
        if self.size != (height, width):
            sizes = f"{self.size[1]} x {self.size[0]} pixels, the image has {width} x {height}"
            raise OutlineError(f"an outline in it has a different size ({sizes})")
        inside = np.repeat(np.arange(len(self.runs)) % 2 == 1, self.runs)
        return _find_window(inside.reshape(width, height).T)  # the runs go column by column


def read_outline(content: msgspec.Raw | bytes) -> Outline:
    """Parse the JSON in COCO's `segmentation` field. Raises OutlineError if it is invalid."""
    try:
        decoded = _DECODER.decode(content)
    except (msgspec.DecodeError, RecursionError) as error:
        raise OutlineError(f"an outline in it is not in COCO's format ({error})") from error
    if isinstance(decoded, _Runs):
        counts = decoded.counts if isinstance(decoded.counts, list) else _decode_counts(decoded.counts)
        pixels = decoded.size[0] * decoded.size[1]
        if not 0 <= pixels <= MAX_PIXELS:
            raise OutlineError(f"an outline in it has {pixels:,} pixels, which is too many")
        if any(not 0 <= run <= pixels for run in counts) or sum(counts) != pixels:
            raise OutlineError("an outline in it has runs that do not fill its image")
        return Outline(runs=np.array(counts, np.int64), size=decoded.size)
    # The numbers x and y alternate. A polygon has at least three points. A last number without a partner is dropped.
    rings = [ring[: len(ring) // 2 * 2] for ring in decoded if len(ring) >= 6]
    polygons = tuple(np.array(ring).reshape(-1, 2) for ring in rings)
    if not polygons:
        raise OutlineError("an outline in it has fewer than three points")
    return Outline(polygons)


def fill_polygon(polygon: Points, height: int, width: int) -> Window | None:
    """Return a polygon's pixels in an image of the given size, in the smallest window around them.

    Returns None if no pixel is inside. `polygon` is float64 [k, 2]. Its pixels are those whose centers are inside, by
    the even-odd rule. Raises OutlineError for an outline that crosses too many rows.
    """
    low, high = polygon.min(0), polygon.max(0)
    left, top = (int(edge) for edge in np.clip(np.floor(low), 0, (width, height)))
    right, bottom = (int(edge) for edge in np.clip(np.ceil(high), 0, (width, height)))
    if right <= left or bottom <= top:
        return None
    (x0, y0), (x1, y1) = polygon.T, np.roll(polygon, -1, 0).T
    # Rows whose centers each side crosses. Only the lower end of a side counts, so that no crossing is counted twice.
    first_row, last_row = (
        np.clip(np.ceil(edge - 0.5), top, bottom).astype(np.int64) for edge in (np.minimum(y0, y1), np.maximum(y0, y1))
    )
    counts = last_row - first_row
    if counts.sum() > MAX_CROSSINGS:
        raise OutlineError(f"an outline in it crosses the rows of its image {counts.sum():,} times")
    # The side, the row and the x coordinate of each crossing.
    sides = np.repeat(np.arange(len(polygon)), counts)
    rows = np.arange(len(sides)) - np.repeat(np.cumsum(counts) - counts, counts) + first_row[sides]
    x = x0[sides] + (rows + 0.5 - y0[sides]) * (x1 - x0)[sides] / (y1 - y0)[sides]
    # Pixels are inside where the number of crossings to the left of their centers is odd.
    columns = np.clip(np.ceil(x - 0.5), left, right).astype(np.int64)
    crossings = np.zeros((bottom - top, right - left + 1), np.uint8)  # only the lowest bit is needed
    np.add.at(crossings, (rows - top, columns - left), 1)
    inside = (np.cumsum(crossings[:, :-1], 1, np.uint8) & 1).astype(bool)
    found = _find_window(inside)
    return None if found is None else Window(top + found.top, left + found.left, found.pixels)


def _find_window(inside: Mask) -> Window | None:
    """Return the smallest window around all True pixels of `inside`, bool [h, w], or None if there are none."""
    rows, columns = (np.flatnonzero(inside.any(axis)) for axis in (1, 0))
    if not len(rows):
        return None
    top, left = int(rows[0]), int(columns[0])
    return Window(top, left, inside[top : rows[-1] + 1, left : columns[-1] + 1])


def _join_windows(windows: Sequence[Window]) -> Window | None:
    """Return one window around all pixels of the given `windows`, or None if there are none."""
    if len(windows) < 2:
        return windows[0] if windows else None
    top, left = min(each.top for each in windows), min(each.left for each in windows)
    bottom = max(each.top + each.pixels.shape[0] for each in windows)
    right = max(each.left + each.pixels.shape[1] for each in windows)
    pixels = np.zeros((bottom - top, right - left), bool)
    for each in windows:
        height, width = each.pixels.shape
        pixels[each.top - top :, each.left - left :][:height, :width] |= each.pixels
    return Window(top, left, pixels)


def _decode_counts(text: str) -> list[int]:
    """Decode run lengths from COCO's text format (`rleFrString` in maskApi.c of cocoapi).

    Each character holds six bits, offset by "0": five bits of a number, lowest first, and one bit that is set if more
    bits follow. From the fourth number on, only the difference to the second-to-last number is stored.
    """
    counts: list[int] = []
    value = shift = 0
    for character in text:
        bits = ord(character) - 48
        if not 0 <= bits < 64:
            raise OutlineError("an outline in it has text that is not a run-length encoding")
        value |= (bits & 0x1F) << shift
        shift += 5
        if shift > _MAX_BITS:
            raise OutlineError("an outline in it has a run that is longer than any image")
        if bits & 0x20:
            continue
        if bits & 0x10:
            value -= 1 << shift
        counts.append(value + (counts[-2] if len(counts) > 2 else 0))
        value = shift = 0
    return counts
