"""Findings about a machine, and warnings for runs on its CPU."""

from __future__ import annotations

import shutil
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest

from engine.checks import machine_findings
from engine.checks.machine_findings import (
    Finding,
    cpu_warnings,
    disk_findings,
    driver_findings,
    gpu_findings,
    memory_findings,
    shared_memory_findings,
    training_findings,
)
from engine.contract.devices import Cpu, Nvml, Snapshot
from engine.contract.job import Job
from tests.engine.checks.machines import CU132, PASCAL, driver, gpu, instance, machine

GIB = 1 << 30
OLD = driver("570.86.15", "12.8")


def find_training(found: Snapshot) -> list[Finding]:
    return list(training_findings(found, CU132, {}))


def warnings(found: Snapshot, *, chosen: bool, devices: tuple[str, ...] = ("cpu",)) -> list[str]:
    problems = cpu_warnings(Job.from_fields(devices=devices), found, CU132, {}, chosen=chosen)
    assert all((problem.field, problem.severity) == ("devices", "warning") for problem in problems)
    return [str(problem) for problem in problems]


def test_finding_of_an_old_driver_has_a_command() -> None:
    (finding,) = find_training(machine(gpu(0), gpu(1), nvml=OLD))
    assert finding.grade == "cpu_only"
    assert "CUDA 13.2, for which NVIDIA driver 570.86.15 is too old" in finding.text
    assert "580.65.06" in finding.remedy
    assert "--torch-backend=cu126" in finding.remedy


def test_training_findings_name_usable_and_blocked_gpus() -> None:
    blocked, usable = find_training(machine(gpu(0), PASCAL))
    assert (blocked.grade, usable.grade) == ("limited", "fine")
    assert usable.text == "PyTorch can use GPU 0"
    divided, closed = gpu(1, cuda_index=None, mig_enabled=True), gpu(2, compute_mode="prohibited")
    *others, usable = find_training(machine(gpu(0), divided, closed))
    assert (len(others), usable.text) == (2, "PyTorch can use GPU 0")
    parent = gpu(0, cuda_index=None, mig_enabled=True)
    (usable,) = find_training(machine(parent, instance(7, parent)))
    assert usable.text == "PyTorch can use GPU 0 MIG 7"


@pytest.mark.parametrize(
    ("found", "chosen", "expected"),
    [
        (machine(gpu(0)), False, ["PyTorch can use GPU 0"]),
        (machine(gpu(0)), True, []),
        (machine(gpu(0), nvml=OLD), True, ["570.86.15 is too old"]),
        (machine(gpu(0), nvml=OLD), False, ["570.86.15 is too old"]),
        (msgspec.structs.replace(machine(), gpus=(), nvml=Nvml("version_mismatch", "Restart.")), True, ["Restart."]),
        (msgspec.structs.replace(machine(), gpus=(), nvml=Nvml("no_library", "None.")), False, []),
    ],
)
def test_cpu_warnings_explain_unused_gpus(found: Snapshot, chosen: bool, expected: list[str]) -> None:
    found_warnings = warnings(found, chosen=chosen)
    assert len(found_warnings) == len(expected)
    assert all(
        fragment in line and "on the CPU" in line for fragment, line in zip(expected, found_warnings, strict=True)
    )
    assert warnings(found, chosen=chosen, devices=(gpu(0).uuid,)) == []


def test_gpu_findings_count_gpus_without_instances() -> None:
    big = gpu(0, memory_total_bytes=140 * GIB)
    two = machine(big, msgspec.structs.replace(big, uuid="GPU-1", nvml_index=1), instance(1, big), gpu(2, lost=True))
    counted, lost = gpu_findings(two)
    assert counted == Finding("fine", "GPUs", "2 × NVIDIA H200, 140.0 GiB each")
    assert "GPU 2 is lost" in lost.text
    assert list(gpu_findings(machine(gpu(2, lost=True)))) == [lost]
    (none,) = gpu_findings(msgspec.structs.replace(two, gpus=()))
    assert none.text == "no NVIDIA GPU is installed in this machine"


def test_driver_findings_grade_errors() -> None:
    (denied,) = driver_findings(Nvml("no_permission", "Ask for access."))
    (absent,) = driver_findings(Nvml("no_library", "Install it."))
    assert (denied.grade, absent.grade) == ("cpu_only", "limited")
    files = ("/dev/nvidiactl", "/dev/nvidia3")
    assert list(driver_findings(Nvml("ok", driver_version="580.1", cuda_version="13.2", denied_files=files))) == [
        Finding("fine", "Driver", "NVIDIA 580.1, for CUDA up to 13.2"),
        Finding("limited", "Driver", "this user has no permission to open /dev/nvidia3, so its GPU is not listed"),
    ]


def test_low_memory_and_disk_have_remedies(monkeypatch: pytest.MonkeyPatch, separate_home: Path) -> None:
    cpu = Cpu(
        name="AMD EPYC",
        core_load_percent=(1.0, 2.0),
        load_percent=1.0,
        memory_used_bytes=15 * GIB,
        memory_total_bytes=16 * GIB,
    )
    memory, processor = memory_findings(cpu)
    assert memory == Finding("limited", "Memory", "1.0 GiB of 16.0 GiB free.", "Close other programs before training.")
    assert processor.text == "AMD EPYC, 2 cores"
    assert [finding.grade for finding in disk_findings()] == ["fine"]
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(total=9 * GIB, free=GIB))
    monkeypatch.setattr(machine_findings, "LITTLE_DISK_BYTES", 2 * GIB)
    (disk,) = disk_findings()
    assert (disk.grade, str(separate_home) in disk.text) == ("limited", True)
    assert "FOOTPLATE_HOME" in disk.remedy
    monkeypatch.setenv("FOOTPLATE_HOME", __file__)
    assert [finding.grade for finding in disk_findings()] == ["broken"]
    for minimum, grade in ((GIB, "fine"), (2 * GIB, "limited")):
        monkeypatch.setattr(machine_findings, "LITTLE_SHARED_BYTES", minimum)
        assert [finding.grade for finding in shared_memory_findings()] == [grade]
