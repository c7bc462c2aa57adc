"""Output of ``footplate gpus --csv``, parsed by the module `csv`."""

from __future__ import annotations

import csv
import io

import pytest

from engine.cli.gpus import csv_lines
from engine.contract.devices import Nvml, Snapshot
from engine.gpus.quantities import QUANTITIES
from tests.engine.cli.machines import GIB, NOON, full_gpu, gpu, machine


def rows(snapshot: Snapshot) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO("\n".join((csv_lines.header(), *csv_lines.lines(snapshot))))))


def test_csv_contains_all_quantities() -> None:
    one = full_gpu(0)
    (row,) = rows(machine(one))
    assert list(row) == ["time", "host", "index", "uuid", "name", "state", *(quantity.id for quantity in QUANTITIES)]
    assert row["memory_used_bytes"] == str(41 * GIB)
    assert row["power_w"] == "640.4"
    assert row["nvlink_received_bytes_per_s"] == "25000000000"
    for quantity in QUANTITIES:
        assert float(row[quantity.id]) == pytest.approx(quantity.read(one), abs=0)


def test_csv_contains_time_and_host() -> None:
    (row,) = rows(machine(gpu(3)))
    assert row["time"] == "2025-06-15T15:06:40.000+00:00"
    assert NOON == 1_750_000_000
    assert (row["host"], row["index"], row["uuid"]) == ("atlas", "3", "GPU-3")


def test_csv_contains_the_state() -> None:
    found = rows(machine(gpu(0), gpu(1, lost=True), gpu(2, asleep=True)))
    assert [row["state"] for row in found] == ["ok", "lost", "asleep"]


def test_csv_quotes_names() -> None:
    named = machine(full_gpu(0, name='a "fast", big one\nin two lines'))
    (row,) = rows(named)
    assert row["name"] == 'a "fast", big one\nin two lines'


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
