"""Toolbar of the Monitor page: views, time range and actions."""

from __future__ import annotations

from PySide6.QtCore import QSize, Signal
from PySide6.QtWidgets import QMenu, QPushButton, QTabBar, QToolButton, QWidget

from gui.actions import Action, bind
from gui.style import theme
from gui.translation import tr
from gui.widgets.buttons import make_menu_button, tool_button
from gui.widgets.editors import ComboBox
from gui.widgets.labels import muted_label
from gui.widgets.layouts import FlowLayout

VIEWS = ("GPUs", tr("Graphs"), tr("Processes"), tr("Topology"), tr("Alerts"))
GPUS, GRAPHS, PROCESSES, TOPOLOGY, ALERTS = range(len(VIEWS))

SPANS = (("10 min", 600.0), ("1 h", 3600.0), ("6 h", 21_600.0), ("24 h", 86_400.0))
"""Titles and lengths of the time ranges that can be selected, in seconds."""


_SPAN_WIDTH = 90
"""Minimum width in pixels of the choice of a time range, at a text size of 100%."""


class MonitorToolbar(QWidget):
    """Toolbar of the Monitor page.

    Attributes:
        acts: Actions of the buttons and the menu, by name: "hosts", "csv", "png", "energy" and "newest".

    Signals:
        view_chosen(int): the user has selected the view at this index of `VIEWS`.
        span_chosen(float): the user has selected a time range in seconds.
        compact_toggled(bool): the user has switched compact rows on or off.
        load_toggled(bool): the user has switched sorting by load on or off.
    """

    view_chosen = Signal(int)
    span_chosen = Signal(float)
    compact_toggled = Signal(bool)
    load_toggled = Signal(bool)

    def __init__(self) -> None:
        super().__init__()
        self.tabs = _Tabs()
        self.tabs.setAccessibleName(tr("Views of the monitor"))
        for view in VIEWS:
            self.tabs.addTab(view)
        self.tabs.currentChanged.connect(self._on_tab_changed)
        self.tabs.tabBarClicked.connect(self._on_tab_clicked)
        self._span_label = muted_label(tr("&Last"))
        self.span = ComboBox()
        theme.scale_with_text(self.span.setMinimumWidth, _SPAN_WIDTH)
        self._span_label.setBuddy(self.span)
        self.span.setAccessibleName(tr("Time shown"))
        self.span.setToolTip(tr("Time range of the graphs; wheel or + and − zoom, drag or Shift+arrows pan"))
        for title, seconds in SPANS:
            self.span.addItem(title, seconds)
        self.span.activated.connect(lambda _index: self.span_chosen.emit(self.span.currentData()))
        self.compact = _toggle(tr("Compact"), tr("One row per GPU"))
        self.compact.toggled.connect(self.compact_toggled)
        self.load = _toggle(tr("Sort by load"), tr("Show the busiest GPUs first"))
        self.load.toggled.connect(self.load_toggled)
        self.acts = {
            "hosts": Action(self, "watch_hosts", tr("Hosts…"), tr("Monitor other machines over ssh")),
            "csv": Action(self, "save_monitor_csv", tr("Save numbers as CSV…")),
            "png": Action(self, "save_monitor_png", tr("Save image as PNG…")),
            "energy": Action(self, "count_energy", tr("Reset energy counters")),
            "newest": Action(self, "follow_monitor", tr("Back to live"), tr("Follow the newest data again (Home)")),
        }
        self.past = muted_label()  # visible time range while the newest data isn't in view
        self.hosts = bind(QPushButton(), self.acts["hosts"])
        self.newest = bind(QPushButton(), self.acts["newest"])
        self.more = self._make_menu()
        self.show_following(True)
        controls = QWidget()
        row = FlowLayout(controls, spacing=6)
        widgets = (self._span_label, self.span, self.compact, self.load, self.hosts, self.more, self.past, self.newest)
        for widget in widgets:
            row.addWidget(widget)
        # Place it next to the tabs if there is room, otherwise below them.
        layout = FlowLayout(self, spacing=20, line_spacing=6)
        layout.addWidget(self.tabs)
        layout.addWidget(controls)
        self._show_controls(GPUS)

    def show_view(self, view: int) -> None:
        """Select the tab of the view at the index `view`."""
        if view == self.tabs.currentIndex():
            self.view_chosen.emit(view)  # the details of a GPU may cover the view
        self.tabs.setCurrentIndex(view)

    def show_following(self, following: bool) -> None:
        """Offer to return to the newest data, unless the graphs already follow them (`following`)."""
        self.acts["newest"].set_disabled_reason(tr("The newest data is in view") if following else "")
        self.newest.setVisible(not following and self.tabs.currentIndex() in (GPUS, GRAPHS))

    def show_past(self, text: str) -> None:
        """Show the time range that the user has zoomed or panned to, or hide it if `text` is ""."""
        self.past.setText(text)
        self.past.setVisible(bool(text) and self.tabs.currentIndex() in (GPUS, GRAPHS))

    def _on_tab_changed(self, view: int) -> None:
        self._show_controls(view)
        self.view_chosen.emit(view)

    def _on_tab_clicked(self, view: int) -> None:
        """Emit `view_chosen` also for the tab of the current view, which the details of a GPU may cover."""
        if view == self.tabs.currentIndex():
            self.view_chosen.emit(view)

    def _show_controls(self, view: int) -> None:
        """Show only the controls that have an effect on the view at index `view`."""
        has_graphs = view in (GPUS, GRAPHS)
        for widget in (self._span_label, self.span, self.more):
            widget.setVisible(has_graphs)
        self.newest.setVisible(has_graphs and self.acts["newest"].ready)
        self.past.setVisible(has_graphs and bool(self.past.text()))
        for button in (self.compact, self.load):
            button.setVisible(view == GPUS)

    def _make_menu(self) -> QToolButton:
        button = tool_button(
            text=tr("More"), name=tr("More"), tip=tr("Save the displayed data, or reset the energy counters")
        )
        make_menu_button(button)
        menu = QMenu(button)
        menu.addActions([self.acts["csv"], self.acts["png"]])
        menu.addSeparator()
        menu.addAction(self.acts["energy"])
        button.setMenu(menu)
        return button


class _Tabs(QTabBar):
    """Tab bar that never elides its titles."""

    def __init__(self) -> None:
        super().__init__()
        self.setDrawBase(False)
        self.setExpanding(False)
        self.setUsesScrollButtons(False)

    def minimumSizeHint(self) -> QSize:
        return QSize(super().minimumSizeHint().width(), self.sizeHint().height())


def _toggle(text: str, meaning: str) -> QToolButton:
    button = tool_button(text=text, tip=meaning, description=meaning)
    button.setCheckable(True)
    return button
