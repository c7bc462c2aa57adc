"""What the window remembers between its openings: a JSON file and the last job, in Footplate's home."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import msgspec
from PySide6.QtCore import QByteArray

from engine.contract.job import Job, load_job, save_job
from engine.system import paths
from engine.system.decode_errors import NOT_DECODED


class Settings:
    """Sizes and choices of the window. Whatever cannot be read counts as never set.

    Not with QSettings, whose files may hold pickled objects of Python, which it unpickles whatever they do.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder or paths.home()
        self._file = self._folder / "window.json"

    @property
    def job_file(self) -> Path:
        return self._folder / "last-job.toml"

    def last_job(self) -> Job | None:
        """The job that was last on screen, or None where there is none that can be read."""
        return load_job(self.job_file)[0] if self.job_file.is_file() else None

    def remember_job(self, job: Job) -> None:
        """Keeps `job` for the next opening. Raises OSError where the home cannot be written."""
        paths.make_folder(self._folder)
        save_job(job, self.job_file)

    def bytes(self, key: str) -> QByteArray | None:
        """A geometry or splitter state kept under `key`."""
        value = QByteArray.fromBase64(self.text(key).encode())
        return None if value.isEmpty() else value

    def flag(self, key: str, default: bool) -> bool:
        value = self._kept().get(key)
        return value if isinstance(value, bool) else default

    def text(self, key: str, default: str = "") -> str:
        """Words or JSON kept under `key`."""
        value = self._kept().get(key)
        return value if isinstance(value, str) else default

    def number(self, key: str, default: float) -> float:
        value = self._kept().get(key)
        return value if isinstance(value, int | float) and not isinstance(value, bool) else default

    def forget(self, key: str) -> None:
        """Counts `key` as never set."""
        if key in (kept := self._kept()):
            del kept[key]
            self._write(kept)

    def set(self, key: str, value: QByteArray | bool | float | str) -> None:
        """Keeps `value`, where the home can be written; what other windows have kept meanwhile stays."""
        plain = value.toBase64().toStdString() if isinstance(value, QByteArray) else value
        self._write(self._kept() | {key: plain})

    def _write(self, kept: dict[str, bool | float | str]) -> None:
        with suppress(OSError):
            paths.make_folder(self._folder)
            paths.write_atomically(self._file, msgspec.json.format(msgspec.json.encode(kept), indent=1))

    def _kept(self) -> dict[str, bool | float | str]:
        try:
            return msgspec.json.decode(self._file.read_bytes(), type=dict[str, bool | float | str])
        except (OSError, *NOT_DECODED):
            return {}
