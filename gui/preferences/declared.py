"""Everything that can be set, in the order in which it is shown: dialog, palette and guide come from this list."""

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

Value = bool | float | str
Kind = Literal["switch", "choice", "number", "whole", "text", "folder"]
Place = Literal["window", "notices", "folders", "cache"]
"""Where a setting is kept: in the window's own `window.json`, or where the engine reads it."""


@dataclass(frozen=True)
class Setting:
    """One thing that can be set. `default` may be found out when it is asked for; `choices` maps the values of a
    choice to their titles; a number lies between `least` and `most`, in `unit`; `check` says what is wrong with a
    value.
    """

    key: str
    section: str
    title: str
    help: str
    kind: Kind
    default: Value | Callable[[], Value]
    place: Place = "window"
    choices: Mapping[str, str] | Callable[[], Mapping[str, str]] = dict
    least: float = 0
    most: float = 0
    unit: str = ""
    check: Callable[[str], str] | None = None
    variable: str = ""
    """The environment variable that comes before the setting."""

    @property
    def standard(self) -> Value:
        """Its default."""
        return self.default() if callable(self.default) else self.default

    def offered(self) -> Mapping[str, str]:
        """What can be chosen, with titles."""
        return self.choices() if callable(self.choices) else self.choices

    def problem(self, value: Value) -> str:
        """What is wrong with `value` and what to enter instead; "" for nothing."""
        if self.kind in ("number", "whole"):
            good = isinstance(value, int | float) and math.isfinite(value) and self.least <= value <= self.most
            return "" if good else f"Enter a number from {significant(self.least)} to {significant(self.most)}."
        if self.kind == "choice":
            return "" if value in self.offered() else "Choose one of the list."
        return self.check(value) if self.check is not None and isinstance(value, str) else ""

    def overridden(self) -> str:
        """Why the setting has no effect now, "" where it has."""
        return f"{self.variable} is set and comes first." if self.variable in os.environ else ""


def _recipes() -> Mapping[str, str]:
    return {"": "The one that fits"} | {recipe.id: recipe.title for recipe in load_recipes().all}


def _runs_problem(path: str) -> str:
    """Runs need a folder of their own, since it is closed to other users."""
    return _folder_problem(path, lambda folder: all((each / "job.toml").exists() for each in folder.iterdir()))


def _cache_problem(path: str) -> str:
    return _folder_problem(path, lambda _folder: True)


def _folder_problem(path: str, takes: Callable[[Path], bool]) -> str:
    if not path:
        return ""
    folder = Path(path).expanduser()
    if not folder.is_absolute():
        return "Enter a whole path, from the root of the disk on."
    try:
        there = next(each for each in (folder, *folder.parents) if each.exists())
        if not there.is_dir() or not os.access(there, os.W_OK):
            return f"{there} can't be written to. Choose another folder."
        if there == folder and not takes(folder):
            return f"{folder} holds other files. Choose an empty folder, or one that does not exist yet."
    except OSError as error:
        return f"{folder} can't be looked at: {error.strerror}. Choose another folder."
    return ""


def _command_problem(text: str) -> str:
    return "The command is too long. Put it into a script and enter the script's name." if len(text) > 4096 else ""


_LOOK, _TRAINING, _PLACES, _DEVICES, _NOTICES = "Appearance", "Training", "Folders and limits", "Devices", "Notices"

SETTINGS: tuple[Setting, ...] = (
    Setting(
        "theme", _LOOK, "Theme", "The window's colours.", "choice", "system",
        choices={"system": "Like the desktop", "light": "Light", "dark": "Dark"},
    ),
    Setting(
        "text_percent", _LOOK, "Text size", "The size of all texts, against the desktop's.", "whole", 100,
        least=70, most=200, unit="%",
    ),
    Setting(
        "memory_unit", _LOOK, "Memory and file sizes", "Binary units count as memory is sold, decimal ones as disks are. Graphs stay binary.",
        "choice", "binary", choices={"binary": "Binary (GiB)", "decimal": "Decimal (GB)"},
    ),
    Setting(
        "monitor_compact", _LOOK, "Compact list of GPUs", "The Monitor shows a line for each GPU, not a tile.",
        "switch", False,
    ),
    Setting(
        "monitor_by_load", _LOOK, "Busiest GPUs first", "The Monitor sorts GPUs by their load.", "switch", False,
    ),
    Setting(
        "default_recipe", _TRAINING, "Default recipe", "What a new job starts from, where the recipe is for its task.",
        "choice", "", choices=_recipes,
    ),
    Setting(
        "default_devices", _TRAINING, "Default devices", "Which devices are chosen when the window opens, and for a new job.",
        "choice", "last", choices={"last": "As last time", "gpus": "All GPUs", "cpu": "The CPU"},
    ),
    Setting(
        "runs_folder", _PLACES, "Folder for runs",
        "Where new runs are kept, and which runs are listed. Empty: “runs” in Footplate's own folder.",
        "folder", "", "folders", check=_runs_problem,
    ),
    Setting(
        "cache_folder", _PLACES, "Folder for the cache",
        "Where decoded images and compiled code are kept. Empty: the system's folder for caches.",
        "folder", "", "folders", check=_cache_problem, variable="FOOTPLATE_CACHE",
    ),
    Setting(
        "cache_gib", _PLACES, "Limit of the image cache",
        "How much disk the decoded images of all datasets may take. The oldest are removed first; 0 keeps none.",
        "number", lambda: round(default_limit_bytes() / GIB, 1), "cache", most=999_999, unit="GiB", variable=LIMIT_VARIABLE,
    ),
    Setting(
        "history_hours", _PLACES, "History of the devices", "How far the Monitor's graphs go back.",
        "number", 24, least=0.5, most=168, unit="h",
    ),
    Setting(
        "runs_every_s", _PLACES, "Look at the runs every", "How often the list of runs is read.",
        "number", 3, least=1, most=60, unit="s",
    ),
    Setting(
        "sample_every_s", _DEVICES, "Sample the devices every", "How often this machine's GPUs and CPU are read.",
        "number", 1, least=0.25, most=60, unit="s",
    ),
    Setting(
        "ended", _NOTICES, "Notify when a run has completed", KINDS["ended"].meaning, "switch", True, "notices",
    ),
    Setting(
        "failed", _NOTICES, "Notify when a run has failed", KINDS["failed"].meaning, "switch", True, "notices",
    ),
    Setting(
        "stalled", _NOTICES, "Notify when a run stalls", KINDS["stalled"].meaning, "switch", True, "notices",
    ),
    Setting(
        "restarted", _NOTICES, "Notify when a run restarts", KINDS["restarted"].meaning, "switch", False, "notices",
    ),
    Setting(
        "least_minutes", _NOTICES, "Only of runs of at least", "Shorter runs send no notices; time in the queue counts.",
        "number", 1.0, "notices", most=10_080, unit="min",
    ),
    Setting("desktop", _NOTICES, "Desktop notifications", "Notices are shown by the desktop.", "switch", True, "notices"),
    Setting(
        "command", _NOTICES, "Command for notices", "The system's shell runs it for each notice. Empty: none.",
        "text", "", "notices", check=_command_problem,
    ),
)  # fmt: skip

BY_KEY: Mapping[str, Setting] = {setting.key: setting for setting in SETTINGS}


def sections() -> tuple[str, ...]:
    """The titles of the sections, in order."""
    return tuple(dict.fromkeys(setting.section for setting in SETTINGS))


def as_tables() -> str:
    """The settings as the guide has them: a Markdown table for each section."""
    parts = []
    for section in sections():
        rows = [f"| {each.title} | {each.help} |" for each in SETTINGS if each.section == section]
        parts.append("\n".join([f"**{section}**", "", "| setting | what it does |", "|---|---|", *rows]))
    return "\n\n".join(parts)
