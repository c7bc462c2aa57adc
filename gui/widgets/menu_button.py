"""Style of buttons that open a menu."""

from __future__ import annotations

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QToolButton

from gui.style import icons


def make_menu_button(button: QToolButton) -> None:
    """Let `button` open its menu at once, with an arrow behind its text."""
    button.setPopupMode(QToolButton.ToolButtonPopupMode.InstantPopup)
    button.setToolButtonStyle(Qt.ToolButtonStyle.ToolButtonTextBesideIcon)
    button.setIcon(icons.icon("down", "muted"))
    button.setLayoutDirection(Qt.LayoutDirection.RightToLeft)  # which puts the icon behind the text
