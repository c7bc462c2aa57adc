"""A panel that scrolls."""

from __future__ import annotations

from PySide6.QtCore import QEvent, QObject, QSize, Qt
from PySide6.QtWidgets import QHBoxLayout, QScrollArea, QWidget


class _WholeWidth(QScrollArea):
    """Is never narrower than what it scrolls, up to `widest` pixels."""

    def __init__(self, widest: int) -> None:
        super().__init__()
        self._widest = widest

    def minimumSizeHint(self) -> QSize:
        inside = self.widget()
        assert inside is not None
        width = min(inside.minimumSizeHint().width(), self._widest) + self.verticalScrollBar().sizeHint().width()
        return QSize(width, super().minimumSizeHint().height())

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        if event.type() == QEvent.Type.LayoutRequest:
            self.updateGeometry()
        return super().eventFilter(watched, event)


def scroll_panel(inside: QWidget, *, whole_up_to: int = 0) -> QScrollArea:
    """Scrolls `inside` on a panel's background, sideways only where it is narrower than `inside` can be. It can't be
    made narrower than that, up to `whole_up_to` pixels. It takes no keyboard focus."""
    scroll = _WholeWidth(whole_up_to) if whole_up_to else QScrollArea()
    scroll.setWidgetResizable(True)
    scroll.setObjectName("panel")
    scroll.setFocusPolicy(Qt.FocusPolicy.NoFocus)
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
