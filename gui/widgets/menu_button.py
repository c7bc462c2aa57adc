"""How a button looks that opens a menu."""

from __future__ import annotations

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QToolButton

from gui.style import icons


def opens_menu(button: QToolButton) -> None:
    """Has `button` open its menu at once, and shows an arrow at the end of its text."""
    button.setPopupMode(QToolButton.ToolButtonPopupMode.InstantPopup)
    button.setToolButtonStyle(Qt.ToolButtonStyle.ToolButtonTextBesideIcon)
    button.setIcon(icons.icon("down", "muted"))
    button.setLayoutDirection(Qt.LayoutDirection.RightToLeft)  # which puts the icon behind the text
