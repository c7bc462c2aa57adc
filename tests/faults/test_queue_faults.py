"""Queue of runs for one device when one of them fails or is killed."""

from __future__ import annotations

import pytest

from engine.contract.events import Failed, Planned, RunStarted, StepMetrics, Waiting
from engine.runs.queue import holders, waiting
from tests.engine.supervisor.supervised import wait_until
from tests.faults.conftest import Allowed, Make, StartRun, Uninterrupted
from tests.faults.real_runs import Hold, RealRun, assert_same_end, kill

pytestmark = pytest.mark.faults

BROKEN = """
def build_model(num_classes):
    raise RuntimeError("no such layer")
"""


def in_line(*runs: RealRun) -> bool:
    return [ticket.run_id for ticket in waiting()] == [run.folder.run_id for run in runs]


def start_in_training(start_run: StartRun, job: Make, hold: Hold) -> RealRun:
    """Start a run that has the device and pauses in its first step."""
    hold.ask("training")
    run = start_run(job("ddp", 2, restarts=0))
    hold.wait_until_reached()
    assert holders() == {"cpu": (run.folder.run_id,)}
    return run


def test_queue_continues_after_failed_runs(
    job: Make, start_run: StartRun, hold: Hold, allowed: Allowed, uninterrupted: Uninterrupted
) -> None:
    first = start_in_training(start_run, job, hold)
    second = start_run(job(**allowed(BROKEN)))
    wait_until(lambda: in_line(second), "the second run in line")
    third = start_run(job())
    wait_until(lambda: in_line(second, third), "the third run in line")
    assert third.wait_for(Waiting, lambda event: event.position == 2).behind == (
        first.folder.run_id,
        second.folder.run_id,
    )
    assert second.workers() == third.workers() == {}
    kill(first.workers()[1].pid)
    hold.release()
    assert first.finished().outcome == "failed"
    assert second.finished().outcome == "failed"
    assert "no such layer" in second.all(Failed)[0].cause
    third.completed()
    assert waiting() == []
    assert holders() == {}
    assert third.all(RunStarted)[0].time < second.all(Failed)[0].time < third.all(StepMetrics)[0].time
    assert_same_end(third.end, uninterrupted(job()))


def test_queue_continues_after_a_killed_supervisor(
    job: Make, start_run: StartRun, hold: Hold, uninterrupted: Uninterrupted
) -> None:
    first = start_in_training(start_run, job, hold)
    second, third = start_run(job()), start_run(job())
    wait_until(lambda: len(waiting()) == 2, "two runs in line")
    torn, last = (second, third) if in_line(second, third) else (third, second)
    kill(torn.pid)  # out of the middle
    wait_until(lambda: in_line(last), "the killed run out of the line")
    assert torn.folder.state() == "interrupted"
    assert last.wait_for(Waiting, lambda event: event.position == 1).behind == (first.folder.run_id,)
    kill(first.pid)
    first.assert_processes_end()
    hold.release()
    before = torn.last_n
    torn.resume()
    last.completed()
    torn.completed(since=before)
    assert torn.all(Planned, since=before)[0].from_step == 0
    for run in (torn, last):
        assert_same_end(run.end, uninterrupted(job()))
    before = first.last_n
    first.resume().completed(since=before)
    assert_same_end(first.end, uninterrupted(job("ddp", 2, restarts=0)))
