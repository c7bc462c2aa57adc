"""Export of visible values and images to CSV and PNG files."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from PySide6.QtCore import QBuffer, QIODevice, QObject, SignalInstance
from PySide6.QtGui import QPixmap

from engine.contract.devices import local_device
from engine.system.plain_text import CsvWriter
from gui.sources.background import Background, describe_error, in_background
from gui.sources.columns import Floats
from gui.sources.devices.history import DeviceHistory
from gui.sources.devices.timeline import Values
from gui.translation import tr

_YIELD_EVERY = 500
"""Number of rows after which the writing thread lets the GUI thread run."""


class ExportError(Exception):
    """Raised when an export fails. The message is written for the user."""


Rows = Iterable[list[str]]
"""Rows for a CSV file, which are created on the thread that writes it."""


@dataclass(frozen=True)
class _Series:
    """Copy of a device's readings: times in seconds since the epoch, and a column per quantity."""

    host: str
    device: str
    title: str
    times: Floats
    columns: tuple[Values, ...]


@dataclass(frozen=True)
class Excerpt:
    """Copy of a part of the device history, which any thread can write to a file."""

    quantities: tuple[str, ...]
    series: tuple[_Series, ...]

    def __iter__(self) -> Iterator[list[str]]:
        """Yield the header, then a row for each device and time. Unknown values are empty."""
        yield ["time", "time_s", "host", "device", "name", *self.quantities]
        for series in self.series:
            rows = zip(series.times.tolist(), *(column.tolist() for column in series.columns), strict=True)
            for moment, *values in rows:
                reported = [format_reading(value) for value in values]
                yield [_format_time(moment), f"{moment:.3f}", series.host, series.device, series.title, *reported]


def copy_excerpt(
    history: DeviceHistory, keys: Sequence[str], quantities: Sequence[str], low: float, high: float
) -> Excerpt:
    """Copy the readings of devices between `low` and `high` (seconds since the epoch) at the full rate.

    Quantities that none of the devices reports are left out.
    """
    reported = tuple(quantity for quantity in quantities if any(history.has_data(key, quantity) for key in keys))
    series = []
    for key in keys:
        times = history.times(key)
        rows = slice(int(np.searchsorted(times, low)), int(np.searchsorted(times, high, side="right")))
        columns = tuple(history.values(key, quantity)[rows].copy() for quantity in reported)
        host = history.host(key)
        series.append(_Series(host, local_device(key), history.titles[key], times[rows], columns))
    return Excerpt(reported, tuple(series))


def save_in_background(write: Callable[[], Path], message: SignalInstance, text: str, parent: QObject) -> Background:
    """Write a file on a worker thread and report the result, if `parent` still exists.

    Args:
        write: Writes the file and returns its path. May raise ExportError or OSError.
        message: Signal that is emitted with a text and its severity, "info" or "warning".
        text: Text for success, with "{path}" for the path.
        parent: Owner of the signal.
    """
    return in_background(
        write,
        parent,
        lambda path: message.emit(text.format(path=path), "info"),
        lambda error: message.emit(str(error) if isinstance(error, ExportError) else describe_error(error), "warning"),
    )


def save_image(path: Path, image: QPixmap, message: SignalInstance) -> None:
    """Write an image of a widget to a PNG file, and emit `message` with the result and its severity."""
    try:
        export_png(path, image)
    except ExportError as error:
        message.emit(str(error), "warning")
    else:
        message.emit(tr("The image was saved to {path}.").format(path=path), "info")


def write_csv(path: Path, rows: Rows) -> Path:
    """Write `rows` to a CSV file atomically and return `path`. Raises ExportError."""
    with _replacement(path, "w", encoding="utf-8", newline="") as stream:
        writer = CsvWriter(stream)
        for number, row in enumerate(rows):
            writer.write_row(row)
            if number % _YIELD_EVERY == 0:
                time.sleep(0)  # let the GUI thread run
    return path


def export_png(path: Path, grabbed: QPixmap) -> Path:
    """Write the image of a widget to a PNG file atomically and return `path`. Raises ExportError."""
    image = QBuffer()
    image.open(QIODevice.OpenModeFlag.WriteOnly)
    if not grabbed.save(image, "PNG"):
        raise ExportError(tr("Could not save {name}: there is nothing to save as an image.").format(name=path.name))
    with _replacement(path, "wb") as stream:
        stream.write(image.data().data())
    return path


def format_reading(value: float) -> str:
    """Format a reading with seven digits, which is the precision of float32, or return "" for NaN."""
    if math.isnan(value):
        return ""
    return f"{value:.0f}" if value.is_integer() else f"{value:.7g}"


def _format_time(moment: float) -> str:
    """Format a time as in "2026-03-01T14:02:31.250Z"."""
    return datetime.fromtimestamp(moment, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


@contextmanager
def _replacement(path: Path, mode: str, **options: Any) -> Iterator[Any]:
    """Open a temporary file that replaces `path` when the context ends without an error. Raises ExportError.

    `mode` and `options` are arguments of `open`.
    """
    temporary = path.with_name(f".{path.name}.part")
    try:
        with temporary.open(mode, **options) as stream:
            yield stream
            # Some file systems report only here that the disk is full.
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(temporary, path)
    except OSError as error:
        with suppress(OSError):  # the file may not have been created
            temporary.unlink(missing_ok=True)
        raise ExportError(
            tr("Could not save {path}: {error}. Choose another folder, or free up space there.").format(
                path=path, error=error.strerror or error
            )
        ) from error
