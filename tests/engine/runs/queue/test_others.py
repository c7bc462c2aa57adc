"""Runs that wait until no other person's process uses their GPUs."""

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
from engine.runs.queue import Line
from engine.runs.queue import line as line_module
from tests.engine.cli.machines import GIB, gpu, instance, machine
from tests.engine.runs.queue.lines import a_line

ADAS = GpuProcess(123, 12 * GIB, user="ada", name="python")


def seen(*processes: GpuProcess, **changes: Any) -> Snapshot:
    """GPU-0 with those processes, now; `changes` are the snapshot's."""
    row = gpu(0, cuda_index=3, processes=processes)
    return machine(row, **({"time": time.time()} | changes))


@pytest.fixture
def line() -> Iterator[Line]:
    """The line of a run that waits for other people on GPU-0, and that nobody else waits for."""
    line = a_line("one", "GPU-0", "GPU-0", wait_for_others=True)
    yield line
    line.close()


@pytest.fixture
def somebodys_pid() -> Iterator[int]:
    """The pid of a living process of another user's."""
    if os.getuid() != 0:
        yield 1
        return
    with subprocess.Popen(["sleep", "600"], user=65534) as process:
        yield process.pid
        process.kill()


def test_that_a_run_waits_for_another_persons_process_and_says_whose_it_is(line: Line) -> None:
    assert line.step(seen(ADAS)) == Waiting(position=1, others=("ada: python (pid 123) uses 12.0 GiB of GPU 3",))
    more = GpuProcess(123, 13 * GIB, user="ada", name="python")
    assert line.step(seen(more)) is None, "nobody has come or gone"
    other = GpuProcess(124, GIB, user="bob", name="train")
    told = line.step(seen(more, other))
    assert told is not None
    assert told.others[1] == "bob: train (pid 124) uses 1.0 GiB of GPU 3"
    assert not line.turn
    assert line.step(seen()) is None
    assert line.turn
    assert line.warning == ""


def test_that_the_other_person_is_found_by_the_pid_where_the_snapshot_tells_no_more(
    line: Line, somebodys_pid: int
) -> None:
    told = line.step(seen(GpuProcess(somebodys_pid, GIB)))
    owner = psutil.Process(somebodys_pid)
    assert told is not None
    assert told.others == (f"{owner.username()}: {owner.name()} (pid {somebodys_pid}) uses 1.0 GiB of GPU 3",)


def test_that_the_users_own_processes_displays_and_those_that_have_ended_are_not_waited_for(line: Line) -> None:
    with subprocess.Popen(["true"]) as process:
        process.wait()
    own = psutil.Process()
    line.step(
        seen(
            GpuProcess(own.pid, GIB),
            GpuProcess(5, GIB, user=own.username(), name="python"),
            GpuProcess(6, GIB, user="gdm", name="gnome-shell", kind="graphics"),
            GpuProcess(process.pid, GIB),
        )
    )
    assert line.turn


def test_that_other_gpus_are_no_matter(line: Line) -> None:
    line.step(machine(gpu(0, processes=()), gpu(1, processes=(ADAS,)), time=time.time()))
    assert line.turn


def test_that_a_gpu_that_is_asleep_is_nobodys(line: Line) -> None:
    line.step(machine(gpu(0, processes=None, asleep=True), time=time.time()))
    assert line.turn


def test_that_an_instance_of_a_gpu_is_called_by_its_id() -> None:
    slice_of_it = instance(gpu(0), 1, processes=(ADAS,))
    line = a_line("one", slice_of_it.uuid, wait_for_others=True)
    told = line.step(machine(slice_of_it, time=time.time()))
    assert told is not None
    assert told.others[0].endswith(f"of {slice_of_it.uuid}")
    line.close()


def test_that_in_a_container_every_process_outside_of_it_is_waited_for(line: Line) -> None:
    told = line.step(seen(GpuProcess(os.getpid(), GIB), foreign_pids=True))
    assert told is not None
    assert told.others == (f"a process outside this container (pid {os.getpid()} there) uses 1.0 GiB of GPU 3",)


@pytest.mark.parametrize(
    ("snapshot", "words"),
    [
        (lambda: None, "Who uses GPU-0 can't be determined."),
        (lambda: seen(ADAS, time=time.time() - 60), "Who uses GPU-0 can't be determined."),
        (
            lambda: seen(ADAS, nvml=Nvml("not_answering", "NVML is not answering.")),
            "Who uses GPU-0 can't be determined.",
        ),
        (lambda: machine(time=time.time()), "Who uses GPU-0 can't be determined."),
        (lambda: machine(gpu(0, processes=None), time=time.time()), "Who uses GPU 0 can't be determined."),
        (
            lambda: seen(GpuProcess(123, None, user="ada", name="python")),
            "How much of GPU 3 ada: python (pid 123) uses can't be determined.",
        ),
    ],
    ids=["no snapshot", "an old one", "NVML hangs", "GPU missing", "no processes", "no memory"],
)
def test_that_what_cannot_be_seen_is_said_and_not_waited_for_without_end(
    line: Line, snapshot: Any, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert line.step(snapshot()) == Waiting(position=1, others=(words,))
    assert line.step(snapshot()) is None
    assert not line.turn
    monkeypatch.setattr(line_module, "UNSEEN_S", 0.0)
    line.step(snapshot())
    assert line.turn
    assert line.warning == f"{words} The run starts without waiting for other users."


def test_that_a_run_that_waits_for_others_keeps_its_place_in_line(line: Line) -> None:
    line.step(seen(ADAS))
    after = a_line("after", "GPU-0")
    assert after.step() == Waiting(position=2, behind=("one",))
    line.step(seen())
    assert line.turn
    after.close()


def test_that_nobody_looks_for_others_who_was_not_asked_to_or_uses_no_gpu() -> None:
    for line in (a_line("one", "GPU-0"), a_line("two", "cpu", wait_for_others=True)):
        line.step(seen(ADAS))
        assert line.turn
        line.close()
