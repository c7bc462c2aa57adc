"""Reading and resuming of a run that was recorded earlier.

Footplate paused `recorded_run` on 27 November 2026, with torch 2.14.1 on a CPU.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from pytestqt.qtbot import QtBot

from engine.contract.events import Failed, RunFinished, StepMetrics, Validation
from engine.runs.folder import RunFolder
from engine.system import paths
from gui.sources.run_session import RunSession
from tests.engine.cli.terminal import footplate
from tests.engine.supervisor.supervised import ROOT
from tests.support.consent import permit_model_file

RECORDED = Path(__file__).parent / "recorded_run"
RUN_ID = "20261127-022424-small-net-4aee"
UNINTERRUPTED = {"top1": 0.33, "top5": 0.81, "loss": 2.0301823258399962}
"""Metrics of the same job after three epochs without interruption."""


@pytest.fixture
def run(separate_home: Path) -> RunFolder:
    """Copy the recorded run into the test's home, and adapt its paths to this machine."""
    folder = paths.runs_folder() / RUN_ID
    shutil.copytree(RECORDED / RUN_ID, folder)
    model = RECORDED / "small_net.py"
    for name in ("job.toml", "events.jsonl"):
        text = (folder / name).read_text()
        text = text.replace("/home/user/small_net.py", str(model)).replace("/home/user/footplate", str(ROOT))
        (folder / name).write_text(text)
    permit_model_file(model)
    return RunFolder(folder)


def test_recorded_run_resumes_to_the_same_metrics(run: RunFolder) -> None:
    before = [event.step for event in run.events() if isinstance(event, StepMetrics)]
    assert (run.state(), before[-1]) == ("paused", 31)
    result = footplate("resume", RUN_ID)
    assert result.code == 0, result.err
    events = list(run.events())
    steps = [event.step for event in events if isinstance(event, StepMetrics)]
    assert (steps[: len(before)], steps[-1]) == (before, 63)
    assert not any(isinstance(event, Failed) for event in events)
    last = [event for event in events if isinstance(event, Validation)][-1]
    assert (last.epoch, last.step) == (3, 63)
    assert last.measures == pytest.approx(UNINTERRUPTED, abs=0.05)
    finished = events[-1]
    assert isinstance(finished, RunFinished)
    assert finished.outcome == "completed"


def test_recorded_run_opens_in_the_window(run: RunFolder, qtbot: QtBot) -> None:
    store = RunSession()
    store.open(run)
    qtbot.waitUntil(lambda: not store.loading)
    assert store.status.text.startswith("Paused")
    assert store.data.steps.step.last == 31
    assert store.data.validations.measures["top1"].values.tolist() == [0.19]
    store.close()


def test_recorded_run_is_listed(run: RunFolder) -> None:
    listed = footplate("runs").out
    assert RUN_ID in listed
    assert "paused" in listed
