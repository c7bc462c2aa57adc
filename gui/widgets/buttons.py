"""Functions that style and name widgets, and buttons that open a menu or collapse a section."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from PySide6.QtCore import QSize, Qt, SignalInstance
from PySide6.QtGui import QIcon
from PySide6.QtWidgets import QAbstractButton, QPushButton, QSizePolicy, QToolButton, QWidget

from gui.style import icons

Act = Callable[..., object] | SignalInstance
"""Function that a button calls, or signal that it emits, when it is pressed."""
_Widget = TypeVar("_Widget", bound=QWidget)
_Button = TypeVar("_Button", bound=QAbstractButton)


def styled(widget: _Widget, style: str = "", *, name: str = "", tip: str = "", description: str = "") -> _Widget:
    """Set the given texts of a widget and return the widget. Texts that are "" don't change it.

    `style` is the object name, to which the style sheet refers. `name` and `description` are read by screen readers,
    and `tip` is the tool tip.
    """
    for text, setter in (
        (style, widget.setObjectName),
        (name, widget.setAccessibleName),
        (tip, widget.setToolTip),
        (description, widget.setAccessibleDescription),
    ):
        if text:
            setter(text)
    if style == "panel":
        widget.setAttribute(Qt.WidgetAttribute.WA_StyledBackground)  # otherwise plain widgets paint no background
    return widget


def set_primary(button: QPushButton, is_primary: bool) -> None:
    """Emphasize `button` as the main action of a page, or show it like other buttons if `is_primary` is False."""
    button.setObjectName("primary" if is_primary else "")
    button.style().unpolish(button)
    button.style().polish(button)


def push_button(text: str, act: Act | None = None, style: str = "", **texts: str) -> QPushButton:
    """Create a button that calls `act` when it is pressed.

    `style` is the object name in the style sheet, and `texts` are `name`, `tip` and `description` (see `styled`).
    """
    return _connect_click(styled(QPushButton(text), style, **texts), act)


def tool_button(
    act: Act | None = None, *, text: str = "", icon: QIcon | None = None, style: str = "", **texts: str
) -> QToolButton:
    """Create a tool button that calls `act` when it is pressed. See `push_button` for `style` and `texts`."""
    button = styled(QToolButton(), style, **texts)
    button.setText(text)
    if icon is not None:
        button.setIcon(icon)
    return _connect_click(button, act)


def create_reset_button(act: Act, name: str, tip: str) -> QToolButton:
    """Create a button that restores a default. Its space remains reserved while it is hidden."""
    button = tool_button(act, icon=icons.icon("reset", "muted"), style="flat", name=name, tip=tip)
    button.setIconSize(QSize(14, 14))
    reserve_space(button)
    return button


def create_fold_button(style: str, text: str = "", *, name: str, tip: str = "") -> QToolButton:
    """Create a toggle button with an arrow that points down while it is checked."""
    button = tool_button(text=text, icon=icons.icon("right", "muted", on="down"), style=style, name=name, tip=tip)
    button.setCheckable(True)
    return button


def reserve_space(widget: QWidget) -> None:
    """Keep the space of `widget` reserved while it is hidden."""
    policy = widget.sizePolicy()
    policy.setRetainSizeWhenHidden(True)
    widget.setSizePolicy(policy)


def make_menu_button(button: QToolButton) -> None:
    """Make `button` open its menu when it is pressed, and show an arrow after its text."""
    button.setPopupMode(QToolButton.ToolButtonPopupMode.InstantPopup)
    button.setToolButtonStyle(Qt.ToolButtonStyle.ToolButtonTextBesideIcon)
    button.setIcon(icons.icon("down", "muted"))
    button.setLayoutDirection(Qt.LayoutDirection.RightToLeft)  # puts the icon after the text


class FoldButton(QToolButton):
    """Title button of a collapsible section, which shows `body` while it is checked. Initially unchecked."""

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


def _connect_click(button: _Button, act: Act | None) -> _Button:
    """Call `act` when the button is pressed, unless it is None. Return the button."""
    if act is not None:
        button.clicked.connect(act)
    return button
