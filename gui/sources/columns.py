"""Growing arrays of numbers. Plots take contiguous slices of them without copying."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.floating[Any]]
"""Array of float64 from this module, or of float32 from callers."""


_MIN_POINTS_PER_BUCKET = 3
"""Minimum number of points per bucket for reducing a curve. Curves with fewer points are drawn in full."""


class Column:
    """Growing array of float64 with amortized O(1) appends. Missing values are NaN."""

    def __init__(self, reserve: int = 256) -> None:
        self._data: Floats = np.empty(max(1, reserve))
        self._length = 0

    def __len__(self) -> int:
        return self._length

    @property
    def values(self) -> Floats:
        """View of the values. It remains valid until the array has to grow."""
        return self._data[: self._length]

    @property
    def last(self) -> float:
        """Newest value, or NaN if there is none."""
        return float(self._data[self._length - 1]) if self._length else float("nan")

    def append(self, value: float | None) -> None:
        """Append a value, or NaN for None."""
        self._reserve(1)
        self._data[self._length] = np.nan if value is None else value
        self._length += 1

    def extend(self, values: Iterable[float] | Floats) -> None:
        """Append several values, which are converted to float64."""
        added = np.asarray(values if isinstance(values, np.ndarray) else list(values), dtype=np.float64)
        self._reserve(len(added))
        self._data[self._length : self._length + len(added)] = added
        self._length += len(added)

    def clear(self) -> None:
        self._length = 0

    def shorten(self, length: int) -> None:
        """Keep the first `length` values. Existing views still contain the dropped values."""
        if length < self._length:
            self._reallocate(len(self._data), length)

    def _reserve(self, count: int) -> None:
        """Make room for `count` more values. If the array must grow, it at least doubles."""
        needed = self._length + count
        if needed > len(self._data):
            self._reallocate(max(needed, 2 * len(self._data)), self._length)

    def _reallocate(self, reserve: int, length: int) -> None:
        """Copy the first `length` values to a new array that has room for `reserve` values."""
        data = np.empty(reserve)
        data[:length] = self._data[:length]
        self._data, self._length = data, length


def reduce_to_extremes(x: Floats, y: Floats, low: float, high: float, buckets: int) -> tuple[Floats, Floats]:
    """Reduce a curve to its minimum and maximum in each of `buckets` equal sections from `low` to `high`.

    Returns the x and y values of the reduced curve, or `x` and `y` if there are too few points to reduce. With at least
    one bucket per pixel column, the drawn curve changes by at most a pixel, because a line through many points in a
    column covers the range between its extremes. A bucket without finite values stays NaN, so gaps wider than two
    buckets remain visible. Buckets start at multiples of their width, so that a moving plot doesn't flicker.
    """
    if buckets <= 0 or high <= low or len(x) < _MIN_POINTS_PER_BUCKET * buckets:
        return x, y
    width = (high - low) / buckets
    first_edge, last_edge = np.ceil(max(low, x[0]) / width), np.floor(min(high, x[-1]) / width)
    edges = np.arange(first_edge, last_edge + 1) * width
    starts = np.concatenate(([0], np.searchsorted(x, edges)))  # index of the first point in each bucket
    has_points = np.append(np.diff(starts) > 0, starts[-1] < len(x))
    starts = starts[has_points]
    ends = np.append(starts[1:], len(x))
    # Each bucket becomes two points: its minimum at its first x, and its maximum at its last one.
    thin_x, thin_y = np.empty((2, 2 * len(starts)))
    thin_x[0::2] = x[starts]
    thin_x[1::2] = x[ends - 1]
    thin_y[0::2] = np.fmin.reduceat(y, starts)
    thin_y[1::2] = np.fmax.reduceat(y, starts)
    return thin_x, thin_y
