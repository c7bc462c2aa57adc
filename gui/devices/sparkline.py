"""Small graph of a percentage, fast enough to show dozens of them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from PySide6.QtCore import QPointF, QSize, Qt
from PySide6.QtGui import QColor, QPainter, QPaintEvent, QPen, QPolygonF
from PySide6.QtWidgets import QSizePolicy, QWidget

from gui.format import counted
from gui.sources.columns import Floats
from gui.style import theme
from gui.translation import tr

_NOTHING: Floats = np.empty(0)


class Sparkline(QWidget):
    """Graph of the last `span_s` seconds of a percentage, with the newest value at the right edge."""

    def __init__(self, span_s: float, color: Callable[[], str]) -> None:
        """Create an empty graph. `color` returns the color of the line in the current theme."""
        super().__init__()
        self._span_s = span_s
        self._color = color
        self._seconds_ago = _NOTHING
        self._values = _NOTHING
        self.setSizePolicy(QSizePolicy.Policy.Fixed, QSizePolicy.Policy.Fixed)

    def sizeHint(self) -> QSize:
        return QSize(theme.scale_pixels(52), theme.scale_pixels(30))

    def set_data(self, times: Floats, values: Floats) -> None:
        """Show the last `values`, measured at `times` (seconds). Both are copied."""
        if len(times):
            first = int(np.searchsorted(times, times[-1] - self._span_s))
            self._seconds_ago = times[-1] - times[first:]
            self._values = values[first:].copy()
        self.update()

    def set_description(self, name: str, latest: str) -> None:
        """Set the text for screen readers: name, latest value and number of values."""
        self.setAccessibleName(name)
        finite = self._values[np.isfinite(self._values)]
        text = tr("Latest: {latest}, over {samples}") if len(finite) else tr("Latest: {latest}, nothing to show")
        self.setAccessibleDescription(text.format(latest=latest, samples=counted(len(self._values), "sample")))

    def paintEvent(self, event: QPaintEvent) -> None:
        """Draw a line per run of values without gaps, over a grid line at half height. Disabled lines are gray."""
        painter = QPainter(self)
        scheme = theme.colors()
        width, height = self.width(), self.height()
        painter.fillRect(self.rect(), QColor(scheme.panel))
        painter.setPen(QPen(QColor(scheme.grid), 1))
        painter.drawLine(0, height // 2, width, height // 2)
        color = QColor(self._color())
        if not self.isEnabled():
            color = QColor(scheme.muted)
        for section in self._list_sections(width, height):
            self._draw_section(painter, section, color, height)
        painter.setPen(QPen(QColor(scheme.border), 1))
        painter.setBrush(Qt.BrushStyle.NoBrush)
        painter.drawRect(0, 0, width - 1, height - 1)

    @staticmethod
    def _draw_section(painter: QPainter, section: list[QPointF], color: QColor, height: int) -> None:
        """Draw a section of the line, and a light area below it."""
        fill = QColor(color)
        fill.setAlpha(60)
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(fill)
        painter.drawPolygon(QPolygonF([QPointF(section[0].x(), height), *section, QPointF(section[-1].x(), height)]))
        painter.setPen(QPen(color, 1))
        painter.drawPolyline(QPolygonF(section))

    def _list_sections(self, width: int, height: int) -> list[list[QPointF]]:
        """Return the graph as lines in pixels, one for each section without gaps. A single point is one pixel wide."""
        finite = np.isfinite(self._values)
        if not finite.any():
            return []
        x = (width - 1) * (1 - self._seconds_ago / self._span_s)
        y = 1 + (height - 3) * (1 - np.clip(self._values / 100, 0, 1))
        sections: list[list[QPointF]] = []
        gap_edges = np.flatnonzero(np.diff(finite)) + 1  # where gaps begin and end
        for indices in np.split(np.arange(len(x)), gap_edges):
            if finite[indices[0]]:
                points = [QPointF(x[i], y[i]) for i in indices]
                sections.append(points if len(points) > 1 else [points[0], points[0] + QPointF(1, 0)])
        return sections
