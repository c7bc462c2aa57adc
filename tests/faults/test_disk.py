"""Full disks and deleted run folders. Training must continue if possible, and saved states must not be lost."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from engine.contract.events import RunFinished, Warned
from engine.contract.protocol import Adjust
from engine.runs.connection import RunConnection
from tests.faults.conftest import EPOCHS, StartStepwise, Uninterrupted
from tests.faults.damage import Gate, delete_folder, fill_disk, move_away, open_listener
from tests.faults.real_runs import RealRun, assert_same_checkpoints
from tests.support.cases import mark_long_cases

pytestmark = pytest.mark.faults


def test_full_disk_costs_only_checkpoints(
    small_disk: Path, start_stepwise: StartStepwise, gate: Gate, uninterrupted: Uninterrupted
) -> None:
    run = start_stepwise(EPOCHS)
    with open_listener(run) as client:
        filler = fill_disk(small_disk)
        gate.permit_steps(14, run, saved=False)
        unsaved = client.wait_for_warning("checkpoint_failed")
        with RunConnection(run.folder, from_n=1 << 60) as talker:
            for _ in range(100):  # more than the last block of the log can hold
                talker.send(Adjust(loader_workers=1))
        assert "could not be saved: the disk (or the quota) of" in unsaved.message
        assert "Training continues, and the last good checkpoint is kept. Free some space." in unsaved.message
        unwritten = client.wait_for_warning("log_unwritable")
        assert "The log can't be written: No space left on device. Training continues" in unwritten.message
        assert "Free some space on the disk" in unwritten.message
        assert run.last_n < unwritten.n
        filler.unlink()
        gate.permit_all_steps()
        assert "events that had been kept in memory" in client.wait_for_warning("log_delayed").message
    run.completed()
    assert {"checkpoint_failed", "log_unwritable", "log_delayed"} <= {event.code for event in run.list_events(Warned)}
    assert not run.partial_file().exists()
    assert [event.n for event in run.logged] == list(range(1, len(run.logged) + 1))
    assert_same_checkpoints(run.final_checkpoints, uninterrupted(run.job))


def replace_log(run: RealRun) -> None:
    copy = run.folder.path / "copy"
    copy.write_bytes(run.folder.events_file.read_bytes())
    copy.replace(run.folder.events_file)


def truncate_log(run: RealRun) -> None:
    os.truncate(run.folder.events_file, 0)


@pytest.mark.parametrize(
    "damage", mark_long_cases([delete_folder, move_away, replace_log, truncate_log], everyday=[delete_folder])
)
def test_damaged_run_folder_stops_the_run(
    start_stepwise: StartStepwise, gate: Gate, damage: Callable[[RealRun], None]
) -> None:
    run = start_stepwise(EPOCHS)
    with open_listener(run) as client:
        damage(run)
        warning = client.wait_for(Warned, lambda event: event.code in ("log_deleted", "log_changed"))
        gate.permit_all_steps()
        finished = client.wait_for(RunFinished)
    assert (finished.outcome, finished.cause) == ("stopped", warning.message)
    assert warning.code == ("log_deleted" if damage in (delete_folder, move_away) else "log_changed")
    run.wait_for_processes_to_end()
