"""Axes that count time as people do, and numbers without scientific surprises."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator

import pyqtgraph as pg
from PySide6.QtCore import QMarginsF, QPointF, QRectF
from PySide6.QtGui import QColor, QFontMetrics, QPainter, QStaticText
from PySide6.QtWidgets import QStyleOptionGraphicsItem, QWidget

from gui import theme
from gui.plots.group import PlotGroup
from gui.plots.text import laid_out
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
_OVERHANG = QMarginsF(20, 8, 10, 8)
"""Pixels by which the numbers may stand out over the plot's edges: left, above, right and below."""
_TEXT_GAP = 5
_BELOW_THE_CURVES = -101
"""A ViewBox lies at -100."""
_PLACES_HEIGHT = 22


def elapsed(seconds: float) -> str:
    """Seconds since the start as "0:05", "12:40" or "3:04:10"."""
    sign = "-" if seconds < -0.5 else ""
    whole = round(abs(seconds))
    hours, minutes, rest = whole // 3600, whole // 60 % 60, whole % 60
    return f"{sign}{hours}:{minutes:02}:{rest:02}" if hours else f"{sign}{minutes}:{rest:02}"


def fine_elapsed(seconds: float, spacing: float) -> str:
    """`elapsed`, or with decimals where ticks stand closer than a second."""
    return elapsed(seconds) if spacing >= 1 else f"{seconds:.{max(1, math.ceil(-math.log10(spacing)))}f} s"


class Axis(pg.AxisItem):  # type: ignore[misc,unused-ignore]
    """An axis that draws its numbers and the grid behind the curves.

    pyqtgraph's own records them as a QPicture first, which took a third of a frame where time moves on.
    """

    def __init__(self, orientation: str) -> None:
        super().__init__(orientation)
        self.enableAutoSIPrefix(False)
        self.setZValue(_BELOW_THE_CURVES)
        self._area = QRectF()
        self._laid_for: tuple[object, ...] = ()
        self._lines: list[QRectF] = []
        self._texts: list[tuple[QPointF, QStaticText]] = []

    def linkedViewChanged(self, view: pg.ViewBox, newRange: tuple[float, float] | None = None) -> None:  # noqa: N803
        super().linkedViewChanged(view, newRange)
        area = view.mapRectToItem(self, view.boundingRect())
        if area != self._area:
            self.prepareGeometryChange()
            self._area = area

    def boundingRect(self) -> QRectF:
        return self.rect().united(self._area.marginsAdded(_OVERHANG))

    def paint(self, painter: QPainter, option: QStyleOptionGraphicsItem, widget: QWidget | None = None) -> None:
        low, high = self.range
        if high <= low or self._area.isEmpty():
            return
        self._lay_out(low, high, painter.fontMetrics())
        grid = QColor(theme.colors().grid)
        for line in self._lines:
            painter.fillRect(line, grid)  # which takes a tenth of the time that a line takes
        painter.fillRect(self._edge(), self.pen().color())
        painter.setPen(self.textPen())
        for corner, text in self._texts:
            painter.drawStaticText(corner, text)

    def _lay_out(self, low: float, high: float, metrics: QFontMetrics) -> None:
        """Finds what is to be drawn, unless that is what it was."""
        box = (self.rect(), self._area, metrics.height())
        asked = (low, high, *box, self.logMode, self.style["showValues"], *self._counted)
        if asked == self._laid_for:
            return
        self._laid_for = asked
        spacing, ticks = self._ticks(low, high)
        places = [self._pixel(tick, low, high) for tick in ticks]
        self._lines = [self._across(place) for place in places]
        texts = self.tickStrings(ticks, 1.0, spacing) if self.style["showValues"] else []
        self._texts = [
            (corner, laid_out(text))
            for place, text in zip(places, texts, strict=False)
            for corner in self._corner(metrics, place, text)
        ]

    def _ticks(self, low: float, high: float) -> tuple[float, list[float]]:
        """The distance of two numbers, and where they are."""
        ((spacing, offset),) = self.tickSpacing(low, high, self._length)
        first, last = math.ceil((low - offset) / spacing), math.floor((high - offset) / spacing)
        return spacing, [offset + number * spacing for number in range(first, last + 1)]

    @property
    def _counted(self) -> tuple[object, ...]:
        """What else the numbers depend on."""
        return ()

    @property
    def _length(self) -> float:
        raise NotImplementedError

    def _pixel(self, value: float, low: float, high: float) -> float:
        raise NotImplementedError

    def _edge(self) -> QRectF:
        raise NotImplementedError

    def _across(self, place: float) -> QRectF:
        raise NotImplementedError

    def _corner(self, metrics: QFontMetrics, place: float, text: str) -> Iterator[QPointF]:
        """The upper left corner of what is written at `place`; none where there is no room for it."""
        raise NotImplementedError


class BottomAxis(Axis):
    """The horizontal axis of a plot in `group`, in whatever the group counts."""

    def __init__(self, group: PlotGroup) -> None:
        super().__init__("bottom")
        self._group = group
        self.setHeight(_PLACES_HEIGHT)

    def tickSpacing(self, low: float, high: float, size: float) -> list[tuple[float, float]]:
        least = (high - low) / max(1.0, size / _PIXELS_PER_TICK)
        if self._group.axis == "count":
            step = max(1.0, round_step(least))
        elif least < 1 or self._group.axis == "epochs":
            step = round_step(least)
        else:
            step = next((float(s) for s in _TIME_STEPS_S if s >= least), math.ceil(least / 2592000) * 2592000.0)
        offset = -self._group.origin % step if self._group.axis == "clock" else 0.0
        return [(step, offset)]

    def tickStrings(self, values: list[float], scale: float, spacing: float) -> list[str]:
        if self._group.axis == "count":
            return [f"{value:,.0f}" for value in values]
        if self._group.axis == "epochs":
            return [f"{value:.6g}" for value in values]
        if self._group.axis == "elapsed":
            return [fine_elapsed(value, spacing) for value in values]
        pattern = "%H:%M:%S" if spacing < 60 else "%H:%M"
        return [time.strftime(pattern, time.localtime(value + self._group.origin)) for value in values]

    @property
    def _counted(self) -> tuple[object, ...]:
        return self._group.axis, self._group.origin

    @property
    def _length(self) -> float:
        return self._area.width()

    def _pixel(self, value: float, low: float, high: float) -> float:
        return round(self._area.left() + (value - low) / (high - low) * self._area.width())

    def _edge(self) -> QRectF:
        return QRectF(self._area.left(), self._area.bottom(), self._area.width(), 1)

    def _across(self, place: float) -> QRectF:
        return QRectF(place, self._area.top(), 1, self._area.height())

    def _corner(self, metrics: QFontMetrics, place: float, text: str) -> Iterator[QPointF]:
        half = metrics.horizontalAdvance(text) / 2
        bounds = self._area.marginsAdded(_OVERHANG)
        if bounds.left() <= place - half and place + half <= bounds.right():
            yield QPointF(round(place - half), self._area.bottom() + _TEXT_GAP)


def log_ticks(low: float, high: float, most: float) -> list[float]:
    """Logarithms of round numbers from 10^`low` to 10^`high`, as many as have room where `most` would fill it."""
    room = (high - low) / max(1.0, most)
    factors = next((f for least, f in _LOG_FACTORS if room <= least), (1,))
    decades = max(1, math.ceil(room))
    powers = range(math.floor(low), math.ceil(high) + 1)
    values = [power + math.log10(f) for power in powers if power % decades == 0 for f in factors]
    return [value for value in values if low <= value <= high]


class LeftAxis(Axis):
    """The vertical axis; its width is fixed, so that plots under one another stay aligned."""

    WIDTH, NARROW = 58, 34

    def __init__(self, narrow: bool = False) -> None:
        super().__init__("left")
        self.setWidth(self.NARROW if narrow else self.WIDTH)
        self._edges = (-math.inf, math.inf)

    def keep_within(self, low: float | None, high: float | None) -> None:
        """Leaves out numbers beyond what the values can be: there are no 105 %. None is no such edge."""
        self._edges = (-math.inf if low is None else low, math.inf if high is None else high)

    def tickSpacing(self, low: float, high: float, size: float) -> list[tuple[float, float]]:
        return [(round_step((high - low) / max(1.0, size / _PIXELS_PER_ROW)), 0.0)]

    def tickStrings(self, values: list[float], scale: float, spacing: float) -> list[str]:
        if self.logMode:
            return [f"{10**value:.3g}" for value in values]
        digits = max(0, math.ceil(-math.log10(spacing) - 1e-9)) if spacing > 0 else 0
        if digits > 4:
            return [f"{value:.1e}" for value in values]
        return [f"{value:,.{digits}f}" for value in values]

    def _ticks(self, low: float, high: float) -> tuple[float, list[float]]:
        if self.logMode:
            return 1.0, log_ticks(low, high, self._length / _PIXELS_PER_ROW)
        spacing, ticks = super()._ticks(low, high)
        return spacing, [tick for tick in ticks if self._edges[0] <= tick <= self._edges[1]]

    @property
    def _length(self) -> float:
        return self._area.height()

    def _pixel(self, value: float, low: float, high: float) -> float:
        return round(self._area.bottom() - (value - low) / (high - low) * self._area.height())

    def _edge(self) -> QRectF:
        return QRectF(self._area.left() - 1, self._area.top(), 1, self._area.height())

    def _across(self, place: float) -> QRectF:
        return QRectF(self._area.left(), place, self._area.width(), 1)

    def _corner(self, metrics: QFontMetrics, place: float, text: str) -> Iterator[QPointF]:
        right = self.rect().right() - _TEXT_GAP
        yield QPointF(round(right - metrics.horizontalAdvance(text)), round(place - metrics.height() / 2))
