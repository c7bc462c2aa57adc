"""Evaluation, drawings and heat maps of a real run, computed by the real child process."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from pytestqt.qtbot import QtBot

from engine.runs.folder import RunFolder
from gui.run.model.result import CLASSES, CURVES, SAMPLES
from gui.run.model.view import ModelView
from gui.run.request_pages import FORM, RESULT
from tests.support.trained_runs import TrainedRun


def evaluate(view: ModelView, run: TrainedRun, folder: Path, qtbot: QtBot) -> RunFolder:
    """Copy the run to `folder`, and evaluate the copy by pressing the button. Return the copy."""
    shutil.copytree(run.run.path, folder)
    view.show_run(RunFolder(folder))
    qtbot.waitUntil(lambda: view.pages.currentIndex() == FORM and view.form.start.isEnabled())
    activities: list[str] = []
    view.pages.child.progress.connect(lambda progress: activities.append(progress.what))
    view.form.start.click()
    qtbot.waitUntil(lambda: view.pages.currentIndex() == RESULT)
    assert any(activity.startswith("Evaluating") for activity in activities)
    return RunFolder(folder)


@pytest.mark.long
def test_model_view_evaluates_draws_and_explains_real_run(
    empty_view: ModelView, trained: Callable[[str], TrainedRun], tmp_path: Path, qtbot: QtBot
) -> None:
    view, run = empty_view, trained("segmentation")
    evaluate(view, run, tmp_path / "run", qtbot)
    metrics = {title: value for title, value, _ in view.result.summary.metrics.texts()}
    assert metrics["Mean IoU"] == f"{100 * run.measures['miou']:.1f}%"
    assert view.result.tabs.isTabVisible(CLASSES)
    assert not view.result.tabs.isTabVisible(CURVES)
    view.result.tabs.setCurrentIndex(SAMPLES)
    samples = view.result.samples
    samples.open(0)
    detail = samples.detail
    qtbot.waitUntil(detail.truth.isVisible)
    assert detail.truth.pane.problem == detail.prediction.pane.problem == ""
    assert [entry.name for entry in detail.drawings.legend] == ["class 0", "class 1", "class 2"]
    request = detail.drawings.child.request
    samples.open(1)
    qtbot.waitUntil(detail.truth.isVisible)
    assert detail.drawings.child.request is request  # one request draws several samples
    detail.maps.on.setChecked(True)
    detail.maps.first.set_value("1")
    qtbot.waitUntil(lambda: bool(detail.maps.maps))
    ((title, image),) = detail.maps.maps
    assert "class 1" in title
    assert not isinstance(image, str)
    assert detail.heat_panes[0].isVisible()
    requests = [detail.maps.child.request, detail.drawings.child.request]
    view.close_work()
    assert not any(Path(request.out).exists() for request in requests)
