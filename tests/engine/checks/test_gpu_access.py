"""What keeps CUDA off GPUs that NVML shows: permissions, CUDA_VISIBLE_DEVICES, MIG, compute modes."""

from __future__ import annotations

import pytest

from engine.checks.gpu_support import gpu_problems
from engine.contract.devices import Gpu, GpuProcess, Nvml, Snapshot
from engine.contract.job import Job
from engine.contract.problems import Problem
from tests.engine.checks.machines import CU132, gpu, held_by, instance, machine

WHOLE = gpu(0, cuda_index=None, mig_enabled=True)
ONE, TWO = instance(7, WHOLE), instance(9, WHOLE)
THREE = (gpu(0, cuda_index=2), gpu(1, cuda_index=0), gpu(2, cuda_index=1))
"""As CUDA counts the fastest first."""


def problems(seen: Snapshot, *chosen: Gpu, environment: dict[str, str] | None = None, **job: object) -> list[Problem]:
    devices = tuple(gpu.uuid for gpu in chosen or seen.gpus)
    return gpu_problems(Job.from_fields(devices=devices, **job), seen, CU132, environment or {})  # type: ignore[arg-type]


def hidden(seen: Snapshot, **environment: str) -> list[int]:
    """The GPUs, as NVML counts them, that are hidden when they are chosen alone."""
    return [gpu.nvml_index for gpu in seen.gpus if problems(seen, gpu, environment=environment)]


@pytest.mark.parametrize(
    ("value", "order", "expected"),
    [
        ("0,1,2", "", []),
        ("0", "", [0, 2]),
        ("2", "", [1, 2]),
        ("0", "PCI_BUS_ID", [1, 2]),
        (" 1 , 0 ", "", [0]),
        ("", "", [0, 1, 2]),
        ("-1", "", [0, 1, 2]),
        ("0,-1,1", "", [0, 2]),
        ("7,0", "", [0, 1, 2]),
        ("NoDevFiles", "", [0, 1, 2]),
        ("GPU-1a,GPU-2aaaaaaa-1111-2222-3333-444444444444", "", [0]),
        ("gpu-1A", "", [0, 2]),
        ("GPU-", "", [0, 1, 2]),
    ],
)
def test_that_cuda_visible_devices_hides_what_cuda_would_not_show(value: str, order: str, expected: list[int]) -> None:
    orders = {"CUDA_DEVICE_ORDER": order} if order else {}
    assert hidden(machine(*THREE), CUDA_VISIBLE_DEVICES=value, **orders) == expected


def test_that_numbers_hide_nothing_while_cudas_order_is_not_known() -> None:
    unknown = machine(gpu(0, cuda_index=None), gpu(1, cuda_index=None))
    assert hidden(unknown, CUDA_VISIBLE_DEVICES="1") == []
    assert hidden(unknown, CUDA_VISIBLE_DEVICES="2") == [0, 1]
    assert hidden(machine(gpu(0, cuda_index=None)), CUDA_VISIBLE_DEVICES="0") == []


def test_that_instances_are_visible_by_their_own_names_and_by_their_gpus() -> None:
    seen = machine(WHOLE, ONE, TWO)

    def visible(value: str) -> list[Gpu]:
        return [one for one in (ONE, TWO) if not problems(seen, one, environment={"CUDA_VISIBLE_DEVICES": value})]

    assert visible(ONE.uuid) == [ONE]
    assert visible(f"MIG-{WHOLE.uuid}/9/0") == [TWO]
    assert visible(WHOLE.uuid) == visible("0") == [ONE, TWO]
    assert visible("") == []


def test_that_hidden_gpus_are_told_with_those_that_are_not_and_what_to_unset() -> None:
    (problem,) = problems(machine(*THREE), environment={"CUDA_VISIBLE_DEVICES": "1"})
    assert problem.message == (
        "Footplate was started with CUDA_VISIBLE_DEVICES set to “1”, which hides GPU 2 and GPU 0."
    )
    assert problem.remedy == "Choose GPU 1, or start Footplate again without it: unset CUDA_VISIBLE_DEVICES"
    (problem,) = problems(machine(*THREE), environment={"CUDA_VISIBLE_DEVICES": ""})
    assert problem.remedy == "Start Footplate again without it: unset CUDA_VISIBLE_DEVICES"


def test_that_a_prohibited_gpu_is_told_with_the_command_that_opens_it() -> None:
    (problem,) = problems(machine(gpu(0), gpu(1, compute_mode="prohibited"), gpu(2, compute_mode="prohibited")))
    assert problem.message == "The compute mode “prohibited” keeps every process off GPU 1 and GPU 2."
    assert problem.remedy == "Choose other devices, or change the mode: sudo nvidia-smi -i 1,2 -c DEFAULT"
    whole = gpu(compute_mode="prohibited", mig_enabled=True)
    assert problems(machine(whole, instance(7, whole)), instance(7, whole))


def test_that_an_exclusive_gpu_is_told_while_somebody_computes_there() -> None:
    taken = gpu(1, compute_mode="exclusive_process", processes=held_by("python"))
    (problem,) = problems(machine(gpu(0, processes=held_by("python")), taken))
    assert problem.message == (
        "GPU 1 is in use by python (pid 4242, ada), and its compute mode “exclusive” allows no other process."
    )
    assert problem.remedy == (
        "Wait until that ends, choose other devices, or change the mode: sudo nvidia-smi -i 1 -c DEFAULT"
    )


@pytest.mark.parametrize(
    ("holders", "job", "refused"),
    [
        ((), {}, False),
        ((GpuProcess(7, name="Xorg", kind="graphics"),), {}, False),
        ((GpuProcess(7, name="blender", kind="both"),), {}, True),
        (held_by("footplate-w0"), {}, False),  # it waits in line for its end
        (held_by("footplate-w0"), {"start": "at_once"}, True),
        (held_by("footplate-w0", "python"), {}, True),
        (held_by("python"), {"wait_for_others": True}, False),
        (held_by(None), {}, True),
        (None, {}, False),
    ],
)
def test_that_an_exclusive_gpu_is_free_for_a_run_that_waits(
    holders: tuple[GpuProcess, ...] | None, job: dict[str, object], refused: bool
) -> None:
    taken = gpu(compute_mode="exclusive_process", processes=holders)
    assert bool(problems(machine(taken), **job)) == refused


def test_that_files_which_cuda_needs_and_may_not_open_are_named() -> None:
    denied = Nvml("ok", denied_files=("/dev/nvidia-uvm", "/dev/nvidia3", "/dev/nvidiactl"))
    (problem,) = problems(machine(nvml=denied))
    assert (
        problem.message == "CUDA needs /dev/nvidia-uvm and /dev/nvidiactl, which this user has no permission to open."
    )
    assert "ls -l /dev/nvidia*" in problem.remedy
    assert problems(machine(nvml=Nvml("ok", denied_files=("/dev/nvidia3",)))) == []


def test_that_a_gpu_with_mig_on_is_refused_and_one_of_its_instances_is_not() -> None:
    seen = machine(WHOLE, ONE, TWO, gpu(1))
    (problem,) = problems(seen, WHOLE)
    assert problem.message == "MIG is on for GPU 0 (MIG), so CUDA can use only MIG instances there."
    assert problem.remedy == "Choose a MIG instance, or turn MIG off: sudo nvidia-smi -i 0 -mig 0"
    assert problems(seen, ONE) == problems(seen, gpu(1)) == []


@pytest.mark.parametrize("strategy", ["ddp", "dp", "fsdp", "pipeline", "model_parallel"])
@pytest.mark.parametrize("devices", [(ONE.uuid, TWO.uuid), (ONE.uuid, gpu(1).uuid)])
def test_that_an_instance_goes_with_no_other_gpu_whatever_the_strategy(strategy: str, devices: tuple[str, ...]) -> None:
    (problem,) = gpu_problems(Job.from_fields(devices=devices, strategy=strategy), None, CU132, {})
    assert problem.field == "devices"
    assert "one MIG instance" in problem.message
    assert problem.remedy == "Choose one MIG instance, or turn MIG off: sudo nvidia-smi -mig 0"
    assert gpu_problems(Job.from_fields(devices=devices[:1], strategy=strategy), None, CU132, {}) == []
