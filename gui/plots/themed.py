"""pyqtgraph widget in the window's colors, for plots with few points."""

from __future__ import annotations

import html
import math
from collections.abc import Callable

import pyqtgraph as pg
from PySide6.QtCore import Qt

from gui.style import theme


def create_plain_text(anchor: tuple[float, float]) -> pg.TextItem:
    """Return a text item for a plot that shows its text literally, without interpreting HTML.

    `anchor` is the point of the text that is at the item's position, in fractions of its width and height.
    """
    return pg.TextItem(anchor=anchor)


class _Axis(pg.AxisItem):  # type: ignore[misc,unused-ignore]
    """Axis without ticks at impossible values.

    Attributes:
        bounds: Smallest and largest value with a tick.
    """

    def __init__(self, side: str) -> None:
        super().__init__(side)
        self.bounds = (-math.inf, math.inf)

    def tickValues(self, low: float, high: float, size: float) -> list[tuple[float, list[float]]]:
        smallest, largest = self.bounds
        levels = super().tickValues(low, high, size)
        return [(spacing, [each for each in values if smallest <= each <= largest]) for spacing, values in levels]


class ThemedPlot(pg.PlotWidget):  # type: ignore[misc,unused-ignore]
    """Plot that can't be panned or zoomed.

    The items are added by a subclass in `draw`, or by a function that the owner passes to `set_drawing`.
    """

    def __init__(self, name: str) -> None:
        """Create a plot. `name` is its accessible name."""
        super().__init__(axisItems={side: _Axis(side) for side in ("bottom", "left")})
        self._draw: Callable[[], None] = lambda: None
        self.setAccessibleName(name)
        self.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        self.setMenuEnabled(False)
        self.hideButtons()
        self.setMouseEnabled(False, False)
        for side in ("bottom", "left"):
            self.getAxis(side).enableAutoSIPrefix(False)
        theme.notifier.changed.connect(self.recolor)

    def recolor(self) -> None:
        """Draw everything in the current color scheme."""
        colors = theme.colors()
        self.setBackground(colors.panel)
        self.showGrid(x=True, y=True, alpha=0.15)
        for side in ("bottom", "left"):
            axis = self.getAxis(side)
            axis.setPen(colors.border)
            axis.setTextPen(colors.muted)
        self.redraw()

    def set_drawing(self, draw: Callable[[], None]) -> None:
        """Set the function that adds the items. It is called now and after each change of the color scheme."""
        self._draw = draw
        self.recolor()

    def label(self, side: str, text: str) -> None:
        """Set the title of the axis "bottom" or "left". The text is escaped, because pyqtgraph renders HTML."""
        self.getAxis(side).setLabel(html.escape(text))

    def set_bounds(self, side: str, low: float, high: float) -> None:
        """Hide ticks of the axis "bottom" or "left" outside of `low` to `high`, the possible values."""
        self.getAxis(side).bounds = (low, high)

    def redraw(self) -> None:
        """Remove all items and draw them again."""
        self.clear()
        self.draw()

    def draw(self) -> None:
        """Add the items, such as curves. `redraw` calls it after removing all items."""
        self._draw()
