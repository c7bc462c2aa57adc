"""Page of the learning-rate finder."""

from __future__ import annotations

import math

import pyqtgraph as pg
import pytest
from PySide6.QtCore import Qt
from pytestqt.qtbot import QtBot

from engine.contract.advice import RateFound, RatePoint
from engine.contract.job import Job
from engine.contract.messages import Progress
from engine.contract.problems import Problem
from engine.system import paths
from gui.finders.learning_rate import RatePage
from tests.support.widgets import OpenWindow, ShowWidget

JOB = Job.from_fields(dataset=str(paths.sample_dataset()), model="mnist_cnn", image_size=28, batch_size=8)


def make_curve(**fields: object) -> RateFound:
    """Return a finder's result for a loss that falls by 1 between the learning rates 0.0001 and 0.1.

    `fields` override fields of the result.
    """
    points = tuple(
        RatePoint(10.0 ** (tenths / 10), loss, loss)
        for tenths, loss in ((p, 2.0 - max(0.0, min(1.0, (p + 40) / 30))) for p in range(-70, 0))
    )
    defaults = {
        "points": points,
        "suggestion": 2.5e-3,
        "why": "It falls there.",
        "steepest": 1e-2,
        "valley": 1e-3,
        "smoothing": 0.4,
        "diverged": False,
    }
    return RateFound(**(defaults | fields))  # type: ignore[arg-type]


@pytest.fixture
def page(show_widget: ShowWidget) -> RatePage:
    return show_widget(RatePage(), 700, 600, close=lambda widget: widget.child.close())


@pytest.fixture
def found(page: RatePage) -> RatePage:
    page.show_job(JOB, [])
    page.child.cancel()
    page.child.done.emit(make_curve())
    return page


def test_rate_page_shows_progress_and_cancels(page: RatePage, qtbot: QtBot) -> None:
    page.show_job(JOB.with_fields(strategy="ddp", devices=("cpu", "cpu")), [])
    assert page.child.running
    assert page.subtitle.text() == "MNIST CNN, DistributedDataParallel on 2 devices"
    page.child.progress.emit(Progress(0.4, "Training with a rising learning rate", 75.0))
    assert page.progress.value() == 40
    assert "1:15 min" in page.activity.text()
    with qtbot.waitSignal(page.closed):
        page.cancel.click()
    assert not page.child.running
    assert not page.progress.isVisible()


def test_rate_page_shows_problems_of_job(page: RatePage) -> None:
    page.show_job(JOB, [Problem("dataset", "There is no folder.", "Choose another.")])
    assert page.failure.text() == "There is no folder. Choose another."
    assert not page.child.running


def test_rate_page_retries_after_refusal(page: RatePage) -> None:
    page.show_job(JOB, [])
    page.child.cancel()
    page.child.refused.emit((Problem("batch_size", "Out of memory.", "Set a smaller batch."),))
    assert page.failure.text() == "Out of memory. Set a smaller batch."
    page.job_requested.connect(lambda: page.show_job(JOB, []))
    page.retry.click()
    assert page.child.running


def test_rate_page_uses_suggestion(found: RatePage, qtbot: QtBot) -> None:
    assert found.why.text() == "It falls there."
    assert found.subtitle.text() == "MNIST CNN, Single device"
    lines = [item.value() for item in found.plot.getPlotItem().items if isinstance(item, pg.InfiniteLine)]
    assert lines == pytest.approx([math.log10(rate) for rate in (2.5e-3, 1e-2, 1e-3, 2.5e-3)])
    assert found.plot.getViewBox().state["targetRange"][1] == pytest.approx([1, 2.6], abs=0.04)
    with qtbot.waitSignal(found.job_requested):
        found.repeat.click()
    assert found.use.text() == "Use 0.0025"
    with qtbot.waitSignal(found.closed), qtbot.waitSignal(found.used) as used:
        found.use.click()
    assert used.args == [{"learning_rate": 2.5e-3}]


def test_rate_plot_selects_clicked_rate(found: RatePage, qtbot: QtBot) -> None:
    qtbot.waitUntil(lambda: found.plot.getViewBox().width() > 100)
    box = found.plot.getViewBox()
    middle = (box.viewRange()[1][0] + box.viewRange()[1][1]) / 2
    position = found.plot.mapFromScene(box.mapViewToScene(type(box.viewRect().topLeft())(-4.0, middle)))
    qtbot.mouseClick(found.plot.viewport(), Qt.MouseButton.LeftButton, pos=position)
    qtbot.waitUntil(lambda: found.plot.rate != 2.5e-3)
    assert found.focusWidget() is found.plot
    assert found.plot.rate is not None
    assert math.log10(found.plot.rate) == pytest.approx(-4.0, abs=0.05)


def test_rate_plot_selects_by_keys_and_buttons(found: RatePage, qtbot: QtBot) -> None:
    qtbot.keyClick(found.plot, Qt.Key.Key_Right)
    assert found.chosen() == 0.0028
    for _press in range(2):
        qtbot.keyClick(found.plot, Qt.Key.Key_Left)
    assert found.chosen() == 0.0022
    found.plot.choose(1e-12)
    assert found.chosen() == 1e-7
    found.marks["steepest"].click()
    assert found.chosen() == 0.01
    assert found.marks["suggestion"].text() == "Safe (minimum ÷ 10) 0.0025"
    found.plot.choose(1e3)
    assert found.chosen() == pytest.approx(10**-0.1, rel=0.01)


def test_rate_plot_axis_has_no_scale_factor(found: RatePage) -> None:
    found.plot.setXRange(-5.0, -1.2)
    found.grab()  # the axis is scaled when it is painted
    assert "(x" not in found.plot.getAxis("bottom").labelString()


def test_rate_page_without_suggestion_allows_choice(page: RatePage) -> None:
    page.show_job(JOB, [])
    page.child.cancel()
    page.child.done.emit(
        make_curve(suggestion=None, why="It never falls.", remedy="Look at the labels.", steepest=None, valley=None)
    )
    assert page.no_result.text() == "It never falls. Look at the labels."
    assert not page.use.isEnabled()
    assert not page.marks["suggestion"].isVisible()
    page.plot.choose(1e-3)
    assert page.use.text() == "Use 0.001"
    assert page.use.isEnabled()


def test_rate_page_is_outdated_by_relevant_fields(found: RatePage) -> None:
    found.set_job(JOB.with_fields(batch_size=64))
    assert found.notice.text()
    found.set_job(JOB.with_fields(epochs=9, learning_rate=0.3, name="other"))
    assert found.notice.text() == ""
    found.show_job(JOB.with_fields(epochs=9), [])
    assert not found.child.running


@pytest.mark.long
def test_rate_page_fills_form(open_window: OpenWindow, qtbot: QtBot) -> None:
    window = open_window()
    window.form.set_job(JOB)
    qtbot.waitUntil(window.form.train.isEnabled)
    window.form.find_buttons["learning_rate"].click()
    page = window.workspace.get_page("learning_rate")
    assert window.pages.currentWidget() is page
    qtbot.waitUntil(lambda: page.found is not None)
    rate = page.chosen()
    page.use.click()
    assert window.pages.currentWidget() is window.train
    assert window.form.field_value("learning_rate") == rate
