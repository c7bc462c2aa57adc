"""What the window remembers between its openings: an ini file and the last job, in Footplate's home."""

from __future__ import annotations

from pathlib import Path

from PySide6.QtCore import QByteArray, QSettings

from engine.contract import paths
from engine.contract.job import Job, load_job, save_job


class Settings:
    """Sizes and choices of the window. Whatever cannot be read counts as never set."""

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder or paths.home()
        self._store = QSettings(str(self._folder / "window.ini"), QSettings.Format.IniFormat)

    @property
    def job_file(self) -> Path:
        return self._folder / "last-job.toml"

    def last_job(self) -> Job | None:
        """The job that was last on screen, or None where there is none that can be read."""
        return load_job(self.job_file)[0] if self.job_file.is_file() else None

    def remember_job(self, job: Job) -> None:
        """Keeps `job` for the next opening. Raises OSError where the home cannot be written."""
        self._folder.mkdir(parents=True, exist_ok=True)
        save_job(job, self.job_file)

    def bytes(self, key: str) -> QByteArray | None:
        """A geometry or splitter state kept under `key`."""
        value = self._store.value(key)
        return value if isinstance(value, QByteArray) and not value.isEmpty() else None

    def flag(self, key: str, default: bool) -> bool:
        value = self._store.value(key)
        return default if value is None else str(value).lower() == "true"

    def text(self, key: str, default: str = "") -> str:
        """Words or JSON kept under `key`."""
        value = self._store.value(key)
        return value if isinstance(value, str) else default

    def set(self, key: str, value: QByteArray | bool | str) -> None:
        self._store.setValue(key, str(value).lower() if isinstance(value, bool) else value)

    def save(self) -> None:
        self._store.sync()
