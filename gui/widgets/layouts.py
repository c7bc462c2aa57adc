"""Layouts, tab bars and menus shared by the pages."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeVar

from PySide6.QtCore import Qt
from PySide6.QtWidgets import (
    QBoxLayout,
    QHBoxLayout,
    QLabel,
    QLayout,
    QMenu,
    QProgressBar,
    QPushButton,
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


def lay_out_page(page: QWidget, back: QPushButton, title: QLabel, subtitle: QLabel, *below: QWidget) -> None:
    """Lay out `page`: back button and titles on top, then the widgets `below`; the last one stretches."""
    texts = vbox(title, subtitle, spacing=2)
    head = hbox((back, 0, Qt.AlignmentFlag.AlignTop), (texts, 1), spacing=12)
    page.setLayout(vbox(head, *((widget, int(widget is below[-1])) for widget in below), margins=(14, 10, 14, 10)))


def working_page(what: QLabel, progress: QProgressBar, cancel: QPushButton, name: str) -> QWidget:
    """Return a page with the progress of a trial; `name` is the progress bar's accessible name."""
    progress.setRange(0, 100)
    progress.setFixedSize(320, 14)
    progress.setTextVisible(False)
    progress.setAccessibleName(name)
    return _in_the_middle(what, progress, cancel)


def fault_page(fault: QWidget, again: QPushButton) -> QWidget:
    """Return a page with the failure of a trial and a button to retry."""
    fault.setMaximumWidth(440)
    page = _in_the_middle(again)
    column = page.layout()
    assert isinstance(column, QVBoxLayout)
    row = QHBoxLayout()  # an alignment would leave long sentences too little height
    row.addStretch(1)
    row.addWidget(fault, 100)
    row.addStretch(1)
    column.insertLayout(1, row)
    return scroll_panel(page)


def _in_the_middle(*widgets: QWidget) -> QWidget:
    page = QWidget()
    column = QVBoxLayout(page)
    column.setSpacing(10)
    column.addStretch(1)
    for widget in widgets:
        column.addWidget(widget, 0, Qt.AlignmentFlag.AlignHCenter)
    column.addStretch(2)
    return page
