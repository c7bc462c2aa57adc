"""Whether torch runs on a machine's driver and GPUs, and what is said where it does not."""

from __future__ import annotations

import shlex
import sys
import tomllib
from pathlib import Path

import pytest

from engine.checks import torch_support
from engine.checks.gpu_support import gpu_problems
from engine.checks.torch_build import TorchBuild
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
    """Footplate as if it ran with torch 2.15 alone, whatever the project says."""
    monkeypatch.setattr(torch_support, "OLDEST_TORCH", (2, 15))


def problems(found: Snapshot, torch: TorchBuild | None = CU132) -> list[Problem]:
    """Of a job on all GPUs of the machine."""
    return gpu_problems(Job.from_fields(devices=tuple(gpu.uuid for gpu in found.gpus)), found, torch, {})


def test_that_a_driver_which_is_too_old_is_told_with_that_which_is_needed() -> None:
    (problem,) = problems(machine(gpu(0), gpu(1), nvml=driver("570.86.15", "12.8")))
    assert problem.field == "devices"
    assert problem.message == (
        "torch 2.15.0+cu132 is built for CUDA 13.2, for which NVIDIA driver 570.86.15 is too old."
    )
    assert problem.remedy == (
        "Update the driver to 580.65.06 or newer; Footplate needs torch 2.15 or newer, which is not built for older "
        "drivers."
    )


@pytest.mark.parametrize(
    ("oldest_torch", "capability", "build"),
    [((2, 14), (9, 0), "cu126"), ((2, 11), (9, 0), "cu126"), ((2, 11), (12, 0), "cu128"), ((2, 14), (12, 0), None)],
)
def test_that_the_newest_torch_which_fits_the_driver_is_named_where_footplate_runs_with_it(
    monkeypatch: pytest.MonkeyPatch, oldest_torch: tuple[int, int], capability: tuple[int, int], build: str | None
) -> None:
    monkeypatch.setattr(torch_support, "OLDEST_TORCH", oldest_torch)
    (problem,) = problems(machine(gpu(compute_capability=capability), nvml=driver("570.86.15", "12.8")))
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
def test_that_a_driver_runs_all_minor_versions_of_its_cuda(nvml: Nvml, runs: bool) -> None:
    assert (not problems(machine(nvml=nvml))) == runs


def test_that_the_oldest_driver_is_not_made_up_for_a_cuda_that_is_not_known() -> None:
    (problem,) = problems(machine(nvml=NEWEST), TorchBuild("3.0.0+cu140", "14.0"))
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
def test_that_a_torch_for_the_cpu_is_told_with_one_that_fits_the_driver(nvml: Nvml, remedy: str) -> None:
    (problem,) = problems(machine(nvml=nvml), CPU_BUILD)
    assert problem.message == "torch 2.15.0+cpu is built without CUDA, which NVIDIA GPUs need."
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
def test_that_code_runs_on_its_own_major_version_and_ptx_on_all_later_ones(
    built: tuple[str, ...], capability: tuple[int, int] | None, runs: bool
) -> None:
    found = problems(machine(gpu(compute_capability=capability)), TorchBuild("2.15.0+cu132", "13.2", built))
    assert (not found) == runs


def test_that_a_gpu_which_torch_is_not_built_for_is_named_and_others_are_not() -> None:
    (problem,) = problems(machine(gpu(0), PASCAL))
    assert problem.message == (
        "torch 2.15.0+cu132 is built for compute capabilities 7.5, 8.0, 8.6, 9.0, 10.0 and 12.0, not for GPU 1 (NVIDIA "
        "GeForce GTX 1080, 6.1)."
    )
    assert problem.remedy == "Choose other devices; no torch that Footplate runs with is built for these."


def test_that_an_older_build_is_told_with_the_one_that_has_code_for_a_newer_gpu() -> None:
    blackwell = gpu(compute_capability=(12, 0))
    (problem,) = problems(machine(blackwell), TorchBuild("2.14.0+cu126", "12.6", ("sm_80", "sm_90")))
    assert problem.remedy == f"Install one that fits: {INSTALL}cu132"
    (problem,) = problems(machine(gpu(compute_capability=(13, 0))))
    assert problem.remedy == "Choose other devices; no torch that Footplate runs with is built for these."


def test_that_an_instance_is_judged_by_the_gpu_that_it_is_part_of() -> None:
    whole = gpu(compute_capability=(8, 0), mig_enabled=True)
    seen = machine(whole, instance(7, whole))
    job = Job.from_fields(devices=(seen.gpus[1].uuid,))
    assert gpu_problems(job, seen, CU132, {}) == []
    (problem,) = gpu_problems(job, seen, TorchBuild("2.15.0+cu132", "13.2", ("sm_90",)), {})
    assert "GPU 0 MIG 7 (NVIDIA H200 MIG 1g.18gb, 8.0)" in problem.message


def test_that_all_that_is_wrong_is_told_at_once() -> None:
    messages = " ".join(map(str, problems(machine(PASCAL, nvml=driver("470.256.02", "11.4")))))
    assert "too old" in messages
    assert "not for GPU 1" in messages


def test_that_what_is_lost_or_not_chosen_or_not_known_is_not_judged() -> None:
    old = driver("570.86.15", "12.8")
    assert problems(machine(gpu(lost=True), nvml=old)) == []
    assert problems(machine(nvml=old), None) == []
    assert gpu_problems(Job.from_fields(devices=("cpu",)), machine(nvml=old), CU132, {}) == []
    assert gpu_problems(Job.from_fields(devices=(gpu().uuid,)), None, CU132, {}) == []


def test_that_the_bounds_of_torch_are_those_of_the_project(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    project = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())["project"]
    (torch,) = (requirement for requirement in project["dependencies"] if requirement.startswith("torch>"))
    oldest = ".".join(map(str, torch_support.OLDEST_TORCH))
    assert torch == f"torch>={oldest},<{torch_support.TOO_NEW_TORCH}"
