"""Trials of a search, as read from the logs of their runs."""

from __future__ import annotations

import os
from typing import Any

import pytest

from engine.advisor.search import trial_handle
from engine.advisor.search.trial_handle import TrialHandle
from engine.contract.events import AnyEvent, Failed, PhaseChanged, RunFinished, RunStarted, Validation, Waiting
from engine.contract.protocol import Command, Pause, Stop
from engine.contract.search import Search, Trial, TrialRow
from engine.runs.folder import RunFolder, create_run
from tests.gui.sources.written_runs import append_events, make_plan, supervise_here
from tests.support.clock import Clock
from tests.support.searches import make_small_job, make_small_search


def start_event(time: float = 0.0, execution: int = 1) -> RunStarted:
    return RunStarted(
        run_id="", job=make_small_job(), devices=(), world_size=1, environment={}, supervisor_pid=1, execution=execution, time=time
    )  # fmt: skip


def validation_event(epoch: int, time: float, **measures: float) -> Validation:
    return Validation(epoch=epoch, step=epoch, measures=measures, images=1, seconds=0.1, time=time)


PLAN = make_plan(time=10.0)
TWO_EPOCHS = [
    start_event(),
    PLAN,
    validation_event(1, 15.0, top1=0.9, loss=0.7),
    validation_event(3, 20.0, top1=0.8, loss=0.4),
]
DONE = RunFinished(outcome="completed", time=21.0)
STOPPED = RunFinished(outcome="stopped", time=21.0)
AGAIN = [start_event(execution=2, time=50.0), make_plan(time=60.0), validation_event(4, 67.0, top1=0.1, loss=0.9)]


def make_handle(search: Search, logged: list[AnyEvent], **trial: Any) -> tuple[TrialHandle, RunFolder]:
    run = create_run(search.job)
    append_events(run, *logged)
    return TrialHandle(search, run, Trial(**({"search": "small", "number": 4, "params": {}, "seed": 0} | trial))), run


@pytest.mark.parametrize(
    ("goals", "logged", "expected"),
    [
        (["top1"], TWO_EPOCHS, {"state": "running", "values": (0.9,), "epoch": 3, "seconds": 10.0}),
        (["loss"], [*TWO_EPOCHS, DONE], {"state": "completed", "values": (0.4,), "epoch": 3, "seconds": 10.0}),
        (["seconds", "loss", "top1"], [*TWO_EPOCHS, DONE],
         {"state": "completed", "values": (10.0, 0.4, 0.8), "epoch": 3, "seconds": 10.0, "reported": {}}),
        (["parameters", "top1"], [*TWO_EPOCHS, DONE],
         {"state": "completed", "values": (1000.0, 0.9), "epoch": 3, "seconds": 10.0, "reported": {}}),
        (["top1"], [start_event(), Waiting(position=1)], {"state": "waiting"}),
        (["top1"], [start_event(), Waiting(position=1), PhaseChanged(phase="starting")], {"state": "running"}),
        (["top1"], [*TWO_EPOCHS, STOPPED, *AGAIN],
         {"state": "running", "values": (0.9,), "epoch": 4, "seconds": 17.0, "reported": {1: 0.9, 3: 0.8, 4: 0.1}}),
        (["top1"], [start_event(), PLAN, validation_event(1, 15.0, loss=0.7), DONE],
         {"state": "failed", "epoch": 1, "seconds": 5.0, "reported": {}, "cause": "It has no finite value of Top-1 accuracy."}),
        (["seconds", "top1", "loss"], [start_event(), PLAN, validation_event(1, 15.0), DONE],
         {"state": "failed", "values": (5.0, None, None), "epoch": 1, "seconds": 5.0, "reported": {},
          "cause": "It has no finite value of Top-1 accuracy."}),
        (["top1"], [start_event(), Failed(cause="It is late."), RunFinished(outcome="failed")],
         {"state": "failed", "cause": "It is late."}),
        (["top1"], [start_event(), Failed(cause="It is late."), STOPPED, start_event(execution=2)],
         {"state": "running", "cause": ""}),
        (["top1"], [*TWO_EPOCHS, RunFinished(outcome="unsaved", cause="The disk is full.")],
         {"state": "failed", "values": (0.9,), "epoch": 3, "seconds": 10.0, "cause": "The disk is full."}),
    ],
)  # fmt: skip
def test_row_follows_the_log(goals: list[str], logged: list[AnyEvent], expected: dict[str, Any]) -> None:
    handle, run = make_handle(make_small_search(goals=goals), logged)
    reported = {1: 0.9, 3: 0.8} if goals[0] == "top1" else {1: 0.7, 3: 0.4}
    plain = {"values": (None,) * len(goals), "reported": reported if "values" in expected else {}}
    row = TrialRow(number=4, run_id=run.run_id, params={}, **({"epochs": 3} | plain | expected))  # type: ignore[arg-type]
    assert handle.row == row


@pytest.mark.parametrize(("finished", "state"), [(DONE, "completed"), (STOPPED, "pruned")])
def test_only_stopped_trials_are_pruned(finished: RunFinished, state: str) -> None:
    handle, _run = make_handle(make_small_search(), TWO_EPOCHS, pruned=True)
    append_events(_run, finished)
    assert (handle.poll(), handle.row.state, handle.row.epoch, handle.row.seconds) == (True, state, 3, 10.0)
    assert not handle.poll()


@pytest.mark.parametrize("restarts", [0, 2])
def test_interrupted_trial_is_resumed_on_other_devices(restarts: int) -> None:
    search = make_small_search(make_small_job(restarts=restarts, strategy="auto"))
    _, run = make_handle(search, TWO_EPOCHS)
    os.utime(run.job_file, (0, 0))
    handle = TrialHandle(search, run, Trial(search="small", number=4, params={}, seed=0))
    handle.poll()
    assert handle.row.state == "interrupted"
    started: list[RunFolder] = []
    handle.resume(("cpu", "cpu"), started.append)
    handle.poll()
    job = run.job()
    devices = ("cpu",) * (2 if restarts else 1)
    assert (started, handle.restarts_left) == (([run], 1) if restarts else ([], 0))
    assert (handle.row.state, handle.devices) == ("running" if restarts else "failed", devices)
    assert job is not None
    assert job.parallel.devices == devices


def test_log_is_read_again_once_the_supervisor_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    handle, _ = make_handle(make_small_search(), TWO_EPOCHS)

    def end(run: RunFolder) -> str:
        append_events(run, DONE)
        return "completed"

    monkeypatch.setattr(RunFolder, "state", end)
    handle.poll()
    assert handle.row.state == "completed"


def test_command_is_sent_once_per_execution(monkeypatch: pytest.MonkeyPatch) -> None:
    handle, run = make_handle(make_small_search(), TWO_EPOCHS)
    clock, sent = Clock(100.0), list[Command]()

    def send(_run: RunFolder, command: Command) -> None:
        sent.append(command)
        if len(sent) == 1:
            raise ConnectionRefusedError

    monkeypatch.setattr(trial_handle, "send", send)
    monkeypatch.setattr(trial_handle, "time", clock)
    for _ in range(2):
        handle.send(Pause())
    assert len(sent) == 1, "it is too early for another attempt"
    for command in (Pause(), Pause(), Stop()):
        clock.now += 3.0
        handle.send(command)
    assert sent == [Pause(), Pause(), Stop()]
    append_events(run, RunFinished(outcome="paused"))
    handle.poll()
    handle.resume(("cpu",), lambda run: None)
    clock.now += 3.0
    handle.send(Stop())
    assert sent[3:] == [Stop()]
    handle.poll()
    assert handle.row.state == "running"


def test_trial_that_cannot_be_resumed_has_failed() -> None:
    handle, run = make_handle(make_small_search(), [*TWO_EPOCHS, RunFinished(outcome="paused")])
    run.job_file.write_text("epochs = ")
    handle.resume(("cpu",), lambda run: None)
    handle.poll()
    assert (handle.row.state, handle.row.cause != "") == ("failed", True)
    unreadable = TrialHandle(make_small_search(), run, handle.trial)
    assert (unreadable.row.state, unreadable.row.cause) == ("failed", "Its job can't be read.")
    assert (unreadable.devices, unreadable.restarts_left) == (None, 0)


def test_checkpoints_are_deleted_after_the_supervisor_has_exited() -> None:
    handle, run = make_handle(make_small_search(), [*TWO_EPOCHS, DONE])
    (run.checkpoints / "last.pt").touch()
    supervise_here(run)
    handle.delete_checkpoints()
    assert (handle.is_cleared, (run.checkpoints / "last.pt").exists()) == (False, True)
    run.supervisor_file.unlink()
    handle.delete_checkpoints()
    assert (handle.is_cleared, (run.checkpoints / "last.pt").exists()) == (True, False)
