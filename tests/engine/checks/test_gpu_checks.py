"""Reasons why a listed GPU can't be used: permissions, CUDA_VISIBLE_DEVICES, MIG and compute modes."""

from __future__ import annotations

import pytest

from engine.checks.gpu_checks import describe_lost_gpus, gpu_problems
from engine.contract.devices import Gpu, GpuProcess, Nvml, Snapshot, Xid
from engine.contract.job import Job
from engine.contract.problems import Problem
from tests.engine.checks.machines import CU132, gpu, held_by, instance, machine

PARENT = gpu(0, cuda_index=None, mig_enabled=True)
ONE, TWO = instance(7, PARENT), instance(9, PARENT)
THREE = (gpu(0, cuda_index=2), gpu(1, cuda_index=0), gpu(2, cuda_index=1))
"""GPUs whose order in CUDA differs from that in NVML."""


def problems(
    snapshot: Snapshot, *chosen: Gpu, environment: dict[str, str] | None = None, **job: object
) -> list[Problem]:
    devices = tuple(gpu.uuid for gpu in chosen or snapshot.gpus)
    return gpu_problems(Job.from_fields(devices=devices, **job), snapshot, CU132, environment or {})  # type: ignore[arg-type]


def find_rejected_gpus(snapshot: Snapshot, **environment: str) -> list[int]:
    """Return the NVML indices of the GPUs that the checks reject.

    `environment` holds environment variables such as CUDA_VISIBLE_DEVICES.
    """
    return [gpu.nvml_index for gpu in snapshot.gpus if problems(snapshot, gpu, environment=environment)]


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
def test_visible_devices_hides_the_same_gpus_as_cuda(value: str, order: str, expected: list[int]) -> None:
    orders = {"CUDA_DEVICE_ORDER": order} if order else {}
    assert find_rejected_gpus(machine(*THREE), CUDA_VISIBLE_DEVICES=value, **orders) == expected


def test_visible_numbers_hide_nothing_in_unknown_order() -> None:
    unknown = machine(gpu(0, cuda_index=None), gpu(1, cuda_index=None))
    assert find_rejected_gpus(unknown, CUDA_VISIBLE_DEVICES="1") == []
    assert find_rejected_gpus(unknown, CUDA_VISIBLE_DEVICES="2") == [0, 1]
    assert find_rejected_gpus(machine(gpu(0, cuda_index=None)), CUDA_VISIBLE_DEVICES="0") == []


def test_instances_are_visible_by_name_and_by_parent() -> None:
    snapshot = machine(PARENT, ONE, TWO)

    def visible(value: str) -> list[Gpu]:
        return [one for one in (ONE, TWO) if not problems(snapshot, one, environment={"CUDA_VISIBLE_DEVICES": value})]

    assert visible(ONE.uuid) == [ONE]
    assert visible(f"MIG-{PARENT.uuid}/9/0") == [TWO]
    assert visible(PARENT.uuid) == visible("0") == [ONE, TWO]
    assert visible("") == []


def test_hidden_gpu_problem_names_visible_gpus() -> None:
    (problem,) = problems(machine(*THREE), environment={"CUDA_VISIBLE_DEVICES": "1"})
    assert "GPU 2 and GPU 0" in problem.message
    assert "GPU 1" in problem.remedy
    (problem,) = problems(machine(*THREE), environment={"CUDA_VISIBLE_DEVICES": ""})
    assert "GPU" not in problem.remedy
    assert problem.remedy.endswith(": unset CUDA_VISIBLE_DEVICES")
    divided = machine(gpu(0, cuda_index=1), gpu(1, cuda_index=0, mig_enabled=True))
    (problem,) = problems(divided, divided.gpus[0], environment={"CUDA_VISIBLE_DEVICES": "0"})
    assert "GPU" not in problem.remedy


def test_prohibited_gpu_has_a_command() -> None:
    closed = (gpu(1, cuda_index=7, compute_mode="prohibited"), gpu(2, compute_mode="prohibited"))
    (problem,) = problems(machine(gpu(0), *closed, gpu(3, lost=True, compute_mode="prohibited")))
    assert "GPU 7 and GPU 2" in problem.message
    assert problem.remedy.endswith(": sudo nvidia-smi -i 1,2 -c DEFAULT")
    parent = gpu(compute_mode="prohibited", mig_enabled=True)
    assert problems(machine(parent, instance(7, parent)), instance(7, parent))


def test_exclusive_gpu_is_blocked_by_its_process() -> None:
    taken = gpu(1, compute_mode="exclusive_thread", processes=held_by("python"))
    (problem,) = problems(machine(gpu(0, processes=held_by("python")), taken))
    assert "GPU 1 is in use by python (pid 4242, ada)" in problem.message
    assert problem.remedy.endswith(": sudo nvidia-smi -i 1 -c DEFAULT")


@pytest.mark.parametrize(
    ("holders", "job", "refused"),
    [
        ((), {}, False),
        ((GpuProcess(7, name="Xorg", kind="graphics"),), {}, False),
        ((GpuProcess(7, name="blender", kind="both"),), {}, True),
        (held_by("footplate-w0"), {}, False),  # the queue waits for it
        (held_by("footplate-w0"), {"start": "at_once"}, True),
        (held_by("footplate-w0", "python"), {}, True),
        (held_by("python"), {"wait_for_others": True}, False),
        (held_by(None), {}, True),
        (None, {}, False),
    ],
)
def test_exclusive_gpu_is_free_for_a_waiting_run(
    holders: tuple[GpuProcess, ...] | None, job: dict[str, object], refused: bool
) -> None:
    taken = gpu(compute_mode="exclusive_process", processes=holders)
    assert bool(problems(machine(taken), **job)) == refused


def test_denied_device_files_are_named() -> None:
    denied = Nvml("ok", denied_files=("/dev/nvidia-uvm", "/dev/nvidia3", "/dev/nvidiactl"))
    (problem,) = problems(machine(nvml=denied))
    assert "/dev/nvidia-uvm and /dev/nvidiactl" in problem.message
    assert "/dev/nvidia3" not in problem.message
    assert problems(machine(nvml=Nvml("ok", denied_files=("/dev/nvidia3",)))) == []


def test_mig_parent_is_refused_but_not_its_instance() -> None:
    snapshot = machine(PARENT, ONE, TWO, gpu(1))
    (problem,) = problems(snapshot, PARENT)
    assert "GPU 0 (MIG)" in problem.message
    assert problem.remedy.endswith(": sudo nvidia-smi -i 0 -mig 0")
    assert problems(snapshot, ONE) == problems(snapshot, gpu(1)) == []
    old = gpu(0, cuda_index=None, mig_enabled=True, compute_capability=(6, 1))
    assert problems(machine(old, ONE), ONE) != [], "torch's build needs newer GPUs"
    of_two = problems(machine(old, ONE, TWO), ONE, TWO)
    assert {problem.remedy.endswith("-mig 0") for problem in of_two} == {True, False}


@pytest.mark.parametrize("strategy", ["ddp", "dp", "fsdp", "pipeline", "model_parallel"])
@pytest.mark.parametrize("devices", [(ONE.uuid, TWO.uuid), (ONE.uuid, gpu(1).uuid)])
def test_instance_excludes_other_gpus(strategy: str, devices: tuple[str, ...]) -> None:
    (problem,) = gpu_problems(Job.from_fields(devices=devices, strategy=strategy), None, CU132, {})
    assert problem.field == "devices"
    assert problem.remedy.endswith(": sudo nvidia-smi -mig 0")
    assert gpu_problems(Job.from_fields(devices=devices[:1], strategy=strategy), None, CU132, {}) == []


def test_lost_gpus_are_named_with_their_xids() -> None:
    lost_gpu = gpu(1, lost=True, xids=(Xid(1.0, 31), Xid(2.0, 79), Xid(2.5, 79)))
    off_the_bus = gpu(2, xids=(Xid(3.0, 79),))
    state = machine(gpu(0, xids=(Xid(1.0, 31),)), lost_gpu, off_the_bus)
    unlisted = "GPU-3aaaaaaa-1111-2222-3333-444444444444"
    found = describe_lost_gpus(
        (gpu(0).uuid, lost_gpu.uuid, off_the_bus.uuid, unlisted, "cpu", "ws1:GPU-elsewhere"), state
    )
    assert list(found) == [lost_gpu.uuid, off_the_bus.uuid, unlisted]
    assert "GPU 1" in found[lost_gpu.uuid]
    assert "(Xid 31, 79)" in found[lost_gpu.uuid]
    assert unlisted in found[unlisted]


def test_no_gpu_counts_as_lost_while_nvml_fails() -> None:
    assert describe_lost_gpus((gpu(0).uuid,), machine(gpu(1), nvml=Nvml("not_answering"))) == {}
    assert describe_lost_gpus((gpu(0).uuid,), None) == {}
