"""Buttons that open a menu or fold a section."""

from __future__ import annotations

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QSizePolicy, QToolButton, QWidget

from gui.style import icons


def make_menu_button(button: QToolButton) -> None:
    """Let `button` open its menu at once, with an arrow behind its text."""
    button.setPopupMode(QToolButton.ToolButtonPopupMode.InstantPopup)
    button.setToolButtonStyle(Qt.ToolButtonStyle.ToolButtonTextBesideIcon)
    button.setIcon(icons.icon("down", "muted"))
    button.setLayoutDirection(Qt.LayoutDirection.RightToLeft)  # which puts the icon behind the text


class FoldButton(QToolButton):
    """Title of a section, which shows `body` while it is checked; folded at first."""

    def __init__(self, title: str, body: QWidget) -> None:
        super().__init__()
        self.setObjectName("fold")
        self.setText(title)
        self.setIcon(icons.icon("right", "muted", on="down"))
        self.setCheckable(True)
        self.setToolButtonStyle(Qt.ToolButtonStyle.ToolButtonTextBesideIcon)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        self.toggled.connect(body.setVisible)
        body.hide()
