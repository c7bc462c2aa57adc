"""A panel that scrolls."""

from __future__ import annotations

from PySide6.QtCore import QEvent, QObject, QSize, Qt
from PySide6.QtWidgets import QHBoxLayout, QScrollArea, QWidget


class _ScrollPanel(QScrollArea):
    """Takes `inside` in when it gets its style itself. Qt gives a style to what is put into a scroll area at once, and
    another each time the area gets a parent, until the window is whole.
    """

    def __init__(self, inside: QWidget) -> None:
        super().__init__(widgetResizable=True)
        self.inside = inside
        inside.setParent(self.viewport())

    def event(self, event: QEvent) -> bool:
        if event.type() == QEvent.Type.Polish and self.widget() is None:
            self.setWidget(self.inside)
        return super().event(event)


class _WholeWidth(_ScrollPanel):
    """Is never narrower than what it scrolls, up to `widest` pixels."""

    def __init__(self, inside: QWidget, widest: int) -> None:
        super().__init__(inside)
        self._widest = widest

    def minimumSizeHint(self) -> QSize:
        width = min(self.inside.minimumSizeHint().width(), self._widest) + self.verticalScrollBar().sizeHint().width()
        return QSize(width, super().minimumSizeHint().height())

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        if event.type() == QEvent.Type.LayoutRequest:
            self.updateGeometry()
        return super().eventFilter(watched, event)


def scroll_panel(inside: QWidget, *, whole_up_to: int = 0) -> QScrollArea:
    """Scrolls `inside` on a panel's background, sideways only where it is narrower than `inside` can be. It can't be
    made narrower than that, up to `whole_up_to` pixels. It takes no keyboard focus.
    """
    scroll = _WholeWidth(inside, whole_up_to) if whole_up_to else _ScrollPanel(inside)
    scroll.setObjectName("panel")
    scroll.setFocusPolicy(Qt.FocusPolicy.NoFocus)
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
