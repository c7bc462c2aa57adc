"""Shifts of the wall clock, which must not affect a real run."""

from __future__ import annotations

import ast
import os
from itertools import pairwise
from pathlib import Path

import psutil
import pytest

from engine.contract.events import RunFinished, Warned
from engine.contract.job import Job
from engine.runs.index import RunIndex
from tests.engine.supervisor.supervised import ROOT
from tests.faults.conftest import Make, StartRun, Uninterrupted
from tests.faults.damage import Gate
from tests.faults.real_runs import assert_same_checkpoints

pytestmark = pytest.mark.faults

HOUR_S = 3600.0

SHIFTED = """
import os
import time
from pathlib import Path

_shift = Path(os.environ["FOOTPLATE_HOME"], "shift")
_time, _time_ns = time.time, time.time_ns


def _seconds():
    try:
        return float(_shift.read_text())
    except (OSError, ValueError):
        return 0.0


time.time = lambda: _time() + _seconds()
time.time_ns = lambda: _time_ns() + int(1e9 * _seconds())
"""
"""Source of a module that Python imports at start-up, and that shifts the clock by the seconds in a file."""


@pytest.fixture
def shifted_job(job: Make, stepwise: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Job:
    """Return a job whose processes add the seconds in the file "shift" of Footplate's home to the wall clock."""
    (tmp_path / "sitecustomize.py").write_text(SHIFTED)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{ROOT}")
    return job("ddp", 2, **stepwise)


@pytest.mark.long
def test_clock_changes_do_not_affect_training(
    shifted_job: Job, start_cold: StartRun, gate: Gate, separate_home: Path, uninterrupted: Uninterrupted
) -> None:
    gate.permit_steps(4)
    run = start_cold(shifted_job)
    gate.permit_steps(4, run)
    (separate_home / "shift").write_text(str(-HOUR_S))
    gate.permit_steps(8, run)
    assert run.folder.state() == "running"
    (separate_home / "shift").write_text(str(2 * HOUR_S))
    gate.permit_all_steps()
    run.completed()
    times = [event.time for event in run.logged]
    jumps = [after - before for before, after in pairwise(times)]
    assert min(jumps) < 60 - HOUR_S
    assert max(jumps) > 3 * HOUR_S - 60
    assert [event.n for event in run.logged] == list(range(1, len(times) + 1))
    (finished,) = run.list_events(RunFinished)
    assert 0 < finished.seconds < HOUR_S / 10
    assert run.list_events(Warned) == []
    assert_same_checkpoints(run.final_checkpoints, uninterrupted(shifted_job))


def test_run_state_is_independent_of_the_clock(
    job: Make, start_run: StartRun, gate: Gate, stepwise: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Shift the boot time that psutil reads by an hour, and with it the start times of all processes.

    A shifted wall clock has the same effect.
    """
    gate.permit_steps(2)
    run = start_run(job(**stepwise))
    gate.permit_steps(2, run)
    process = psutil.Process(run.pid)
    before, booted = process.create_time(), psutil.boot_time()
    monkeypatch.setattr(psutil._pslinux, "boot_time", lambda: booted - HOUR_S)
    assert psutil.Process(run.pid).create_time() == pytest.approx(before - HOUR_S, abs=2)
    assert run.folder.state() == "running"
    assert [summary.state for summary in RunIndex().summaries()] == ["running"]
    monkeypatch.setattr(psutil._pslinux, "boot_time", lambda: booted)
    gate.permit_all_steps()
    run.completed()


def test_duration_is_never_negative(job: Make, start_run: StartRun, monkeypatch: pytest.MonkeyPatch) -> None:
    run = start_run(job(epochs=10_000))
    run.wait_for_step(2)
    monkeypatch.setattr("engine.runs.folder.time.time", lambda: run.logged[0].time - HOUR_S)
    summary = run.folder.summary()
    assert summary is not None
    assert summary.seconds == 0.0


WALL_CLOCK = {
    "engine/cli/cache.py": "how long ago a set was used, for reading",
    "engine/cli/queue.py": "how long a run has waited, for reading",
    "engine/runs/queue/slot.py": "when a run came, for reading; and whether a sample of the GPUs is of just now",
    "engine/runs/index.py": "whether a file is so new that it may change again without a trace",
    "engine/runs/folder.py": "how long a run has gone on, for reading; and whether one without a supervisor may still start",
    "engine/gpus/nvml/device.py": "when a GPU was lost, for reading",
    "engine/gpus/nvml/processes.py": "the driver's own times, which are of this clock",
    "engine/gpus/__main__.py": "when a sample was taken, for reading",
    "engine/gpus/watch.py": "when a GPU was lost, for reading",
    "engine/gpus/nvml/xids.py": "when an error came, for reading",
    "engine/supervisor/event_log.py": "when an event was, for reading",
    "engine/advisor/advice/answer.py": "when an answer was measured, for reading",
    "engine/advisor/search/driver.py": "when a search stood so, for reading",
    "engine/machines/files.py": "how old what a run has left is, by its file's time",
    "engine/machines/host_checks.py": "how far a machine's clock is from this one's",
    "engine/machines/probe.py": "what a machine's clock says, to be compared",
    "engine/machines/node.py": "what a machine's clock says, to be compared",
    "engine/runs/estimates.py": "how long a run has trained, for an estimate of its remaining time",
    "engine/runs/searches.py": "whether a search without a driver may still start",
    "engine/inference/conversion/convert.py": "when a model was converted, for reading",
    "engine/inference/prediction/predict.py": "when predictions were finished, for reading",
    "gui/sources/run_intervals.py": "which runs' marks are still within the graphs, whose times are of this clock",
    "gui/sources/trash.py": "when a run was thrown away, in its name in the trash",
    "gui/runs/filter_bar.py": "which runs are of the last days",
}


def test_wall_clock_is_read_only_for_display_and_files() -> None:
    """Check that only the listed functions read the wall clock. Each entry of the list has a reason."""
    found = set()
    for file in (*ROOT.glob("engine/**/*.py"), *ROOT.glob("gui/**/*.py")):
        text = file.read_text()
        for node in ast.walk(ast.parse(text)) if "time.time" in text else ():
            if isinstance(node, ast.Call) and ast.unparse(node.func) in ("time.time", "time.time_ns"):
                found.add(file.relative_to(ROOT).as_posix())
    assert found - WALL_CLOCK.keys() == set()
