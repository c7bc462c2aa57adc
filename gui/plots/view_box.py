"""Where a plot's curves are: how much of both axes is in sight there, and how the mouse moves it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QPainterPath
from PySide6.QtWidgets import QGraphicsSceneWheelEvent, QGraphicsWidget, QSizePolicy

Range = tuple[float, float]

_ZOOM_PER_NOTCH = 1.35
"""How many times as much is in sight after the wheel was turned by one notch towards the user."""
_NOTCH = 120
"""What Qt counts for it."""
_DOTS_REACH = 4.0
"""How far a dot reaches beyond its middle, in pixels."""
_PANS = Qt.MouseButton.LeftButton | Qt.MouseButton.MiddleButton


class ViewBox(QGraphicsWidget):
    """Shows `across` of the horizontal axis and `up` of the vertical one, which whoever draws in it asks for.

    The mouse moves the former: its wheel zooms around the pointer, and dragging pans. With pyqtgraph's box and axes,
    which can do far more, a frame in which nothing but time moves on took a third longer.

    Signals: across_changed(); up_changed(); moved_by_mouse(): `across` is what the user wants.
    """

    across_changed = Signal()
    up_changed = Signal()
    moved_by_mouse = Signal()

    def __init__(self) -> None:
        super().__init__()
        self.across: Range = (0.0, 1.0)
        self.up: Range = (0.0, 1.0)
        self.setFlag(ViewBox.GraphicsItemFlag.ItemClipsChildrenToShape)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Expanding)

    def show_across(self, low: float, high: float) -> None:
        """Shows what lies from `low` to `high`, unless that is nothing."""
        if high > low and (low, high) != self.across:
            self.across = (low, high)
            self.across_changed.emit()

    def show_up(self, low: float, high: float) -> None:
        """Shows what lies from `low` to `high`, unless that is nothing."""
        if high > low and (low, high) != self.up:
            self.up = (low, high)
            self.up_changed.emit()

    @property
    def width(self) -> float:
        """In pixels."""
        return self.size().width()

    @property
    def height(self) -> float:
        """In pixels."""
        return self.size().height()

    def pixel_across(self, x: float) -> float:
        """Where `x` lies, in pixels from the left edge."""
        low, high = self.across
        return (x - low) / (high - low) * self.width

    def pixel_down(self, value: float) -> float:
        """Where `value` lies, in pixels from the upper edge."""
        low, high = self.up
        return (high - value) / (high - low) * self.height

    def x_at(self, pixel: float) -> float:
        """The x value that many pixels from the left edge."""
        low, high = self.across
        return low + pixel / max(1.0, self.width) * (high - low)

    def shape(self) -> QPainterPath:
        """What is drawn inside it is clipped to; dots on its upper and lower edges are whole, and what lies on the right
        one is in sight, too.
        """
        path = QPainterPath()
        path.addRect(self.rect().adjusted(0, -_DOTS_REACH, 0.5, _DOTS_REACH))
        return path

    # The mouse

    def wheelEvent(self, event: QGraphicsSceneWheelEvent) -> None:
        factor = _ZOOM_PER_NOTCH ** (-event.delta() / _NOTCH)
        around = self.x_at(event.pos().x())
        self._move(lambda x: around + (x - around) * factor)
        event.accept()

    def mouseDragEvent(self, event: Any) -> None:
        """As pyqtgraph's scene hands it over, a `pg.GraphicsScene.mouseEvents.MouseDragEvent`."""
        if event.button() & _PANS:
            by = self.x_at(event.lastPos().x()) - self.x_at(event.pos().x())
            self._move(lambda x: x + by)
            event.accept()

    def _move(self, to: Callable[[float], float]) -> None:
        low, high = self.across
        self.show_across(to(low), to(high))
        self.moved_by_mouse.emit()
