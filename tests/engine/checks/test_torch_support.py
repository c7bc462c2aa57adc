"""Compatibility of torch with the driver and the GPUs of a machine."""

from __future__ import annotations

import shlex
import sys
import tomllib
from pathlib import Path

import pytest

from engine.checks import torch_support
from engine.checks.gpu_checks import gpu_problems
from engine.checks.torch_support import TorchBuild
from engine.contract.devices import Nvml, Snapshot
from engine.contract.job import Job
from engine.contract.problems import Problem
from tests.engine.checks.machines import CU132, NEWEST, PASCAL, driver, gpu, instance, machine

INSTALL = (
    f"uv pip install --python {shlex.quote(sys.executable)} --reinstall-package torch --reinstall-package torchvision "
    "'torch<2.16' torchvision --torch-backend="
)
CPU_BUILD = TorchBuild("2.15.0+cpu")


@pytest.fixture(autouse=True)
def _newest_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make 2.15 the oldest version of torch that Footplate supports."""
    monkeypatch.setattr(torch_support, "OLDEST_TORCH", (2, 15))


def find_problems(found: Snapshot, torch: TorchBuild | None = CU132) -> list[Problem]:
    """Return the problems with a job on all GPUs of the machine `found`, if the torch build `torch` is installed."""
    return gpu_problems(Job.from_fields(devices=tuple(gpu.uuid for gpu in found.gpus)), found, torch, {})


def test_old_driver_problem_names_the_needed_driver() -> None:
    (problem,) = find_problems(machine(gpu(0), gpu(1), nvml=driver("570.86.15", "12.8")))
    assert problem.field == "devices"
    assert "CUDA 13.2" in problem.message
    assert "570.86.15" in problem.message
    assert "580.65.06 or newer" in problem.remedy


@pytest.mark.parametrize(
    ("oldest_torch", "capability", "build"),
    [((2, 14), (9, 0), "cu126"), ((2, 11), (9, 0), "cu126"), ((2, 11), (12, 0), "cu128"), ((2, 14), (12, 0), None)],
)
def test_old_driver_remedy_names_the_newest_fitting_torch(
    monkeypatch: pytest.MonkeyPatch, oldest_torch: tuple[int, int], capability: tuple[int, int], build: str | None
) -> None:
    monkeypatch.setattr(torch_support, "OLDEST_TORCH", oldest_torch)
    (problem,) = find_problems(machine(gpu(compute_capability=capability), nvml=driver("570.86.15", "12.8")))
    command = problem.remedy.partition("install a torch that fits it: ")[2]
    assert command == (f"{INSTALL}{build}" if build else "")
    assert problem.remedy.startswith("Update the driver to 580.65.06 or newer")


@pytest.mark.parametrize(
    ("nvml", "runs"),
    [
        (driver("580.65.06", "13.0"), True),  # older than 13.2, of the same major version
        (driver("570.86.15", "13.0"), True),  # with NVIDIA's package for forward compatibility
        (driver("570.86.15", "12.8"), False),
        (driver("580.65.06"), True),
        (driver("580.65.05"), False),
        (driver("1000.1"), True),
        (Nvml("ok"), True),
    ],
)
def test_driver_supports_all_minor_versions_of_its_cuda(nvml: Nvml, runs: bool) -> None:
    assert (not find_problems(machine(nvml=nvml))) == runs


def test_old_driver_remedy_for_an_unknown_cuda() -> None:
    (problem,) = find_problems(machine(nvml=NEWEST), TorchBuild("3.0.0+cu140", "14.0"))
    assert problem.remedy == f"Update the driver, or install a torch that fits it: {INSTALL}cu132"


@pytest.mark.parametrize(
    ("nvml", "remedy"),
    [
        (NEWEST, f"Install one that fits: {INSTALL}cu132"),
        (driver("580.65.06", "13.0"), f"Install one that fits: {INSTALL}cu130"),
        (
            driver("570.86.15", "12.8"),
            f"Update the NVIDIA driver to 580.65.06 or newer, then install one that fits: {INSTALL}cu132",
        ),
    ],
)
def test_cpu_build_problem_names_a_fitting_build(nvml: Nvml, remedy: str) -> None:
    (problem,) = find_problems(machine(nvml=nvml), CPU_BUILD)
    assert problem.remedy == remedy


@pytest.mark.parametrize(
    ("built", "capability", "runs"),
    [
        (("sm_80",), (8, 0), True),
        (("sm_80",), (8, 9), True),
        (("sm_86",), (8, 0), False),
        (("sm_80", "sm_86"), (9, 0), False),
        (("sm_90a",), (9, 0), True),
        (("sm_120",), (12, 1), True),
        (("sm_90", "compute_90"), (12, 0), True),
        (("sm_90", "compute_90"), (8, 0), False),
        (("sm_75",), None, True),
        ((), (3, 5), True),
    ],
)
def test_sm_code_needs_its_major_version_and_ptx_does_not(
    built: tuple[str, ...], capability: tuple[int, int] | None, runs: bool
) -> None:
    found = find_problems(machine(gpu(compute_capability=capability)), TorchBuild("2.15.0+cu132", "13.2", built))
    assert (not found) == runs


def test_unsupported_gpu_is_named_alone() -> None:
    (problem,) = find_problems(machine(gpu(0), PASCAL))
    assert "7.5, 8.0, 8.6, 9.0, 10.0 and 12.0, not for GPU 1 (NVIDIA GeForce GTX 1080, 6.1)" in problem.message
    assert "uv pip" not in problem.remedy


def test_old_build_remedy_supports_the_new_gpu() -> None:
    blackwell = gpu(compute_capability=(12, 0))
    (problem,) = find_problems(machine(blackwell), TorchBuild("2.14.0+cu126", "12.6", ("sm_80", "sm_90")))
    assert problem.remedy == f"Install one that fits: {INSTALL}cu132"
    (problem,) = find_problems(machine(gpu(compute_capability=(13, 0))))
    assert "uv pip" not in problem.remedy


def test_instance_has_the_capability_of_its_parent() -> None:
    parent = gpu(compute_capability=(8, 0), mig_enabled=True)
    snapshot = machine(parent, instance(7, parent))
    job = Job.from_fields(devices=(snapshot.gpus[1].uuid,))
    assert gpu_problems(job, snapshot, CU132, {}) == []
    (problem,) = gpu_problems(job, snapshot, TorchBuild("2.15.0+cu132", "13.2", ("sm_90",)), {})
    assert "GPU 0 MIG 7 (NVIDIA H200 MIG 1g.18gb, 8.0)" in problem.message


def test_torch_obstacles_are_reported_together() -> None:
    messages = " ".join(map(str, find_problems(machine(PASCAL, nvml=driver("470.256.02", "11.4")))))
    assert "too old" in messages
    assert "not for GPU 1" in messages


def test_lost_unchosen_and_unknown_gpus_are_not_checked() -> None:
    old = driver("570.86.15", "12.8")
    assert find_problems(machine(gpu(lost=True), nvml=old)) == []
    assert find_problems(machine(nvml=old), None) == []
    assert gpu_problems(Job.from_fields(devices=("cpu",)), machine(nvml=old), CU132, {}) == []
    assert gpu_problems(Job.from_fields(devices=(gpu().uuid,)), None, CU132, {}) == []


def test_torch_bounds_equal_those_of_pyproject(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    project = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())["project"]
    (torch,) = (requirement for requirement in project["dependencies"] if requirement.startswith("torch>"))
    oldest = ".".join(map(str, torch_support.OLDEST_TORCH))
    assert torch == f"torch>={oldest},<{torch_support.TOO_NEW_TORCH}"
