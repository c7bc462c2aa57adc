"""Drop-down list that shrinks."""

from __future__ import annotations

from PySide6.QtCore import Qt
from PySide6.QtGui import QWheelEvent
from PySide6.QtWidgets import QComboBox, QStyle, QStyleOptionComboBox


class ComboBox(QComboBox):
    """Drop-down list that the wheel changes only with the focus. Long titles end with an ellipsis, not a cut."""

    def initStyleOption(self, option: QStyleOptionComboBox) -> None:
        super().initStyleOption(option)
        if not self.isVisible():
            return
        field = self.style().subControlRect(
            QStyle.ComplexControl.CC_ComboBox, option, QStyle.SubControl.SC_ComboBoxEditField, self
        )
        elide = Qt.TextElideMode.ElideRight
        option.currentText = option.fontMetrics.elidedText(option.currentText, elide, field.width())

    def wheelEvent(self, event: QWheelEvent) -> None:
        if self.hasFocus():
            super().wheelEvent(event)
        else:
            event.ignore()
