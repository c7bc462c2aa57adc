"""pyqtgraph's own plot widget in the window's colours, for plots of few points."""

from __future__ import annotations

import html

import pyqtgraph as pg
from PySide6.QtCore import Qt

from gui.style import theme


def plain_text(anchor: tuple[float, float]) -> pg.TextItem:
    """A text for a plot, whose `setText` takes no HTML."""
    return pg.TextItem(anchor=anchor)


class ThemedPlot(pg.PlotWidget):  # type: ignore[misc,unused-ignore]
    """A plot that neither pans nor zooms. A subclass says in `draw` what is on it, in the colours of the scheme."""

    def __init__(self, name: str) -> None:
        """`name` is what screen readers call it."""
        super().__init__()
        self.setAccessibleName(name)
        self.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        self.setMenuEnabled(False)
        self.hideButtons()
        self.setMouseEnabled(False, False)
        for side in ("bottom", "left"):
            self.getAxis(side).enableAutoSIPrefix(False)
        theme.notifier.changed.connect(self.recolor)

    def recolor(self) -> None:
        """Draws it anew in the colours of the scheme."""
        colors = theme.colors()
        self.setBackground(colors.panel)
        self.showGrid(x=True, y=True, alpha=0.15)
        for side in ("bottom", "left"):
            axis = self.getAxis(side)
            axis.setPen(colors.border)
            axis.setTextPen(colors.muted)
        self.redraw()

    def label(self, side: str, text: str) -> None:
        """Titles an axis, "bottom" or "left", with a plain text; pyqtgraph takes it for HTML."""
        self.getAxis(side).setLabel(html.escape(text))

    def redraw(self) -> None:
        """Draws anew what is on it."""
        self.clear()
        self.draw()

    def draw(self) -> None:
        """Puts the items onto the plot, which is empty."""
        raise NotImplementedError
