"""Snapshots as CSV: one line per GPU and snapshot, numbers in the units that the columns' names end with."""

from __future__ import annotations

import io
from collections.abc import Iterable
from datetime import UTC, datetime

from engine.contract.devices import Gpu, Snapshot
from engine.gpus.quantities import QUANTITIES
from engine.system.csv_writer import CsvWriter

COLUMNS = ("time", "host", "index", "uuid", "name", "state", *(quantity.id for quantity in QUANTITIES))
"""`time` is UTC as ISO 8601 writes it, `index` is NVML's, `state` is "ok", "lost" or "asleep"; the quantities are `engine.gpus.quantities`' own."""


def header() -> str:
    """The columns' names."""
    return _line(COLUMNS)


def lines(snapshot: Snapshot) -> list[str]:
    """A line for each GPU. A quantity is empty where it is not known now, as all are of a GPU that is lost."""
    moment = datetime.fromtimestamp(snapshot.time, UTC).isoformat(timespec="milliseconds")
    current = snapshot.nvml.status == "ok"
    return [
        _line((moment, snapshot.host, gpu.nvml_index, gpu.uuid, gpu.name, _state(gpu), *_values(gpu, current)))
        for gpu in snapshot.gpus
    ]


def _state(gpu: Gpu) -> str:
    return "lost" if gpu.lost else "asleep" if gpu.asleep else "ok"


def _values(gpu: Gpu, current: bool) -> Iterable[str]:
    known = current and not gpu.lost
    for quantity in QUANTITIES:
        value = quantity.read(gpu) if known else None
        yield "" if value is None else f"{value:.15g}"


def _line(cells: Iterable[object]) -> str:
    text = io.StringIO()
    CsvWriter(text, line_end="").row(cells)
    return text.getvalue()
