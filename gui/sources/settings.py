"""Persistent state of the window: a JSON file and the last job, in the Footplate home."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import msgspec
from PySide6.QtCore import QByteArray

from engine.contract.job import Job, load_job, save_job
from engine.system import paths
from engine.system.decode_errors import NOT_DECODED
from engine.system.files import read_file

LAST_RUN = "last_run"
"""Key of the folder of the run that was open when the window closed, or "" for the new job."""

LAST_MESSAGE = "last_message"
"""Key of the warnings that came up while the window closed, for its next start."""


class Settings:
    """Store for window sizes and the user's choices. Unreadable values count as unset.

    QSettings is not used because it unpickles Python objects from its files.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder or paths.home()
        self._file = self._folder / "window.json"

    @property
    def job_file(self) -> Path:
        return self._folder / "last-job.toml"

    def last_job(self) -> Job | None:
        """Return the job that was last in the form, or None if there is none."""
        return load_job(self.job_file)[0] if self.job_file.is_file() else None

    def remember_job(self, job: Job) -> None:
        """Save `job` for the next start. Raises OSError if Footplate's folder can't be written."""
        paths.make_folder(self._folder)
        save_job(job, self.job_file)

    def bytes(self, key: str) -> QByteArray | None:
        """Return the geometry or splitter state saved under `key`, or None if there is none."""
        value = QByteArray.fromBase64(self.text(key).encode())
        return None if value.isEmpty() else value

    def flag(self, key: str, default: bool) -> bool:
        """Return the truth value saved under `key`, or `default` if there is none."""
        value = self._read().get(key)
        return value if isinstance(value, bool) else default

    def text(self, key: str, default: str = "") -> str:
        """Return the text saved under `key`, or `default` if there is none."""
        value = self._read().get(key)
        return value if isinstance(value, str) else default

    def number(self, key: str, default: float) -> float:
        """Return the number saved under `key`, or `default` if there is none or it is a truth value."""
        value = self._read().get(key)
        return value if isinstance(value, int | float) and not isinstance(value, bool) else default

    def forget(self, key: str) -> None:
        """Remove the value saved under `key`."""
        if key in (values := self._read()):
            del values[key]
            self._write(values)

    def set(self, key: str, value: QByteArray | bool | float | str) -> None:
        """Save `value` under `key` if Footplate's folder is writable. Values that other windows have saved are preserved."""
        plain = value.toBase64().toStdString() if isinstance(value, QByteArray) else value
        self._write(self._read() | {key: plain})

    def _write(self, values: dict[str, bool | float | str]) -> None:
        """Replace all values, if Footplate's folder is writable."""
        with suppress(OSError):
            paths.make_folder(self._folder)
            paths.write_atomically(self._file, msgspec.json.format(msgspec.json.encode(values), indent=1))

    def _read(self) -> dict[str, bool | float | str]:
        """Read all values. Return an empty dict if the file is missing or damaged."""
        try:
            return msgspec.json.decode(read_file(self._file), type=dict[str, bool | float | str])
        except (OSError, *NOT_DECODED):
            return {}
