"""Shutdown of workers that ignore requests or survive SIGKILL."""

from __future__ import annotations

import selectors

import pytest

from engine.contract.events import AnyEvent, Failed
from engine.contract.protocol import Command, Stop
from engine.contract.worker import WorkerDone
from engine.processes import shutdown
from engine.processes.group import Group
from engine.processes.watchdog import LIMITS
from tests.engine.processes.test_group import ScriptedWorker
from tests.support.clock import Clock


class StubbornWorker(ScriptedWorker):
    """Worker that exits after `needed` attempts to end it. If `needed` is None, it never exits."""

    def __init__(self, rank: int, needed: int | None) -> None:
        super().__init__(rank)
        self.needed = needed
        self.measures: list[str] = []

    def poll(self) -> int | None:
        if self.exit_code is None and self.needed is not None and len(self.measures) >= self.needed:
            is_orderly = self.measures == ["message"]
            self.exit_code = 0 if is_orderly else -9
            self.done = WorkerDone(stopped=True) if is_orderly else None
        return self.exit_code

    def send(self, message: Command) -> None:
        self.measures.append("message")

    def kill(self, *, hard: bool) -> None:
        self.measures.append("SIGKILL" if hard else "SIGTERM")


@pytest.fixture(autouse=True)
def short_deadlines(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TERM_S", "KILL_S"):
        monkeypatch.setattr(shutdown, name, 0.0)
    monkeypatch.setattr("engine.processes.group.STOP_S", 0.0)


def stop(*workers: StubbornWorker) -> Group:
    """Stop a group of these workers and wait until it has ended. Return the group."""
    events: list[AnyEvent] = []
    with selectors.DefaultSelector() as selector:
        group = Group(events.append, selector, LIMITS)
        group.adopt(workers)
        group.stop(Stop())
        for _ in range(10):
            group.watch()
    assert group.is_gone
    assert events == []
    return group


def test_shutdown_escalates_only_for_workers_that_remain() -> None:
    polite, slow, deaf = (StubbornWorker(rank, rank + 1) for rank in range(3))
    group = stop(polite, slow, deaf)
    measures = ["message", "SIGTERM", "SIGKILL"]
    assert [worker.measures for worker in (polite, slow, deaf)] == [measures[:1], measures[:2], measures]
    assert (group.forced, group.stuck) == ({1, 2}, set())


def test_shutdown_gives_up_a_worker_that_survives_sigkill(capsys: pytest.CaptureFixture[str]) -> None:
    group = stop(StubbornWorker(0, 1), StubbornWorker(1, None))
    assert (group.forced, group.stuck) == ({1}, {1})
    assert "survived SIGKILL" in capsys.readouterr().out


def test_shutdown_keeps_its_deadlines(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("time", clock := Clock()), ("TERM_S", 5.0), ("KILL_S", 30.0)):
        monkeypatch.setattr(shutdown, name, value)
    worker, steps = StubbornWorker(0, None), []
    ending = shutdown.Shutdown([worker], 10.0, Stop())
    ending.escalate(20.0)  # is later than planned
    ending.extend(5.0)  # is earlier
    for second in range(60):
        clock.now, before = float(second), (len(worker.measures), len(ending.stuck))
        ending.step()
        if before != (len(worker.measures), len(ending.stuck)):
            steps.append((second, worker.measures[-1], set(ending.stuck)))
    assert steps == [(10, "SIGTERM", set()), (15, "SIGKILL", set()), (45, "SIGKILL", {0})]


def test_timeout_of_a_stop_is_shorter_after_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutdown, "time", clock := Clock())
    monkeypatch.setattr("engine.processes.group.STOP_S", 120.0)
    worker, counts = StubbornWorker(0, None), []
    with selectors.DefaultSelector() as selector:
        group = Group([].append, selector, LIMITS)
        group.adopt([worker])
        group.stop(Stop())
        group.fail(Failed(cause="It broke.", rank=0), 2)
        for clock.now in (0.0, shutdown.FAILED_S - 0.1, shutdown.FAILED_S):
            group.watch()
            counts.append(len(worker.measures))
    assert counts == [1, 1, 2]


def test_kill_all_does_not_wait_for_ever(capsys: pytest.CaptureFixture[str]) -> None:
    workers = StubbornWorker(0, None), StubbornWorker(1, 1)
    shutdown.kill_all(workers)
    assert [(worker.exit_code, worker.measures) for worker in workers] == [(-9, ["SIGKILL"])] * 2
    assert workers[0].channel is None, "nothing is read from it any more"
    assert capsys.readouterr().out == "Rank 0 (pid 0) survived SIGKILL and is left behind.\n"
