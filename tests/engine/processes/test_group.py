"""Groups of scripted workers: order of messages, end of the stream, and exit."""

from __future__ import annotations

import os
import selectors
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from engine.contract.events import AnyEvent, Failed, FailureKind, LogLine, Warned
from engine.contract.job import Job
from engine.contract.protocol import Command, FrameError, Stop
from engine.contract.worker import Heartbeat, WorkerDone
from engine.processes import group as group_module
from engine.processes.group import Group
from engine.processes.watchdog import LIMITS
from engine.processes.worker_process import FromWorker
from engine.system import plugins
from tests.support.clock import Clock
from tests.support.specs import make_worker_spec


class ScriptedWorker:
    """Worker that returns or raises one of `messages` per call of `receive`, and then the end of the stream."""

    pid = 0
    is_stopped_for_another = False

    def __init__(self, rank: int, *messages: FromWorker | Exception) -> None:
        self.rank = rank
        self.log = Path(f"worker-{rank}.log")
        self.exit_code: int | None = None
        self.done: WorkerDone | None = None
        self.messages = list(messages)
        self.channel: object | None = object()
        self.commands: list[Command] = []
        self.signals: list[bool] = []

    def listen(self, selector: selectors.BaseSelector, on_readable: Callable[[], None]) -> None:
        self.on_readable = on_readable

    def poll(self) -> int | None:
        return self.exit_code

    def receive(self) -> list[FromWorker]:
        if not self.messages:
            self.channel = None
            return []
        message = self.messages.pop(0)
        if isinstance(message, Exception):
            raise message
        return [message]

    def send(self, message: Command) -> None:
        self.commands.append(message)

    def kill(self, *, hard: bool) -> None:
        self.signals.append(hard)

    def close(self) -> None:
        self.channel = None

    def read_all(self) -> None:
        while self.channel is not None:
            self.on_readable()


DONE = WorkerDone(stopped=False)


@pytest.fixture
def events() -> list[AnyEvent]:
    return []


def group_of(events: list[AnyEvent], *workers: ScriptedWorker) -> Group:
    group = Group(events.append, selectors.DefaultSelector(), LIMITS)
    group.adopt(workers)
    return group


def test_group_waits_for_messages_after_the_exit(events: list[AnyEvent]) -> None:
    worker = ScriptedWorker(0, LogLine(text="last words"), DONE)
    group = group_of(events, worker)
    worker.exit_code = 0
    assert not group.is_gone
    group.watch()
    assert group.is_gone
    assert group.is_completed
    assert [event.text for event in events if isinstance(event, LogLine)] == ["last words"]


@pytest.mark.parametrize("exit_code", [0, 3])
@pytest.mark.parametrize("is_stopped_for_another", [False, True])
def test_group_waits_for_exit_after_the_last_message(
    events: list[AnyEvent], exit_code: int, is_stopped_for_another: bool
) -> None:
    worker = ScriptedWorker(0, DONE)
    group = group_of(events, worker)
    worker.read_all()
    assert group.is_ending
    assert not group.is_gone
    worker.exit_code, worker.is_stopped_for_another = exit_code, is_stopped_for_another
    group.watch()
    assert group.is_gone
    assert (group.failure is None) == (exit_code == 0 or is_stopped_for_another)


@pytest.mark.parametrize(("kind", "timeout_s"), [("fault", 5.0), ("error", 0.5)])
def test_group_waits_for_the_root_cause(
    events: list[AnyEvent], monkeypatch: pytest.MonkeyPatch, kind: FailureKind, timeout_s: float
) -> None:
    """A lost connection may follow from a failure that is reported later; other errors are likely the cause."""
    monkeypatch.setattr(group_module, "time", clock := Clock(100.0))
    failed = Failed(cause="gloo: connection closed by peer", rank=1, kind=kind)
    with selectors.DefaultSelector() as selector:
        group = Group(
            events.append,
            selector,
            LIMITS,
            root_cause_timeout_s=5.0,
            can_root_cause_follow=lambda: kind == "fault" and clock.now < 110.0,
        )
        group.adopt([ScriptedWorker(0), worker := ScriptedWorker(1, failed)])
        worker.on_readable()
        worker.exit_code = 1
        for clock.now in (100.0, 100.0 + timeout_s, 109.0):
            group.watch()
            assert (group.failure is None) == (clock.now <= 100.0 + timeout_s or kind == "fault")
            assert not group.is_gone
        group.fail(Failed(cause="gloo: broken pipe", rank=0, kind="fault"), 0)
        clock.now = 110.0
        group.watch()
    assert (group.failure, events[0], len(events)) == (failed, failed, 2)


@pytest.mark.parametrize(
    ("kind", "commands", "signals"),
    [
        ("error", [Stop()], []),
        *((kind, [], [True]) for kind in ("fault", "out_of_memory", "lost_machine", "lost_gpu")),
    ],
)
def test_group_reports_the_cause_and_ends_the_others(
    events: list[AnyEvent], monkeypatch: pytest.MonkeyPatch, kind: FailureKind, commands: list[Command], signals: object
) -> None:
    monkeypatch.setattr(group_module, "SETTLE_S", -1.0)
    lost = Failed(cause="gloo: connection closed by peer", rank=1, kind="fault")
    cause = Failed(cause="It broke.", rank=0, kind=kind)
    dead, following, other = ScriptedWorker(0, cause), ScriptedWorker(1, lost), ScriptedWorker(2)
    group = group_of(events, dead, following, other)
    for worker in (following, dead):
        worker.exit_code = 1
        worker.read_all()
    group.watch()
    assert (group.failure, other.commands, other.signals) == (cause, commands, signals)
    other.exit_code = 1
    group.watch()
    assert group.is_gone
    group.fail(Failed(cause="The first one is gone.", rank=2), 0)
    texts = ((lost.cause, 1), ("The first one is gone.", 2))
    assert events == [cause, *(LogLine(text=text, level="error", rank=rank) for text, rank in texts)]


@pytest.mark.parametrize("error", [FrameError("too long"), msgspec.DecodeError("too long")])
def test_group_closes_the_channel_after_an_invalid_message(events: list[AnyEvent], error: Exception) -> None:
    invalid = ScriptedWorker(0, error, DONE)
    group = group_of(events, invalid)
    invalid.on_readable()
    assert invalid.channel is None
    group.watch()
    assert group.failure is not None
    assert (group.failure.rank, "too long" in group.failure.cause) == (0, True)


def test_group_knows_the_states_of_its_workers(events: list[AnyEvent]) -> None:
    unsaved = WorkerDone(stopped=True, unsaved="full", best={"top1": 0.5})
    first, second = ScriptedWorker(0, Warned(code="stuck", message=""), DONE), ScriptedWorker(1, unsaved)
    group = group_of(events, first, second)
    for worker in (first, second):
        worker.read_all()
    assert (group.is_completed, group.unsaved_reason, group.best, group.holds_unsaved_state) == (
        False,
        "full",
        unsaved,
        False,
    )
    second.messages, second.channel = [Warned(code="unsaved", message="")], object()
    second.read_all()
    assert group.holds_unsaved_state
    assert [event.code for event in events if isinstance(event, Warned)] == ["stuck", "unsaved"]
    group.stop(Stop())
    group.escalate()
    assert (first.signals, group.forced, group.stuck) == ([False], {0, 1}, set())


def test_group_keeps_working_ranks_when_one_has_finished(
    events: list[AnyEvent], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_module, "time", clock := Clock(100.0))
    finished, working = ScriptedWorker(0, DONE), ScriptedWorker(1, DONE)
    group = group_of(events, finished, working)
    assert not group.is_ending
    finished.read_all()
    assert group.is_ending
    group.watch()
    assert group.ending_since is None
    working.read_all()
    for clock.now in (110.0, 119.0, 121.0):
        assert group.ending_since is None
        group.watch()
    assert group.ending_since is not None, "both have finished and linger"
    assert [worker.signals for worker in (finished, working)] == [[False], [False]]


def test_group_reports_a_hanging_rank_once(events: list[AnyEvent], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_module, "time", clock := Clock(100.0))
    heartbeat = Heartbeat(7, activity="step", longest_step_s=0.5)
    finished, working, hanging = workers = [ScriptedWorker(rank, heartbeat) for rank in range(3)]
    group = group_of(events, *workers)
    finished.messages.append(DONE)
    finished.read_all()
    hanging.on_readable()
    for clock.now in range(101, 120):
        working.on_readable()
        working.messages.append(heartbeat)
        group.watch()
        assert (group.failure is None) == (clock.now < 111)
    assert events == [group.failure]
    assert "Rank 2 has not responded for 11 s" in str(group.failure)


GPU = "GPU-1"
TWO = {"devices": ("cpu", "cpu"), "strategy": "ddp"}


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has network namespaces")
@pytest.mark.parametrize(
    ("fields", "started_here", "fork", "is_private"),
    [
        ({}, 2, True, True),
        ({}, 1, True, False),
        ({}, 2, False, False),
        ({"model": "net.py"}, 2, True, False),
        ({"devices": (GPU, GPU)}, 2, True, False),
        ({"name": "plug-in"}, 2, True, False),
    ],
    ids=["all", "torchrun", "spawn", "model_file", "cuda", "plug-in"],
)
def test_ranks_are_private_unless_they_need_the_network(
    monkeypatch: pytest.MonkeyPatch, fields: dict[str, Any], started_here: int, fork: bool, is_private: bool
) -> None:
    """Simulate a machine without driver files, a user other than root, and a plug-in."""
    monkeypatch.setattr(plugins, "fingerprint", lambda: fields.get("name", ""))
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    job = Job.from_fields(**(TWO | fields))
    specs = [make_worker_spec(job, rank=rank, rendezvous="file") for rank in range(started_here)]
    assert (not group_module.explain_shared_network(specs, fork=fork)) is is_private
