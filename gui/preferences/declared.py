"""Declarations of all settings. Dialog, command palette and guide are generated from them."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from engine.contract.recipes import load_recipes
from engine.runs.notices import KINDS
from engine.system.cache_limit import GIB, LIMIT_VARIABLE, default_limit_bytes
from gui.format import significant
from gui.translation import tr

Value = bool | float | str
Kind = Literal["switch", "choice", "number", "whole", "text", "folder"]
Storage = Literal["window", "notices", "folders", "cache"]
"""Storage of a setting: the window's `window.json`, or a file of the engine."""
_MAX_COMMAND_LENGTH = 4096


@dataclass(frozen=True)
class Setting:
    """Declaration of a setting.

    `choices` maps values to titles. Numbers are in `unit`, between `minimum` and `maximum`. `check` returns the problem
    with an entered text, or "" if there is none. `storage` determines the file that contains the value.
    """

    key: str
    section: str
    title: str
    help: str
    kind: Kind
    default: Value | Callable[[], Value]
    storage: Storage = "window"
    choices: Mapping[str, str] | Callable[[], Mapping[str, str]] = dict
    minimum: float = 0
    maximum: float = 0
    unit: str = ""
    check: Callable[[str], str] | None = None
    variable: str = ""
    """Environment variable that overrides the setting."""

    @property
    def standard(self) -> Value:
        """Default value."""
        return self.default() if callable(self.default) else self.default

    def titled_choices(self) -> Mapping[str, str]:
        """Return the titles of the choices by value, or {} if the setting has no choices."""
        return self.choices() if callable(self.choices) else self.choices

    def find_problem(self, value: Value) -> str:
        """Return the problem with `value` and its remedy, or "" if `value` is valid."""
        if self.kind in ("number", "whole"):
            is_valid = isinstance(value, int | float) and math.isfinite(value) and self.minimum <= value <= self.maximum
            if is_valid and (self.kind == "number" or value == int(value)):
                return ""
            text = (
                tr("Enter a number from {minimum} to {maximum}.")
                if self.kind == "number"
                else tr("Enter a whole number from {minimum} to {maximum}.")
            )
            return text.format(minimum=significant(self.minimum), maximum=significant(self.maximum))
        if self.kind == "choice":
            return "" if value in self.titled_choices() else tr("Choose an option from the list.")
        return self.check(value) if self.check is not None and isinstance(value, str) else ""

    def find_ineffective_reason(self) -> str:
        """Return the reason why the setting has no effect, or "" if it has one."""
        return tr("Overridden by {variable}.").format(variable=self.variable) if self.variable in os.environ else ""


def _list_recipes() -> Mapping[str, str]:
    return {"": tr("Automatic")} | {recipe.id: recipe.title for recipe in load_recipes().all}


def _find_runs_folder_problem(path: str) -> str:
    """Return the problem with a folder for runs, or "" if there is none.

    The folder must be empty except for runs, because Footplate denies other users access to it.
    """
    return _find_folder_problem(path, lambda folder: all((entry / "job.toml").exists() for entry in folder.iterdir()))


def _find_cache_folder_problem(path: str) -> str:
    return _find_folder_problem(path, lambda _folder: True)


def _find_folder_problem(path: str, accepts: Callable[[Path], bool]) -> str:
    """Return the problem with a folder, or "" if there is none. An empty path stands for the default folder.

    If the folder exists, it must be writable and pass `accepts`, otherwise its nearest parent that exists must be
    writable. The disk is accessed and may block.
    """
    if not path:
        return ""
    folder = Path(path).expanduser()
    if not folder.is_absolute():
        return tr("Enter an absolute path.")
    try:
        existing = next(candidate for candidate in (folder, *folder.parents) if candidate.exists())
        if not existing.is_dir() or not os.access(existing, os.W_OK):
            return tr("{existing} can't be written to. Choose another folder.").format(existing=existing)
        if existing == folder and not accepts(folder):
            return tr("{folder} contains other files. Choose an empty or new folder.").format(folder=folder)
    except OSError as error:
        return tr("{folder} can't be read: {strerror}. Choose another folder.").format(
            folder=folder, strerror=error.strerror
        )
    return ""


def _find_command_problem(text: str) -> str:
    """Return the problem with a command if it is too long, otherwise ""."""
    if len(text) <= _MAX_COMMAND_LENGTH:
        return ""
    return tr("The command is too long. Put it into a script and enter the script's name.")


_APPEARANCE, _TRAINING, _FOLDERS, _DEVICES, _NOTIFICATIONS = (
    tr("Appearance"),
    tr("Training"),
    tr("Folders and limits"),
    tr("Devices"),
    tr("Notifications"),
)

SETTINGS: tuple[Setting, ...] = (
    Setting(
        "theme", _APPEARANCE, tr("Theme"), tr("Colors of the window."), "choice", "system",
        choices={"system": tr("System"), "light": tr("Light"), "dark": tr("Dark")},
    ),
    Setting(
        "text_percent", _APPEARANCE, tr("Text size"), tr("Text size relative to the system."), "whole", 100,
        minimum=70, maximum=200, unit="%",
    ),
    Setting(
        "memory_unit", _APPEARANCE, tr("Memory and file sizes"), tr("GiB in powers of 1024, as for memory, or GB in powers of 1000, as for disks. Graphs always use GiB."),
        "choice", "binary", choices={"binary": tr("Binary (GiB)"), "decimal": tr("Decimal (GB)")},
    ),
    Setting(
        "monitor_compact", _APPEARANCE, tr("Compact list of GPUs"), tr("The Monitor shows GPUs as lines instead of tiles."),
        "switch", False,
    ),
    Setting(
        "monitor_by_load", _APPEARANCE, tr("Busiest GPUs first"), tr("The Monitor sorts GPUs by load."), "switch", False,
    ),
    Setting(
        "default_recipe", _TRAINING, tr("Default recipe"), tr("Recipe for new jobs, if it supports the task."),
        "choice", "", choices=_list_recipes,
    ),
    Setting(
        "default_devices", _TRAINING, tr("Default devices"), tr("Devices that are checked when the window opens, and for new jobs."),
        "choice", "last", choices={"last": tr("As last time"), "gpus": tr("All GPUs"), "cpu": tr("The CPU")},
    ),
    Setting(
        "runs_folder", _FOLDERS, tr("Folder for runs"),
        tr("Holds new runs and those in the run list. Empty: “runs” in Footplate's own folder."),
        "folder", "", "folders", check=_find_runs_folder_problem,
    ),
    Setting(
        "cache_folder", _FOLDERS, tr("Folder for the cache"),
        tr("Holds decoded images and compiled code. Empty: the system's cache folder."),
        "folder", "", "folders", check=_find_cache_folder_problem, variable="FOOTPLATE_CACHE",
    ),
    Setting(
        "cache_gib", _FOLDERS, tr("Limit of the image cache"),
        tr("Disk space for the decoded images of all datasets. The oldest are removed first; 0 caches none."),
        "number", lambda: round(default_limit_bytes() / GIB, 1), "cache", maximum=999_999, unit="GiB", variable=LIMIT_VARIABLE,
    ),
    Setting(
        "history_hours", _FOLDERS, tr("Device history"), tr("Hours that the Monitor's graphs go back."),
        "number", 24, minimum=0.5, maximum=168, unit="h",
    ),
    Setting(
        "keep_device_history", _FOLDERS, tr("Keep the device history"),
        tr("Saves a reading of this machine's devices every 30 seconds, at most 8 MB, so that the graphs survive a restart."),
        "switch", True,
    ),
    Setting(
        "runs_every_s", _FOLDERS, tr("Refresh the run list every"), tr("Interval between updates of the run list."),
        "number", 3, minimum=1, maximum=60, unit="s",
    ),
    Setting(
        "sample_every_s", _DEVICES, tr("Sample the devices every"), tr("Interval between readings of this machine's GPUs and CPU."),
        "number", 1, minimum=0.25, maximum=60, unit="s",
    ),
    Setting(
        "ended", _NOTIFICATIONS, tr("Notify when a run has completed"), KINDS["ended"].meaning, "switch", True, "notices",
    ),
    Setting(
        "failed", _NOTIFICATIONS, tr("Notify when a run has failed"), KINDS["failed"].meaning, "switch", True, "notices",
    ),
    Setting(
        "stalled", _NOTIFICATIONS, tr("Notify when a run stalls"), KINDS["stalled"].meaning, "switch", True, "notices",
    ),
    Setting(
        "restarted", _NOTIFICATIONS, tr("Notify when a run restarts"), KINDS["restarted"].meaning, "switch", False, "notices",
    ),
    Setting(
        "least_minutes", _NOTIFICATIONS, tr("Minimum run duration"), tr("Shorter runs send no notifications; time in the queue counts."),
        "number", 1.0, "notices", maximum=10_080, unit="min",
    ),
    Setting("desktop", _NOTIFICATIONS, tr("Desktop notifications"), tr("The desktop shows notifications."), "switch", True, "notices"),
    Setting(
        "command", _NOTIFICATIONS, tr("Command for notifications"), tr("The system's shell runs it for each notification. Empty: none."),
        "text", "", "notices", check=_find_command_problem,
    ),
)  # fmt: skip

BY_KEY: Mapping[str, Setting] = {setting.key: setting for setting in SETTINGS}


def list_sections() -> tuple[str, ...]:
    """Return the titles of the sections of the settings dialog, in order."""
    return tuple(dict.fromkeys(setting.section for setting in SETTINGS))
