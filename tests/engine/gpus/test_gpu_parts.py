"""Units of the sampler that don't need a process: CPU readings, lost GPUs, sleeping GPUs."""

from __future__ import annotations

from pathlib import Path

import msgspec
import psutil
import pytest

from engine.contract.devices import Gpu, Mig
from engine.gpus import sentences
from engine.gpus.cpu import CpuReader, cpu_name
from engine.gpus.nvml import calls, driver_files
from engine.gpus.watch import merge_lost


def gpu(index: int, **values: object) -> Gpu:
    return Gpu(uuid=f"GPU-{index}", name="NVIDIA H200", nvml_index=index, **values)  # type: ignore[arg-type]


def test_cpu_has_name_and_core_loads() -> None:
    cpu = CpuReader().read()
    assert cpu.name == cpu_name() != ""
    assert len(cpu.core_load_percent) == psutil.cpu_count()
    assert all(0 <= load <= 100 for load in cpu.core_load_percent)
    assert cpu.load_percent == pytest.approx(sum(cpu.core_load_percent) / len(cpu.core_load_percent))
    assert 0 < cpu.memory_used_bytes < cpu.memory_total_bytes == psutil.virtual_memory().total
    assert cpu.temperature_c is None or 0 < cpu.temperature_c < 150


def test_missing_gpu_becomes_a_lost_row() -> None:
    rows = merge_lost((gpu(0, power_w=7.0), gpu(1)), (gpu(1, power_w=9.0), gpu(2)))
    assert [(row.uuid, row.lost, row.power_w) for row in rows] == [
        ("GPU-0", True, 7.0),
        ("GPU-1", False, 9.0),
        ("GPU-2", False, None),
    ]
    since = rows[0].lost_since
    assert since is not None
    assert merge_lost(rows, (gpu(1), gpu(2)))[0].lost_since == since
    assert merge_lost(rows, (gpu(0), gpu(1), gpu(2)))[0] == gpu(0)


def test_lost_gpu_takes_over_its_earlier_row() -> None:
    nameless = Gpu(uuid="GPU-lost-0", name="NVIDIA GPU", nvml_index=0, lost=True)
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
