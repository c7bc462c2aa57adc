"""Faults while images are read.

Images are read by threads of the worker. A native crash in a decoder kills the worker. An exception is raised again in
the training loop.
"""

from __future__ import annotations

import pytest

from engine.contract.events import Failed, Planned, Restarting
from tests.faults.conftest import Make, StartRun, Uninterrupted
from tests.faults.real_runs import Hold, assert_same_checkpoints

pytestmark = pytest.mark.faults

DECODES_ALWAYS = {"picture_cache": "off", "loader_workers": 2}


def test_crashed_decoder_restarts_the_run(
    job: Make, start_held: StartRun, hold: Hold, uninterrupted: Uninterrupted
) -> None:
    run = start_held(job(**DECODES_ALWAYS))
    saved = run.saved
    hold.set_action("decoding", what="crash_once")
    restart = run.wait_for(Restarting)
    assert (restart.rank, restart.kind) == (0, "fault")
    assert "Rank 0 was killed by SIGSEGV" in restart.cause
    assert run.wait_for(Planned, since=restart.n).from_step >= saved
    run.completed()
    assert len(run.list_events(Restarting)) == 1
    assert_same_checkpoints(run.final_checkpoints, uninterrupted(job(**DECODES_ALWAYS)))


@pytest.mark.long
def test_decoder_that_always_crashes_fails_the_run(
    job: Make, start_held: StartRun, hold: Hold, uninterrupted: Uninterrupted
) -> None:
    run = start_held(job(**DECODES_ALWAYS, restarts=1))
    hold.set_action("decoding", what="crash")
    assert run.wait_for_end().outcome == "failed"
    (failed,) = run.list_events(Failed)
    assert "Rank 0 was killed by SIGSEGV" in failed.cause
    assert "already been restarted once" in failed.cause
    hold.release()
    before = run.last_n
    run.resume().completed(since=before)
    assert_same_checkpoints(run.final_checkpoints, uninterrupted(job(**DECODES_ALWAYS)))


def test_exception_while_prefetching_fails_the_run(
    job: Make, start_held: StartRun, hold: Hold, uninterrupted: Uninterrupted
) -> None:
    run = start_held(job(**DECODES_ALWAYS))
    hold.set_action("training", what="throw")
    assert run.wait_for_end().outcome == "failed"
    (failed,) = run.list_events(Failed)
    assert failed.cause.startswith("BufferError at step")
    assert failed.step is not None
    assert "prefetch.py" in (run.folder.path / failed.traceback_file).read_text()
    assert run.list_events(Restarting) == []  # it may be a defect of the program, and would recur
    before = run.last_n
    run.resume().completed(since=before)
    assert_same_checkpoints(run.final_checkpoints, uninterrupted(job(**DECODES_ALWAYS)))
