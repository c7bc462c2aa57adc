"""The top of the window: the pages, how many runs go on, and which panels are shown."""

from __future__ import annotations

from functools import partial

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QHBoxLayout, QLabel, QTabBar, QToolButton, QWidget

from gui.actions import PAGES, Action, Actions, bind


class Header(QWidget):
    """Tabs and buttons of the window's actions."""

    def __init__(self, actions: Actions) -> None:
        super().__init__()
        self.setObjectName("panel")
        self.setAttribute(Qt.WidgetAttribute.WA_StyledBackground)
        self._pages = actions.pages
        self.tabs = QTabBar()
        self.tabs.setDrawBase(False)
        self.tabs.setExpanding(False)
        self.tabs.setAccessibleName("Pages")
        for number, title in enumerate(PAGES):
            self.tabs.addTab(title)
            # The button of that name is the one that trains.
            self.tabs.setAccessibleTabName(number, f"{title} page")
            self._pages[number].toggled.connect(partial(self._follow, number))
            self._pages[number].changed.connect(partial(self._tell_key, number))
            self._tell_key(number)
        self.tabs.currentChanged.connect(self._changed)
        self.tabs.tabBarClicked.connect(self._clicked)
        self.running = QLabel()
        self.running.setObjectName("muted")
        self.devices, self.job, self.help = map(_flat, (actions.devices_panel, actions.job_panel, actions.help))
        layout = QHBoxLayout(self)
        layout.setContentsMargins(8, 4, 10, 0)
        layout.setSpacing(6)
        layout.addWidget(self.tabs)
        layout.addStretch(1)
        for widget in (self.running, self.devices, self.job, self.help):
            layout.addWidget(widget)

    def show_page(self, number: int) -> None:
        self._pages[number].trigger()

    def show_running(self, running: int, waiting: int) -> None:
        """How many runs are at work, and how many wait in line for their devices."""
        counts = ((running, "running"), (waiting, "waiting"))
        self.running.setText(", ".join(f"{count} {what}" for count, what in counts if count))

    def _follow(self, number: int, on: bool) -> None:
        if on:
            self.tabs.setCurrentIndex(number)

    def _tell_key(self, number: int) -> None:
        self.tabs.setTabToolTip(number, self._pages[number].toolTip())

    def _changed(self, number: int) -> None:
        if not self._pages[number].isChecked():
            self._pages[number].trigger()

    def _clicked(self, number: int) -> None:
        if number == self.tabs.currentIndex():
            self._pages[number].trigger()  # a page without a tab may be before it


def _flat(action: Action) -> QToolButton:
    button = bind(QToolButton(), action)
    button.setObjectName("flat")
    button.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
    return button
