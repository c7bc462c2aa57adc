"""Plots of an evaluation: few points, pyqtgraph's own widget in the window's colours."""

from __future__ import annotations

from collections.abc import Callable

import pyqtgraph as pg
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QLabel

from gui.style import theme

_WIDEST, _HIGHEST = 720, 620
"""Pixels; a larger plot says no more."""


class SharePlot(pg.PlotWidget):  # type: ignore[misc,unused-ignore]
    """A plot whose both axes go from 0 to 1. Whoever owns it gives it `paint`, which draws anew in the colours of the scheme."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self._draw: Callable[[], None] = lambda: None
        self._marker = pg.ScatterPlotItem(size=11)
        self.setAccessibleName(name)
        self.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        self.setMinimumSize(200, 160)
        self.setMaximumSize(_WIDEST, _HIGHEST)
        self.setMenuEnabled(False)
        self.hideButtons()
        self.setMouseEnabled(False, False)
        for side in ("bottom", "left"):
            self.getAxis(side).enableAutoSIPrefix(False)
        self.setXRange(0, 1, padding=0.02)
        self.setYRange(0, 1, padding=0.03)
        theme.notifier.changed.connect(self.repaint_all)

    def draws(self, draw: Callable[[], None]) -> None:
        """Has `draw` put its items onto the plot, now and whenever the scheme changes."""
        self._draw = draw
        self.repaint_all()

    def repaint_all(self) -> None:
        colors = theme.colors()
        self.setBackground(colors.panel)
        self.showGrid(x=True, y=True, alpha=0.15)
        for side in ("bottom", "left"):
            axis = self.getAxis(side)
            axis.setPen(colors.border)
            axis.setTextPen(colors.muted)
        self._marker.setBrush(colors.text)
        self._marker.setPen(pg.mkPen(colors.panel, width=1.5))
        self.clear()
        self._draw()
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
