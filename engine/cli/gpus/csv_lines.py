"""Format snapshots as CSV: a line per GPU and snapshot, with units at the end of the column names."""

from __future__ import annotations

import io
from collections.abc import Iterable
from datetime import UTC, datetime

from engine.contract.devices import Gpu, Snapshot
from engine.gpus.quantities import QUANTITIES
from engine.system.plain_text import CsvWriter

COLUMNS = ("time", "host", "index", "uuid", "name", "state", *(quantity.id for quantity in QUANTITIES))
"""Names of the CSV columns.

`time` is UTC in ISO 8601, `index` is NVML's index, and `state` is "ok", "lost" or "asleep". The other columns are
quantities.
"""


def header() -> str:
    return _format_line(COLUMNS)


def format_lines(snapshot: Snapshot) -> list[str]:
    """Return a CSV line for each GPU. Unknown values are empty, and so are all values of a lost GPU."""
    moment = datetime.fromtimestamp(snapshot.time, UTC).isoformat(timespec="milliseconds")
    is_current = snapshot.nvml.status == "ok"
    return [
        _format_line(
            (
                moment,
                snapshot.host,
                gpu.nvml_index,
                gpu.uuid,
                gpu.name,
                _describe_state(gpu),
                *_format_readings(gpu, is_current),
            )
        )
        for gpu in snapshot.gpus
    ]


def _describe_state(gpu: Gpu) -> str:
    return "lost" if gpu.lost else "asleep" if gpu.asleep else "ok"


def _format_readings(gpu: Gpu, is_current: bool) -> Iterable[str]:
    """Yield the readings of a GPU as text, or "" for each if the GPU is lost or `is_current` is False."""
    is_known = is_current and not gpu.lost
    for quantity in QUANTITIES:
        value = quantity.read(gpu) if is_known else None
        yield "" if value is None else f"{value:.15g}"


def _format_line(cells: Iterable[object]) -> str:
    text = io.StringIO()
    CsvWriter(text, line_end="").write_row(cells)
    return text.getvalue()
