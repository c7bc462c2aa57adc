"""Many time series over a day, in limited memory."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping

import numpy as np
from numpy.typing import NDArray

from gui.sources.columns import Floats

Values = NDArray[np.float32]

RETENTION_S = 86_400.0
INITIAL_ROWS = 100_000
"""Initial capacity in rows: one row per second for a day, plus a margin.

The operating system provides the memory only when rows are written.
"""

GAP_S = 10.0
"""Number of seconds without a reading after which graphs show a gap."""
_GAP_STEPS = 5.0
_GAP_ROWS = 64
"""Number of empty rows that represent a gap. A single row could disappear when rows are thinned."""

MIN_ROWS = 64
"""Smallest permitted limit for the number of rows."""

_TIME_BYTES = 8
_VALUE_BYTES = 4


class Timeline:
    """Time series in any number of float32 columns that share a time column (seconds, float64).

    Rows are kept for `retention_s`, a day by default. If they exceed the limit, the older half is thinned repeatedly to
    the minimum and maximum of every four rows. The distant past becomes coarse, but no peak is lost. A column exists
    from its first number until it has been empty for a day. Missing values are NaN.

    Arrays have an eighth of spare rows, so that they rarely have to be replaced. A replaced array doesn't change,
    so that existing views keep their numbers.
    """

    def __init__(self) -> None:
        self._max_rows = INITIAL_ROWS  # maximum number of rows, including spare ones
        self._x: Floats = np.empty(INITIAL_ROWS)
        self._columns: dict[Hashable, Values] = {}
        self._start = 0  # the rows from `_start` to `_end` are in use, the others are spare
        self._end = 0
        self._step_s = 1.0  # time between the last two rows
        self.retention_s = RETENTION_S

    def __len__(self) -> int:
        return self._end - self._start

    @property
    def x(self) -> Floats:
        """Contiguous view of the times, in ascending order."""
        return self._x[self._start : self._end]

    def column(self, key: Hashable) -> Values | None:
        """Return a contiguous view of a column, as long as `x`, or None before its first number."""
        column = self._columns.get(key)
        return None if column is None else column[self._start : self._end]

    @property
    def row_bytes(self) -> int:
        return _TIME_BYTES + _VALUE_BYTES * len(self._columns)

    @property
    def allocated_bytes(self) -> int:
        return self.row_bytes * len(self._x)

    def append(self, x: float, values: Mapping[Hashable, float | None]) -> None:
        """Append a row with the time `x` and the numbers `values` by column. A number with a new key creates a column.

        If the clock has been set back, the earlier rows are shifted back too, so that the times always rise.
        """
        if self._end > self._start:
            self._fill_gap_or_shift_back(x)
        self._ensure_room()
        for key, value in values.items():
            if value is not None and key not in self._columns:
                self._columns[key] = self._empty_column()
        self._add(x, values)

    def prepend(self, x: Floats, columns: Mapping[Hashable, Values], gap_s: float) -> None:
        """Insert older rows before the first one. The oldest ones are dropped if there is no room.

        The times `x` ascend, and `columns` contains the values at these times. A distance of more than `gap_s` between
        two rows is shown as a gap.
        """
        if not len(x) or not len(self):
            return
        # Fill gaps, also the one before the first row, with rows without values.
        x = np.append(x, self._x[self._start])
        before_gaps = np.flatnonzero(np.diff(x) > gap_s)
        fills = [np.linspace(x[row], x[row + 1], _GAP_ROWS + 2)[1:-1] for row in before_gaps]
        gap_positions = np.repeat(before_gaps + 1, _GAP_ROWS)
        with_gaps = np.insert(x, gap_positions, np.concatenate(fills) if fills else [])
        older_times = with_gaps[:-1]  # without the time of the first row
        surplus = max(0, len(older_times) + len(self) - self._max_rows)
        older_times = older_times[surplus:]
        if not len(older_times):
            return
        # Copy both into new arrays, with room for an eighth more rows.
        rows = len(older_times) + len(self)
        room = min(self._max_rows, max(INITIAL_ROWS, rows * 9 // 8))
        used = slice(self._start, self._end)
        merged: dict[Hashable, Values] = {}
        for key in dict.fromkeys((*self._columns, *columns)):
            column = merged[key] = np.full(room, np.nan, np.float32)
            if key in columns:
                column[: len(older_times)] = np.insert(columns[key], gap_positions, np.nan)[-len(older_times) :]
            if key in self._columns:
                column[len(older_times) : rows] = self._columns[key][used]
        times = np.empty(room)
        times[: len(older_times)], times[len(older_times) : rows] = older_times, self._x[used]
        self._x, self._columns, self._start, self._end = times, merged, 0, rows

    def limit_rows(self, rows: int) -> None:
        """Limit the number of rows. If there are more, thin the older ones."""
        self._max_rows = max(MIN_ROWS, rows)
        if len(self._x) > self._max_rows:
            self._make_room()

    def _fill_gap_or_shift_back(self, x: float) -> None:
        """Insert empty rows before time `x` if the last row is older than `GAP_S` and five times the previous interval.

        If `x` is not after the last row, all rows are shifted back instead.
        """
        last = float(self._x[self._end - 1])
        passed = x - last
        if passed <= 0:  # the clock has been set back
            self._x = self._x.copy()  # existing views must not change
            self._x[self._start : self._end] += passed - self._step_s
            return
        previous_step_s, self._step_s = self._step_s, passed
        if passed > max(GAP_S, _GAP_STEPS * previous_step_s):
            for empty in np.linspace(last, x, _GAP_ROWS + 2)[1:-1]:
                self._add(float(empty), {})

    def _add(self, x: float, values: Mapping[Hashable, float | None]) -> None:
        """Append a row, and drop rows that are older than the retention time."""
        self._ensure_room()
        row = self._end
        self._x[row] = x
        for key, column in self._columns.items():
            value = values.get(key)
            column[row] = np.nan if value is None else value
        self._end += 1
        oldest = x - self.retention_s
        while self._x[self._start] < oldest:
            self._start += 1

    def _ensure_room(self) -> None:
        """Make room for at least one more row."""
        if self._end == len(self._x):
            self._make_room()

    def _empty_column(self) -> Values:
        """Return a new column with NaN in all rows that are in use."""
        column = np.empty(len(self._x), np.float32)
        column[: self._end] = np.nan
        return column

    def _make_room(self) -> None:
        """Copy the rows to larger arrays, and thin them if they exceed the limit."""
        rows, thinnings = len(self), 0
        while rows > self._max_rows * 8 // 9:  # an eighth of spare rows must fit
            rows, thinnings = _thinned_length(rows), thinnings + 1
        room = min(self._max_rows, max(INITIAL_ROWS, rows * 9 // 8))
        old = slice(self._start, self._end)
        self._start, self._end = 0, rows
        self._columns = {
            key: _copy_thinned(column[old], room, thinnings, _find_extremes)
            for key, column in self._columns.items()
            if np.isfinite(column[old]).any()  # otherwise it has been empty for a day
        }
        self._x = _copy_thinned(self._x[old], room, thinnings, _take_outer)


def _copy_thinned(rows: Floats, room: int, thinnings: int, thin: Callable[[Floats], Floats]) -> Floats:
    """Copy `rows` to the start of a new array with `room` rows, after thinning their older half `thinnings` times.

    Each thinning replaces four rows by two. `thin` converts an array [n, 4] to [n, 2] for this.
    """
    for _ in range(thinnings):
        fours = rows[: _older_half(len(rows))].reshape(-1, 4)
        rows = np.concatenate((thin(fours).ravel(), rows[fours.size :]))
    target = np.empty(room, rows.dtype)
    target[: len(rows)] = rows
    return target


def _older_half(rows: int) -> int:
    """Return the number of rows in the older half, a multiple of four."""
    return rows // 8 * 4


def _thinned_length(rows: int) -> int:
    """Return the number of rows that remain if the older half is thinned once."""
    return rows - _older_half(rows) // 2


def _find_extremes(fours: Floats) -> Floats:
    """Reduce each row of four values to its minimum and maximum: [n, 4] to [n, 2]. Only rows of NaN result in NaN."""
    return np.stack((np.fmin.reduce(fours, axis=1), np.fmax.reduce(fours, axis=1)), axis=1)


def _take_outer(fours: Floats) -> Floats:
    """Reduce each row of four times to the first and the last one: [n, 4] to [n, 2]."""
    return fours[:, [0, 3]]
