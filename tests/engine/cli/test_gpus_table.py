"""Table of ``footplate gpus``."""

from __future__ import annotations

import io
import time
from collections.abc import Iterator

import msgspec
import pytest
from rich.console import Console
from rich.segment import Segment

from engine.cli import children
from engine.cli.gpus.remarks import format_clock_time, number_gpus
from engine.cli.gpus.table import View, format_gib
from engine.contract.devices import Ecc, GpuProcess, Mig, NvLink, Nvml, RetiredMemory, Snapshot, SnapshotRequest, Xid
from tests.engine.cli.machines import GIB, NOON, busy_gpu, full_gpu, gpu, instance, machine, two_halves
from tests.engine.cli.terminal import run_in_this_process


def table(snapshot: Snapshot, width: int = 100, *, details: bool = False) -> list[str]:
    return ["".join(segment.text for segment in line).rstrip() for line in render(snapshot, width, details=details)]


def render(snapshot: Snapshot, width: int = 100, *, details: bool = False) -> list[list[Segment]]:
    return Console(file=io.StringIO(), width=width).render_lines(View(snapshot, details=details), pad=False)


def color_of(snapshot: Snapshot, expected_text: str) -> str:
    line = next(line for line in render(snapshot) if expected_text in "".join(segment.text for segment in line))
    style = next(segment.style for segment in line if segment.style and segment.text.strip())
    return "dim" if style.dim else "warning" if style.color and style.color.name == "yellow" else "plain"


def row_of(lines: list[str], start: str) -> str:
    return next(line for line in lines if line.strip().startswith(start))


def test_table_of_eight_gpus_fits_100_columns() -> None:
    lines = table(machine(*(full_gpu(index) for index in range(8))), 100)
    assert max(map(len, lines)) <= 100
    assert "█" in row_of(lines, "7 ")
    assert sum(line.startswith("  7 ") for line in lines) == 2  # the GPU and its process


@pytest.mark.parametrize("width", [60, 72, 80, 100, 132, 250])
def test_table_fits_any_width(width: int) -> None:
    snapshot = machine(*(full_gpu(i, name="NVIDIA RTX PRO 6000 Blackwell Workstation Edition") for i in range(2)))
    lines = table(snapshot, width)
    head = lines.index("") + 1
    assert max(len(line) for line in lines[head : head + 3]) <= width
    assert "GiB" in row_of(lines, "0 ")


def test_narrow_table_has_three_columns_and_the_facts() -> None:
    lines = table(machine(full_gpu(0)), 22, details=True)
    assert len(row_of(lines, "GPU").split()) == 3
    assert any(line.startswith("  Utilization") for line in lines)
    idle = NvLink(link=7, active=True, version=4, received_bytes_per_s=0.0, sent_bytes_per_s=0.0)
    assert "NVLink 7" in "".join(table(machine(full_gpu(0, nvlinks=(idle,))), details=True))


def test_table_width_is_constant() -> None:
    full = busy_gpu(0, utilization_percent=100.0, memory_used_bytes=140 * GIB, power_w=700.0, sm_clock_mhz=1980.0)
    idle = busy_gpu(0, utilization_percent=0.0, memory_used_bytes=0, power_w=9.0, sm_clock_mhz=210.0)
    assert len(row_of(table(machine(full)), "0 ")) == len(row_of(table(machine(idle)), "0 "))


def test_table_drops_columns_without_values() -> None:
    silent = table(machine(gpu(0)))
    assert "Power" not in "".join(silent)
    assert "Fan" not in "".join(silent)
    zeros = dict.fromkeys(
        ("utilization_percent", "memory_used_bytes", "temperature_c", "power_w", "sm_clock_mhz", "fan_percent"), 0
    )
    lines = table(machine(busy_gpu(0, **zeros), gpu(1, cuda_index=1)))
    cells = "0 H200 0% 0.0 / 140.0 GiB 0 °C 0 / 700 W 0 MHz 0%"
    assert row_of(lines, "0 ").split() == cells.split()
    assert row_of(lines, "1 ").split() == ["1", "H200", *"––––––"]
    assert "  640 W " in row_of(table(machine(busy_gpu(0, power_limit_w=None))), "0 ")


@pytest.mark.parametrize(
    ("used", "total", "text"),
    [
        (None, None, None),
        (3 * GIB, None, "3.0 GiB"),
        (None, 80 * GIB, "   – / 80.0 GiB"),
        (0, 80 * GIB, " 0.0 / 80.0 GiB"),
    ],
)
def test_memory_text_has_the_known_values(used: int | None, total: int | None, text: str | None) -> None:
    assert format_gib(used, total) == text


def test_gpus_have_cuda_indices_and_those_of_their_parent() -> None:
    parent = gpu(0, cuda_index=1)
    mig = Mig(parent_uuid=parent.uuid, gpu_instance=3, compute_instance=2, profile="1g")
    second = msgspec.structs.replace(instance(parent, 3), uuid="MIG-b", mig=mig)
    expected = {"GPU-0": "1", "MIG-GPU-0-3": "1/3", "MIG-b": "1/3/2", "GPU-1": "0", "GPU-2": "–"}
    assert number_gpus([parent, instance(parent, 3), second, gpu(1, cuda_index=0), gpu(2)]) == expected


def test_bar_length_is_the_fraction() -> None:
    all_values, half, none, unknown = (
        row_of(table(machine(busy_gpu(0, utilization_percent=load, memory_used_bytes=None))), "0 ").count("█")
        for load in (100.0, 50.0, 0.0, None)
    )
    assert all_values > 3
    assert (half, none, unknown) == (all_values // 2, 0, 0)


def test_bar_of_zero_differs_from_unknown() -> None:
    nothing, unknown = (
        next(line for line in render(machine(busy_gpu(0, utilization_percent=load))) if line[0].text.strip() == "0")
        for load in (0.0, None)
    )
    assert sum(segment.style is not None and segment.style.bgcolor is not None for segment in nothing) == 2
    assert sum(segment.style is not None and segment.style.bgcolor is not None for segment in unknown) == 1


def test_table_shows_nvml_numbers_only_if_they_differ() -> None:
    assert "NVML" not in row_of(table(machine(busy_gpu(0))), "GPU")
    # Without CUDA, only NVML's number is known.
    lines = table(machine(gpu(5)))
    assert row_of(lines, "5 ").split()[:2] == ["5", "H200"]
    assert "NVML" not in row_of(lines, "GPU")


def test_table_shows_lost_gpus() -> None:
    snapshot = machine(busy_gpu(0, lost=True, lost_since=NOON - 90, throttled=("thermal",)))
    lines = table(snapshot)
    assert "87%" in row_of(lines, "0 ")
    assert f"lost since {format_clock_time(NOON - 90)}: these are its last values" in "".join(lines)
    assert "heat" not in "".join(lines)
    assert color_of(snapshot, "87%") == "dim"
    assert color_of(snapshot, "lost since") == "warning"


def test_table_shows_sleeping_gpus() -> None:
    assert color_of(machine(gpu(0, asleep=True)), "asleep, not woken") == "dim"


@pytest.mark.parametrize(
    ("changes", "expected_text", "color"),
    [
        ({"throttled": ("power_cap",)}, "limited by the power limit", "dim"),
        ({"throttled": ("hardware_thermal",)}, "throttling: too hot", "warning"),
        ({"ecc": Ecc(uncorrected=2)}, "2 uncorrected memory errors", "warning"),
        ({"retired": RetiredMemory(rows_failed=True)}, "have the GPU replaced", "warning"),
        ({"retired": RetiredMemory(pages_pending=True)}, "restart the computer", "warning"),
        (
            {"xids": (Xid(NOON, 79),)},
            f"Xid 79: the GPU has fallen off the bus, at {format_clock_time(NOON)}",
            "warning",
        ),
        ({"xids": (Xid(NOON, 79), Xid(NOON, 43))}, "(1 before it)", "dim"),
        ({"xids": (Xid(NOON, 43),), "ecc": Ecc(uncorrected=2)}, "2 uncorrected memory errors", "warning"),
    ],
)
def test_table_prints_remarks_below_the_gpu(changes: dict[str, object], expected_text: str, color: str) -> None:
    snapshot = machine(busy_gpu(0, **changes), busy_gpu(1))
    lines = table(snapshot)
    (place,) = [number for number, line in enumerate(lines) if expected_text in line]
    assert lines[place - 1] == row_of(lines, "0 ")
    assert color_of(snapshot, expected_text) == color


def test_table_has_no_remark_on_idle_gpus() -> None:
    assert len(table(machine(busy_gpu(0, throttled=("idle",))))) == len(table(machine(busy_gpu(0, throttled=()))))


def test_processes_crops_and_escapes_commands() -> None:
    nasty = GpuProcess(1, command="evil\x1b[2J\n" + "x" * 500, user="a\rb")
    lines = table(machine(busy_gpu(0, processes=(nasty,))))
    assert all(line.isprintable() for line in lines)
    assert lines[-1].endswith("x…")
    assert r"evil\u001b[2J\u000a" in lines[-1]
    assert max(map(len, lines)) <= 100


def test_table_ends_with_nvml_message() -> None:
    snapshot = machine(nvml=Nvml("no_driver", "The driver is not loaded: restart the computer."))
    assert table(snapshot)[0] == f"atlas · {format_clock_time(NOON)}"
    assert table(snapshot)[-1] == "The driver is not loaded: restart the computer."
    assert color_of(snapshot, "not loaded") == "warning"
    assert "AMD EPYC 9654 96-Core Processor" in "".join(table(snapshot))


def test_topology_of_16_gpus_fits_80_columns() -> None:
    snapshot = machine(*(busy_gpu(index) for index in range(16)), topology=two_halves(16))
    lines = table(snapshot, 80, details=True)
    rows = [line for line in lines if line.startswith("GPU 15 ") and "·" not in line]
    assert len(rows) > 1
    assert max(map(len, rows)) <= 80
    cells = [cell for row in rows for cell in row.split()[2:]]
    assert cells == ["SYS*"] * 14 + ["NV12", "×", "1", "32-63"]


def test_watched_tables_are_separated_by_empty_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    requested: list[object] = []

    def read_snapshots(*, once: bool, interval_s: float, request: SnapshotRequest) -> Iterator[Snapshot]:
        requested.append((interval_s, request))
        yield from [machine(gpu(0))] * (1 if once else 2)

    monkeypatch.setattr(children, "read_snapshots", read_snapshots)
    one = run_in_this_process("gpus").out
    assert run_in_this_process("gpus", "--watch", "--interval", "3600").out == f"{one}\n{one}"
    run_in_this_process("gpus", "--details")
    assert requested == [
        (seconds, SnapshotRequest(activity=details)) for seconds, details in ((1, False), (3600, False), (1, True))
    ]


def test_clock_is_local_time() -> None:
    assert format_clock_time(NOON) == time.strftime("%H:%M:%S", time.localtime(NOON))
