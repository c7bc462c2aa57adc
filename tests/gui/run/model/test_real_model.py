"""Real runs evaluated from the window by the real child, their worst samples drawn, and what the model looks at."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

from pytestqt.qtbot import QtBot

from engine.runs.folder import RunFolder
from gui.run.model.result import CLASSES, CURVES, SAMPLES
from gui.run.model.view import FORM, RESULT, ModelView
from tests.engine.conftest import forker  # noqa: F401
from tests.engine.inference.conftest import trained  # noqa: F401
from tests.support.trained_runs import Trained

_LONG_MS = 120_000


def evaluated(view: ModelView, run: Trained, folder: Path, qtbot: QtBot) -> RunFolder:
    """A copy of the run, evaluated by a press of the button."""
    shutil.copytree(run.run.path, folder)
    view.show_run(RunFolder(folder))
    qtbot.waitUntil(lambda: view.stack.currentIndex() == FORM and view.form.start.isEnabled())
    told: list[str] = []
    view.child.progress.connect(lambda progress: told.append(progress.what))
    view.form.start.click()
    qtbot.waitUntil(lambda: view.stack.currentIndex() == RESULT, timeout=_LONG_MS)
    assert any(what.startswith("Evaluating") for what in told)
    return RunFolder(folder)


def test_that_a_classifier_is_evaluated_and_says_what_it_looks_at(
    empty_view: ModelView,
    trained: Callable[[str], Trained],  # noqa: F811
    tmp_path: Path,
    qtbot: QtBot,
) -> None:
    run, view = trained("classification"), empty_view
    evaluated(view, run, tmp_path / "run", qtbot)
    shown = {title: value for title, value, _ in view.result.summary.measures.texts()}
    assert shown["Top-1 accuracy"] == f"{100 * run.measures['top1']:.1f} %"
    for part in (CLASSES, CURVES, SAMPLES):
        assert view.result.tabs.isTabVisible(part)
    qtbot.waitUntil(lambda: len(view.result.curves.counts.texts()) == 2)
    samples = view.result.samples
    view.result.tabs.setCurrentIndex(SAMPLES)
    samples.open(0)
    maps = samples.detail.maps
    maps.second.set_value("2")
    maps.on.setChecked(True)
    qtbot.waitUntil(lambda: bool(maps.maps), timeout=_LONG_MS)
    assert 1 <= len(maps.maps) <= 2
    assert all(not isinstance(image, str) for _, image in maps.maps)
    assert samples.detail.heat[0].isVisible()
    folder = maps._folder
    assert folder is not None
    view.close_work()
    assert not Path(folder.name).exists()


def test_that_masks_are_drawn_truth_beside_prediction(
    empty_view: ModelView,
    trained: Callable[[str], Trained],  # noqa: F811
    tmp_path: Path,
    qtbot: QtBot,
) -> None:
    view = empty_view
    evaluated(view, trained("segmentation"), tmp_path / "run", qtbot)
    assert not view.result.tabs.isTabVisible(CURVES)
    view.result.tabs.setCurrentIndex(SAMPLES)
    samples = view.result.samples
    samples.open(0)
    detail = samples.detail
    qtbot.waitUntil(detail.truth.isVisible, timeout=_LONG_MS)
    assert detail.truth.pane.trouble == detail.prediction.pane.trouble == ""
    assert [entry.name for entry in detail.drawings.legend] == ["class 0", "class 1", "class 2"]
    orders = detail.drawings._orders
    samples.open(1)
    qtbot.waitUntil(detail.truth.isVisible)
    assert detail.drawings._orders == orders  # it was drawn with the first
