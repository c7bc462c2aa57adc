"""A cut that can be dragged, or moved with the keyboard."""

from __future__ import annotations

from PySide6.QtCore import QPointF, QRectF, Qt, Signal
from PySide6.QtGui import QColor, QFocusEvent, QKeyEvent, QMouseEvent, QPainter, QPaintEvent, QPen
from PySide6.QtWidgets import QWidget

from gui.style import theme

WIDTH, GRIP_HEIGHT = 18, 22


class Handle(QWidget):
    """Stands over the bar at one cut.

    Signals: stepped(int) - to the next split point, 1 to the right and -1 to the left; dragged(float) - to where the
    mouse is, in the parent's pixels from the left; automatic_wanted() - back to the cut that was found; noticed() -
    it has got or lost the keyboard or the mouse.
    """

    stepped = Signal(int)
    dragged = Signal(float)
    automatic_wanted = Signal()
    noticed = Signal()

    def __init__(self, number: int, parent: QWidget) -> None:
        super().__init__(parent)
        self.number = number
        self.grabbed = False
        self.setFixedWidth(WIDTH)
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.setCursor(Qt.CursorShape.SplitHCursor)

    @property
    def active(self) -> bool:
        """Whether this is the cut being moved."""
        return self.grabbed or self.hasFocus()

    def keyPressEvent(self, event: QKeyEvent) -> None:
        match event.key():
            case Qt.Key.Key_Left:
                self.stepped.emit(-1)
            case Qt.Key.Key_Right:
                self.stepped.emit(1)
            case Qt.Key.Key_Home:
                self.automatic_wanted.emit()
            case _:
                super().keyPressEvent(event)

    def mousePressEvent(self, event: QMouseEvent) -> None:
        if event.button() == Qt.MouseButton.LeftButton:
            self._grab(True)

    def mouseMoveEvent(self, event: QMouseEvent) -> None:
        if self.grabbed:
            self.dragged.emit(self.mapToParent(event.position()).x())

    def mouseReleaseEvent(self, event: QMouseEvent) -> None:
        self._grab(False)

    def focusInEvent(self, event: QFocusEvent) -> None:
        super().focusInEvent(event)
        self.noticed.emit()

    def focusOutEvent(self, event: QFocusEvent) -> None:
        super().focusOutEvent(event)
        self.noticed.emit()

    def paintEvent(self, event: QPaintEvent) -> None:
        scheme = theme.colors()
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        middle = WIDTH / 2
        painter.setPen(QPen(QColor(scheme.accent if self.active else scheme.text), 3 if self.active else 2))
        painter.drawLine(QPointF(middle, GRIP_HEIGHT), QPointF(middle, self.height()))
        painter.setPen(QPen(QColor(scheme.accent if self.active else scheme.muted), 2 if self.active else 1))
        painter.setBrush(QColor(scheme.raised))
        painter.drawRoundedRect(QRectF(1.5, 1.5, WIDTH - 3, GRIP_HEIGHT - 2), 4, 4)
        painter.setPen(QPen(QColor(scheme.accent if self.active else scheme.muted), 1.5))
        for x in (middle - 2.5, middle + 2.5):
            painter.drawLine(QPointF(x, 7), QPointF(x, GRIP_HEIGHT - 6))

    def _grab(self, on: bool) -> None:
        self.grabbed = on
        self.update()
        self.noticed.emit()
