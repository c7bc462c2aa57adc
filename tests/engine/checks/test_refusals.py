"""Unusable GPUs, which `footplate doctor`, the command line and the supervisor must reject."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from engine.checks.gpu_checks import gpu_problems
from engine.checks.torch_support import find_installed_torch
from engine.cli import children, doctor
from engine.contract.devices import Snapshot
from engine.contract.events import Failed, RunFinished
from engine.contract.job import Job
from tests.engine.checks.machines import gpu, machine
from tests.engine.cli.terminal import ROOT, Answer, footplate
from tests.engine.supervisor.supervised import Start
from tests.gui.sources.written_runs import write_run
from tests.support.cases import mark_long_cases
from tests.support.nvml_profiles import MACHINES, Machine, make_consumer_gpu_profile
from tests.support.nvml_stub import NvmlStub, Profile, instance_uuid_of, make_gpu_profile, uuid_of
from tests.support.torch_builds import write_torch_build

OLD_DRIVER = {"driver_version": "570.86.15", "cuda_version": 12080}
PROBED: dict[str, Any] = {"sum": 2.0, "cuda": True}
HOLDER = "4000001:1024"


@pytest.fixture
def stubbed(nvml_stub: NvmlStub, monkeypatch: pytest.MonkeyPatch) -> NvmlStub:
    """Make all processes of the test use the NVML stub, with all its GPUs visible, and return the stub."""
    for name, value in nvml_stub.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return nvml_stub


def format_problems(found: Snapshot, job: Job) -> str:
    """Return the messages of all problems with running `job` on the machine as one text."""
    return " ".join(map(str, gpu_problems(job, found, find_installed_torch(), os.environ)))


def find_training_lines(answer: Answer) -> list[str]:
    """Return the lines about training in the output of `footplate doctor`."""
    return [line for line in answer.out.splitlines() if "Training:" in line]


@pytest.mark.long
def test_doctor_fails_for_an_old_driver(stubbed: NvmlStub) -> None:
    stubbed.write([make_gpu_profile(index) for index in range(4)], **OLD_DRIVER)
    answer = footplate("doctor")
    assert answer.code == 3
    (line,) = find_training_lines(answer)
    assert (
        line == f"BAD   Training: {format_problems(children.read_snapshot(), Job.from_fields(devices=(uuid_of(0),)))}"
    )
    assert "driver 570.86.15 is too old. Update the driver to 580.65.06" in line
    assert answer.out.endswith("Training works on the CPU only; see BAD above.\n")


CASES: dict[str, tuple[list[Profile], dict[str, str], str]] = {
    "too old a card": (
        [make_consumer_gpu_profile(0, compute_capability=61)],
        {},
        "not for GPU 0 (NVIDIA GeForce RTX 4090, 6.1)",
    ),
    "hidden": ([make_gpu_profile(0)], {"CUDA_VISIBLE_DEVICES": ""}, "unset CUDA_VISIBLE_DEVICES"),
    "prohibited": ([make_gpu_profile(0, compute_mode=2)], {}, "sudo nvidia-smi -i 0 -c DEFAULT"),
    "exclusive": ([make_gpu_profile(0, compute_mode=3, process=HOLDER)], {}, "in use by a process (pid 4000001)"),
    "divided into nothing": ([make_gpu_profile(0, mig=1)], {}, "sudo nvidia-smi -i 0 -mig 0"),
}


@pytest.mark.long
@pytest.mark.parametrize("case", CASES)
def test_doctor_fails_without_usable_gpu(stubbed: NvmlStub, case: str) -> None:
    gpus, environment, expected = CASES[case]
    stubbed.write(gpus)
    answer = footplate("doctor", **environment)
    (line,) = find_training_lines(answer)
    assert line.startswith("BAD ")
    assert expected in line
    assert answer.code == 3


@pytest.mark.long
def test_doctor_fails_for_a_cpu_build_of_torch(stubbed: NvmlStub, tmp_path: Path) -> None:
    stubbed.write([make_gpu_profile(0)])
    path = os.pathsep.join((str(write_torch_build(tmp_path / "cpu", "2.15.0+cpu")), str(ROOT)))
    answer = footplate("doctor", PYTHONPATH=path)
    assert "PyTorch: computes on the CPU" in answer.out
    (line,) = find_training_lines(answer)
    assert "torch 2.15.0+cpu is built without CUDA" in line
    assert "'torch<2.16' torchvision --torch-backend=cu" in line
    assert answer.code == 3


@pytest.mark.long
def test_doctor_fails_for_a_driver_mismatch(stubbed: NvmlStub) -> None:
    MACHINES["mismatch"].write(stubbed)
    answer = footplate("doctor")
    assert "BAD   Driver: The NVIDIA driver in use and its library have different versions" in answer.out
    assert "restart the computer" in answer.out
    assert answer.code == 3


def test_doctor_lists_usable_and_blocked_gpus() -> None:
    unusable = gpu(1, name="NVIDIA GeForce GTX 1080", compute_capability=(6, 1), compute_mode="prohibited")
    *wrong, right = doctor.check_training(machine(gpu(0), unusable), PROBED)
    assert {finding.grade for finding in wrong} == {"limited"}
    assert all("GPU 1" in finding.text for finding in wrong)
    assert (right.grade, right.text) == ("fine", "PyTorch can use GPU 0")
    assert [finding.grade for finding in doctor.check_training(machine(unusable), PROBED)] == ["cpu_only"] * len(wrong)


def test_doctor_quotes_unknown_errors_of_torch() -> None:
    facts = PROBED | {"cuda": False, "cuda_error": "CUDA error 802: system not yet initialized"}
    (finding,) = doctor.check_training(machine(), facts)
    assert finding.grade == "cpu_only"
    assert "error 802" in finding.text


def test_doctor_omits_training_without_gpus() -> None:
    assert list(doctor.check_training(machine(gpu(lost=True)), PROBED)) == []


def test_train_refuses_unusable_gpus(stubbed: NvmlStub, tmp_path: Path) -> None:
    stubbed.write([make_gpu_profile(0), make_gpu_profile(1)], **OLD_DRIVER)
    answer = footplate("train", str(tmp_path), "--devices", uuid_of(1))
    assert answer.code == 2
    assert "--devices: torch" in answer.err
    assert "for which NVIDIA driver 570.86.15 is too old.\n  Update the driver to 580.65.06" in answer.err


def test_resume_refuses_unusable_gpus(stubbed: NvmlStub) -> None:
    stubbed.write([make_gpu_profile(0)], **OLD_DRIVER)
    answer = footplate("resume", write_run(8, "failed", cause="a fault").run_id, "--devices", uuid_of(0))
    assert answer.code == 2
    assert "--devices: torch" in answer.err
    assert "for which NVIDIA driver 570.86.15 is too old.\n  Update the driver to 580.65.06" in answer.err


def test_train_refuses_several_mig_instances(stubbed: NvmlStub, tmp_path: Path) -> None:
    MACHINES["mig"].write(stubbed)
    devices = f"{instance_uuid_of(0, 0)},{instance_uuid_of(0, 1)}"
    answer = footplate("train", str(tmp_path), "--devices", devices, "--strategy", "dp")
    assert answer.code == 2
    assert "--devices: A run can use one MIG instance" in answer.err
    assert "  Choose one MIG instance, or turn MIG off: sudo nvidia-smi -mig 0" in answer.err


MIG = (instance_uuid_of(0, 0), instance_uuid_of(0, 2))
REFUSED: dict[str, tuple[Machine, tuple[str, ...]]] = {
    "an old driver": (Machine((make_gpu_profile(0),), OLD_DRIVER), (uuid_of(0),)),
    "an exclusive GPU in use": (Machine((make_gpu_profile(0, compute_mode=3, process=HOLDER),)), (uuid_of(0),)),
    "several instances of MIG": (MACHINES["mig"], MIG),
}


@pytest.mark.parametrize("case", mark_long_cases(REFUSED, everyday=["an old driver"]))
def test_supervisor_refuses_unusable_gpus(stubbed: NvmlStub, start: Start, case: str) -> None:
    profile, devices = REFUSED[case]
    profile.write(stubbed)
    supervised = start("forever", len(devices), "patient", devices=devices)
    expected = format_problems(children.read_snapshot(), Job.from_fields(devices=devices))
    assert expected
    events = supervised.wait()
    assert [event.cause for event in events if isinstance(event, Failed)] == [expected]
    assert isinstance(events[-1], RunFinished)
    assert (events[-1].outcome, events[-1].cause) == ("failed", expected)


def test_supervisor_trains_on_a_free_exclusive_gpu(stubbed: NvmlStub, start: Start) -> None:
    stubbed.write([make_gpu_profile(0, compute_mode=3)])
    events = start("train 5", 1, devices=(uuid_of(0),)).wait()
    assert isinstance(events[-1], RunFinished)
    assert events[-1].outcome == "completed", events
