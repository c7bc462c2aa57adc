"""Output of ``footplate gpus --csv``, parsed by the module `csv`."""

from __future__ import annotations

import csv
import io

import pytest

from engine.cli.gpus import csv_lines
from engine.contract.devices import Nvml, Snapshot
from engine.gpus.quantities import QUANTITIES
from tests.engine.cli.machines import GIB, full_gpu, gpu, machine


def rows(snapshot: Snapshot) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO("\n".join((csv_lines.header(), *csv_lines.format_lines(snapshot))))))


def test_csv_has_exact_names_and_readings() -> None:
    name = 'a "fast", big one\nin two lines'
    snapshot = machine(full_gpu(0, name=name, memory_used_bytes=41 * GIB + 1, power_w=640.4))
    (row,) = rows(snapshot)
    assert row["name"] == name
    readings = [row[each] for each in ("memory_used_bytes", "power_w", "temperature_c")]
    assert readings == ["44023414785", "640.4", "61"]


@pytest.mark.parametrize(
    "snapshot",
    [
        machine(gpu(0)),
        machine(full_gpu(0, lost=True)),
        machine(full_gpu(0), nvml=Nvml("not_answering", "NVML is not answering.")),
    ],
    ids=["untold", "lost", "nvml is not answering"],
)
def test_csv_leaves_unknown_values_empty(snapshot: Snapshot) -> None:
    (row,) = rows(snapshot)
    assert all(row[quantity.id] == "" for quantity in QUANTITIES)
    assert row["uuid"] == "GPU-0"
