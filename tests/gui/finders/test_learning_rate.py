"""The page of the learning-rate finder: what it says while it tries, what it found, and what a click takes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import pytest
from PySide6.QtCore import QPoint, Qt
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot

from engine.contract.finders import FinderProgress, RateFound, RatePoint
from engine.contract.job import Job
from engine.contract.problems import Problem
from engine.system import paths
from gui.finders.learning_rate import RatePage
from gui.main_window import MainWindow

JOB = Job.from_fields(dataset=str(paths.sample_dataset()), model="mnist_cnn", image_size=28, batch_size=8)


def a_curve(**fields: object) -> RateFound:
    """Falls by 1 from a rate of 0.0001 to one of 0.1, the valley in between."""
    points = tuple(
        RatePoint(10.0 ** (place / 10), loss, loss)
        for place, loss in ((p, 2.0 - max(0.0, min(1.0, (p + 40) / 30))) for p in range(-70, 0))
    )
    own = {
        "points": points,
        "suggestion": 2.5e-3,
        "why": "It falls there.",
        "steepest": 1e-2,
        "valley": 1e-3,
        "smoothing": 0.4,
        "diverged": False,
    }
    return RateFound(**(own | fields))  # type: ignore[arg-type]


@pytest.fixture
def page(styled: QApplication, qtbot: QtBot) -> Iterator[RatePage]:
    """A page whose finder never gets far: what it would answer is said by the test."""
    made = RatePage()
    qtbot.addWidget(made)
    made.resize(700, 600)
    made.show()
    yield made
    made.child.close()


@pytest.fixture
def found(page: RatePage) -> RatePage:
    page.show_job(JOB, [])
    page.child.cancel()
    page.child.done.emit(a_curve())
    return page


def test_that_the_empty_page_says_how_to_find_a_rate(page: RatePage) -> None:
    assert "magnifying glass next to Learning rate" in page._stack.currentWidget().text()  # type: ignore[attr-defined]


def test_that_progress_is_told_with_the_time_left_and_can_be_cancelled(page: RatePage, qtbot: QtBot) -> None:
    page.show_job(JOB, [])
    assert page.child.running
    page.child.progress.emit(FinderProgress(0.4, "Training with a rising learning rate", 75.0))
    assert page.progress.value() == 40
    assert page.what.text() == "Training with a rising learning rate, 1:15 min left"
    with qtbot.waitSignal(page.closed):
        page.cancel.click()
    assert not page.child.running
    assert "No learning rate found yet" in page._stack.currentWidget().text()  # type: ignore[attr-defined]


def test_that_problems_of_the_job_are_told_and_nothing_is_tried(page: RatePage) -> None:
    page.show_job(JOB, [Problem("dataset", "There is no folder.", "Choose another.")])
    assert page.fault.text() == "There is no folder. Choose another."
    assert not page.child.running


def test_that_a_refusal_is_shown_and_can_be_tried_again(page: RatePage) -> None:
    page.show_job(JOB, [])
    page.child.cancel()
    page.child.refused.emit((Problem("batch_size", "Out of memory.", "Set a smaller batch."),))
    assert page.fault.text() == "Out of memory. Set a smaller batch."
    page.wanted.connect(lambda: page.show_job(JOB, []))
    page.again.click()
    assert page.child.running


def test_that_the_suggestion_is_told_with_its_reason_and_taken_by_the_button(found: RatePage, qtbot: QtBot) -> None:
    assert found.why.text() == "It falls there."
    assert found.use.text() == "Use 0.0025"
    with qtbot.waitSignal(found.closed), qtbot.waitSignal(found.used) as used:
        found.use.click()
    assert used.args == [{"learning_rate": 2.5e-3}]


def test_that_a_click_in_the_plot_takes_the_rate_below_it(found: RatePage, qtbot: QtBot) -> None:
    qtbot.waitUntil(lambda: found.plot.getViewBox().width() > 100)
    box = found.plot.getViewBox()
    middle = (box.viewRange()[1][0] + box.viewRange()[1][1]) / 2
    place = found.plot.mapFromScene(box.mapViewToScene(type(box.viewRect().topLeft())(-4.0, middle)))
    qtbot.mouseClick(found.plot.viewport(), Qt.MouseButton.LeftButton, pos=QPoint(round(place.x()), round(place.y())))
    qtbot.waitUntil(lambda: found.plot.rate != 2.5e-3)
    assert found.plot.rate is not None
    assert math.log10(found.plot.rate) == pytest.approx(-4.0, abs=0.05)
    assert found.use.text() in ("Use 0.0001", "Use 9.9e-05", "Use 9.8e-05", "Use 0.00011")


def test_that_arrow_keys_and_the_marks_choose_a_rate_within_the_curve(found: RatePage, qtbot: QtBot) -> None:
    qtbot.keyClick(found.plot, Qt.Key.Key_Right)
    assert found.chosen() == 0.0028
    found.marks["steepest"].click()
    assert found.chosen() == 0.01
    assert found.marks["suggestion"].text() == "Minimum / 10 0.0025"
    found.plot.choose(1e3)
    assert found.chosen() == pytest.approx(10**-0.1, rel=0.01)


def test_that_the_axis_tells_rates_as_they_are(found: RatePage) -> None:
    found.plot.setXRange(-5.0, -1.2)
    found.grab()  # it is scaled when it is drawn
    assert "(x" not in found.plot.getAxis("bottom").labelString()


def test_that_a_curve_without_a_suggestion_says_why_and_still_lets_a_rate_be_clicked(page: RatePage) -> None:
    page.show_job(JOB, [])
    page.child.cancel()
    page.child.done.emit(
        a_curve(suggestion=None, why="It never falls.", remedy="Look at the labels.", steepest=None, valley=None)
    )
    assert page.none.text() == "It never falls. Look at the labels."
    assert not page.use.isEnabled()
    assert not page.marks["suggestion"].isVisible()
    page.plot.choose(1e-3)
    assert page.use.text() == "Use 0.001"
    assert page.use.isEnabled()


def test_that_a_job_that_has_moved_on_is_told_but_for_what_the_rate_does_not_depend_on(found: RatePage) -> None:
    found.set_job(JOB.with_fields(batch_size=64))
    assert "has changed since" in found.notice.text()
    found.set_job(JOB.with_fields(epochs=9, learning_rate=0.3, name="other"))
    assert found.notice.text() == ""
    found.show_job(JOB.with_fields(epochs=9), [])
    assert not found.child.running


@pytest.mark.long
def test_that_the_form_leads_to_a_rate_and_the_rate_back_into_the_form(
    open_window: Callable[[], MainWindow], qtbot: QtBot
) -> None:
    window = open_window()
    assert window.workspace is not None
    window.form.set_job(JOB)
    qtbot.waitUntil(window.form.train.isEnabled)
    window.form.find_buttons["learning_rate"].click()
    page = window.workspace.finders["learning_rate"]
    assert window.pages.currentWidget() is page
    qtbot.waitUntil(lambda: page.found is not None)
    rate = page.chosen()
    page.use.click()
    assert window.pages.currentWidget() is window.workspace.run
    assert window.form.field_value("learning_rate") == rate
