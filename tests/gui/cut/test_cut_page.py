"""The page of the cut: measured by the real planner, moved, used, and what it says where there is nothing to show."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from PySide6.QtCore import Qt
from PySide6.QtGui import QAccessible
from PySide6.QtWidgets import QApplication, QWidget
from pytestqt.qtbot import QtBot

from engine.contract.cut import Cut
from engine.contract.job import Job
from engine.contract.planning import PlanningProgress
from engine.contract.problems import Problem
from engine.system import paths
from gui.cut.page import CutPage
from gui.cut.planner import Planner
from gui.main_window import MainWindow
from tests.gui.cut.example import a_cut

JOB = Job.from_fields(
    dataset=str(paths.sample_dataset()),
    model="mnist_cnn",
    image_size=28,
    strategy="pipeline",
    devices=("cpu", "cpu"),
)


@pytest.fixture
def planner(qapp: QApplication) -> Iterator[Planner]:
    made = Planner()
    yield made
    made.close()


@pytest.fixture
def page(styled: QApplication, qtbot: QtBot) -> Iterator[CutPage]:
    """A page whose planner never gets to start: what it would answer is said by the test."""
    made = CutPage()
    qtbot.addWidget(made)
    made.resize(760, 640)
    made.show()
    yield made
    made.planner.close()


@pytest.fixture
def measured(page: CutPage) -> CutPage:
    page.show_job(JOB, [], {})
    page.planner.cancel()
    page.planner.done.emit(a_cut())
    return page


@pytest.mark.long
def test_that_a_model_is_measured_with_progress(planner: Planner, qtbot: QtBot) -> None:
    progress: list[PlanningProgress] = []
    planner.progress.connect(progress.append)
    with qtbot.waitSignal(planner.done) as answer:
        planner.start(JOB)
    assert answer.args is not None
    cut: Cut = answer.args[0]
    assert cut.chosen
    assert len(cut.cuts) == 1
    assert cut.devices == ("cpu", "cpu")
    assert progress[0].fraction == 0.0
    assert progress[-1].fraction > 0.5
    assert not planner.running


@pytest.mark.long
def test_that_a_model_that_cannot_be_cut_is_answered_with_the_problem(planner: Planner, qtbot: QtBot) -> None:
    with qtbot.waitSignal(planner.refused) as answer:
        planner.start(JOB.with_fields(devices=("cpu",) * 40))
    assert answer.args is not None
    problem: Problem = answer.args[0]
    assert problem.message
    assert problem.remedy


def test_that_the_empty_page_says_how_to_get_a_cut(page: CutPage) -> None:
    label = page._stack.currentWidget()
    assert "Show partition…" in label.text()  # type: ignore[attr-defined]


def test_that_while_measuring_the_page_tells_how_far_it_is(page: CutPage) -> None:
    page.show_job(JOB, [], {})
    page.planner.progress.emit(PlanningProgress(0.4, "Measuring on the CPU"))
    assert page.progress.value() == 40
    assert page.what.text() == "Measuring on the CPU …"
    assert page.cancel.isVisible()


def test_that_problems_of_the_job_are_told_with_their_remedy_and_nothing_is_measured(page: CutPage) -> None:
    page.show_job(JOB, [Problem("strategy", "VGG can't be cut.", "Choose another model.")], {})
    assert page.fault.text() == "VGG can't be cut. Choose another model."
    assert page.fault.isVisible()
    assert not page.planner.running


def test_that_problems_elsewhere_in_the_job_do_not_keep_its_cut_from_being_shown(measured: CutPage) -> None:
    wrong = [Problem("resume_from", "There is no such file."), Problem("cuts", "These are no places of the model.")]
    measured.show_job(JOB, wrong, {})
    assert measured.view.isVisible()
    assert not measured.fault.isVisible()


def test_that_a_refusal_and_a_fault_are_shown_and_can_be_tried_again(page: CutPage) -> None:
    page.show_job(JOB, [], {})
    page.planner.refused.emit(Problem("devices", "Too many stages.", "Use fewer devices."))
    assert page.fault.text() == "Too many stages. Use fewer devices."
    page.planner.failed.emit("Measuring the model ended early: killed")
    assert "ended early: killed Measure again" in page.fault.text()
    page.planner.cancel()
    page.wanted.connect(lambda: page.show_job(JOB, [], {}))
    page.again.click()
    assert page.planner.running


def test_that_a_moved_cut_can_be_used_and_an_automatic_one_leaves_the_choice_to_the_run(
    measured: CutPage, qtbot: QtBot
) -> None:
    with qtbot.waitSignals([measured.used, measured.closed]):
        measured.view.use.click()
    measured.view.image.step(0, 1)
    with qtbot.waitSignal(measured.used) as used:
        measured.view.use.click()
    assert used.args == [("block3",)]


def test_that_automatic_goes_back_from_a_moved_cut(measured: CutPage, qtbot: QtBot) -> None:
    measured.view.image.step(0, 2)
    assert measured.cut is not None
    assert measured.cut.cuts == ("block4",)
    measured.view.automatic.click()
    assert measured.cut.cuts == ("block2",)
    assert measured.cut.chosen
    measured.view.image.step(0, -1)
    qtbot.keyClick(measured.view.image.handles[0], Qt.Key.Key_Home)
    assert measured.cut.cuts == ("block2",)


def test_that_a_measured_cut_is_shown_again_without_measuring_and_with_the_jobs_own_cuts(measured: CutPage) -> None:
    measured.show_job(JOB.with_fields(cuts=("block1",), epochs=9), [], {})
    assert not measured.planner.running
    assert measured.cut is not None
    assert measured.cut.cuts == ("block1",)
    assert not measured.cut.chosen
    measured.show_job(JOB, [], {})
    assert measured.cut.cuts == ("block2",)


def test_that_cuts_of_another_model_are_told_of_and_not_shown(measured: CutPage) -> None:
    measured.show_job(JOB.with_fields(cuts=("nowhere",)), [], {})
    assert measured.cut is not None
    assert measured.cut.cuts == ("block2",)
    assert "do not fit this model" in measured.notice.text()


def test_that_a_job_that_has_moved_on_makes_the_cut_stale(measured: CutPage) -> None:
    assert measured.view.use.isEnabled()
    measured.set_job(JOB.with_fields(batch_size=64))
    assert "has changed since" in measured.notice.text()
    assert not measured.view.use.isEnabled()
    measured.set_job(JOB.with_fields(epochs=7))
    assert measured.notice.text() == ""
    assert measured.view.use.isEnabled()


def test_that_escape_leaves_the_page_and_ends_measuring(page: CutPage, qtbot: QtBot) -> None:
    page.show_job(JOB, [], {})
    qtbot.waitActive(page)
    with qtbot.waitSignal(page.closed):
        qtbot.keyClick(page.cancel, Qt.Key.Key_Escape)
    assert not page.planner.running


@pytest.mark.long
def test_that_the_form_leads_to_the_cut_and_the_cut_back_into_the_form(
    open_window: Callable[[], MainWindow], qtbot: QtBot
) -> None:
    window = open_window()
    assert window.workspace is not None
    window.form.set_job(JOB)
    window.workspace.devices.set_selection(JOB.parallel.devices)
    qtbot.waitUntil(window.form.train.isEnabled)
    window.form.cuts.show_button.click()
    page = window.workspace.cut
    assert window.pages.currentWidget() is page
    qtbot.waitUntil(lambda: page.cut is not None)
    assert page.cut is not None
    handle = page.view.image.handles[0]
    qtbot.keyClick(handle, Qt.Key.Key_Left)
    qtbot.keyClick(handle, Qt.Key.Key_Left)
    wanted = page.cut.cuts
    assert stops(window, page.back, 6, qtbot) == [
        "Back from the cut", "Cut 1 of 1", "Automatic cut", "Measure the cut again", "Use this cut", "Stages of the cut",
    ]  # fmt: skip
    page.view.use.click()
    assert window.pages.currentWidget() is window.workspace.run
    assert window.form.cuts.line.text() == "moved by hand (1 cut)"
    qtbot.waitUntil(lambda: window.form.job is not None and window.form.job.parallel.cuts == wanted)
    window.form.rows["cuts"].reset.click()
    assert window.form.cuts.line.text() == "automatic"
    window.form.cuts.show_button.click()
    assert page.cut.chosen
    assert not page.planner.running
    page.view.measure_again.click()
    assert page.planner.running
    window.header.show_page(0)
    assert window.pages.currentWidget() is window.workspace.run


def stops(window: MainWindow, first: QWidget, count: int, qtbot: QtBot) -> list[str]:
    """The names of `first` and of what Tab goes to after it."""
    qtbot.waitActive(window)
    first.setFocus()
    names = []
    for _ in range(count):
        focused = QApplication.focusWidget()
        interface = QAccessible.queryAccessibleInterface(focused)
        names.append(interface.text(QAccessible.Text.Name))
        window.focusNextChild()
    return names
