"""The disk is full when the last state of a run is to be saved: nobody is told that the training is kept."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from engine.cli.exit_codes import UNSAVED
from engine.contract.events import CommandReceived, RunFinished, Warned
from tests.engine.supervisor.supervised import ROOT
from tests.faults.conftest import Started, Whole
from tests.faults.damage import Gate, fill, listening
from tests.faults.real_runs import assert_same_end

pytestmark = pytest.mark.attacks

SHORT_S, LONG_S = 0.2, 600.0


def test_that_a_run_whose_last_state_the_disk_does_not_take_is_not_complete(
    small_disk: Path, started: Started, gate: Gate, whole: Whole
) -> None:
    run = started(save_again_s=SHORT_S)
    with listening(run) as client:
        filler = fill(small_disk)
        gate.open()
        trying = client.wait_for_warning("unsaved").message
        assert f"is full. The last state is kept in memory, and saving it is tried again for {SHORT_S:.0f} s" in trying
        finished = client.wait_for(RunFinished)
    assert finished.outcome == "unsaved"
    assert "the disk (or the quota) of" in finished.cause
    assert "the state after step 18 is lost; last.pt holds step 4." in finished.cause
    assert finished.cause.endswith("then resume the run.")
    run.wait_until_none_is_left()
    filler.unlink()
    assert run.saved == 4
    job = run.folder.job()
    assert job is not None
    before = run.last_n
    run.go_on().completed(since=before)
    assert_same_end(run.end, whole(job))


def test_that_the_last_state_is_saved_once_there_is_room(
    small_disk: Path, started: Started, gate: Gate, whole: Whole
) -> None:
    run = started(save_again_s=LONG_S)
    with listening(run) as client:
        filler = fill(small_disk)
        gate.open()
        client.wait_for_warning("unsaved")
        filler.unlink()
    run.completed()
    job = run.folder.job()
    assert job is not None
    assert_same_end(run.end, whole(job))
    *_, last = [event.code for event in run.all(Warned) if event.code in ("checkpoint_failed", "unsaved")]
    assert last == "unsaved"  # which is not told of every try


def test_that_a_pause_into_a_full_disk_says_that_nothing_newer_is_saved(
    small_disk: Path, started: Started, gate: Gate
) -> None:
    run = started(save_again_s=SHORT_S)
    fill(small_disk)
    gate.up_to(9, run, saved=False)
    words = [sys.executable, str(ROOT / "footplate.py"), "pause", run.folder.run_id]
    pausing = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    with listening(run) as client:
        client.wait_for(CommandReceived)
        gate.open()
    said, complaint = pausing.communicate(timeout=60)
    assert pausing.returncode == UNSAVED
    assert f"{run.folder.run_id} is unsaved" in said
    assert "last.pt holds step 4." in complaint


def test_that_a_pause_says_what_it_has_saved(started: Started, gate: Gate) -> None:
    run = started()
    words = [sys.executable, str(ROOT / "footplate.py"), "pause", run.folder.run_id]
    pausing = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    with listening(run) as client:
        client.wait_for(CommandReceived)
        gate.open()
    said, _ = pausing.communicate(timeout=60)
    assert pausing.returncode == 0
    assert f"{run.folder.run_id} is paused" in said
    assert f"checkpoints/last.pt holds step {run.saved}." in said
