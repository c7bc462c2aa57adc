"""Supervisors that must wait until another run releases its devices."""

from __future__ import annotations

import errno
import fcntl
import os
import selectors
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import ANY

import psutil
import pytest

from engine.cli import main
from engine.contract.devices import Nvml
from engine.contract.events import (
    AnyEvent,
    CommandReceived,
    Failed,
    PhaseChanged,
    RunFinished,
    RunStarted,
    StepMetrics,
    Waiting,
    Warned,
)
from engine.contract.job import Job
from engine.contract.protocol import Stop
from engine.runs.connection import RunConnection
from engine.runs.folder import RunFolder, create_run
from engine.runs.index import find_run
from engine.runs.launch import start_supervisor
from engine.runs.queue import list_holders, list_waiting, move
from engine.supervisor import sampling, start_gate
from engine.supervisor.endpoint import remove_stale_sockets
from engine.supervisor.sampling import Sampler
from engine.supervisor.start_gate import StartGate
from tests.engine.cli.machines import machine
from tests.engine.cli.terminal import footplate
from tests.engine.supervisor.supervised import Start, Supervised, has_exited, make_images
from tests.support.clock import Clock
from tests.support.scripts import write_script
from tests.support.waiting import wait_until


def has(run: RunFolder, kind: type[AnyEvent], **values: object) -> bool:
    return any(
        isinstance(event, kind) and all(getattr(event, name) == value for name, value in values.items())
        for event in run.events()
    )


def wait_for_training(one: Supervised) -> None:
    wait_until(lambda: has(one.run, StepMetrics), f"a step of {one.run.run_id}")


def wait_until_queued(run: RunFolder) -> None:
    wait_until(lambda: run.state() == "waiting", f"{run.run_id} to stand in line")


def stop(run: RunFolder) -> None:
    with RunConnection(run) as connection:
        connection.send(Stop())
        wait_until(lambda: has(run, CommandReceived), "the command to be heeded")


def workers_of(one: Supervised) -> list[psutil.Process]:
    return [child for child in psutil.Process(one.process.pid).children() if child.name().startswith("footplate-w")]


def has_inherited_slot_lock(supervised: Supervised) -> bool:
    """Return True if a child of the supervisor has inherited the open lock file of its queue slot."""

    def has_open(process: psutil.Process) -> bool:
        try:
            return any(".ticket" in file.path for file in process.open_files())
        except psutil.NoSuchProcess:
            return False

    supervisor = psutil.Process(supervised.process.pid)
    assert has_open(supervisor)
    children = supervisor.children()
    assert children
    return any(map(has_open, children))


def end(*supervised: Supervised) -> None:
    for one in supervised:
        one.process.terminate()
    for one in supervised:
        one.process.wait(120)
    remove_stale_sockets()  # of killed supervisors


ENDS: dict[str, Callable[[Supervised], None]] = {
    "stopped": lambda one: stop(one.run),
    "failed": lambda one: workers_of(one)[0].kill(),
    "interrupted": lambda one: one.process.kill(),
}


@pytest.mark.parametrize(("how", "arguments"), [("stopped", ("spawn",)), ("failed", ()), ("interrupted", ())])
def test_run_waits_for_a_device_until_the_other_run_ends(start: Start, how: str, arguments: tuple[str, ...]) -> None:
    first = start("forever", 1, *arguments)
    wait_for_training(first)
    assert not has_inherited_slot_lock(first)
    second = start("forever")
    wait_until_queued(second.run)
    assert list_holders() == {"cpu": (first.run.run_id,)}
    assert workers_of(second) == []
    ENDS[how](first)
    first.process.wait(120)
    assert first.run.state() == how
    wait_for_training(second)
    assert list_holders() == {"cpu": (second.run.run_id,)}
    end(second)
    logged = [
        event for event in second.run.events() if isinstance(event, RunStarted | Waiting | PhaseChanged | RunFinished)
    ]
    assert isinstance(logged[0], RunStarted)
    (waited,) = (event for event in logged if isinstance(event, Waiting))
    assert (waited.position, waited.behind) == (1, (first.run.run_id,))
    assert isinstance(logged[-1], RunFinished)
    assert list_holders() == {}


def test_killed_queued_run_leaves_and_moved_run_starts_first(start: Start) -> None:
    first = start("forever")
    wait_for_training(first)
    lines = []
    for _ in range(3):
        lines.append(start("forever"))
        wait_until_queued(lines[-1].run)
    a, b, c = lines
    a.process.kill()
    a.process.wait()
    assert [ticket.run_id for ticket in list_waiting()] == [b.run.run_id, c.run.run_id]
    assert move(c.run.run_id, -1)
    wait_until(lambda: has(b.run, Waiting, behind=(first.run.run_id, c.run.run_id)), "the second to hear of it")
    end(first)
    wait_for_training(c)
    assert b.run.state() == "waiting"
    end(b, c)


def test_queued_run_is_removed_without_importing_torch(start: Start, capsys: pytest.CaptureFixture[str]) -> None:
    first = start("forever")
    wait_for_training(first)
    run = create_run(Job())
    pid = start_supervisor(run)
    wait_until_queued(run)
    assert "libtorch" not in Path(f"/proc/{pid}/maps").read_text()
    wait_until(lambda: psutil.Process(pid).children() == [], "the sampler to be let go")
    wait_until(lambda: psutil.Process(pid).num_threads() == 1, "its thread to end")
    assert main(["queue", "remove", run.run_id]) == 0
    assert capsys.readouterr().out == f"{run.run_id} is no longer in the queue; it is stopped.\n"
    wait_until(lambda: has_exited(pid), "the supervisor to go")
    assert not run.worker_log(0).exists()
    assert list_waiting() == []
    assert first.run.state() == "running"
    end(first)


@pytest.mark.long
@pytest.mark.faults
def test_queue_continues_after_every_outcome(tmp_path: Path) -> None:
    images = str(make_images(tmp_path / "images"))
    small = ("--model", "mnist_cnn", "--batch-size", "8", "--detach")
    long = ("--epochs", "100000")

    def train(*arguments: str) -> RunFolder:
        answer = footplate("train", images, *small, *arguments)
        assert answer.code == 0, answer.err
        run = find_run(answer.out.strip())
        assert run is not None
        return run

    model = tmp_path / "failing.py"
    model.write_text("import time\ntime.sleep(1)\nraise RuntimeError('out of ideas')\n")
    failing = train("--model", str(model), "--trust-model-file", "--image-size", "32")
    killed, ending, last = train(*long), train("--epochs", "1"), train(*long)
    wait_until(lambda: failing.state() == "failed", "the first to fail")
    wait_until(lambda: has(killed, StepMetrics), "the second to train")
    immediate = train(*long, "--start", "at_once")
    wait_until(lambda: has(immediate, StepMetrics), "one to train beside the second")
    stop(immediate)
    wait_until(lambda: immediate.state() == "stopped", "that one to stop")
    assert (killed.state(), ending.state(), last.state()) == ("running", "waiting", "waiting")
    supervisor = killed.supervisor()
    assert supervisor is not None
    os.kill(supervisor.pid, signal.SIGKILL)
    wait_until(lambda: has(ending, StepMetrics), "the third to train")
    wait_until(lambda: has(last, StepMetrics), "the fourth to train")
    assert (killed.state(), ending.state()) == ("interrupted", "completed")
    stop(last)
    wait_until(lambda: last.state() == "stopped", "the last to stop")
    assert list_holders() == {}
    remove_stale_sockets()


# Without a supervisor


def step_gate(job: Job, *modules: str) -> StartGate:
    """Poll the gate of a new run until it is open or has failed, and return it after it was closed."""
    with selectors.DefaultSelector() as selector:
        gate = StartGate(create_run(job), job, Sampler(selector, ("cpu",), lambda _samples: None), selector, modules)

        def is_done() -> bool:
            gate.step(are_devices_named=True)
            for key, mask in selector.select(0):
                key.data(mask)
            return gate.is_open or gate.failure is not None

        wait_until(is_done, "the gate", 20)
        assert gate.is_open == (gate.failure is None)
        gate.close()
    return gate


@pytest.mark.parametrize(
    ("script", "cause"),
    [
        ("", "No such file or directory"),
        ("exit 3", "The process that downloads the pretrained weights exited with code 3."),
        ("echo '{}'; exit 3", "sent an invalid message"),
        ("""echo '{"type":"failed","cause":"They are gone."}'; exit 3""", "They are gone."),
    ],
)
def test_gate_fails_if_weights_cannot_be_downloaded(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, script: str, cause: str
) -> None:
    program = tmp_path / "python"
    if script:
        write_script(program, script)
    monkeypatch.setattr(sys, "executable", str(program))
    failure = step_gate(Job.from_fields(model="timm:test_resnet", pretrained=True)).failure
    assert failure is not None
    assert failure.field == "pretrained"
    assert cause in failure.cause


@pytest.mark.parametrize(
    "fields", [{"resume_from": "/last.pt"}, {"weights_file": "/weights.pt"}, {"pretrained": False}]
)
def test_gate_downloads_no_unused_weights(monkeypatch: pytest.MonkeyPatch, fields: dict[str, Any]) -> None:
    monkeypatch.setattr(sys, "executable", "/no/such/python")
    job = Job.from_fields(model="timm:test_resnet", pretrained=True)
    assert step_gate(job.with_fields(**fields)).failure is None


def test_gate_fails_if_modules_or_the_queue_cannot_be_used(monkeypatch: pytest.MonkeyPatch) -> None:
    assert step_gate(Job(), "json", "selectors").failure is None
    failure = step_gate(Job(), "json", "no_such_module").failure
    assert failure is not None
    assert "PyTorch could not be imported: ModuleNotFoundError: No module named 'no_such_module'" in failure.cause

    def refuse(_descriptor: int, _operation: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refuse)
    assert step_gate(Job.from_fields(start="at_once")).take_events() == [Warned(code="queue", message=ANY)]
    assert step_gate(Job()).failure is not None


@pytest.mark.parametrize(
    ("device", "problem", "status", "waits_s", "failure"),
    [
        ("GPU-1", "", "ok", 0.0, None),
        ("GPU-1", "", "not_answering", start_gate.GPU_STATE_S, None),
        ("GPU-1", "", None, start_gate.GPU_STATE_S, None),
        ("GPU-1", "GPU 1 is in use.", "ok", start_gate.GPU_PROBLEM_S, Failed(cause="GPU 1 is in use.")),
        ("node1:GPU-1", "GPU 1 is in use.", "ok", 0.0, None),  # the other machine checks it
    ],
)
def test_gate_waits_until_the_gpus_are_usable(
    monkeypatch: pytest.MonkeyPatch, *, device: str, problem: str, status: Any, waits_s: float, failure: Failed | None
) -> None:
    clock = Clock(100.0)
    monkeypatch.setattr(start_gate, "time", clock)
    monkeypatch.setattr(sampling, "time", clock)
    monkeypatch.setattr(sampling, "LineChild", lambda *_, **__: SimpleNamespace(close=lambda: None))
    monkeypatch.setattr(start_gate, "gpu_problems", lambda *_: [problem] if problem else [])
    job = Job.from_fields(devices=(device,), start="at_once")
    with selectors.DefaultSelector() as selector:
        sampler = Sampler(selector, job.parallel.devices, lambda _samples: None)
        gate = StartGate(create_run(job), job, sampler, selector, ())
        sampler.add(machine(nvml=Nvml("ok")))  # from before the run has its slot
        gate.step(are_devices_named=True)
        clock.now += 0.1
        if status is not None:
            sampler.add(machine(nvml=Nvml(status)))
        clock.now = 100.0 + waits_s
        if waits_s:
            gate.step(are_devices_named=True)
            assert (gate.is_open, gate.failure) == (False, None)
        clock.now += 0.1
        gate.step(are_devices_named=True)
        gate.close()
    assert (gate.is_open, gate.failure) == (failure is None, failure)
