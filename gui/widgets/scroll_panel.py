"""A panel that scrolls."""

from __future__ import annotations

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QHBoxLayout, QScrollArea, QWidget


def scroll_panel(inside: QWidget, *, sideways: bool = False) -> QScrollArea:
    """Scrolls `inside` on a panel's background: vertically and, with `sideways`, horizontally. It takes no keyboard focus."""
    scroll = QScrollArea(widgetResizable=True)
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
