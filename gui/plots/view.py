"""Drawing area of a plot: two axes, and a box that paints all curves as one item."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import isfinite

import numpy as np
import pyqtgraph as pg
from PySide6.QtCore import QEvent, QRectF, QSize, Qt, Signal
from PySide6.QtGui import QColor, QMouseEvent, QPainter, QPen, QPolygonF, QResizeEvent
from PySide6.QtWidgets import QGraphicsGridLayout, QGraphicsItem, QGraphicsWidget, QStyleOptionGraphicsItem, QWidget

from gui.plots.annotations import Annotations
from gui.plots.axes import OVERHANG, BottomAxis, LeftAxis
from gui.plots.group import PlotGroup
from gui.plots.view_box import ViewBox
from gui.sources.columns import Floats
from gui.style import theme


class PlotView(pg.GraphicsView):  # type: ignore[misc,unused-ignore]
    """GraphicsView with one box and two axes.

    It omits the slow features of pyqtgraph's PlotWidget: menus, buttons and hidden axes.

    Signals:
        double_clicked(): the user has double-clicked.
        left(): the pointer has left the view.
        resized(): the size has changed.
    """

    double_clicked = Signal()
    left = Signal()
    resized = Signal()

    def __init__(self, group: PlotGroup, narrow: bool = False) -> None:
        super().__init__()
        self.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        self.setFrameShape(PlotView.Shape.NoFrame)
        self.box = ViewBox()
        self.left_axis = LeftAxis(self.box, narrow)
        self.bottom_axis = BottomAxis(self.box, group)
        self.curves = Curves(self.box)
        self.annotations = Annotations(self.box, self.font())
        area = QGraphicsWidget()
        grid = self._grid = QGraphicsGridLayout(area)
        grid.setSpacing(0)
        grid.addItem(self.left_axis, 0, 0)
        grid.addItem(self.box, 0, 1)
        grid.addItem(self.bottom_axis, 1, 1)
        self.setCentralItem(area)
        self.recolor()

    def sizeHint(self) -> QSize:
        return QSize(256, 90)  # GraphicsView returns its current size

    @property
    def box_width(self) -> int:
        """Width in pixels of the box with the curves."""
        return max(2, int(self.box.width))

    def recolor(self) -> None:
        """Apply the current color scheme and text size."""
        self.setBackground(theme.colors().panel)
        self.annotations.set_font(self.font())
        self._grid.setContentsMargins(0, theme.scale_pixels(OVERHANG.top()), theme.scale_pixels(OVERHANG.right()), 0)
        for item in (self.left_axis, self.bottom_axis, self.annotations):
            item.recolor()

    def mouseDoubleClickEvent(self, event: QMouseEvent) -> None:
        self.double_clicked.emit()
        event.accept()

    def leaveEvent(self, event: QEvent) -> None:
        super().leaveEvent(event)
        self.left.emit()

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self.resized.emit()


_ANTIALIASED_UP_TO = 400
"""Maximum number of points for antialiasing. On longer curves, it is slow and invisible."""
_DOT = 7
_LONE_DOT = 5
"""Diameter in pixels of the dot for a point without neighbors."""
_FAR = 1e6
"""Maximum distance of coordinates from the box in pixels. Coordinates beyond it are clipped."""

_Mapping = tuple[float, float, float, float, float, float]
"""Limits of both axes, and the width and height of the box in pixels."""


@dataclass(eq=False)
class Curve:
    """Curve in axis units.

    `x` must be in ascending order. NaN in `y` interrupts the line. If `dots` is True, each point is drawn as a dot.
    """

    pen: QPen = field(default_factory=QPen)
    dots: bool = False
    x: Floats = field(default_factory=lambda: np.empty(0))
    y: Floats = field(default_factory=lambda: np.empty(0))
    _y_limits: tuple[float, float] | None = None
    _has_only_finite_values: bool = True
    _pieces: list[QPolygonF] = field(default_factory=list)
    _painted_mapping: _Mapping | None = None

    def set_color(self, color: QColor, style: Qt.PenStyle = Qt.PenStyle.SolidLine) -> None:
        self.pen = QPen(color, _DOT, style, Qt.PenCapStyle.RoundCap) if self.dots else QPen(color, 1, style)

    def set_data(self, x: Floats, y: Floats) -> tuple[float, float] | None:
        """Set the points without copying them.

        Returns the minimum and maximum of the finite `y`, or None if there are none.
        """
        self.x, self.y = x, y
        self._painted_mapping = None
        limits = _find_limits(y)
        # If any value isn't finite, neither is one of the limits, so it suffices to test these.
        self._has_only_finite_values = limits is None or all(map(isfinite, limits))
        self._y_limits = limits if self._has_only_finite_values else _find_limits(y[np.isfinite(y)])
        return self._y_limits

    def paint(self, painter: QPainter, mapping: _Mapping) -> None:
        """Draw the sections of the curve between gaps. Single points are drawn as dots."""
        if mapping != self._painted_mapping:
            self._painted_mapping = mapping
            self._pieces = self._to_pixels(mapping)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing, self.dots or len(self.x) <= _ANTIALIASED_UP_TO)
        lone_pen = QPen(self.pen.color(), _LONE_DOT, Qt.PenStyle.SolidLine, Qt.PenCapStyle.RoundCap)
        for piece in self._pieces:
            is_lone = piece.size() == 1 and not self.dots  # a line with a single point would be invisible
            painter.setPen(lone_pen if is_lone else self.pen)
            if self.dots or is_lone:
                painter.drawPoints(piece)
            else:
                painter.drawPolyline(piece)

    def _to_pixels(self, mapping: _Mapping) -> list[QPolygonF]:
        """Return the points in pixels, split at gaps."""
        if self._y_limits is None:
            return []
        left, right, low, high, width, height = mapping
        x_scale, y_scale = width / (right - left), height / (high - low)
        x, y = (self.x - left) * x_scale, (high - self.y) * y_scale
        lowest, highest = self._y_limits
        farthest = max(abs(x[0]), abs(x[-1]), abs(high - lowest) * y_scale, abs(high - highest) * y_scale)
        if not self._has_only_finite_values or farthest > _FAR:  # Qt can't draw coordinates that are too far away
            x, y = np.clip(x, -_FAR, _FAR), np.clip(y, -_FAR, _FAR)
        if self._has_only_finite_values:
            return [pg.functions.arrayToQPolygonF(x, y)]
        # Each section of finite values starts and ends at a change of `isfinite`.
        edges = np.flatnonzero(np.diff(np.isfinite(y), prepend=False, append=False))
        return [pg.functions.arrayToQPolygonF(x[first:end], y[first:end]) for first, end in edges.reshape(-1, 2)]


def _find_limits(y: Floats) -> tuple[float, float] | None:
    """Return the minimum and maximum, which are NaN if any value is, or None without values."""
    return (float(y.min()), float(y.max())) if len(y) else None


class Curves(QGraphicsItem):
    """All curves in a box, in drawing order."""

    def __init__(self, box: ViewBox) -> None:
        super().__init__(box)
        self._box = box
        self._curves: list[Curve] = []
        box.geometryChanged.connect(self.prepareGeometryChange)
        box.x_range_changed.connect(self.update)
        box.y_range_changed.connect(self.update)

    def add(self, dots: bool = False) -> Curve:
        curve = Curve(dots=dots)
        self._curves.append(curve)
        return curve

    def remove(self, curve: Curve) -> None:
        self._curves.remove(curve)
        self.update()

    def boundingRect(self) -> QRectF:
        return self._box.rect()

    def paint(self, painter: QPainter, option: QStyleOptionGraphicsItem, widget: QWidget | None = None) -> None:
        mapping = (*self._box.x_range, *self._box.y_range, self._box.width, self._box.height)
        for curve in self._curves:
            curve.paint(painter, mapping)
