"""Axes that count time as people do, and numbers without scientific surprises."""

from __future__ import annotations

import math
import time

import pyqtgraph as pg
from PySide6.QtCore import QRectF

from gui.plots.group import PlotGroup
from gui.ticks import round_step

_TIME_STEPS_S = (
    1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400, 172800, 604800, 2592000,
)  # fmt: skip
_PIXELS_PER_TICK = 80
_PIXELS_PER_ROW = 26
_LOG_FACTORS = (
    (math.log10(10 / 9), tuple(range(1, 10))),
    (math.log10(10 / 8), (1, 2, 3, 4, 6, 8)),
    (math.log10(2), (1, 2, 5)),
    (math.log10(3), (1, 3)),
)
"""What stands between the powers of ten, by the least distance of two of them."""
_OVERHANG = 8
"""Pixels by which a number may stand out above and below its axis."""


def elapsed(seconds: float) -> str:
    """Seconds since the start as "0:05", "12:40" or "3:04:10"."""
    sign = "-" if seconds < -0.5 else ""
    whole = round(abs(seconds))
    hours, minutes, rest = whole // 3600, whole // 60 % 60, whole % 60
    return f"{sign}{hours}:{minutes:02}:{rest:02}" if hours else f"{sign}{minutes}:{rest:02}"


def fine_elapsed(seconds: float, spacing: float) -> str:
    """`elapsed`, or with decimals where ticks stand closer than a second."""
    return elapsed(seconds) if spacing >= 1 else f"{seconds:.{max(1, math.ceil(-math.log10(spacing)))}f} s"


class BottomAxis(pg.AxisItem):  # type: ignore[misc,unused-ignore]
    """The horizontal axis of a plot in `group`, in whatever the group counts."""

    def __init__(self, group: PlotGroup) -> None:
        super().__init__("bottom")
        self._group = group
        self.enableAutoSIPrefix(False)

    def tickSpacing(self, low: float, high: float, size: float) -> list[tuple[float, float]]:
        least = (high - low) / max(1.0, size / _PIXELS_PER_TICK)
        if self._group.axis == "count":
            step = max(1.0, round_step(least))
        elif least < 1:
            step = round_step(least)
        else:
            step = next((float(s) for s in _TIME_STEPS_S if s >= least), math.ceil(least / 2592000) * 2592000.0)
        offset = -self._group.origin % step if self._group.axis == "clock" else 0.0
        return [(step, offset)]

    def tickStrings(self, values: list[float], scale: float, spacing: float) -> list[str]:
        if self._group.axis == "count":
            return [f"{value:,.0f}" for value in values]
        if self._group.axis == "elapsed":
            return [fine_elapsed(value, spacing) for value in values]
        pattern = "%H:%M:%S" if spacing < 60 else "%H:%M"
        return [time.strftime(pattern, time.localtime(value + self._group.origin)) for value in values]


def log_ticks(low: float, high: float, most: float) -> list[float]:
    """Logarithms of round numbers from 10^`low` to 10^`high`, as many as have room where `most` would fill it."""
    room = (high - low) / max(1.0, most)
    factors = next((f for least, f in _LOG_FACTORS if room <= least), (1,))
    decades = max(1, math.ceil(room))
    powers = range(math.floor(low), math.ceil(high) + 1)
    values = [power + math.log10(f) for power in powers if power % decades == 0 for f in factors]
    return [value for value in values if low <= value <= high]


class LeftAxis(pg.AxisItem):  # type: ignore[misc,unused-ignore]
    """The vertical axis; its width is fixed, so that plots under one another stay aligned."""

    WIDTH = 58

    def __init__(self) -> None:
        super().__init__("left")
        self.enableAutoSIPrefix(False)
        self.setWidth(self.WIDTH)

    def boundingRect(self) -> QRectF:
        # With a grid, pyqtgraph leaves no room for numbers at the very ends and would leave them out.
        return super().boundingRect().adjusted(0, -_OVERHANG, 0, _OVERHANG)

    def tickValues(self, low: float, high: float, size: float) -> list[tuple[float, list[float]]]:
        if not self.logMode:
            return super().tickValues(low, high, size)  # type: ignore[no-any-return,unused-ignore]
        return [(1.0, log_ticks(low, high, size / _PIXELS_PER_ROW))]

    def tickSpacing(self, low: float, high: float, size: float) -> list[tuple[float, float]]:
        return [(round_step((high - low) / max(1.0, size / _PIXELS_PER_ROW)), 0.0)]

    def tickStrings(self, values: list[float], scale: float, spacing: float) -> list[str]:
        if self.logMode:
            return [f"{10**value:.3g}" for value in values]
        digits = max(0, math.ceil(-math.log10(spacing) - 1e-9)) if spacing > 0 else 0
        if digits > 4:
            return [f"{value:.1e}" for value in values]
        return [f"{value:,.{digits}f}" for value in values]
