"""Parallel strategies in the real window with the real engine."""

from __future__ import annotations

import pytest
from pytestqt.qtbot import QtBot

from engine.contract.job import Job
from gui.form.followers import create_sample_job
from gui.main_window import MainWindow
from gui.run.strategy.view import StrategyView
from tests.support.widgets import OpenWindow

pytestmark = pytest.mark.long


def train_job(window: MainWindow, job: Job, qtbot: QtBot) -> StrategyView:
    """Train `job` to its end. Return the view with the measurements of its strategy."""
    window.form.set_job(job)
    window.workspace.devices.set_selection(job.parallel.devices)
    qtbot.waitUntil(lambda: window.form.job is not None and window.form.job.parallel.devices == job.parallel.devices)
    qtbot.waitUntil(window.form.train.isEnabled)
    with qtbot.waitSignal(window.workspace.launcher.started):
        window.form.train.click()
    qtbot.waitUntil(lambda: window.status.status.text().startswith("Completed"))
    qtbot.waitUntil(lambda: not window.workspace.run.strategy.isHidden())
    return window.workspace.run.strategy


@pytest.mark.parametrize("schedule", ["1f1b", "zb1p"])
def test_pipeline_stages_and_schedule_are_visible(open_window: OpenWindow, qtbot: QtBot, schedule: str) -> None:
    fields = {"strategy": "pipeline", "pipeline_schedule": schedule, "microbatches": 4}
    job = create_sample_job().with_fields(model="mnist_cnn", epochs=1, devices=("cpu", "cpu"), **fields)
    view = train_job(open_window(), job, qtbot)
    assert view.headline("stages").startswith("Split into 2 stages.")
    assert view.headline("schedule").startswith("Bubble ")
    assert "4 microbatches)" in view.headline("schedule")
    assert "Rank 1 · CPU worker 1" in view.schedule.accessibleDescription()
    assert not view.ranks.isVisibleTo(view)


def test_rank_waits_are_visible_for_ddp(open_window: OpenWindow, qtbot: QtBot) -> None:
    job = create_sample_job().with_fields(
        model="mnist_cnn", epochs=1, strategy="ddp", devices=("cpu", "cpu"), balance="speed"
    )
    window = open_window()
    view = train_job(window, job, qtbot)
    assert view.headline("ranks")
    assert "Rank 1 · CPU worker 1: compute" in view.ranks.accessibleDescription()
    assert not view.stages.isVisibleTo(view)
    shares = [line.text for line in window.workspace.session.data.lines if line.text.startswith("Shares of each batch")]
    assert len(shares) <= 1  # none if both ranks are equally fast
