"""A panel that scrolls."""

from __future__ import annotations

from PySide6.QtCore import QEvent, QObject, QSize, Qt
from PySide6.QtWidgets import QHBoxLayout, QScrollArea, QWidget

from gui.style import theme

_WIDEST = 480
"""Pixels at 100 per cent; what asks for more, such as the word of a path, is cut off."""


class _WholeWidth(QScrollArea):
    """Is never narrower than what it scrolls."""

    def minimumSizeHint(self) -> QSize:
        inside = self.widget()
        assert inside is not None
        least = max(inside.minimumWidth(), inside.minimumSizeHint().width())
        width = min(least, theme.scaled(_WIDEST)) + self.verticalScrollBar().sizeHint().width()
        return QSize(width, super().minimumSizeHint().height())

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        if event.type() == QEvent.Type.LayoutRequest:
            self.updateGeometry()
        return super().eventFilter(watched, event)


def scroll_panel(inside: QWidget, *, sideways: bool = False, whole_width: bool = False) -> QScrollArea:
    """Scrolls `inside` on a panel's background: vertically and, with `sideways`, horizontally. With `whole_width` it can't be
    made narrower than `inside`. It takes no keyboard focus."""
    scroll = _WholeWidth() if whole_width else QScrollArea()
    scroll.setWidgetResizable(True)
    scroll.setObjectName("panel")
    scroll.setFocusPolicy(Qt.FocusPolicy.NoFocus)
    if not sideways:
        scroll.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
    scroll.setWidget(inside)
    return scroll


def scroll_column(inside: QWidget) -> QScrollArea:
    """Scrolls `inside` vertically, in the middle of what is wider than its maximum width."""
    middle = QWidget()
    row = QHBoxLayout(middle)
    row.setContentsMargins(0, 0, 0, 0)
    row.addStretch(1)
    row.addWidget(inside, 100)
    row.addStretch(1)
    return scroll_panel(middle)
