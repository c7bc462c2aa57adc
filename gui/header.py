"""Header of the window: tabs of the pages, number of active runs, and buttons for panels and help."""

from __future__ import annotations

from functools import partial

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QLabel, QTabBar, QToolButton, QWidget

from gui.actions import Action, Actions, bind
from gui.format import counted
from gui.pages import MONITOR
from gui.translation import tr
from gui.widgets.buttons import styled, tool_button
from gui.widgets.layouts import hbox


class Header(QWidget):
    """Tabs and buttons for the window's actions."""

    def __init__(self, actions: Actions) -> None:
        super().__init__()
        styled(self, "panel")
        self._pages = actions.pages
        self.tabs = styled(QTabBar(), name=tr("Pages"))
        self.tabs.setDrawBase(False)
        self.tabs.setExpanding(False)
        for number, page in enumerate(self._pages):
            self.tabs.addTab(page.text())
            # Without "page", the Train tab and the Train button would have the same name.
            self.tabs.setAccessibleTabName(number, tr("{page} page").format(page=page.text()))
            page.toggled.connect(partial(self._on_page_toggled, number))
            page.changed.connect(partial(self._update_tool_tip, number))
            self._update_tool_tip(number)
        self.alerts = styled(QLabel(self.tabs), "badge")
        self.alerts.hide()
        self.tabs.currentChanged.connect(self._on_tab_changed)
        self.tabs.tabBarClicked.connect(self._on_tab_clicked)
        self.running = tool_button(actions.queue.trigger, style="flat", name=tr("Active runs"), tip=actions.queue.tip)
        self.running.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.running.hide()
        self.devices = _create_flat_button(actions.devices_panel)
        self.settings = _create_flat_button(actions.run_settings)
        self.help = _create_flat_button(actions.help)
        self.setLayout(
            hbox(self.tabs, 1, self.running, self.devices, self.settings, self.help, spacing=6, margins=(8, 4, 10, 0))
        )

    def show_page(self, number: int) -> None:
        self._pages[number].trigger()

    def show_running(self, running: int, queued: int) -> None:
        """Show the numbers of running and queued runs on the button that opens the queue."""
        counts = ((running, "running"), (queued, "queued"))
        text = ", ".join(f"{count} {state}" for count, state in counts if count)
        self.running.setText(text)
        self.running.setAccessibleName(text or tr("Active runs"))
        self.running.setVisible(bool(text))

    def show_alerts(self, count: int) -> None:
        """Show the number of alerts as a badge on the Monitor tab."""
        self.alerts.setText(str(count))
        self.tabs.setTabButton(MONITOR, QTabBar.ButtonPosition.RightSide, self.alerts if count else None)
        self.alerts.setVisible(count > 0)
        name = tr("{page} page, {alerts}") if count else tr("{page} page")
        self.tabs.setAccessibleTabName(
            MONITOR, name.format(page=self.tabs.tabText(MONITOR), alerts=counted(count, "alert"))
        )

    def _on_page_toggled(self, number: int, selected: bool) -> None:
        if selected:
            self.tabs.setCurrentIndex(number)

    def _update_tool_tip(self, number: int) -> None:
        self.tabs.setTabToolTip(number, self._pages[number].toolTip())

    def _on_tab_changed(self, number: int) -> None:
        if not self._pages[number].isChecked():
            self._pages[number].trigger()

    def _on_tab_clicked(self, number: int) -> None:
        if number == self.tabs.currentIndex():
            self._pages[number].trigger()  # shows the tab's page if a page without a tab covers it


def _create_flat_button(action: Action) -> QToolButton:
    """Create a button without a frame for an action, which can be reached by Tab."""
    button = bind(QToolButton(), action)
    button.setObjectName("flat")
    button.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
    return button
