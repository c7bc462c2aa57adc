"""The window's commands: each is one action, whose text, icon, keys and state its buttons and menus share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
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

chosen_keys: dict[str, tuple[str, ...]] = {}
"""Keys that the user has chosen, by the id of their action; they hold for actions that are made later, too."""

_Button = TypeVar("_Button", bound=QAbstractButton)


class Action(QAction):
    """A command. `objectName` is its id; `disabled_reason` says why it is disabled, "" while it is enabled; `tip` is
    what it does, without its keys, and `standard_keys` are those that it has unless the user chooses others.
    """

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
        can be triggered even with a `disabled_reason`, since that may be out of date.
        """
        super().__init__(widget)
        self.disabled_reason = self.tip = ""
        self.standard_keys = keys
        self._insists = insists
        self.setObjectName(name)
        self.setShortcutContext(context)
        if on is not None:
            self.setCheckable(True)
            self.setChecked(on)
        self.set_keys(chosen_keys.get(name, keys))
        self.become(text, tip, icon, color)
        widget.addAction(self)

    @property
    def ready(self) -> bool:
        return not self.disabled_reason

    def become(self, text: str, tip: str, icon: str = "", color: str = "text") -> None:
        """Changes what it shows, such as Resume in place of Pause; `tip` is its tool tip while it is enabled, to which
        its first key is added.
        """
        self.tip = tip
        if icon and text != self.text():
            self.setIcon(icons.icon(icon, color))
        self.setText(text)
        self._show_tip()

    @property
    def title(self) -> str:
        """Its text without the mark of the letter that chooses it in a menu."""
        return self.text().replace("&&", "\0").replace("&", "").replace("\0", "&")

    @property
    def keys(self) -> tuple[str, ...]:
        """Its keys as files have them, such as "Ctrl+P"."""
        return tuple(key.toString() for key in self.shortcuts())

    def set_keys(self, keys: Sequence[str]) -> None:
        """Gives it other keys, the first of which menus and tool tips show."""
        self.setShortcuts([QKeySequence(key) for key in keys])
        self._show_tip()

    def allow(self, disabled_reason: str = "") -> None:
        """Enables it, or disables it for the reason given."""
        self.disabled_reason = disabled_reason
        self._show_tip()
        self.setEnabled(self._insists or not disabled_reason)

    def on_trigger(self, act: Callable[[], object]) -> None:
        """Calls `act` whenever the action is triggered, without the signal's argument."""
        self.triggered.connect(lambda _on=False: act())

    def _show_tip(self) -> None:
        key = self.shortcut().toString(QKeySequence.SequenceFormat.NativeText)
        said = f"{self.tip} ({key})" if self.tip and key else self.tip
        self.setToolTip(self.disabled_reason or said)
        self.setStatusTip(self.toolTip())


def bind(button: _Button, action: Action, name: str = "", *, offered: bool = False) -> _Button:
    """Has `button` show `action` and do the same. `name` is what screen readers call it, the action's text by
    default; with `offered` it is in sight only while the action can be done.
    """

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
        self._make_files()
        self._make_view()
        self._make_tools()
        self.quit = Action(window, "quit", "Quit", "Closes the window; runs keep running", "Ctrl+Q")
        tray = "Keeps Footplate in the desktop's tray when its window is closed, with progress and alerts"
        self.close_to_tray = Action(window, "close_to_tray", "Close to the tray", tray, on=False)
        self.browse = Action(window, "browse", "Choose the dataset folder …", "Opens a folder dialog", "Ctrl+O")
        self.train = Action(window, "train", "Train", "Starts the training", "Ctrl+Return", "Ctrl+Enter", insists=True)
        at_once = "Starts now and shares the devices with other runs, which slows all of them down"
        self.start_at_once = Action(window, "start_at_once", "Start at once", at_once)
        copy = "Copies the footplate command for this job to the clipboard"
        self.copy_command = Action(window, "copy_command", "Copy as command", copy)
        torchrun = "Copies the torchrun line of each machine for this job, which needs none of Footplate's ssh"
        self.copy_torchrun = Action(window, "copy_torchrun", "Copy as torchrun command", torchrun)
        slurm = "Shows the script by which SLURM trains this job, and submits it"
        self.submit = Action(window, "submit", "Submit to SLURM …", slurm)
        self.pause = Action(window, "pause", "Pause", "Pauses the run on screen", "Ctrl+P", icon="pause")
        self.stop = Action(window, "stop", "Stop", "Stops the run on screen", "Ctrl+.", icon="stop", color="error")

    def _make_files(self) -> None:
        window = self._window
        self.new_job = Action(window, "new_job", "New job", "Empties the form, but for its devices", "Ctrl+N")
        self.open_job = Action(window, "open_job", "Open job …", "Puts a job.toml into the form", "Ctrl+Shift+O")
        self.save_job = Action(window, "save_job", "Save job as …", "Saves the form as a job.toml", "Ctrl+S")
        elsewhere = "Shows a run whose folder lies anywhere, such as on another disk"
        self.open_run = Action(window, "open_run", "Open run folder …", elsewhere)
        remote = "Follows a run of one of your hosts, over ssh"
        self.open_remote = Action(window, "open_remote", "Open run on another machine …", remote)
        fork = "Opens a new run in the form that starts from the last checkpoint of the run on screen"
        self.fork = Action(window, "fork", "Fork …", fork)
        self.queue = Action(window, "queue", "Show the queue", "Shows which runs wait for devices, and in which order")

    def _make_view(self) -> None:
        window = self._window
        self.schemes = tuple(
            Action(window, f"{name}_theme", title, tip, on=name == "system")
            for name, title, tip in (
                ("system", "Like the desktop", "Light or dark, as the desktop is"),
                ("light", "Light", "Dark text on a light ground"),
                ("dark", "Dark", "Light text on a dark ground"),
            )
        )
        self._schemes = QActionGroup(self)
        for scheme in self.schemes:
            self._schemes.addAction(scheme)
        self.larger_text = Action(window, "larger_text", "Larger text", "Makes all texts larger", "Ctrl++", "Ctrl+=")
        self.smaller_text = Action(window, "smaller_text", "Smaller text", "Makes all texts smaller", "Ctrl+-")
        self.usual_text = Action(window, "usual_text", "Default text size", "Texts as large as the desktop's", "Ctrl+0")
        self.full_screen = Action(window, "full_screen", "Full screen", "Fills the screen", "F11", on=False)

    def _make_tools(self) -> None:
        window = self._window
        everything = "Finds commands, settings, models, runs, datasets and GPUs"
        self.palette = Action(window, "palette", "Command palette …", everything, "Ctrl+K")
        self.advise = Action(
            window, "advise", "Advise on the strategy", "Tries strategies and settings, and ranks them"
        )
        self.find_rate = Action(window, "find_rate", "Learning-rate finder", "Tries learning rates for the job")
        self.find_batch = Action(window, "find_batch", "Batch-size finder", "Finds the largest batch that fits")
        self.trials = (self.advise, self.find_rate, self.find_batch)
        self.hosts = Action(window, "hosts", "Hosts …", "Adds other machines, to monitor and to train on over ssh")
        self.alerts = Action(window, "alerts", "Alerts", "Shows the Monitor's alerts and notifications")
        self.preferences = Action(window, "preferences", "Settings …", "Opens the settings", "Ctrl+,")
        self.shortcuts = Action(window, "shortcuts", "Keyboard shortcuts …", "Lists the shortcuts, and changes them")
        self.whats_new = Action(window, "whats_new", "What's new", "Says what is in this version")
        report = "Makes a file for a bug report, without names and paths, to look through and save"
        self.report = Action(window, "report", "Report a problem …", report)
        self.about = Action(window, "about", "About Footplate", "Shows versions and licences")

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
