"""Numbers over time, kept so that a plot can take contiguous slices of them without copying."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


class Column:
    """A growing array of float64; appending is amortised O(1). A missing value is NaN."""

    def __init__(self, reserve: int = 256) -> None:
        self._data: Floats = np.empty(max(1, reserve))
        self._length = 0

    def __len__(self) -> int:
        return self._length

    @property
    def values(self) -> Floats:
        """A view of what is there; valid until the next append that has to grow."""
        return self._data[: self._length]

    @property
    def last(self) -> float:
        """The newest value, NaN where there is none."""
        return float(self._data[self._length - 1]) if self._length else float("nan")

    def append(self, value: float | None) -> None:
        self._reserve(1)
        self._data[self._length] = np.nan if value is None else value
        self._length += 1

    def extend(self, values: Iterable[float] | Floats) -> None:
        added = np.asarray(values if isinstance(values, np.ndarray) else list(values), dtype=np.float64)
        self._reserve(len(added))
        self._data[self._length : self._length + len(added)] = added
        self._length += len(added)

    def clear(self) -> None:
        self._length = 0

    def _reserve(self, count: int) -> None:
        needed = self._length + count
        if needed > len(self._data):
            grown = np.empty(max(needed, 2 * len(self._data)))
            grown[: self._length] = self._data[: self._length]
            self._data = grown


class Ring:
    """The newest `capacity` rows of `columns` numbers each.

    Twice the room is kept and the newest half is moved to the front when the end is reached, so that what
    is there is one contiguous slice at any time and a move comes once in `capacity` appends.
    """

    def __init__(self, columns: int, capacity: int) -> None:
        self.capacity = capacity
        self._data: Floats = np.full((columns, 2 * capacity), np.nan)
        self._end = 0

    def __len__(self) -> int:
        return min(self._end, self.capacity)

    def append(self, row: Iterable[float | None]) -> None:
        if self._end == self._data.shape[1]:
            self._data[:, : self.capacity] = self._data[:, self.capacity :]
            self._end = self.capacity
        for column, value in enumerate(row):
            self._data[column, self._end] = np.nan if value is None else value
        self._end += 1

    def column(self, index: int) -> Floats:
        """A contiguous view of one column, oldest first; valid until the next append."""
        return self._data[index, max(0, self._end - self.capacity) : self._end]


def peaks(x: Floats, y: Floats, buckets: int) -> tuple[Floats, Floats]:
    """`x` and `y` thinned to the lowest and highest value of each of `buckets` equal parts.

    What is drawn stays the same to within a pixel when there are at least as many buckets as columns of
    pixels, since a line through many points in one column covers the span between its extremes. A bucket
    without any finite value stays NaN, so that gaps wider than a bucket stay gaps.
    """
    size = len(x) // buckets if buckets > 0 else 0
    if size < 3:
        return x, y
    whole = len(x) // size * size
    parts = y[:whole].reshape(-1, size)
    thin_y = np.empty(2 * len(parts))
    np.fmin.reduce(parts, axis=1, out=thin_y[0::2])
    np.fmax.reduce(parts, axis=1, out=thin_y[1::2])
    thin_x = np.empty(2 * len(parts))
    thin_x[0::2] = x[:whole:size]
    thin_x[1::2] = x[size - 1 : whole : size]
    if whole == len(x):
        return thin_x, thin_y
    return np.concatenate((thin_x, x[whole:])), np.concatenate((thin_y, y[whole:]))
