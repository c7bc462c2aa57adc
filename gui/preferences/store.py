"""What is set now, wherever it is kept, and news of each change."""

from __future__ import annotations

import sys

import msgspec
from PySide6.QtCore import QObject, Signal

from engine.runs.notices import load_notices, save_notices
from engine.system import paths
from engine.system.cache_limit import GIB, limit_bytes
from gui.preferences.declared import BY_KEY, Setting, Value
from gui.sources.background import describe_error, in_background
from gui.sources.settings import Settings

_PURPOSES = {"runs_folder": "runs", "cache_folder": "cache"}
_CACHE_S = 60


class Preferences(QObject):
    """Signals: changed(str) - the setting of that key has another value now; failed(str) - one could not be kept;
    why.
    """

    changed = Signal(str)
    failed = Signal(str)

    def __init__(self, settings: Settings, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._settings = settings
        self._limiting: float | None = None
        """The limit of the cache while the engine is setting it."""

    def value(self, key: str) -> Value:
        """What is set; the default where nothing is, or nothing that can be used."""
        setting = BY_KEY[key]
        value = self._kept(setting)
        return setting.standard if setting.place == "window" and setting.problem(value) else value

    def text(self, key: str) -> str:
        return str(self.value(key))

    def number(self, key: str) -> float:
        value = self.value(key)
        assert not isinstance(value, str)
        return value

    def is_standard(self, key: str) -> bool:
        return self.value(key) == BY_KEY[key].standard

    def set(self, key: str, value: Value) -> str:
        """Keeps `value` from now on; what is wrong with it, with nothing kept, or ""."""
        setting = BY_KEY[key]
        problem = setting.problem(value)
        if problem or value == self.value(key):
            return problem
        try:
            self._keep(setting, value)
        except OSError as error:
            return f"Could not save this setting: {describe_error(error)}."
        if setting.place != "cache":
            self.changed.emit(key)
        return ""

    def reset(self, key: str) -> str:
        """Goes back to the default; why that could not be, or ""."""
        return self.set(key, BY_KEY[key].standard)

    def _kept(self, setting: Setting) -> Value:
        key, standard = setting.key, setting.standard
        if setting.place == "notices":
            value: Value = getattr(load_notices()[0], key)
            return value
        if setting.place == "folders":
            return paths.chosen_folders().get(_PURPOSES[key], "")
        if setting.place == "cache":
            try:
                return round(limit_bytes() / GIB, 1) if self._limiting is None else self._limiting
            except ValueError:
                return standard
        if isinstance(standard, bool):
            return self._settings.flag(key, standard)
        return self._settings.text(key, standard) if isinstance(standard, str) else self._settings.number(key, standard)

    def _keep(self, setting: Setting, value: Value) -> None:
        """Raises OSError."""
        if setting.place == "notices":
            save_notices(msgspec.structs.replace(load_notices()[0], **{setting.key: value}))
        elif setting.place == "folders":
            paths.choose_folder(_PURPOSES[setting.key], str(value))
        elif setting.place == "cache":
            self._limit_cache(float(value))
        elif value == setting.standard:
            self._settings.forget(setting.key)
        else:
            self._settings.set(setting.key, value)

    def _limit_cache(self, gib: float) -> None:
        """By the terminal's command, which makes room, too; only the engine may look into the cache."""
        command = [sys.executable, "-m", "footplate", "cache", "--limit", f"{gib:g}"]

        def limit() -> str:
            import subprocess

            done = subprocess.run(
                command, cwd=paths.PACKAGES, capture_output=True, text=True, timeout=_CACHE_S, check=False
            )
            return done.stderr.strip() if done.returncode else ""

        def limited(problem: str) -> None:
            self._limiting = None
            if problem:
                self.failed.emit(problem)
            self.changed.emit("cache_gib")

        def failed(error: Exception) -> None:
            limited(f"The cache could not be limited: {describe_error(error)}.")

        self._limiting = gib
        in_background(limit, self, limited, failed)
