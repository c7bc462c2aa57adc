"""Frame that highlights a widget for a moment."""

from __future__ import annotations

from PySide6.QtCore import QEasingCurve, QEvent, QObject, QPropertyAnimation, Qt
from PySide6.QtGui import QColor, QPainter, QPaintEvent, QPen
from PySide6.QtWidgets import QGraphicsOpacityEffect, QWidget

from gui.style import theme

_DURATION_MS = 1400
_RADIUS = 5


class Flash(QWidget):
    """Frame in the accent color around `target` that fades out and deletes itself."""

    def __init__(self, target: QWidget) -> None:
        super().__init__(target)
        self.setAttribute(Qt.WidgetAttribute.WA_TransparentForMouseEvents)
        self.setGeometry(target.rect())
        target.installEventFilter(self)
        effect = QGraphicsOpacityEffect(self)
        self.setGraphicsEffect(effect)
        self._fading = QPropertyAnimation(effect, b"opacity", self)
        self._fading.setDuration(_DURATION_MS)
        self._fading.setStartValue(1.0)
        self._fading.setEndValue(0.0)
        self._fading.setEasingCurve(QEasingCurve.Type.InQuad)
        self._fading.finished.connect(self.deleteLater)
        self.show()
        self._fading.start()

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        if event.type() == QEvent.Type.Resize and isinstance(watched, QWidget):
            self.setGeometry(watched.rect())
        return False

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setPen(QPen(QColor(theme.colors().accent), 2))
        painter.drawRoundedRect(self.rect().adjusted(1, 1, -1, -1), _RADIUS, _RADIUS)
