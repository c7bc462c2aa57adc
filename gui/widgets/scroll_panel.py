"""A panel that scrolls."""

from __future__ import annotations

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QScrollArea, QWidget


def scroll_panel(inside: QWidget, *, sideways: bool = False) -> QScrollArea:
    """Scrolls `inside` on a panel's background: vertically and, with `sideways`, horizontally. It takes no keyboard focus."""
    scroll = QScrollArea(widgetResizable=True)
    scroll.setObjectName("panel")
    scroll.setFocusPolicy(Qt.FocusPolicy.NoFocus)
    if not sideways:
        scroll.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
    scroll.setWidget(inside)
    return scroll
