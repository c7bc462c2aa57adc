"""Plots of an evaluation: few points, pyqtgraph's own widget in the window's colours."""

from __future__ import annotations

from collections.abc import Callable

import pyqtgraph as pg
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QLabel

from gui.plots.themed import ThemedPlot
from gui.style import theme

_WIDEST, _HIGHEST = 720, 620
"""Pixels; a larger plot says no more."""


class SharePlot(ThemedPlot):
    """A plot whose both axes go from 0 to 1. Whoever owns it says by `draws` what is on it."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self._draw: Callable[[], None] = lambda: None
        self._marker = pg.ScatterPlotItem(size=11)
        self.setMinimumSize(200, 160)
        self.setMaximumSize(_WIDEST, _HIGHEST)
        self.setXRange(0, 1, padding=0.02)
        self.setYRange(0, 1, padding=0.03)

    def draws(self, draw: Callable[[], None]) -> None:
        """Has `draw` put its items onto the plot, now and whenever the scheme changes."""
        self._draw = draw
        self.recolor()

    def draw(self) -> None:
        self._draw()
        self._marker.setBrush(theme.colors().text)
        self._marker.setPen(pg.mkPen(theme.colors().panel, width=1.5))
        self.addItem(self._marker)

    def diagonal(self) -> None:
        """The dashed line from the lower left corner to the upper right."""
        pen = pg.mkPen(theme.colors().text, width=1, style=Qt.PenStyle.DashLine)
        self.plot([0, 1], [0, 1], pen=pen)

    def mark(self, x: float | None, y: float | None) -> None:
        """Marks a point, where both are known."""
        there = x is not None and y is not None
        self._marker.setData([x] if there else [], [y] if there else [])


def caption(text: str = "", kind: str = "muted") -> QLabel:
    """A label that wraps."""
    label = QLabel(text, wordWrap=True)
    label.setObjectName(kind)
    return label
