"""What ``--devices`` takes, and how numbers are said."""

from __future__ import annotations

from typing import Any

import pytest

from engine.cli.arguments import needs_gpus, resolve_devices
from engine.cli.words import duration, size, table
from engine.contract.devices import Cpu, Gpu, Nvml, Snapshot

A, B = "GPU-aaaa", "GPU-bbbb"
MACHINE = Snapshot(
    time=0.0,
    host="h",
    nvml=Nvml("ok"),
    gpus=(
        Gpu(uuid=A, name="slow", nvml_index=0, cuda_index=1),
        Gpu(uuid=B, name="fast", nvml_index=1, cuda_index=0),
        Gpu(uuid="GPU-cccc", name="unknown to CUDA", nvml_index=2),
    ),
    cpu=Cpu(name="c", core_load_percent=(), load_percent=0.0, memory_used_bytes=0, memory_total_bytes=1),
)


def test_that_indices_are_cudas_and_not_nvmls() -> None:
    values: dict[str, Any] = {"devices": ["0", "1", "GPU-cccc"]}
    assert needs_gpus(values)
    assert resolve_devices(values, MACHINE) == []
    assert values["devices"] == [B, A, "GPU-cccc"]


def test_that_an_index_that_cuda_does_not_know_is_told_with_those_it_knows() -> None:
    values: dict[str, Any] = {"devices": ["2", "1"]}
    problems = resolve_devices(values, MACHINE)
    assert [str(problem) for problem in problems] == ["CUDA knows no GPU 2 on this machine. Known are 0, 1."]


def test_that_the_cpu_needs_no_look_at_the_gpus() -> None:
    assert not needs_gpus({"devices": ["cpu", "cpu"]})
    assert not needs_gpus({})


@pytest.mark.parametrize(
    ("seconds", "said"), [(None, "–"), (0.4, "0 s"), (59, "59 s"), (60, "1:00"), (192, "3:12"), (3723, "1:02:03")]
)
def test_that_durations_read_as_on_a_clock(seconds: float | None, said: str) -> None:
    assert duration(seconds) == said


def test_that_sizes_are_in_binary_units_and_missing_is_a_dash() -> None:
    assert [size(n) for n in (None, 0, 1023, 1536, 5 << 30, 1 << 51)] == [
        "–",
        "0 B",
        "1023 B",
        "1.5 KiB",
        "5.0 GiB",
        "2048.0 TiB",
    ]
    assert table(("A", "B"), [("xx", "y")]) == ["A   B", "xx  y"]
