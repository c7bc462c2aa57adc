"""The top of the window: the pages, how many runs go on, and which panels are shown."""

from __future__ import annotations

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QHBoxLayout, QLabel, QTabBar, QToolButton, QWidget

from gui.style import icons

PAGES = ("Train", "Monitor", "Runs")


class Header(QWidget):
    """Signals: page_chosen(int) - the page's place in `PAGES`; panel_toggled(str, bool) - "devices" or "job";
    help_wanted()."""

    page_chosen = Signal(int)
    help_wanted = Signal()
    panel_toggled = Signal(str, bool)

    def __init__(self) -> None:
        super().__init__()
        self.setObjectName("panel")
        self.setAttribute(Qt.WidgetAttribute.WA_StyledBackground)
        self.tabs = QTabBar()
        self.tabs.setDrawBase(False)
        self.tabs.setExpanding(False)
        self.tabs.setAccessibleName("Pages")
        for number, title in enumerate(PAGES):
            self.tabs.addTab(title)
            self.tabs.setTabToolTip(number, f"{title} (Ctrl+{number + 1})")
            # The button of that name is the one that trains.
            self.tabs.setAccessibleTabName(number, f"{title} page")
        self.tabs.currentChanged.connect(self.page_chosen)
        self.tabs.tabBarClicked.connect(self._clicked)
        self.running = QLabel()
        self.running.setObjectName("muted")
        self.running.setAccessibleName("Runs going on")
        self.devices = self._toggle("Devices panel", "left-panel", "devices", "F7")
        self.job = self._toggle("Job panel", "right-panel", "job", "F8")
        self.help = self._flat("Help", "help", "Opens the user's guide", "F1")
        self.help.clicked.connect(self.help_wanted)
        layout = QHBoxLayout(self)
        layout.setContentsMargins(8, 4, 10, 0)
        layout.setSpacing(6)
        layout.addWidget(self.tabs)
        layout.addStretch(1)
        for widget in (self.running, self.devices, self.job, self.help):
            layout.addWidget(widget)

    def show_page(self, number: int) -> None:
        if number == self.tabs.currentIndex():
            self.page_chosen.emit(number)  # a page without a tab may be before it
        self.tabs.setCurrentIndex(number)

    def show_running(self, running: int, waiting: int) -> None:
        """How many runs are at work, and how many wait in line for their devices."""
        counts = ((running, "running"), (waiting, "waiting"))
        self.running.setText(", ".join(f"{count} {what}" for count, what in counts if count))

    def _clicked(self, number: int) -> None:
        if number == self.tabs.currentIndex():
            self.page_chosen.emit(number)

    def _toggle(self, title: str, icon: str, panel: str, key: str) -> QToolButton:
        button = self._flat(title, icon, f"Show or hide the {title.lower()}", key)
        button.setCheckable(True)
        button.setChecked(True)
        button.toggled.connect(lambda on: self.panel_toggled.emit(panel, on))
        return button

    def _flat(self, title: str, icon: str, what: str, key: str) -> QToolButton:
        button = QToolButton()
        button.setObjectName("flat")
        button.setAccessibleName(title)
        button.setToolTip(f"{what} ({key})")
        button.setShortcut(key)
        button.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        button.setIcon(icons.icon(icon, "muted"))
        return button
