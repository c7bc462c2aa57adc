"""Runs that are killed over and over, in whole or in part, at random moments: nothing is lost, and nothing is left."""

from __future__ import annotations

import os
import time
from collections import Counter
from random import Random

import pytest

from engine.contract.events import CheckpointSaved, Event, Planned, Restarting, RunFinished
from engine.contract.runs import START_GRACE_S
from engine.training.checkpoints import whole_checksum
from tests.engine.supervisor.supervised import wait_until
from tests.faults.conftest import Begin, Make
from tests.faults.real_runs import RealRun, assert_same_end, kill

pytestmark = [pytest.mark.faults, pytest.mark.long]

KINDS = ("supervisor", "rank", "ranks", "all")


@pytest.mark.timeout(3600)
@pytest.mark.parametrize(("strategy", "cpus", "kills"), [("single", 1, 120), ("ddp", 2, 120)])
def test_that_runs_survive_every_kill(job: Make, begin: Begin, *, strategy: str, cpus: int, kills: int) -> None:
    asked = job(strategy, cpus, epochs=20, checkpoint_steps=3, restarts=1000)
    uninterrupted = begin(asked).completed()
    longest_s = uninterrupted.all(RunFinished)[0].seconds  # between two kills
    random = Random(kills)
    done: Counter[str] = Counter()
    while done.total() < kills:
        run = begin(asked)
        while not ended_within(run, random.uniform(0.0, longest_s)):
            kind = random.choice(KINDS)
            done[kind] += kill_workers(run, kind, random) if "rank" in kind else kill_and_go_on(run, kind)
        run.wait_until_none_is_left()
        assert run.folder.state() == "completed", run.logs()
        assert_that_none_was_lost(run)
        assert list(run.folder.path.rglob("*.part")) == []
        assert_same_end(run.end, uninterrupted.end)
    assert set(done) == set(KINDS)


def ended_within(run: RealRun, seconds: float) -> bool:
    """Whether the run comes to its end in that time."""
    deadline = time.monotonic() + seconds
    while not run.all(RunFinished):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def kill_workers(run: RealRun, kind: str, random: Random) -> bool:
    """Kills one worker or all, where there are any; one is named and all start again, or they had done their work."""
    workers = run.workers()
    if not workers:
        return False
    ranks = sorted(workers) if kind == "ranks" else [random.choice(sorted(workers))]
    before = run.last_n
    for rank in ranks:
        kill(workers[rank].pid)
    told: list[Event] = []

    def heard() -> bool:
        told[:] = [event for event in run.told if event.n > before and isinstance(event, Restarting | RunFinished)]
        return bool(told)

    wait_until(heard, "what becomes of the run")
    if isinstance(told[0], Restarting):
        assert told[0].rank in ranks
        assert "was ended by SIGKILL" in told[0].cause
    return True


def kill_and_go_on(run: RealRun, kind: str) -> bool:
    """Kills the supervisor or all that there is of the run, of which nothing is left then, and goes on with it."""
    if kind == "all":
        run.kill_all()
    else:
        kill(run.pid)
    run.assert_gone_at_once()
    if run.all(RunFinished):
        return False
    if run.saved:
        assert whole_checksum(run.last)
    if run.folder.supervisor() is None:  # it would count as starting for a while
        long_ago = time.time() - START_GRACE_S
        os.utime(run.folder.job_file, (long_ago, long_ago))
    assert run.folder.state() == "interrupted"
    run.go_on()
    return True


def assert_that_none_was_lost(run: RealRun) -> None:
    """No checkpoint that the run told of: it always went on from the newest, or from a later one."""
    saved = 0
    for event in run.told:
        if isinstance(event, CheckpointSaved) and event.kind == "last":
            saved = max(saved, event.step)
        elif isinstance(event, Planned):
            assert event.from_step >= saved
