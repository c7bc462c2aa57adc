"""A drop-down list that gives way where there is no room."""

from __future__ import annotations

from PySide6.QtCore import Qt
from PySide6.QtGui import QWheelEvent
from PySide6.QtWidgets import QComboBox, QStyle, QStyleOptionComboBox


class ComboBox(QComboBox):
    """A drop-down list that the wheel changes only once it has the focus. A title that is too long ends with an
    ellipsis, which a style sheet would cut off.
    """

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
