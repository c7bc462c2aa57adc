"""Current values of the settings, from all places where they are stored."""

from __future__ import annotations

import sys

import msgspec
from PySide6.QtCore import QObject, Signal

from engine.runs.notices import load_notices, save_notices
from engine.system import paths
from engine.system.cache_limit import GIB, limit_bytes
from engine.system.children import run_child
from gui.preferences.declared import BY_KEY, Setting, Value
from gui.sources.background import describe_error, in_background
from gui.sources.settings import Settings
from gui.translation import tr

_PURPOSES = {"runs_folder": "runs", "cache_folder": "cache"}
"""Names of the folders in `folders.toml`, by setting."""
_CACHE_TIMEOUT_S = 60


class Preferences(QObject):
    """Reader and writer of all settings.

    Signals:
        changed(str): the setting with this key has a new value.
        failed(str): a setting could not be saved. The argument is a message for the user.
    """

    changed = Signal(str)
    failed = Signal(str)

    def __init__(self, settings: Settings, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._settings = settings
        self._pending_limit_gib: float | None = None
        """New cache limit in GiB while the engine applies it, otherwise None."""

    def value(self, key: str) -> Value:
        """Read the value of the setting with this key from its file. Return its default if no valid value is stored."""
        setting = BY_KEY[key]
        value = self._read(setting)
        # The engine validates its own files.
        is_invalid = setting.storage == "window" and bool(setting.find_problem(value))
        return setting.standard if is_invalid else value

    def text(self, key: str) -> str:
        return str(self.value(key))

    def number(self, key: str) -> float:
        """Return the value of the setting with this key, which must be a number."""
        value = self.value(key)
        assert not isinstance(value, str)
        return value

    def is_standard(self, key: str) -> bool:
        return self.value(key) == BY_KEY[key].standard

    def set(self, key: str, value: Value) -> str:
        """Save a value and return "". If the value is invalid, save nothing and return its problem.

        The check of a folder may block, so call `save` with a checked folder on the GUI thread.
        """
        return BY_KEY[key].find_problem(value) or self.save(key, value)

    def save(self, key: str, value: Value) -> str:
        """Save a valid value, and emit `changed` if it is new. Return an error message, or "" for success.

        The limit of the cache is applied in the background: `changed` and errors follow as signals.
        """
        setting = BY_KEY[key]
        if value == self.value(key):
            return ""
        try:
            self._save(setting, value)
        except OSError as error:
            return tr("Couldn't save this setting: {error}.").format(error=describe_error(error))
        if setting.storage != "cache":  # `changed` follows when the cache has been limited
            self.changed.emit(key)
        return ""

    def reset(self, key: str) -> str:
        """Reset a setting to its default. Return an error message, or "" if it succeeds."""
        return self.set(key, BY_KEY[key].standard)

    def _read(self, setting: Setting) -> Value:
        """Read the value of a setting from the file where it is stored, or return its default."""
        key, standard = setting.key, setting.standard
        if setting.storage == "notices":
            notices, _problems = load_notices()
            value: Value = getattr(notices, key)
            return value
        if setting.storage == "folders":
            return paths.read_chosen_folders().get(_PURPOSES[key], "")
        if setting.storage == "cache":
            return self._read_cache_limit(standard)
        if isinstance(standard, bool):
            return self._settings.flag(key, standard)
        return self._settings.text(key, standard) if isinstance(standard, str) else self._settings.number(key, standard)

    def _read_cache_limit(self, standard: Value) -> Value:
        """Return the cache limit in GiB that is being applied or else stored, or `standard` if that is invalid."""
        if self._pending_limit_gib is not None:
            return self._pending_limit_gib
        try:
            return round(limit_bytes() / GIB, 1)
        except ValueError:
            return standard

    def _save(self, setting: Setting, value: Value) -> None:
        """Save a value. Raises OSError."""
        if setting.storage == "notices":
            notices, _problems = load_notices()
            save_notices(msgspec.structs.replace(notices, **{setting.key: value}))
        elif setting.storage == "folders":
            paths.choose_folder(_PURPOSES[setting.key], str(value))
        elif setting.storage == "cache":
            self._limit_cache(float(value))
        elif value == setting.standard:
            self._settings.forget(setting.key)
        else:
            self._settings.set(setting.key, value)

    def _limit_cache(self, gib: float) -> None:
        """Start the terminal command that limits the cache to `gib` GiB and deletes entries above the limit.

        The window itself never reads the cache. When the command has ended, `changed` is emitted and, after an error,
        `failed`.
        """
        command = [sys.executable, "-m", "footplate", "cache", "--limit", f"{gib:g}"]

        def run_command() -> str:
            result = run_child(command, timeout_s=_CACHE_TIMEOUT_S, cwd=str(paths.PACKAGES))
            return result.stderr.decode(errors="replace").strip() if result.returncode else ""

        def on_done(problem: str) -> None:
            self._pending_limit_gib = None
            if problem:
                self.failed.emit(problem)
            self.changed.emit("cache_gib")  # after a failure, too, since the value is the previous one again

        def on_failed(error: Exception) -> None:
            on_done(tr("Couldn't limit the cache: {error}.").format(error=describe_error(error)))

        self._pending_limit_gib = gib
        in_background(run_command, self, on_done, on_failed)
