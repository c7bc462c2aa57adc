"""Drawing area of a plot: two axes and a box of curves."""

from __future__ import annotations

import pyqtgraph as pg
from PySide6.QtCore import QEvent, QSize, Qt, Signal
from PySide6.QtGui import QMouseEvent, QResizeEvent
from PySide6.QtWidgets import QGraphicsGridLayout, QGraphicsWidget

from gui.plots.annotations import Annotations
from gui.plots.axes import BottomAxis, LeftAxis
from gui.plots.curves import Curves
from gui.plots.group import PlotGroup
from gui.plots.view_box import ViewBox
from gui.style import theme


class PlotView(pg.GraphicsView):  # type: ignore[misc,unused-ignore]
    """GraphicsView with one box: pyqtgraph's PlotWidget without the menus, buttons and hidden axes that cost most of its time.

    Signals:
        double_clicked(): the user double-clicked.
        left(): the pointer has left.
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
        grid = QGraphicsGridLayout(area)
        grid.setContentsMargins(0, 6, 10, 0)
        grid.setSpacing(0)
        grid.addItem(self.left_axis, 0, 0)
        grid.addItem(self.box, 0, 1)
        grid.addItem(self.bottom_axis, 1, 1)
        self.setCentralItem(area)
        self.recolor()

    def sizeHint(self) -> QSize:
        return QSize(256, 90)  # GraphicsView returns its current size

    @property
    def columns(self) -> int:
        """Number of pixel columns of the curves."""
        return max(2, int(self.box.width))

    def recolor(self) -> None:
        """Apply the colors of the current scheme."""
        self.setBackground(theme.colors().panel)
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
