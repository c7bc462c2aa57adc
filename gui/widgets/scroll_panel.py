"""Panels that scroll."""

from __future__ import annotations

from PySide6.QtCore import QEvent, QObject, QSize, Qt
from PySide6.QtWidgets import QHBoxLayout, QScrollArea, QWidget


class _ScrollPanel(QScrollArea):
    """Scroll area that calls `setWidget` at its first polish, so that the content is styled only once."""

    def __init__(self, inside: QWidget) -> None:
        super().__init__(widgetResizable=True)
        self.inside = inside
        inside.setParent(self.viewport())

    def event(self, event: QEvent) -> bool:
        if event.type() == QEvent.Type.Polish and self.widget() is None:
            self.setWidget(self.inside)
        return super().event(event)


class _MinimumWidth(_ScrollPanel):
    """Scroll area that is at least as wide as its content, up to `widest` pixels."""

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


def scroll_panel(inside: QWidget, *, min_content_width: int = 0) -> QScrollArea:
    """Return a scroll area with a panel's background and no keyboard focus.

    It can't be narrower than `inside`, up to `min_content_width` pixels.
    """
    scroll = _MinimumWidth(inside, min_content_width) if min_content_width else _ScrollPanel(inside)
    scroll.setObjectName("panel")
    scroll.setFocusPolicy(Qt.FocusPolicy.NoFocus)
    return scroll


def scroll_column(inside: QWidget) -> QScrollArea:
    """Return a vertical scroll area with `inside` in the middle."""
    middle = QWidget()
    row = QHBoxLayout(middle)
    row.setContentsMargins(0, 0, 0, 0)
    row.addStretch(1)
    row.addWidget(inside, 100)
    row.addStretch(1)
    return scroll_panel(middle)
