"""Plot of an evaluation with few points, in the window's colors."""

from __future__ import annotations

from collections.abc import Callable

import pyqtgraph as pg
from PySide6.QtCore import Qt

from gui.plots.themed import ThemedPlot
from gui.style import theme

_MAX_WIDTH, _MAX_HEIGHT = 720, 620
"""Pixels."""


class UnitPlot(ThemedPlot):
    """Plot with both axes from 0 to 1; its owner sets the drawing function."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self._draw: Callable[[], None] = lambda: None
        self._marker = pg.ScatterPlotItem(size=11)
        self.setMinimumSize(200, 160)
        self.setMaximumSize(_MAX_WIDTH, _MAX_HEIGHT)
        self.setXRange(0, 1, padding=0.02)
        self.setYRange(0, 1, padding=0.03)

    def set_drawing(self, draw: Callable[[], None]) -> None:
        """Set the function that adds the items, and call it now and after each change of the color scheme."""
        self._draw = draw
        self.recolor()

    def draw(self) -> None:
        self._draw()
        self._marker.setBrush(theme.colors().text)
        self._marker.setPen(pg.mkPen(theme.colors().panel, width=1.5))
        self.addItem(self._marker)

    def draw_diagonal(self) -> None:
        """Draw a dashed line from the lower left to the upper right corner."""
        pen = pg.mkPen(theme.colors().text, width=1, style=Qt.PenStyle.DashLine)
        self.plot([0, 1], [0, 1], pen=pen)

    def mark(self, x: float | None, y: float | None) -> None:
        """Mark (x, y); hide the marker if either is None."""
        is_known = x is not None and y is not None
        self._marker.setData([x] if is_known else [], [y] if is_known else [])
