"""Handle of a cut, moved by mouse or keyboard."""

from __future__ import annotations

from PySide6.QtCore import QPointF, QRectF, Qt, Signal
from PySide6.QtGui import QColor, QFocusEvent, QKeyEvent, QMouseEvent, QPainter, QPaintEvent, QPen
from PySide6.QtWidgets import QWidget

from gui.style import theme

WIDTH, GRIP_HEIGHT = 18, 22


class Handle(QWidget):
    """Handle over the bar at a cut.

    Signals:
        stepped(int): move to the next split point, 1 right or -1 left.
        dragged(float): x position of the mouse in the parent, in pixels.
        automatic_requested(): reset to the automatic cut.
        active_changed(): focus or mouse grab has changed.
    """

    stepped = Signal(int)
    dragged = Signal(float)
    automatic_requested = Signal()
    active_changed = Signal()

    def __init__(self, number: int, parent: QWidget) -> None:
        super().__init__(parent)
        self.number = number
        self.is_grabbed = False
        self.setFixedWidth(WIDTH)
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.setCursor(Qt.CursorShape.SplitHCursor)

    @property
    def is_active(self) -> bool:
        """True while this cut is being moved."""
        return self.is_grabbed or self.hasFocus()

    def keyPressEvent(self, event: QKeyEvent) -> None:
        match event.key():
            case Qt.Key.Key_Left:
                self.stepped.emit(-1)
            case Qt.Key.Key_Right:
                self.stepped.emit(1)
            case Qt.Key.Key_Home:
                self.automatic_requested.emit()
            case _:
                super().keyPressEvent(event)

    def mousePressEvent(self, event: QMouseEvent) -> None:
        if event.button() == Qt.MouseButton.LeftButton:
            self._set_grabbed(True)

    def mouseMoveEvent(self, event: QMouseEvent) -> None:
        if self.is_grabbed:
            self.dragged.emit(self.mapToParent(event.position()).x())

    def mouseReleaseEvent(self, event: QMouseEvent) -> None:
        self._set_grabbed(False)

    def focusInEvent(self, event: QFocusEvent) -> None:
        super().focusInEvent(event)
        self.active_changed.emit()

    def focusOutEvent(self, event: QFocusEvent) -> None:
        super().focusOutEvent(event)
        self.active_changed.emit()

    def paintEvent(self, event: QPaintEvent) -> None:
        scheme = theme.colors()
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        middle = WIDTH / 2
        painter.setPen(QPen(QColor(scheme.accent if self.is_active else scheme.text), 3 if self.is_active else 2))
        painter.drawLine(QPointF(middle, GRIP_HEIGHT), QPointF(middle, self.height()))
        painter.setPen(QPen(QColor(scheme.accent if self.is_active else scheme.muted), 2 if self.is_active else 1))
        painter.setBrush(QColor(scheme.raised))
        painter.drawRoundedRect(QRectF(1.5, 1.5, WIDTH - 3, GRIP_HEIGHT - 2), 4, 4)
        painter.setPen(QPen(QColor(scheme.accent if self.is_active else scheme.muted), 1.5))
        for x in (middle - 2.5, middle + 2.5):
            painter.drawLine(QPointF(x, 7), QPointF(x, GRIP_HEIGHT - 6))

    def _set_grabbed(self, is_grabbed: bool) -> None:
        self.is_grabbed = is_grabbed
        self.update()
        self.active_changed.emit()
