"""The sampler's parts that need no process: the CPU's row, rows of lost GPUs, sleeping GPUs, processes, the table."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from engine.contract.devices import Cpu, Gpu, GpuProcess, Nvml, Snapshot
from engine.gpus import nvml, processes, sentences
from engine.gpus.cpu import CpuReader, cpu_name
from engine.gpus.text import format_snapshot
from engine.gpus.watch import with_lost

GIB = 1024**3


def gpu(index: int, **values: object) -> Gpu:
    return Gpu(uuid=f"GPU-{index}", name="NVIDIA H200", nvml_index=index, **values)  # type: ignore[arg-type]


def test_that_the_cpu_has_a_name_and_a_load_for_each_core() -> None:
    cpu = CpuReader().read()
    assert cpu.name == cpu_name() != ""
    assert len(cpu.core_load_percent) == psutil.cpu_count()
    assert all(0 <= load <= 100 for load in cpu.core_load_percent)
    assert cpu.load_percent == pytest.approx(sum(cpu.core_load_percent) / len(cpu.core_load_percent))
    assert 0 < cpu.memory_used_bytes < cpu.memory_total_bytes == psutil.virtual_memory().total
    assert cpu.temperature_c is None or 0 < cpu.temperature_c < 150


def test_that_a_gpu_no_longer_listed_stays_in_its_place_as_lost() -> None:
    rows = with_lost((gpu(0, power_w=7.0), gpu(1)), (gpu(1, power_w=9.0), gpu(2)))
    assert [(row.uuid, row.lost, row.power_w) for row in rows] == [
        ("GPU-0", True, 7.0),
        ("GPU-1", False, 9.0),
        ("GPU-2", False, None),
    ]
    since = rows[0].lost_since
    assert since is not None
    assert with_lost(rows, (gpu(1), gpu(2)))[0].lost_since == since
    assert with_lost(rows, (gpu(0), gpu(1), gpu(2)))[0] == gpu(0)


@pytest.mark.parametrize(("status", "expected"), [("suspended\n", True), ("active\n", False), (None, False)])
def test_that_a_suspended_gpu_is_known_by_sysfs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, status: str | None, expected: bool
) -> None:
    monkeypatch.setattr(nvml, "SYSFS_PCI", tmp_path)
    folder = tmp_path / "0000:0a:00.0" / "power"
    folder.mkdir(parents=True)
    if status is not None:
        (folder / "runtime_status").write_text(status)
    assert nvml.asleep("00000000:0A:00.0") is expected


def test_that_impossible_pids_and_memory_of_mismatched_structs_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    told = [(0, 5), (0xFFFFFFFF, 5), (4000001, 10**15), (4000002, None), (4000003, 5)]
    infos = [SimpleNamespace(pid=pid, usedGpuMemory=used) for pid, used in told]
    table = processes.ProcessTable().table([infos], memory_total_bytes=GIB)
    assert [(row.pid, row.memory_used_bytes) for row in table] == [(4000001, None), (4000002, None), (4000003, 5)]


def test_that_names_are_looked_up_for_own_pids_and_never_for_a_hosts(monkeypatch: pytest.MonkeyPatch) -> None:
    me = psutil.Process()
    monkeypatch.setattr(processes, "foreign_pids", lambda: False)
    assert processes.user_and_name(os.getpid()) == (me.username(), me.name())
    monkeypatch.setattr(processes, "foreign_pids", lambda: True)
    assert processes.user_and_name(os.getpid()) == (None, None)


@pytest.mark.skipif(sys.platform != "linux", reason="namespaces of pids are Linux's")
def test_that_pids_are_foreign_exactly_outside_the_hosts_own_namespace(monkeypatch: pytest.MonkeyPatch) -> None:
    namespace = os.readlink("/proc/self/ns/pid")
    assert processes.foreign_pids() is (namespace != "pid:[4026531836]")


def test_that_nonsense_of_the_driver_is_none() -> None:
    assert nvml.percent(37100) is None
    assert nvml.percent(100) == 100.0
    assert nvml.text(b"Tesla \xff") == "Tesla \ufffd"


def snapshot(*gpus: Gpu, message: str = "") -> Snapshot:
    cpu = Cpu(
        name="AMD EPYC", core_load_percent=(10.0, 30.0), load_percent=20.0, memory_used_bytes=2 * GIB,
        memory_total_bytes=8 * GIB,
    )  # fmt: skip
    return Snapshot(time=0.0, host="here", nvml=Nvml("ok", message), gpus=gpus, cpu=cpu)


def test_that_the_table_is_aligned_and_shows_what_is_unknown_as_such() -> None:
    full = gpu(
        0, utilization_percent=87.0, memory_used_bytes=41 * GIB, memory_total_bytes=140 * GIB, temperature_c=61.0,
        power_w=640.4, power_limit_w=700.0, cuda_index=1, processes=(GpuProcess(42, GIB, "ada", "python"), GpuProcess(43)),
    )  # fmt: skip
    table = format_snapshot(snapshot(full, gpu(1, lost=True)))
    lines = table.splitlines()
    assert lines[0].split() == ["Device", "Name", "Use", "Memory", "Temp", "Power", "CUDA", "UUID"]
    assert "87 %  41.0 / 140.0 GiB  61 °C  640 / 700 W     1  GPU-0" in lines[1]
    assert lines[2].split() == ["GPU", "1", "NVIDIA", "H200", "(lost:", "last", "values)", *"-----", "GPU-1"]
    assert "AMD EPYC (2 cores)" in lines[3]
    assert "20 %  2.0 / 8.0 GiB" in " ".join(lines[3].split()).replace("% 2", "%  2")
    assert len({line.index("GPU-") for line in lines[1:3]}) == 1
    assert "GPU 0 is used by" in lines
    assert "  process 42, python, ada, 1,024 MiB" in lines
    assert "  process 43" in lines


def test_that_the_table_ends_with_why_no_gpu_is_listed() -> None:
    assert format_snapshot(snapshot(message=sentences.NO_DRIVER)).splitlines()[-1] == sentences.NO_DRIVER


def test_that_every_sentence_is_one_sentence_with_a_remedy() -> None:
    fixed = [value for name, value in vars(sentences).items() if name.isupper() and name != "ASKING"]
    told = [*fixed, sentences.not_answering(7).message, sentences.crashed("SIGABRT").message, sentences.failed("x")[1]]
    for sentence in told:
        assert sentence.endswith(".")
        assert ": " in sentence  # what is wrong: what to do
        assert sentence.count(". ") == 0
