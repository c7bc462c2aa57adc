"""Box with the curves of a plot, whose visible range the user can change with the mouse."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QPainterPath, QStaticText
from PySide6.QtWidgets import QGraphicsSceneWheelEvent, QGraphicsWidget, QSizePolicy

Range = tuple[float, float]

_ZOOM_PER_NOTCH = 1.35
"""Growth factor of the visible range per notch of the wheel towards the user."""
_NOTCH = 120
"""Units of Qt's wheel events per notch."""
_DOTS_REACH = 4.0
"""Radius of a dot in pixels."""
_PAN_BUTTONS = Qt.MouseButton.LeftButton | Qt.MouseButton.MiddleButton


class ViewBox(QGraphicsWidget):
    """Box that shows the range `x_range` by `y_range`.

    The wheel zooms the horizontal range around the pointer, and dragging pans. With pyqtgraph's box and axes, drawing a
    frame of a moving plot took a third longer.

    Signals:
        x_range_changed(): the horizontal range has changed.
        y_range_changed(): the vertical range has changed.
        moved_by_mouse(): the user has changed `x_range`.
    """

    x_range_changed = Signal()
    y_range_changed = Signal()
    moved_by_mouse = Signal()

    def __init__(self) -> None:
        super().__init__()
        self.x_range: Range = (0.0, 1.0)
        self.y_range: Range = (0.0, 1.0)
        self.setFlag(ViewBox.GraphicsItemFlag.ItemClipsChildrenToShape)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Expanding)

    def set_x_range(self, low: float, high: float) -> None:
        """Set the horizontal range unless it is empty."""
        if high > low and (low, high) != self.x_range:
            self.x_range = (low, high)
            self.x_range_changed.emit()

    def set_y_range(self, low: float, high: float) -> None:
        """Set the vertical range unless it is empty."""
        if high > low and (low, high) != self.y_range:
            self.y_range = (low, high)
            self.y_range_changed.emit()

    @property
    def width(self) -> float:
        """Width of the box in pixels."""
        return self.size().width()

    @property
    def height(self) -> float:
        """Height of the box in pixels."""
        return self.size().height()

    def x_to_pixel(self, x: float) -> float:
        """Return the distance in pixels from the left edge to `x`."""
        low, high = self.x_range
        return (x - low) / (high - low) * self.width

    def y_to_pixel(self, value: float) -> float:
        """Return the distance in pixels from the upper edge to `value`."""
        low, high = self.y_range
        return (high - value) / (high - low) * self.height

    def pixel_to_x(self, pixel: float) -> float:
        """Return the position on the horizontal axis that is `pixel` pixels from the left edge."""
        low, high = self.x_range
        return low + pixel / max(1.0, self.width) * (high - low)

    def shape(self) -> QPainterPath:
        """Return the clip path, which includes the right edge, and dots on the upper and lower edges."""
        path = QPainterPath()
        path.addRect(self.rect().adjusted(0, -_DOTS_REACH, 0.5, _DOTS_REACH))
        return path

    # The mouse

    def wheelEvent(self, event: QGraphicsSceneWheelEvent) -> None:
        factor = _ZOOM_PER_NOTCH ** (-event.delta() / _NOTCH)
        center = self.pixel_to_x(event.pos().x())
        self._move_x_range(lambda x: center + (x - center) * factor)
        event.accept()

    def mouseDragEvent(self, event: Any) -> None:
        """Pan the range. `event` is a `MouseDragEvent` from pyqtgraph's scene."""
        if event.button() & _PAN_BUTTONS:
            distance = self.pixel_to_x(event.lastPos().x()) - self.pixel_to_x(event.pos().x())
            self._move_x_range(lambda x: x + distance)
            event.accept()

    def _move_x_range(self, new_position: Callable[[float], float]) -> None:
        """Apply `new_position` to both limits of the horizontal range, and emit `moved_by_mouse`."""
        low, high = self.x_range
        self.set_x_range(new_position(low), new_position(high))
        self.moved_by_mouse.emit()


@lru_cache(maxsize=1024)
def lay_out_text(text: str) -> QStaticText:
    """Return `text` with a cached layout, because layout takes most of the time for drawing text."""
    result = QStaticText(text)
    result.setTextFormat(Qt.TextFormat.PlainText)
    return result
