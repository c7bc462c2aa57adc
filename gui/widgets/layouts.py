"""Layouts, tab bars and menus shared by the pages."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeVar

from PySide6.QtCore import Qt
from PySide6.QtWidgets import (
    QBoxLayout,
    QHBoxLayout,
    QLayout,
    QMenu,
    QScrollArea,
    QTabBar,
    QToolButton,
    QVBoxLayout,
    QWidget,
)

from gui.actions import Action
from gui.translation import tr
from gui.widgets.buttons import make_menu_button
from gui.widgets.scroll_panel import scroll_panel

Part = QWidget | QLayout | int | tuple[QWidget | QLayout, int] | tuple[QWidget, int, Qt.AlignmentFlag]
Margins = tuple[int, int, int, int]
NO_MARGINS = (0, 0, 0, 0)
_Box = TypeVar("_Box", bound=QBoxLayout)


def hbox(*parts: Part, spacing: int = 8, margins: Margins = NO_MARGINS) -> QHBoxLayout:
    """Return a horizontal layout of `parts`, as in `vbox`."""
    return _fill(QHBoxLayout(), parts, spacing, margins)


def vbox(*parts: Part, spacing: int = 8, margins: Margins = NO_MARGINS) -> QVBoxLayout:
    """Return a vertical layout with `margins` in pixels: left, top, right, bottom.

    A part is the stretch factor of an empty space, or a widget or a layout, alone or in a tuple with its stretch factor
    and, for a widget, its alignment.
    """
    return _fill(QVBoxLayout(), parts, spacing, margins)


def scrolling(content: QVBoxLayout) -> QScrollArea:
    """Return a scroll area with `content` and a small gap in front of the scroll bar."""
    content.setContentsMargins(0, 0, 4, 0)
    inside = QWidget()
    inside.setLayout(content)
    return scroll_panel(inside)


def tab_bar(name: str, titles: Sequence[str]) -> QTabBar:
    """Return a tab bar with an accessible name."""
    tabs = QTabBar()
    tabs.setAccessibleName(name)
    tabs.setDrawBase(False)
    tabs.setExpanding(False)
    for title in titles:
        tabs.addTab(title)
    return tabs


def save_button(name: str, tip: str, actions: Iterable[Action]) -> QToolButton:
    """Return a button "Save" with a menu of `actions` and an accessible name."""
    button = QToolButton()
    button.setText(tr("Save"))
    button.setAccessibleName(name)
    button.setToolTip(tip)
    make_menu_button(button)
    menu = QMenu(button)
    menu.addActions(list(actions))
    button.setMenu(menu)
    return button


def _fill(layout: _Box, parts: Sequence[Part], spacing: int, margins: Margins) -> _Box:
    layout.setContentsMargins(*margins)
    layout.setSpacing(spacing)
    for part in parts:
        if isinstance(part, int):
            layout.addStretch(part)
            continue
        content, stretch, *alignment = part if isinstance(part, tuple) else (part, 0)
        if isinstance(content, QWidget):
            layout.addWidget(content, stretch, *alignment)
        else:
            layout.addLayout(content, stretch)
    return layout
