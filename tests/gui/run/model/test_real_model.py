"""Real runs evaluated from the window by the real child, their worst samples drawn, and what the model looks at."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from pytestqt.qtbot import QtBot

from engine.runs.folder import RunFolder
from gui.run.model.result import CLASSES, CURVES, SAMPLES
from gui.run.model.view import ModelView
from gui.run.order_pages import FORM, RESULT
from tests.engine.conftest import forker  # noqa: F401
from tests.engine.inference.conftest import trained  # noqa: F401
from tests.support.trained_runs import Trained


def evaluated(view: ModelView, run: Trained, folder: Path, qtbot: QtBot) -> RunFolder:
    """A copy of the run, evaluated by a press of the button."""
    shutil.copytree(run.run.path, folder)
    view.show_run(RunFolder(folder))
    qtbot.waitUntil(lambda: view.pages.currentIndex() == FORM and view.form.start.isEnabled())
    told: list[str] = []
    view.pages.child.progress.connect(lambda progress: told.append(progress.what))
    view.form.start.click()
    qtbot.waitUntil(lambda: view.pages.currentIndex() == RESULT)
    assert any(what.startswith("Evaluating") for what in told)
    return RunFolder(folder)


@pytest.mark.long
def test_that_a_run_is_evaluated_its_masks_are_drawn_and_it_says_what_it_looks_at(
    empty_view: ModelView,
    trained: Callable[[str], Trained],  # noqa: F811
    tmp_path: Path,
    qtbot: QtBot,
) -> None:
    view, run = empty_view, trained("segmentation")
    evaluated(view, run, tmp_path / "run", qtbot)
    shown = {title: value for title, value, _ in view.result.summary.measures.texts()}
    assert shown["Mean IoU"] == f"{100 * run.measures['miou']:.1f} %"
    assert view.result.tabs.isTabVisible(CLASSES)
    assert not view.result.tabs.isTabVisible(CURVES)
    view.result.tabs.setCurrentIndex(SAMPLES)
    samples = view.result.samples
    samples.open(0)
    detail = samples.detail
    qtbot.waitUntil(detail.truth.isVisible)
    assert detail.truth.pane.trouble == detail.prediction.pane.trouble == ""
    assert [entry.name for entry in detail.drawings.legend] == ["class 0", "class 1", "class 2"]
    orders = detail.drawings._orders
    samples.open(1)
    qtbot.waitUntil(detail.truth.isVisible)
    assert detail.drawings._orders == orders  # it was drawn with the first
    detail.maps.on.setChecked(True)
    detail.maps.first.set_value("2")
    qtbot.waitUntil(lambda: bool(detail.maps.maps))
    ((title, image),) = detail.maps.maps
    assert "class 1" in title
    assert not isinstance(image, str)
    assert detail.heat[0].isVisible()
    folders = [made._folder for made in (detail.maps, detail.drawings)]
    view.close_work()
    assert not any(folder is None or Path(folder.name).exists() for folder in folders)
