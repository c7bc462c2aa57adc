"""Units of the sampler that don't need a process: CPU readings, lost GPUs, sleeping GPUs."""

from __future__ import annotations

import os
import re
import threading
from pathlib import Path
from types import SimpleNamespace

import msgspec
import psutil
import pytest

from engine.contract.devices import Gpu, Mig, NvLink, Pcie
from engine.gpus import sentences
from engine.gpus.__main__ import main
from engine.gpus.child import LineChild
from engine.gpus.cpu import CpuReader, cpu_name
from engine.gpus.nvml import calls, driver_files
from engine.gpus.nvml.fields import Rates
from engine.gpus.parent_process import read_lines
from engine.gpus.quantities import BY_ID
from engine.gpus.watch import merge_lost


def gpu(index: int, **values: object) -> Gpu:
    return Gpu(uuid=f"GPU-{index}", name="NVIDIA H200", nvml_index=index, **values)  # type: ignore[arg-type]


def test_cpu_has_name_and_core_loads(monkeypatch: pytest.MonkeyPatch) -> None:
    memory = SimpleNamespace(total=100, available=70, free=20, used=25)
    with monkeypatch.context() as patched:
        patched.setattr(psutil, "virtual_memory", lambda: memory)
        cpu = CpuReader().read()
    assert cpu.name == cpu_name() != ""
    assert len(cpu.core_load_percent) == psutil.cpu_count()
    assert all(0 <= load <= 100 for load in cpu.core_load_percent)
    assert cpu.load_percent == pytest.approx(sum(cpu.core_load_percent) / len(cpu.core_load_percent))
    assert (cpu.memory_used_bytes, cpu.memory_total_bytes) == (30, 100)
    assert CpuReader().read().memory_total_bytes == psutil.virtual_memory().total
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists() and "model name" in cpuinfo.read_text():
        assert f"model name\t: {cpu.name}\n" in cpuinfo.read_text()


def test_cpu_temperature_is_the_highest_of_its_sensors(monkeypatch: pytest.MonkeyPatch) -> None:
    sensors: dict[str, list[float | None]] = {
        "nvme": [70.0],
        "k10temp": [0.0, 41.5, None, 48.0, -1.0],
        "cpu_thermal": [60.0],
    }
    readings: list[str] = []

    def read_sensors() -> dict[str, list[SimpleNamespace]]:
        readings.append("read")
        return {name: [SimpleNamespace(current=value) for value in values] for name, values in sensors.items()}

    monkeypatch.setattr(psutil, "sensors_temperatures", read_sensors, raising=False)
    reader = CpuReader()
    assert [reader.read().temperature_c for _ in range(2)] == [48.0, 48.0]
    assert readings == ["read"], "it opens many files"
    sensors["k10temp"] = [0.0, -1.0]
    assert CpuReader().read().temperature_c == 60.0
    sensors["cpu_thermal"] = []
    assert CpuReader().read().temperature_c is None


def test_child_reports_its_lines_and_exit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "two_lines.py").write_text("print('one')\nprint('two')\nraise SystemExit(1)\n")
    monkeypatch.chdir(tmp_path)
    changed = threading.Event()
    child = LineChild("two_lines", changed=changed)
    while not child.has_ended():
        assert changed.wait(120)
        changed.clear()
    assert (child.exit_reason(), child.take_lines()) == ("exit code 1", [b"one\n", b"two\n"])
    child.send(b"ignored\n")


def test_lines_of_the_parent_may_arrive_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = iter([b"a\n", b"b", b"c\nd\ne", b"\nincomplete", b""])
    lines: list[bytes] = []
    with monkeypatch.context() as patch:
        patch.setattr(os, "read", lambda _descriptor, _size: next(parts))
        read_lines(lines.append)
    assert lines == [b"a", b"bc", b"d", b"e"]


@pytest.mark.parametrize("interval", ["0.049", "3601", "nan", "often"])
def test_sampler_refuses_intervals(interval: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as raised:
        main(["--interval", interval, "--once"])
    assert raised.value.code == 2
    assert "--interval" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["--help"])
    assert re.findall(r"(\d+)\.0\)", capsys.readouterr().out) == ["1", "5", "30", "30", "60"]  # defaults, in seconds


def test_rates_need_a_previous_reading() -> None:
    rates = Rates()
    readings = [(1.0, 0.0), (5.0, 2.0), (4.0, 3.0), (6.0, 4.0), (None, 5.0), (9.0, 6.0), (10.0, 6.0)]
    assert [rates.update("a", value, at) for value, at in readings] == [None, 2.0, None, 2.0, None, None, None]
    assert rates.update("b", 7.0, 7.0) is None
    rates.reset()
    assert rates.update("a", 11.0, 8.0) is None


def test_quantity_adds_up_the_known_rates_of_nvlinks() -> None:
    links = (NvLink(link=0, sent_bytes_per_s=1.0), NvLink(link=1, sent_bytes_per_s=2.0, received_bytes_per_s=5.0))
    linked = gpu(0, nvlinks=(*links, NvLink(link=2)), pcie=Pcie(sent_bytes_per_s=7.0), power_w=3.0)
    ids = ("nvlink_sent_bytes_per_s", "nvlink_received_bytes_per_s", "pcie_sent_bytes_per_s", "power_w")
    assert [BY_ID[each].read(linked) for each in ids] == [3.0, 5.0, 7.0, 3.0]
    assert [BY_ID[each].read(gpu(0, nvlinks=(NvLink(link=0),))) for each in ids] == [None] * 4


def test_missing_gpu_becomes_a_lost_row() -> None:
    rows = merge_lost((gpu(0, power_w=7.0), gpu(1)), (gpu(1, power_w=9.0), gpu(2)))
    assert [(row.uuid, row.lost, row.power_w) for row in rows] == [
        ("GPU-0", True, 7.0),
        ("GPU-1", False, 9.0),
        ("GPU-2", False, None),
    ]
    middle = merge_lost(tuple(map(gpu, range(4))), (gpu(0), gpu(1), gpu(3)))
    assert [(row.uuid, row.lost) for row in middle] == [(f"GPU-{index}", index == 2) for index in range(4)]
    since = rows[0].lost_since
    assert since is not None
    assert merge_lost(rows, (gpu(1), gpu(2)))[0].lost_since == since
    assert merge_lost(rows, (gpu(0), gpu(1), gpu(2)))[0] == gpu(0)


def test_lost_gpu_takes_over_its_earlier_row() -> None:
    nameless = Gpu(uuid="GPU-lost-0", name="NVIDIA GPU", nvml_index=0, lost=True)
    instance = Gpu(uuid="MIG-0", name="MIG", nvml_index=0, mig=Mig(parent_uuid="GPU-0", gpu_instance=1))
    lost = merge_lost((gpu(0), instance, gpu(1)), (nameless, gpu(1)))
    assert [(row.uuid, row.lost) for row in lost] == [("GPU-0", True), ("MIG-0", True), ("GPU-1", False)]
    rows = merge_lost((gpu(0, power_w=7.0), gpu(1)), (nameless, gpu(1)))
    assert [(row.uuid, row.lost, row.power_w) for row in rows] == [("GPU-0", True, 7.0), ("GPU-1", False, None)]
    named = msgspec.structs.replace(nameless, uuid="GPU-0")  # identified by the driver's files
    assert merge_lost(rows, (named, gpu(1))) == rows
    assert [row.uuid for row in merge_lost((nameless, gpu(1)), (gpu(0), gpu(1)))] == ["GPU-0", "GPU-1"]


def test_lost_gpu_is_named_by_driver_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver_files, "DRIVER_GPUS", tmp_path)
    unknown = driver_files.create_lost_gpu(1, 2)
    assert (unknown.nvml_index, unknown.lost, unknown.name) == (1, True, "NVIDIA GPU")
    for index in range(2):
        (tmp_path / f"0000:0{index}:00.0").mkdir()
        information = f"Model: \t\t NVIDIA H200\nGPU UUID: \t GPU-{index}\n"
        (tmp_path / f"0000:0{index}:00.0" / "information").write_text(information)
    known = driver_files.create_lost_gpu(1, 2)
    assert (known.uuid, known.name, known.pci_bus_id, known.lost) == ("GPU-1", "NVIDIA H200", "0000:01:00.0", True)
    assert driver_files.create_lost_gpu(1, 3).uuid == unknown.uuid


def test_removed_mig_instance_has_no_row() -> None:
    def instance(number: int) -> Gpu:
        mig = Mig(parent_uuid="GPU-0", gpu_instance=number)
        return Gpu(uuid=f"MIG-{number}", name="NVIDIA H200 MIG 1g.18gb", nvml_index=0, mig=mig)

    before = (gpu(0), instance(1), gpu(1))
    assert merge_lost(before, (gpu(0), instance(2), gpu(1))) == (gpu(0), instance(2), gpu(1))
    rows = merge_lost(before, (gpu(1),))  # the whole GPU is lost, and its instance with it
    assert [(row.uuid, row.lost) for row in rows] == [("GPU-0", True), ("MIG-1", True), ("GPU-1", False)]


@pytest.mark.parametrize(("status", "expected"), [("suspended\n", True), ("active\n", False), (None, False)])
def test_asleep_reads_sysfs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, status: str | None, expected: bool
) -> None:
    monkeypatch.setattr(driver_files, "SYSFS_PCI", tmp_path)
    folder = tmp_path / "0000:0a:00.0" / "power"
    folder.mkdir(parents=True)
    if status is not None:
        (folder / "runtime_status").write_text(status)
    assert driver_files.is_asleep("00000000:0A:00.0") is expected


def test_sleeping_gpus_come_from_driver_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver_files, "SYSFS_PCI", tmp_path / "pci")
    monkeypatch.setattr(driver_files, "DRIVER_GPUS", tmp_path / "driver")
    for bus_id, status in (("0000:01:00.0", "active"), ("0000:02:00.0", "suspended"), ("0000:03:00.0", "suspended")):
        (tmp_path / "pci" / bus_id / "power").mkdir(parents=True)
        (tmp_path / "pci" / bus_id / "power" / "runtime_status").write_text(status)
        (tmp_path / "driver" / bus_id).mkdir(parents=True)
    information = "Model: \t NVIDIA GeForce RTX 4070\nIRQ:   16\nGPU UUID: \t GPU-1\n"
    (tmp_path / "driver" / "0000:02:00.0" / "information").write_text(information)
    (tmp_path / "driver" / "0000:03:00.0" / "information").write_text(information.replace("GPU-1", "GPU-????????-????"))
    known = driver_files.read_sleeping_gpus(3)
    assert known[1] == Gpu(
        uuid="GPU-1", name="NVIDIA GeForce RTX 4070", nvml_index=1, pci_bus_id="0000:02:00.0", asleep=True
    )
    assert (known[2].uuid, known.keys()) == ("", {1, 2})
    assert driver_files.read_sleeping_gpus(2) == {}  # the GPUs can't be matched


def test_within_rejects_implausible_values() -> None:
    assert calls.percent(37100) is None
    assert calls.percent(100) == 100.0
    assert calls.percent(float("nan")) is None
    assert calls.drop_implausible(None, 0, 1) is None
    assert calls.decode_text(b"Tesla \xff") == "Tesla \ufffd"


def test_each_sentence_names_a_remedy() -> None:
    fixed = [value for name, value in vars(sentences).items() if name.isupper() and name != "ASKING"]
    messages = [
        *fixed,
        sentences.create_silent_state(7).message,
        sentences.create_crashed_state("SIGABRT").message,
        sentences.explain_failure("x")[1],
    ]
    messages.append(sentences.explain_missing_permission(["/dev/nvidia0", "/dev/nvidiactl"]))
    for sentence in messages:
        assert sentence.endswith(".")
        assert ": " in sentence  # problem: remedy
        assert sentence.count(". ") == 0
