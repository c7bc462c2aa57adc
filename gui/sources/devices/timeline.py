"""Numbers over a day, many beside one another, within a given number of bytes."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping

import numpy as np
from numpy.typing import NDArray

from gui.sources.columns import Floats

Values = NDArray[np.float32]
_Pick = Callable[[Floats], Floats]

KEPT_S = 86_400.0
FIRST_ROOM = 100_000
"""Rows that room is made for at first: a day at one a second, and an eighth more. Memory that no number has been
written to yet is not taken from the system."""

GAP_S = 10.0
"""Silence of more than so many seconds is a gap in the graphs."""
_GAP_STEPS = 5.0
_GAP_ROWS = 64
"""A gap becomes so many empty rows over its length: one would be lost as soon as the rows around it are thinned."""

LEAST_ROWS = 64
"""No timeline is given less room than this."""

_PLACE_BYTES = 8
_VALUE_BYTES = 4


class Timeline:
    """Rows that share their places in time: seconds as float64, and any number of columns of float32.

    A day is kept, or `kept_s`. Where that does not fit into the rows allowed, the older half is thinned to the lowest
    and highest of every four rows, again and again, so that what is long past grows coarse and no peak is lost. A
    column takes room from its first number on, until it has told nothing for a day; what it lacks is NaN. There is an
    eighth more room than needed, so that everything is moved but once in hours. Moving and thinning fill new arrays:
    a view that was handed out keeps its numbers.
    """

    def __init__(self) -> None:
        self._allowed = FIRST_ROOM
        self._x: Floats = np.empty(FIRST_ROOM)
        self._columns: dict[Hashable, Values] = {}
        self._start = 0
        self._end = 0
        self._step_s = 1.0
        self.kept_s = KEPT_S

    def __len__(self) -> int:
        return self._end - self._start

    @property
    def x(self) -> Floats:
        """When the rows are from, rising; one contiguous view."""
        return self._x[self._start : self._end]

    def column(self, key: Hashable) -> Values | None:
        """A contiguous view of a column, as long as `x`; None where no number has come yet."""
        column = self._columns.get(key)
        return None if column is None else column[self._start : self._end]

    @property
    def row_bytes(self) -> int:
        return _PLACE_BYTES + _VALUE_BYTES * len(self._columns)

    @property
    def allocated_bytes(self) -> int:
        return self.row_bytes * len(self._x)

    def append(self, x: float, values: Mapping[Hashable, float | None]) -> None:
        """Adds a row; a key that is new with a number makes a column. Where the clock was set back, the past moves
        back with it, so that x always rises.
        """
        if self._end > self._start:
            self._come_to(x)
        self._ensure_room()
        for key, value in values.items():
            if value is not None and key not in self._columns:
                self._columns[key] = self._empty_column()
        self._add(x, values)

    def allow(self, rows: int) -> None:
        """Takes room for no more than `rows` from now on, thinning what does not fit."""
        self._allowed = max(LEAST_ROWS, rows)
        if len(self._x) > self._allowed:
            self._make_room()

    def _come_to(self, x: float) -> None:
        """Makes ready for a row at `x`: what lies between it and the last one."""
        last = float(self._x[self._end - 1])
        passed = x - last
        if passed <= 0:
            self._x = self._x.copy()
            self._x[self._start : self._end] += passed - self._step_s
            return
        usual, self._step_s = self._step_s, passed
        if passed > max(GAP_S, _GAP_STEPS * usual):
            for empty in np.linspace(last, x, _GAP_ROWS + 2)[1:-1]:
                self._add(float(empty), {})

    def _add(self, x: float, values: Mapping[Hashable, float | None]) -> None:
        self._ensure_room()
        at = self._end
        self._x[at] = x
        for key, column in self._columns.items():
            value = values.get(key)
            column[at] = np.nan if value is None else value
        self._end += 1
        oldest = x - self.kept_s
        while self._x[self._start] < oldest:
            self._start += 1

    def _ensure_room(self) -> None:
        if self._end == len(self._x):
            self._make_room()

    def _empty_column(self) -> Values:
        column = np.empty(len(self._x), np.float32)
        column[: self._end] = np.nan
        return column

    def _make_room(self) -> None:
        """Goes over to new arrays with an eighth more room than there are rows, after thinning where so many are not
        allowed.
        """
        kept, times = len(self), 0
        while kept > self._allowed * 8 // 9:
            kept, times = _length_thinned(kept), times + 1
        room = min(self._allowed, max(FIRST_ROOM, kept * 9 // 8))
        old = slice(self._start, self._end)
        self._start, self._end = 0, kept
        self._columns = {
            key: _moved(column[old], room, times, _lowest, _highest)
            for key, column in self._columns.items()
            if np.isfinite(column[old]).any()  # else it has told nothing for a day
        }
        self._x = _moved(self._x[old], room, times, _first, _last)


def _moved(rows: Floats, room: int, times: int, one: _Pick, other: _Pick) -> Floats:
    """`rows` at the front of a new array, after their older half was thinned so many times."""
    for _ in range(times):
        fours = rows[: _older(len(rows))].reshape(-1, 4)
        thin = np.empty((len(fours), 2), rows.dtype)
        thin[:, 0], thin[:, 1] = one(fours), other(fours)
        rows = np.concatenate((thin.ravel(), rows[fours.size :]))
    fresh = np.empty(room, rows.dtype)
    fresh[: len(rows)] = rows
    return fresh


def _older(rows: int) -> int:
    """How many rows are the older half, in whole fours."""
    return rows // 8 * 4


def _length_thinned(rows: int) -> int:
    return rows - _older(rows) // 2


def _lowest(fours: Floats) -> Floats:
    return np.fmin.reduce(fours, axis=1)


def _highest(fours: Floats) -> Floats:
    return np.fmax.reduce(fours, axis=1)


def _first(fours: Floats) -> Floats:
    return fours[:, 0]


def _last(fours: Floats) -> Floats:
    return fours[:, 3]
