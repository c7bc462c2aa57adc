"""The window's commands: each is one action, whose text, icon, keys and state its buttons and menus share."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from PySide6.QtCore import QObject, Qt
from PySide6.QtGui import QAction, QActionGroup, QKeySequence
from PySide6.QtWidgets import QAbstractButton, QWidget

from gui.style import icons

PAGES = ("Train", "Monitor", "Runs")
TRAIN, MONITOR, RUNS = range(len(PAGES))

HERE = Qt.ShortcutContext.WidgetShortcut
"""Keys that act while the action's own widget has the focus."""
WITHIN = Qt.ShortcutContext.WidgetWithChildrenShortcut
"""Keys that act while anything within the action's widget has it."""

_Button = TypeVar("_Button", bound=QAbstractButton)


class Action(QAction):
    """A command. `objectName` is its id; `disabled_reason` says why it is disabled, "" while it is enabled."""

    def __init__(
        self,
        widget: QWidget,
        name: str,
        text: str,
        tip: str = "",
        *keys: str,
        icon: str = "",
        color: str = "text",
        context: Qt.ShortcutContext = Qt.ShortcutContext.WindowShortcut,
        on: bool | None = None,
        insists: bool = False,
    ) -> None:
        """`widget` is the widget that the keys belong to; `on` makes it a switch, in that position. With `insists` it
        can be triggered even with a `disabled_reason`, since that may be out of date."""
        super().__init__(widget)
        self.disabled_reason = ""
        self._tip = ""
        self._insists = insists
        self.setObjectName(name)
        self.setShortcuts([QKeySequence(key) for key in keys])
        self.setShortcutContext(context)
        if on is not None:
            self.setCheckable(True)
            self.setChecked(on)
        self.become(text, f"{tip} ({keys[0]})" if tip and keys else tip, icon, color)
        widget.addAction(self)

    @property
    def ready(self) -> bool:
        return not self.disabled_reason

    def become(self, text: str, tip: str, icon: str = "", color: str = "text") -> None:
        """Changes what it shows, such as Resume in place of Pause; `tip` is its tool tip while it is enabled."""
        self._tip = tip
        if icon and text != self.text():
            self.setIcon(icons.icon(icon, color))
        self.setText(text)
        self.setToolTip(self.disabled_reason or tip)

    def allow(self, disabled_reason: str = "") -> None:
        """Enables it, or disables it for the reason given."""
        self.disabled_reason = disabled_reason
        self.setToolTip(disabled_reason or self._tip)
        self.setEnabled(self._insists or not disabled_reason)

    def on_trigger(self, act: Callable[[], object]) -> None:
        """Calls `act` whenever the action is triggered, without the signal's argument."""
        self.triggered.connect(lambda _on=False: act())


def bind(button: _Button, action: Action, name: str = "", *, offered: bool = False) -> _Button:
    """Has `button` show `action` and do the same. `name` is what screen readers call it, the action's text by default; with
    `offered` it is in sight only while the action can be done."""

    def follow() -> None:
        button.setText(action.text())
        button.setIcon(action.icon())
        button.setToolTip(action.toolTip())
        button.setAccessibleName(name or action.text().replace("&", ""))
        button.setAccessibleDescription(action.toolTip())
        button.setEnabled(action.ready)
        button.setChecked(action.isChecked())
        if offered:
            button.setVisible(action.ready)

    button.setCheckable(action.isCheckable())
    button.clicked.connect(action.trigger)
    action.changed.connect(follow)
    action.toggled.connect(button.setChecked)
    follow()
    return button


def leaving(page: QWidget, name: str, tip: str = "Back to the previous page") -> Action:
    """The action that leads back from a page without a tab."""
    return Action(page, name, "← Back", tip, "Esc", context=WITHIN)


class Actions(QObject):
    """The commands of the whole window. Those of one table or page are made beside it; `all` knows them too."""

    def __init__(self, window: QWidget) -> None:
        super().__init__(window)
        self._window = window
        self.pages = tuple(
            Action(
                window, f"{title.lower()}_page", title, f"Shows the {title} page", f"Ctrl+{number + 1}", on=not number
            )
            for number, title in enumerate(PAGES)
        )
        self._pages = QActionGroup(self)
        for page in self.pages:
            self._pages.addAction(page)
        self.devices_panel = self._panel("devices_panel", "Devices panel", "left-panel", "F7")
        self.job_panel = self._panel("job_panel", "Job panel", "right-panel", "F8")
        self.help = Action(window, "help", "Help", "Opens the user's guide", "F1", icon="help", color="muted")
        self.quit = Action(window, "quit", "Quit", "Closes the window; runs keep running", "Ctrl+Q")
        tray = "Keeps Footplate in the desktop's tray when its window is closed, with progress and alerts"
        self.close_to_tray = Action(window, "close_to_tray", "Close to the tray", tray, on=False)
        self.browse = Action(window, "browse", "Choose the dataset folder …", "Opens a folder dialog", "Ctrl+O")
        self.train = Action(window, "train", "Train", "", "Ctrl+Return", "Ctrl+Enter", insists=True)
        at_once = "Starts now and shares the devices with other runs, which slows all of them down"
        self.start_at_once = Action(window, "start_at_once", "Start at once", at_once)
        copy = "Copies the footplate command for this job to the clipboard"
        self.copy_command = Action(window, "copy_command", "Copy as command", copy)
        self.pause = Action(window, "pause", "Pause", "", "Ctrl+P", icon="pause")
        self.stop = Action(window, "stop", "Stop", "", "Ctrl+.", icon="stop", color="error")

    @property
    def page(self) -> int:
        """The page that the header leads to last, in the order of `PAGES`."""
        return next(number for number, page in enumerate(self.pages) if page.isChecked())

    def all(self) -> list[Action]:
        """Every command that the window has now, each with an id of its own."""
        return self._window.findChildren(Action)

    def _panel(self, name: str, title: str, icon: str, key: str) -> Action:
        tip = f"Show or hide the {title.lower()}"
        return Action(self._window, name, title, tip, key, icon=icon, color="muted", on=True)
