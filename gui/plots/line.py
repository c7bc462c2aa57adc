"""One curve: where its numbers come from, how it is drawn, and what it says at a place."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pyqtgraph as pg
from PySide6.QtCore import Qt
from PySide6.QtGui import QColor

from gui import theme
from gui.plots.columns import Floats, peaks
from gui.plots.smoothing import Smoother
from gui.plots.view import PlotView

_ANTIALIASED_UP_TO = 400
"""Curves of fewer points are drawn smoothly; with more the cost is felt and the gain is not seen."""

_RAW_SHARE = 0.4
"""How much of a line's colour the unsmoothed curve behind the smoothed one keeps."""

_LATEST_WITHIN = 100
"""A value older than so many points is not the latest any more."""


@dataclass(frozen=True)
class LineStyle:
    """`color` is asked anew when the scheme changes. `smooth` lets the smoothing slider act on the curve;
    `markers` draws a dot at each point and dashes in between, for series of few points."""

    label: str
    color: Callable[[], str]
    smooth: bool = False
    markers: bool = False


@dataclass(frozen=True)
class Frame:
    """What of a line is in sight: from `low` to `high`, `width` pixels wide; `scale` turns values into the
    vertical axis's unit, of which the logarithm is drawn where `log` is set."""

    low: float
    high: float
    width: int
    scale: float
    log: bool

    def thin(self, x: Floats, y: Floats) -> tuple[Floats, Floats]:
        """The points to draw for `x` and `y`: at most a few for each column of pixels."""
        x, y = peaks(x, y, self.width)
        y = y * self.scale
        if self.log:
            with np.errstate(divide="ignore", invalid="ignore"):
                y = np.log10(y)
            y[~np.isfinite(y)] = np.nan
        return x, y


class Line:
    """A series and its items in a plot. Arrays are kept as views: they are to change on the GUI thread only."""

    def __init__(self, style: LineStyle, view: PlotView) -> None:
        self.style = style
        self.x: Floats = np.empty(0)
        self.y: Floats = np.empty(0)
        self.smoothed: Floats = self.y
        self._smoother = Smoother(0.0)
        self._drawn: tuple[Frame, int, float] | None = None
        self._span: tuple[float, float] | None = None
        self._raw = pg.PlotCurveItem(connect="finite") if style.smooth else None
        self._curve = pg.PlotCurveItem(connect="finite")
        self._dots = pg.ScatterPlotItem(size=7, pxMode=True) if style.markers else None
        self._view = view
        for item in self._items:
            view.add(item)
        self.recolor()

    @property
    def _items(self) -> list[pg.GraphicsObject]:
        return [item for item in (self._raw, self._curve, self._dots) if item is not None]

    def remove(self) -> None:
        for item in self._items:
            self._view.remove(item)

    def recolor(self) -> None:
        """Takes on the colours of the present scheme."""
        color = QColor(self.style.color())
        dash = Qt.PenStyle.DashLine if self.style.markers else Qt.PenStyle.SolidLine
        self._curve.setPen(pg.mkPen(color, width=1, style=dash))
        if self._dots is not None:
            self._dots.setPen(None)
            self._dots.setBrush(pg.mkBrush(color))
        if self._raw is not None:
            self._raw.setPen(pg.mkPen(_faint(color), width=1))

    def set_data(self, x: Floats, y: Floats) -> None:
        """`x` rises; `y` may hold NaN. Both begin with what was given before, unless `restart` came between."""
        self.x, self.y = x, y
        self.smoothed = self._smoother.update(y) if self._smoother.weight else y

    def set_smoothing(self, weight: float) -> None:
        if self.style.smooth and weight != self._smoother.weight:
            self._smoother = Smoother(weight)
            self.set_data(self.x, self.y)
            self._drawn = None

    def restart(self) -> None:
        """Forgets everything: the data to come is another."""
        self._smoother = Smoother(self._smoother.weight)
        self.set_data(np.empty(0), np.empty(0))

    @property
    def latest(self) -> float | None:
        """The newest finite value, None where there is none."""
        finite = np.isfinite(self.y[-_LATEST_WITHIN:])
        if not finite.any():
            return None
        return float(self.smoothed[-_LATEST_WITHIN:][finite][-1])

    def value_at(self, place: float) -> float | None:
        """The value at the point nearest to `place`, None where there is none."""
        if not len(self.x):
            return None
        after = int(np.searchsorted(self.x, place))
        if after == len(self.x) or (after > 0 and place - self.x[after - 1] < self.x[after] - place):
            after -= 1
        value = float(self.smoothed[after])
        return value if np.isfinite(value) else None

    def draw(self, frame: Frame) -> tuple[float, float] | None:
        """Hands what lies in `frame` to the items, unless that is what they show already.

        Returns the lowest and highest value drawn (in the vertical axis's terms), None without any.
        """
        now = (frame, len(self.x), float(self.x[-1]) if len(self.x) else 0.0)
        if now != self._drawn:
            self._drawn = now
            self._span = self._draw(frame)
        return self._span

    def _draw(self, frame: Frame) -> tuple[float, float] | None:
        first = max(0, int(np.searchsorted(self.x, frame.low)) - 1)
        end = min(len(self.x), int(np.searchsorted(self.x, frame.high, side="right")) + 1)
        spans = []
        if self._raw is not None:
            smoothing = self._smoother.weight > 0
            self._raw.setVisible(smoothing)
            if smoothing:
                spans.append(_show(self._raw, *frame.thin(self.x[first:end], self.y[first:end])))
        x, y = frame.thin(self.x[first:end], self.smoothed[first:end])
        spans.append(_show(self._curve, x, y))
        if self._dots is not None:
            finite = np.isfinite(y)
            self._dots.setData(x[finite], y[finite])
        found = [span for span in spans if span is not None]
        return (min(low for low, _ in found), max(high for _, high in found)) if found else None


def _faint(color: QColor) -> QColor:
    """`color` as if it shone through; mixed beforehand, since drawing half transparent lines takes far longer."""
    ground = QColor(theme.colors().panel)
    pairs = zip((color.red(), color.green(), color.blue()), (ground.red(), ground.green(), ground.blue()), strict=True)
    return QColor(*(round(_RAW_SHARE * own + (1 - _RAW_SHARE) * below) for own, below in pairs))


def _show(item: pg.PlotCurveItem, x: Floats, y: Floats) -> tuple[float, float] | None:
    """Gives the points to `item` and returns their lowest and highest, None without any."""
    item.setData(x, y, antialias=len(x) <= _ANTIALIASED_UP_TO, connect="finite")
    finite = y[np.isfinite(y)]
    return (float(finite.min()), float(finite.max())) if len(finite) else None
