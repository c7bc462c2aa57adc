"""One curve: where its numbers come from, how it is drawn, and what it says at a place."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pyqtgraph as pg
from PySide6.QtCore import Qt
from PySide6.QtGui import QColor

from gui.plots.columns import Floats, peaks
from gui.plots.smoothing import Smoother

_ANTIALIASED_UP_TO = 400
"""Curves of fewer points are drawn smoothly; with more the cost is felt and the gain is not seen."""

_RAW_ALPHA = 90
"""How much of the unsmoothed curve shines through behind the smoothed one, of 255."""


@dataclass(frozen=True)
class LineStyle:
    """`color` is asked anew when the scheme changes. `smooth` lets the smoothing slider act on the curve;
    `markers` draws a dot at each point and dashes in between, for series of few points."""

    label: str
    color: Callable[[], str]
    smooth: bool = False
    markers: bool = False


class Line:
    """A series and its items in a plot. Arrays are kept as views: they are to change on the GUI thread only."""

    def __init__(self, style: LineStyle, plot: pg.PlotItem) -> None:
        self.style = style
        self.x: Floats = np.empty(0)
        self.y: Floats = np.empty(0)
        self.smoothed: Floats = self.y
        self._smoother = Smoother(0.0)
        self._raw = pg.PlotCurveItem(connect="finite") if style.smooth else None
        self._curve = pg.PlotCurveItem(connect="finite")
        self._dots = pg.ScatterPlotItem(size=7, pxMode=True) if style.markers else None
        self._plot = plot
        for item in self._items:
            plot.addItem(item, ignoreBounds=True)
        self.recolor()

    @property
    def _items(self) -> list[pg.GraphicsObject]:
        return [item for item in (self._raw, self._curve, self._dots) if item is not None]

    def remove(self) -> None:
        for item in self._items:
            self._plot.removeItem(item)

    def recolor(self) -> None:
        """Takes on the colours of the present scheme."""
        color = QColor(self.style.color())
        dash = Qt.PenStyle.DashLine if self.style.markers else Qt.PenStyle.SolidLine
        self._curve.setPen(pg.mkPen(color, width=1, style=dash))
        if self._dots is not None:
            self._dots.setPen(None)
            self._dots.setBrush(pg.mkBrush(color))
        if self._raw is not None:
            faint = QColor(color)
            faint.setAlpha(_RAW_ALPHA)
            self._raw.setPen(pg.mkPen(faint, width=1))

    def set_data(self, x: Floats, y: Floats) -> None:
        """`x` rises; `y` may hold NaN. Both begin with what was given before, unless `restart` came between."""
        self.x, self.y = x, y
        self.smoothed = self._smoother.update(y) if self._smoother.weight else y

    def set_smoothing(self, weight: float) -> None:
        if self.style.smooth:
            self._smoother = Smoother(weight)
            self.set_data(self.x, self.y)

    def restart(self) -> None:
        """Forgets what the smoothing is built on: the data to come is another."""
        self.set_smoothing(self._smoother.weight)

    @property
    def latest(self) -> float | None:
        """The newest finite value, None where there is none."""
        return self._value(len(self.y) - 1)

    def value_at(self, place: float) -> float | None:
        """The value at the point nearest to `place`, None where there is none."""
        if not len(self.x):
            return None
        after = int(np.searchsorted(self.x, place))
        if after == len(self.x) or (after > 0 and place - self.x[after - 1] < self.x[after] - place):
            after -= 1
        value = float(self.smoothed[after])
        return value if np.isfinite(value) else None

    def _value(self, index: int) -> float | None:
        while index >= 0:
            if np.isfinite(self.y[index]):
                return float(self.smoothed[index])
            index -= 1
        return None

    def draw(self, view: tuple[float, float], width: int, scale: float, log: bool) -> tuple[float, float] | None:
        """Hands what lies in `view` to the items, thinned to `width` columns of pixels.

        Returns the lowest and highest value drawn (in the vertical axis's terms), None without any.
        """
        first = max(0, int(np.searchsorted(self.x, view[0])) - 1)
        end = min(len(self.x), int(np.searchsorted(self.x, view[1], side="right")) + 1)
        spans = []
        smoothing = self._smoother.weight > 0
        if self._raw is not None:
            self._raw.setVisible(smoothing)
            if smoothing:
                spans.append(self._draw_part(self._raw, self.y, first, end, width, scale, log))
        spans.append(self._draw_part(self._curve, self.smoothed, first, end, width, scale, log))
        found = [span for span in spans if span is not None]
        if not found:
            return None
        return min(low for low, _ in found), max(high for _, high in found)

    def _draw_part(
        self, item: pg.PlotCurveItem, values: Floats, first: int, end: int, width: int, scale: float, log: bool
    ) -> tuple[float, float] | None:
        x, y = peaks(self.x[first:end], values[first:end], width)
        y = y * scale
        if log:
            with np.errstate(divide="ignore", invalid="ignore"):
                y = np.log10(y)
            y[~np.isfinite(y)] = np.nan
        item.setData(x, y, antialias=len(x) <= _ANTIALIASED_UP_TO, connect="finite")
        finite = np.isfinite(y)
        if item is self._curve and self._dots is not None:
            self._dots.setData(x[finite], y[finite])
        if not finite.any():
            return None
        return float(y[finite].min()), float(y[finite].max())
