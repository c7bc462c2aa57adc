"""Device readings from the last days, saved on disk so that the graphs continue when the window is reopened.

A file has one JSON value per line. At each start, and whenever a quantity is added, the writer adds the ids of the
quantities, ``{"quantities": […]}``. For each reading it adds ``[time, {device: [value, …]}]``, with values in the order
of these ids. When a file is full, it replaces the previous file, ``NAME.1``.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from engine.system import files, paths

SPACING_S = 30.0
"""Seconds between two device readings that are saved."""
_MAX_FILE_BYTES = 4 << 20
_DIGITS = 5
"""Number of significant digits of saved readings."""

Readings = Mapping[str, Mapping[str, float | None]]
"""Values by device and quantity, with None for unknown values."""

_QuantitiesLine = dict[str, list[str]]
"""Line in a history file with the ids of the quantities in the following lines, under the key "quantities"."""
_ReadingLine = tuple[float, dict[str, list[float | None]]]
"""Line in a history file with a time and, for each device, the values in the order of the quantities."""

_log = logging.getLogger(__name__)


def history_file() -> Path:
    """Return the path of the file with the latest device readings."""
    return paths.home() / "device_history.jsonl"


class HistoryWriter:
    """Writer that appends device readings to a file. After the first failed write, nothing more is written."""

    def __init__(self, path: Path, *, spacing_s: float = SPACING_S, max_file_bytes: int = _MAX_FILE_BYTES) -> None:
        self._path, self._spacing_s, self._max_file_bytes = path, spacing_s, max_file_bytes
        self._quantities: tuple[str, ...] = ()  # in the order of the values in a line
        self._last_time = float("-inf")  # time of the last saved readings
        self._is_broken = False

    def add(self, time: float, readings: Readings) -> None:
        """Save the device readings at `time`, in seconds since the epoch, unless the last ones are too recent.

        If the file can't be written, log a warning and save no more readings.
        """
        is_too_recent = 0 <= time - self._last_time < self._spacing_s  # below 0, the clock was set back
        if self._is_broken or is_too_recent:
            return
        self._last_time = time
        try:
            self._append(time, readings)
        except OSError as error:
            self._is_broken = True
            _log.warning("The history of the devices is no longer saved: %s", error)

    def _append(self, time: float, readings: Readings) -> None:
        """Append a line with readings to the file. If they have new quantities, first append a line with all names.

        A file that has become too large is renamed to its backup, and replaces the previous backup. The next call creates
        a new file. Raises OSError.
        """
        reported = (id_ for values in readings.values() for id_, value in values.items() if value is not None)
        new_quantities = [id_ for id_ in dict.fromkeys(reported) if id_ not in self._quantities]
        lines: list[Any] = []
        if new_quantities or not self._path.exists():
            paths.make_folder(self._path.parent)  # a new user has no home folder of Footplate yet
            self._quantities += tuple(new_quantities)
            lines.append({"quantities": self._quantities})
        rows = {device: [_round(values.get(id_)) for id_ in self._quantities] for device, values in readings.items()}
        lines.append([round(time, 1), rows])
        with self._path.open("ab") as file:
            file.write(b"".join(msgspec.json.encode(line) + b"\n" for line in lines))
            size = file.tell()
        if size > self._max_file_bytes:
            os.replace(self._path, _get_backup_path(self._path))


def read_history(path: Path) -> Iterator[tuple[float, dict[str, dict[str, float]]]]:
    """Yield the saved times with their known values by device and quantity, oldest first. Damaged lines are skipped."""
    damaged_count = 0
    for file in (_get_backup_path(path), path):
        try:
            content = files.read_file(file)
        except OSError:
            continue
        quantities: list[str] = []
        for line in content.splitlines():
            try:
                decoded = msgspec.json.decode(line, type=_QuantitiesLine | _ReadingLine)
            except (msgspec.DecodeError, UnicodeDecodeError):
                damaged_count += 1
                continue
            if isinstance(decoded, dict):
                quantities = decoded.get("quantities", [])
                continue
            time, values_by_device = decoded
            yield time, {device: _name_values(quantities, values) for device, values in values_by_device.items()}
    if damaged_count:
        _log.warning("Skipped %d damaged lines of the device history in %s", damaged_count, path)


def _name_values(quantities: list[str], values: list[float | None]) -> dict[str, float]:
    """Return the known values by quantity.

    There are more values than quantities if the line that added quantities is damaged. The last values are then left
    out.
    """
    return {id_: value for id_, value in zip(quantities, values, strict=False) if value is not None}


def _get_backup_path(path: Path) -> Path:
    """Return the path of the backup of the history file at `path`."""
    return path.with_name(f"{path.name}.1")


def _round(value: float | None) -> float | None:
    """Round a value to `_DIGITS` significant digits."""
    return None if value is None else float(f"{value:.{_DIGITS}g}")
