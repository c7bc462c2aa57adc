"""Table of ``footplate gpus``."""

from __future__ import annotations

import io
import time

import pytest
from rich.console import Console
from rich.segment import Segment

from engine.cli.gpus.remarks import clock
from engine.cli.gpus.table import View
from engine.contract.devices import Ecc, GpuProcess, Nvml, Retired, Snapshot, Xid
from tests.engine.cli.machines import GIB, NOON, busy_gpu, full_gpu, gpu, instance, machine, two_halves


def table(snapshot: Snapshot, width: int = 100, *, details: bool = False) -> list[str]:
    return ["".join(segment.text for segment in line).rstrip() for line in drawn(snapshot, width, details=details)]


def drawn(snapshot: Snapshot, width: int = 100, *, details: bool = False) -> list[list[Segment]]:
    return Console(file=io.StringIO(), width=width).render_lines(View(snapshot, details=details), pad=False)


def color_of(snapshot: Snapshot, expected_text: str) -> str:
    line = next(line for line in drawn(snapshot) if expected_text in "".join(segment.text for segment in line))
    style = next(segment.style for segment in line if segment.style and segment.text.strip())
    return "dim" if style.dim else "warning" if style.color and style.color.name == "yellow" else "plain"


def row_of(lines: list[str], start: str) -> str:
    return next(line for line in lines if line.strip().startswith(start))


def test_table_has_a_row_per_gpu() -> None:
    lines = table(machine(busy_gpu(0)))
    assert lines[0] == f"atlas · {clock(NOON)} · driver 570.86.15 · CUDA 12.8"
    assert row_of(lines, "GPU").split() == ["GPU", "Name", "Use", "Memory", "Temp", "Power", "Clock"]
    row = row_of(lines, "0 ")
    for expected_text in (" 0  H200", " 87 %", " 41.0 / 140.0 GiB", " 61 °C", " 640 / 700 W", " 1980 MHz"):
        assert expected_text in row


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


def test_table_aligns_columns() -> None:
    lines = table(machine(busy_gpu(0), busy_gpu(1, utilization_percent=7.0, power_w=9.0, memory_used_bytes=0)))
    rows = [row_of(lines, "0 "), row_of(lines, "1 ")]
    for sign in ("%", "GiB", "°C", " W", "MHz"):
        assert len({row.rindex(sign) for row in rows}) == 1


def test_table_width_is_constant() -> None:
    full = busy_gpu(0, utilization_percent=100.0, memory_used_bytes=140 * GIB, power_w=700.0, sm_clock_mhz=1980.0)
    idle = busy_gpu(0, utilization_percent=0.0, memory_used_bytes=0, power_w=9.0, sm_clock_mhz=210.0)
    assert len(row_of(table(machine(full)), "0 ")) == len(row_of(table(machine(idle)), "0 "))


def test_table_drops_columns_without_values() -> None:
    silent = table(machine(gpu(0)))
    assert "Power" not in "".join(silent)
    assert "Fan" not in "".join(silent)
    lines = table(machine(busy_gpu(0), gpu(1, cuda_index=1)))
    assert row_of(lines, "1 ").split() == ["1", "H200", "–", "–", "–", "–", "–"]


def test_bar_length_is_the_fraction() -> None:
    all_values, half, none, unknown = (
        row_of(table(machine(busy_gpu(0, utilization_percent=load, memory_used_bytes=None))), "0 ").count("█")
        for load in (100.0, 50.0, 0.0, None)
    )
    assert all_values > 3
    assert (half, none, unknown) == (all_values // 2, 0, 0)


def test_bar_of_zero_differs_from_unknown() -> None:
    nothing, unknown = (
        next(line for line in drawn(machine(busy_gpu(0, utilization_percent=load))) if line[0].text.strip() == "0")
        for load in (0.0, None)
    )
    assert sum(segment.style is not None and segment.style.bgcolor is not None for segment in nothing) == 2
    assert sum(segment.style is not None and segment.style.bgcolor is not None for segment in unknown) == 1


def test_table_numbers_gpus_like_devices_flag() -> None:
    crossed = table(machine(busy_gpu(0, cuda_index=1), busy_gpu(1, cuda_index=0, name="NVIDIA B200"), gpu(2)))
    assert row_of(crossed, "0 ").split()[1] == "B200"
    assert "NVML" in row_of(crossed, "GPU")
    assert row_of(crossed, "– ").split()[1] == "H200"
    assert "NVML" not in row_of(table(machine(busy_gpu(0))), "GPU")
    # Without CUDA, only NVML's number is known.
    assert row_of(table(machine(gpu(5))), "5 ").split()[:2] == ["5", "H200"]


def test_table_numbers_mig_instances() -> None:
    all_values = busy_gpu(0, mig_enabled=True, utilization_percent=None)
    lines = table(machine(all_values, instance(all_values, 3, memory_used_bytes=GIB, memory_total_bytes=18 * GIB)))
    row = row_of(lines, "0/3 ")
    assert "MIG 1g.18gb" in row
    assert " 1.0 / 18.0 GiB" in row
    assert any("MIG is on" in line for line in lines)


def test_table_shows_lost_gpus() -> None:
    snapshot = machine(busy_gpu(0, lost=True, lost_since=NOON - 90, throttled=("thermal",)))
    lines = table(snapshot)
    assert "87 %" in row_of(lines, "0 ")
    assert f"lost since {clock(NOON - 90)}: these are its last values" in "".join(lines)
    assert "heat" not in "".join(lines)
    assert color_of(snapshot, "87 %") == "dim"
    assert color_of(snapshot, "lost since") == "warning"


def test_table_shows_sleeping_gpus() -> None:
    assert color_of(machine(gpu(0, asleep=True)), "asleep, not woken") == "dim"


@pytest.mark.parametrize(
    ("changes", "expected_text", "color"),
    [
        ({"throttled": ("power_cap",)}, "limited by the power limit", "dim"),
        ({"throttled": ("hardware_thermal",)}, "slowed by the hardware: too hot", "warning"),
        ({"ecc": Ecc(uncorrected=2)}, "2 uncorrected memory errors", "warning"),
        ({"retired": Retired(rows_failed=True)}, "have the GPU replaced", "warning"),
        ({"retired": Retired(rows_pending=True)}, "restart the computer", "warning"),
        ({"xids": (Xid(NOON, 79),)}, f"Xid 79: the GPU has fallen off the bus, at {clock(NOON)}", "warning"),
        ({"xids": (Xid(NOON, 79), Xid(NOON, 43))}, "(1 before it)", "dim"),
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


def test_processes_lists_all_readings() -> None:
    lines = table(machine(full_gpu(0)), 120)
    assert lines[-2].split() == [
        "GPU",
        "PID",
        "User",
        "Type",
        "Memory",
        "SM",
        "CPU",
        "Host",
        "memory",
        "Time",
        "Command",
    ]
    for expected_text in (
        "4242",
        "ada",
        "39.0 GiB",
        "85 %",
        "101 %",
        "7.0 GiB",
        "1:02:03",
        "python train.py --epochs 90",
    ):
        assert expected_text in lines[-1]


def test_processes_crops_and_escapes_commands() -> None:
    nasty = GpuProcess(1, command="evil\x1b[2J\n" + "x" * 500, user="a\rb")
    lines = table(machine(busy_gpu(0, processes=(nasty,))))
    assert all(line.isprintable() for line in lines)
    assert lines[-1].endswith("x…")
    assert r"evil\u001b[2J\u000a" in lines[-1]
    assert max(map(len, lines)) <= 100


def test_processes_marks_pids_of_the_host() -> None:
    lines = table(machine(busy_gpu(0, processes=(GpuProcess(7, GIB),)), foreign_pids=True))
    assert lines[-2].split() == ["0", "7", "C", "1.0", "GiB"]
    assert "container" in lines[-1]


def test_table_ends_with_nvml_message() -> None:
    snapshot = machine(nvml=Nvml("no_driver", "The driver is not loaded: restart the computer."))
    assert table(snapshot)[-1] == "The driver is not loaded: restart the computer."
    assert color_of(snapshot, "not loaded") == "warning"
    assert "AMD EPYC 9654 96-Core Processor" in "".join(table(snapshot))


def test_details_list_all_readings() -> None:
    text = "\n".join(table(machine(full_gpu(0)), details=True))
    for expected_text in (
        "Utilization         87 %", "Memory in use       41.0 GiB of 140.0 GiB", "Memory reserved     0.5 GiB",
        "Power               640 W of 700 W", "Slows down from     89 °C", "Energy              2.00 kWh since "
        "driver load",
        "Tensor activity     40 %", "SM clock            1,980 MHz of 1,980 MHz", "PCIe                gen 4 of "
        "5, x16 of x16",
        "PCIe in             2.50 GB/s", "NVLinks             1 of 2 up; down: 1", "NVLink 0            12.5 in, "
        "11.5 out GB/s",
        "ECC                 on", "Memory errors       4 corrected, 0 not", "Retired pages       11", "Remapped "
        "rows       8",
        "Compute mode        exclusive process", "Persistence mode    on", "MIG                 off",
        "PCI bus id          00000000:0A:00.0", "Numbers             CUDA 0, NVML 0", f"79 ({clock(NOON - 5)})",
    ):  # fmt: skip
        assert expected_text in text


def test_details_omit_unknown_readings() -> None:
    lines = table(machine(gpu(0)), details=True)
    start = lines.index("GPU 0 · NVIDIA H200 · GPU-0")
    assert lines[start + 1 :] == ["  Numbers             not in CUDA, NVML 0"]


def test_topology_is_a_matrix_with_legend() -> None:
    lines = table(machine(*(busy_gpu(index) for index in range(4)), topology=two_halves()), details=True)
    first = row_of(lines, "GPU 0  ")
    assert first.split() == ["GPU", "0", "×", "NV12", "SYS*", "SYS*", "0", "0-31"]
    assert row_of(lines, "GPU 3  ").split()[2:5] == ["SYS*", "SYS*", "NV12"]
    assert "SYS: the link between processors (NUMA nodes)" in lines
    assert any("no peer access" in line for line in lines)
    assert not any(line.startswith("PIX") for line in lines)


def test_topology_of_16_gpus_fits_80_columns() -> None:
    snapshot = machine(*(busy_gpu(index) for index in range(16)), topology=two_halves(16))
    lines = table(snapshot, 80, details=True)
    rows = [line for line in lines if line.startswith("GPU 15 ") and "·" not in line]
    assert len(rows) > 1
    assert max(map(len, rows)) <= 80
    cells = [cell for row in rows for cell in row.split()[2:]]
    assert cells == ["SYS*"] * 14 + ["NV12", "×", "1", "32-63"]


def test_clock_is_local_time() -> None:
    assert clock(NOON) == time.strftime("%H:%M:%S", time.localtime(NOON))
