"""Actions of the window. All buttons and menu entries of an action share its text, icon, shortcuts and state."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from PySide6.QtCore import QObject, Qt
from PySide6.QtGui import QAction, QActionGroup, QKeySequence
from PySide6.QtWidgets import QAbstractButton, QWidget

from gui.style import icons
from gui.translation import tr

HERE = Qt.ShortcutContext.WidgetShortcut
"""Shortcut context: shortcuts work while the action's widget has the focus."""
WITHIN = Qt.ShortcutContext.WidgetWithChildrenShortcut
"""Shortcut context: shortcuts work while the action's widget, or a widget inside it, has the focus."""

chosen_keys: dict[str, tuple[str, ...]] = {}
"""Shortcuts that the user has assigned, by action id. They also apply to actions that are created later."""
_standard_keys: dict[str, tuple[str, ...]] = {}
"""Default shortcuts of all actions that have been created."""

_Button = TypeVar("_Button", bound=QAbstractButton)


class Action(QAction):
    """Qt action with an id (`objectName`).

    Its tool tip ends with its shortcuts. While it is disabled, `disabled_reason` is the reason.
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
        always_enabled: bool = False,
    ) -> None:
        """Create an action, add it to `widget`, and record its default shortcuts for `get_first_key`.

        Args:
            widget: Widget to which the shortcuts belong.
            name: Id.
            text: Title. "&" marks the letter that selects it in a menu.
            tip: Imperative phrase without a period, which describes the action.
            keys: Default shortcuts.
            icon: Name of an icon.
            color: Color of the icon.
            context: Qt's shortcut context: the widget or window that must have the focus for the shortcuts to work.
            on: Initial state of a toggle, or None for a command.
            always_enabled: Allow the action even with a `disabled_reason`, which may be out of date.
        """
        super().__init__(widget)
        self.disabled_reason = self.tip = ""
        self.standard_keys = keys
        _standard_keys[name] = keys
        self._always_enabled = always_enabled
        self.setObjectName(name)
        self.setShortcutContext(context)
        if on is not None:
            self.setCheckable(True)
            self.setChecked(on)
        self.set_keys(chosen_keys.get(name, keys))  # the user's shortcuts, or the default ones
        self.set_appearance(text, tip, icon, color)
        widget.addAction(self)

    @property
    def ready(self) -> bool:
        """True if there is no `disabled_reason`. An action that is always enabled isn't ready while it has a reason."""
        return not self.disabled_reason

    def set_appearance(self, text: str, tip: str, icon: str = "", color: str = "text") -> None:
        """Change the title, tip and icon, for example from Pause to Resume.

        If `icon` is "" or `text` is the current title, the icon doesn't change.
        """
        self.tip = tip
        if icon and text != self.text():  # any new QIcon, even an equal one, would update all buttons of the action
            self.setIcon(icons.icon(icon, color))
        self.setText(text)
        self._update_tool_tip()

    @property
    def title(self) -> str:
        """Text without the "&" that marks its menu letter."""
        return self.text().replace("&&", "\0").replace("&", "").replace("\0", "&")

    @property
    def keys(self) -> tuple[str, ...]:
        """Current shortcuts in portable notation, such as "Ctrl+P"."""
        return tuple(key.toString() for key in self.shortcuts())

    def set_keys(self, keys: Sequence[str]) -> None:
        """Assign shortcuts. Menus and tool tips show only the first one."""
        self.setShortcuts([QKeySequence(key) for key in keys])
        self._update_tool_tip()

    def set_disabled_reason(self, disabled_reason: str = "") -> None:
        """Disable the action for the given reason, or enable it if the reason is ""."""
        self.disabled_reason = disabled_reason
        self._update_tool_tip()
        self.setEnabled(self._always_enabled or not disabled_reason)

    def on_trigger(self, act: Callable[[], object]) -> None:
        """Call `act` without arguments whenever the action is triggered."""
        self.triggered.connect(lambda _on=False: act())

    def _update_tool_tip(self) -> None:
        key = self.shortcut().toString(QKeySequence.SequenceFormat.NativeText)
        tip = f"{self.tip} ({key})" if self.tip and key else self.tip
        self.setToolTip(self.disabled_reason or tip)


def get_first_key(name: str) -> str:
    """Return the first shortcut of the action `name` in the notation of the desktop, or "" if it has none."""
    keys = chosen_keys.get(name, _standard_keys.get(name, ()))
    return QKeySequence(keys[0]).toString(QKeySequence.SequenceFormat.NativeText) if keys else ""


def append_key(text: str, name: str) -> str:
    """Append the first shortcut of the action `name` to a text, as in "Runs (Ctrl+3)"."""
    key = get_first_key(name)
    return f"{text} ({key})" if key else text


def bind(button: _Button, action: Action, name: str = "", *, hide_disabled: bool = False) -> _Button:
    """Make `button` show `action` and trigger it, and return the button.

    The accessible name of the button is `name` or, by default, the action's text. The button is disabled, or hidden if
    `hide_disabled` is True, while the action has a reason to be disabled.
    """

    def update_button() -> None:
        """Show the current texts, icon and state of the action."""
        button.setText(action.text())
        button.setIcon(action.icon())
        button.setToolTip(action.toolTip())
        button.setAccessibleName(name or action.text().replace("&", ""))
        button.setAccessibleDescription(action.toolTip())
        button.setEnabled(action.ready)  # also disables the button of an action that is always enabled
        button.setChecked(action.isChecked())
        if hide_disabled:
            button.setVisible(action.ready)

    button.setCheckable(action.isCheckable())
    button.clicked.connect(action.trigger)
    action.changed.connect(update_button)
    update_button()
    return button


def create_back_action(page: QWidget, name: str, tip: str = tr("Back to the previous page")) -> Action:
    """Create the Back action for `page`, which has no tab. `name` is the action's id."""
    return Action(page, name, tr("← Back"), tip, "Esc", context=WITHIN)


class Command:
    """Declaration of an action as a class attribute of `Actions`. The attribute's name is the action's id."""

    def __init__(
        self, title: str, tip: str, *keys: str, menu: str = "", needs_pages: bool = False, **options: Any
    ) -> None:
        """Declare an action.

        Args:
            title: Text for menus and buttons. "&" marks the letter that selects it in a menu.
            tip: Imperative phrase without a period, which describes the action.
            keys: Default shortcuts.
            menu: Menu and group in it, such as "file 1", or "" for none.
            needs_pages: Disable the action until the pages have been created.
            options: Other arguments of `Action`.
        """
        self.menu, self.needs_pages = menu, needs_pages
        self._texts_and_keys, self._options = (title, tip, *keys), options
        self.name = ""

    def __set_name__(self, _owner: type, name: str) -> None:
        self.name = name

    def __get__(self, actions: Actions, _owner: type) -> Action:
        return actions.by_name[self.name]

    def create(self, window: QWidget) -> Action:
        """Create the declared action for `window`."""
        return Action(window, self.name, *self._texts_and_keys, **self._options)


class Actions(QObject):
    """Actions of the window. `all` also contains the actions that tables and pages create."""

    new_job = Command(tr("New job"), tr("Show the form of a new job, as you left it"), "Ctrl+N", menu="file 1")
    clear_form = Command(
        tr("Clear the form"), tr("Restore the defaults but keep the devices"), "Ctrl+Shift+N", menu="file 1"
    )
    browse = Command(tr("Choose the dataset folder…"), tr("Open a folder dialog"), "Ctrl+O", menu="file 2")
    open_job = Command(tr("Open job…"), tr("Put a job.toml into the form"), "Ctrl+Shift+O", menu="file 3")
    save_job = Command(tr("Save job as…"), tr("Save the form as a job.toml"), "Ctrl+S", menu="file 3")
    copy_command = Command(tr("Copy as command"), tr("Copy the footplate command for this job"), menu="file 3")
    copy_torchrun = Command(
        tr("Copy as torchrun command"), tr("Copy a torchrun command for each machine (no ssh needed)"), menu="file 3"
    )
    open_run = Command(
        tr("Open run folder…"), tr("Open a run folder anywhere on disk"), menu="file 4", needs_pages=True
    )
    open_remote = Command(
        tr("Open run on another machine…"),
        tr("Follow a run of one of your hosts over ssh"),
        menu="file 4",
        needs_pages=True,
    )
    quit = Command(tr("Quit"), tr("Close the window; runs keep running"), "Ctrl+Q", menu="file 5")

    train = Command(
        tr("Train"), tr("Start the training"), "Ctrl+Return", "Ctrl+Enter", menu="run 1", always_enabled=True
    )
    start_at_once = Command(
        tr("Start now, sharing"),
        tr("Start now and share the devices with other runs, which slows all of them down"),
        menu="run 1",
    )
    submit = Command(tr("Submit to SLURM…"), tr("Show the SLURM script for this job and submit it"), menu="run 1")
    pause = Command(tr("Pause"), tr("Pause the run on screen"), "Ctrl+P", menu="run 2", icon="pause")
    stop = Command(tr("Stop"), tr("Stop the run on screen"), "Ctrl+.", menu="run 2", icon="stop", color="error")
    fork = Command(
        tr("Fork…"),
        tr("Open a new run in the form that starts from the last checkpoint of the run on screen"),
        menu="run 3",
        needs_pages=True,
    )
    queue = Command(
        tr("Show the queue"), tr("Show the runs that wait for devices, in order"), menu="run 3", needs_pages=True
    )

    try_image = Command(
        tr("Try an image…"),
        tr("Predict for an image with the newest checkpoint, and again with each new one while the run trains"),
        menu="run 4",
        needs_pages=True,
    )
    evaluate_run = Command(
        tr("Evaluate the model…"), tr("Show the evaluations of the run on screen"), menu="run 4", needs_pages=True
    )
    predict_with_run = Command(
        tr("Predict…"), tr("Predict for your files with the model on screen"), menu="run 4", needs_pages=True
    )
    convert_run = Command(
        tr("Convert the model…"),
        tr("Convert the model on screen to ONNX or safetensors"),
        menu="run 4",
        needs_pages=True,
    )

    devices_panel = Command(
        tr("Devices panel"),
        tr("Show or hide the devices panel"),
        "F7",
        menu="view 2",
        icon="left-panel",
        color="muted",
        on=True,
    )
    run_settings = Command(
        tr("Settings of the run"),
        tr("Show or hide the settings of the run on screen"),
        "F8",
        menu="view 2",
        icon="right-panel",
        color="muted",
        on=False,
    )
    next_pane = Command(
        tr("Next pane"), tr("Move the keyboard focus to the next part of the window"), "F6", menu="view 3"
    )
    previous_pane = Command(
        tr("Previous pane"), tr("Move the keyboard focus to the previous part of the window"), "Shift+F6", menu="view 3"
    )
    system_theme = Command(tr("System"), tr("Follow the system theme"), menu="theme 1", on=True)
    light_theme = Command(tr("Light"), tr("Dark text on a light background"), menu="theme 1", on=False)
    dark_theme = Command(tr("Dark"), tr("Light text on a dark background"), menu="theme 1", on=False)
    larger_text = Command(tr("Larger text"), tr("Increase text size"), "Ctrl++", "Ctrl+=", menu="text 1")
    smaller_text = Command(tr("Smaller text"), tr("Decrease text size"), "Ctrl+-", menu="text 1")
    usual_text = Command(tr("Default text size"), tr("Reset text to the system size"), "Ctrl+0", menu="text 1")
    full_screen = Command(tr("Full screen"), tr("Fill the screen"), "F11", menu="view 4", on=False)
    close_to_tray = Command(
        tr("Close to the tray"),
        tr("Keep Footplate in the system tray when its window is closed, with progress and alerts"),
        menu="view 4",
        on=False,
    )

    palette = Command(
        tr("Command palette…"),
        tr("Find commands, settings, models, runs, datasets and GPUs"),
        "Ctrl+K",
        menu="tools 1",
    )
    advise = Command(
        tr("Advise on the strategy"),
        tr("Try strategies and settings, and rank them"),
        menu="tools 2",
        needs_pages=True,
    )
    find_rate = Command(
        tr("Learning-rate finder"), tr("Try learning rates for the job"), menu="tools 2", needs_pages=True
    )
    find_batch = Command(
        tr("Batch-size finder"), tr("Find the largest batch that fits"), menu="tools 2", needs_pages=True
    )
    hosts = Command(
        tr("Hosts…"), tr("Add other machines, to monitor and to train on over ssh"), menu="tools 3", needs_pages=True
    )
    alerts = Command(tr("Alerts"), tr("Show the Monitor's alerts and notifications"), menu="tools 3", needs_pages=True)
    preferences = Command(tr("Settings…"), tr("Open the settings"), "Ctrl+,", menu="tools 4")

    help = Command(tr("Help"), tr("Open the user's guide"), "F1", menu="help 1", icon="help", color="muted")
    shortcuts = Command(tr("Keyboard shortcuts…"), tr("View and change shortcuts"), menu="help 1")
    whats_new = Command(tr("What's new"), tr("Release notes for this version"), menu="help 1")
    report = Command(
        tr("Report a problem…"),
        tr("Create a file for a bug report, without names and paths, to review and save"),
        menu="help 2",
    )
    about = Command(tr("About Footplate"), tr("Show versions and licenses"), menu="help 2")

    def __init__(self, window: QWidget, tabs: Sequence[tuple[str, str, str]] = ()) -> None:
        """Create the actions of `window`. `tabs` are the name, title and tip of each page with a tab."""
        super().__init__(window)
        self._window = window
        self.by_name = {command.name: command.create(window) for command in self._declared()}
        self.pages = tuple(
            Action(window, f"{name}_page", title, tip, f"Ctrl+{number}", on=number == 1)
            for number, (name, title, tip) in enumerate(tabs, 1)
        )
        self.by_name |= {page.objectName(): page for page in self.pages}
        self.schemes = (self.system_theme, self.light_theme, self.dark_theme)
        for choices in (self.pages, self.schemes):
            group = QActionGroup(self)
            for action in choices:
                group.addAction(action)

    @property
    def page(self) -> int:
        """Index of the selected tab."""
        return next(number for number, page in enumerate(self.pages) if page.isChecked())

    @property
    def needing_pages(self) -> list[Action]:
        """Actions that are disabled until the pages have been created."""
        return [self.by_name[command.name] for command in self._declared() if command.needs_pages]

    def menu_groups(self, menu: str) -> list[list[Action]]:
        """Return the actions of the menu with the id `menu`, such as "file", in groups divided by separators.

        The first group of "view" are the pages.
        """
        groups: dict[str, list[Action]] = {"pages": [*self.pages]} if menu == "view" else {}
        for command in self._declared():
            if command.menu.partition(" ")[0] == menu:
                groups.setdefault(command.menu, []).append(self.by_name[command.name])
        return list(groups.values())

    def all(self) -> list[Action]:
        """Return all actions that currently exist in the window."""
        return self._window.findChildren(Action)

    @staticmethod
    def _declared() -> list[Command]:
        return [command for command in vars(Actions).values() if isinstance(command, Command)]
