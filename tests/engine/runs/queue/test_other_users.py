"""Runs that wait in the queue because processes of another user occupy their GPUs."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from typing import Any

import psutil
import pytest

from engine.contract.devices import GpuProcess, Nvml, Snapshot
from engine.contract.events import Waiting
from engine.runs.queue import QueueSlot
from engine.runs.queue import slot as slot_module
from tests.engine.cli.machines import GIB, gpu, instance, machine
from tests.engine.runs.queue.slots import make_slot
from tests.support.clock import Clock

ADAS = GpuProcess(123, 12 * GIB, user="ada", name="python")


def make_gpu_0_snapshot(*processes: GpuProcess, **changes: Any) -> Snapshot:
    """Return a snapshot of GPU-0 with these processes. `changes` override fields of the GPU."""
    row = gpu(0, cuda_index=3, processes=processes)
    return machine(row, **({"time": time.time()} | changes))


@pytest.fixture
def slot() -> Iterator[QueueSlot]:
    """Yield the slot of a run that waits for another user's processes on GPU-0."""
    slot = make_slot("one", "GPU-0", "GPU-0", wait_for_others=True)
    yield slot
    slot.close()


@pytest.fixture
def other_users_pid() -> Iterator[int]:
    """Yield the pid of a live process of another user."""
    if os.getuid() != 0:
        yield 1
        return
    with subprocess.Popen(["sleep", "600"], user=65534) as process:
        yield process.pid
        process.kill()


def test_slot_waits_for_another_users_process(slot: QueueSlot) -> None:
    assert slot.poll(make_gpu_0_snapshot(ADAS)) == Waiting(
        position=1, others=("ada: python (pid 123) uses 12.0 GiB of GPU 3",)
    )
    more = GpuProcess(123, 13 * GIB, user="ada", name="python")
    assert slot.poll(make_gpu_0_snapshot(more)) is None
    other = GpuProcess(124, GIB, user="bob", name="train")
    waiting = slot.poll(make_gpu_0_snapshot(more, other))
    assert waiting is not None
    assert waiting.others[1] == "bob: train (pid 124) uses 1.0 GiB of GPU 3"
    assert not slot.has_devices
    assert slot.poll(make_gpu_0_snapshot()) is None
    assert slot.has_devices
    assert slot.warning == ""


def test_other_users_are_found_by_pid(slot: QueueSlot, other_users_pid: int) -> None:
    waiting = slot.poll(make_gpu_0_snapshot(GpuProcess(other_users_pid, GIB)))
    owner = psutil.Process(other_users_pid)
    assert waiting is not None
    assert waiting.others == (f"{owner.username()}: {owner.name()} (pid {other_users_pid}) uses 1.0 GiB of GPU 3",)


def test_slot_ignores_own_display_and_ended_processes(slot: QueueSlot) -> None:
    with subprocess.Popen(["true"]) as process:
        process.wait()
    current = psutil.Process()
    slot.poll(
        make_gpu_0_snapshot(
            GpuProcess(current.pid, GIB),
            GpuProcess(5, GIB, user=current.username(), name="python"),
            GpuProcess(6, GIB, user="gdm", name="gnome-shell", kind="graphics"),
            GpuProcess(process.pid, GIB),
        )
    )
    assert slot.has_devices


def test_slot_ignores_other_gpus(slot: QueueSlot) -> None:
    slot.poll(machine(gpu(0, processes=()), gpu(1, processes=(ADAS,)), time=time.time()))
    assert slot.has_devices


def test_slot_takes_sleeping_gpu(slot: QueueSlot) -> None:
    slot.poll(machine(gpu(0, processes=None, asleep=True), time=time.time()))
    assert slot.has_devices


def test_mig_instance_is_named_by_uuid() -> None:
    slice_of_it = instance(gpu(0), 1, processes=(ADAS,))
    slot = make_slot("one", slice_of_it.uuid, wait_for_others=True)
    waiting = slot.poll(machine(slice_of_it, time=time.time()))
    assert waiting is not None
    assert waiting.others[0].endswith(f"of {slice_of_it.uuid}")
    slot.close()


def test_slot_in_container_waits_for_all_outside_processes(slot: QueueSlot) -> None:
    waiting = slot.poll(make_gpu_0_snapshot(GpuProcess(os.getpid(), GIB), foreign_pids=True))
    assert waiting is not None
    assert waiting.others == (f"a process outside this container (pid {os.getpid()} there) uses 1.0 GiB of GPU 3",)


@pytest.mark.parametrize(
    ("snapshot", "text"),
    [
        (lambda: None, "Who uses GPU-0 can't be determined."),
        (lambda: make_gpu_0_snapshot(ADAS, time=time.time() - 60), "Who uses GPU-0 can't be determined."),
        (
            lambda: make_gpu_0_snapshot(ADAS, nvml=Nvml("not_answering", "NVML is not answering.")),
            "Who uses GPU-0 can't be determined.",
        ),
        (lambda: machine(time=time.time()), "Who uses GPU-0 can't be determined."),
        (lambda: machine(gpu(0, processes=(), lost=True), time=time.time()), "Who uses GPU-0 can't be determined."),
        (lambda: machine(gpu(0, processes=None), time=time.time()), "Who uses GPU 0 can't be determined."),
        (
            lambda: make_gpu_0_snapshot(GpuProcess(123, None, user="ada", name="python")),
            "How much of GPU 3 ada: python (pid 123) uses can't be determined.",
        ),
    ],
    ids=["no snapshot", "an old one", "NVML hangs", "GPU missing", "GPU lost", "no processes", "no memory"],
)
def test_slot_starts_after_timeout_with_unknown_users(
    slot: QueueSlot, snapshot: Any, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert slot.poll(snapshot()) == Waiting(position=1, others=(text,))
    assert slot.poll(snapshot()) is None
    assert not slot.has_devices
    monkeypatch.setattr(slot_module, "UNKNOWN_USERS_TIMEOUT_S", 0.0)
    slot.poll(snapshot())
    assert slot.has_devices
    assert slot.warning == f"{text} The run starts without waiting for other users."


def test_timeout_of_unknown_users_restarts_once_they_are_known(
    slot: QueueSlot, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slot_module, "time", clock := Clock(time.time()))
    slot.poll()
    slot.poll(make_gpu_0_snapshot(ADAS))
    for seconds, has_devices in ((9, False), (9, False), (2, True)):
        clock.now += seconds
        slot.poll()
        assert slot.has_devices is has_devices


def test_slot_keeps_position_while_it_waits_for_others(slot: QueueSlot) -> None:
    slot.poll(make_gpu_0_snapshot(ADAS))
    after = make_slot("after", "GPU-0")
    assert after.poll() == Waiting(position=2, behind=("one",))
    slot.poll(make_gpu_0_snapshot())
    assert slot.has_devices
    after.close()


def test_slot_ignores_others_unless_requested_on_gpus() -> None:
    slots = make_slot("one", "GPU-0"), *(make_slot(each, each, wait_for_others=True) for each in ("cpu", "b:GPU-0"))
    for slot in slots:
        slot.poll(make_gpu_0_snapshot(ADAS))
        assert slot.has_devices
        slot.close()
