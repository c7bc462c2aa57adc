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
    """Return a CSV line for each GPU. Unknown values are empty, and so are all if the GPU is lost or NVML doesn't work."""
    moment = datetime.fromtimestamp(snapshot.time, UTC).isoformat(timespec="milliseconds")
    lines = []
    for gpu in snapshot.gpus:
        is_current = snapshot.nvml.status == "ok" and not gpu.lost  # otherwise the readings are old
        readings = [quantity.read(gpu) if is_current else None for quantity in QUANTITIES]
        cells = ["" if value is None else f"{value:.15g}" for value in readings]
        facts = (moment, snapshot.host, gpu.nvml_index, gpu.uuid, gpu.name, _describe_state(gpu))
        lines.append(_format_line((*facts, *cells)))
    return lines


def _describe_state(gpu: Gpu) -> str:
    if gpu.lost:
        return "lost"
    return "asleep" if gpu.asleep else "ok"


def _format_line(cells: Iterable[object]) -> str:
    text = io.StringIO()
    CsvWriter(text, line_end="").write_row(cells)
    return text.getvalue()
