"""Page for split points: measuring, moving and applying them, and problems."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from PySide6.QtCore import Qt
from PySide6.QtGui import QAccessible
from PySide6.QtWidgets import QApplication, QWidget
from pytestqt.qtbot import QtBot

from engine.contract.job import Job
from engine.contract.messages import Progress
from engine.contract.model_split import ModelSplit
from engine.contract.problems import Problem
from engine.parallel.split_points import CannotSplit
from engine.system import paths
from gui.main_window import MainWindow
from gui.sources.json_lines import RequestProcess
from gui.split_points.page import SplitPointsPage
from gui.split_points.page import make_planner as create_planner
from tests.gui.split_points.example import make_split
from tests.support.widgets import OpenWindow, ShowWidget

JOB = Job.from_fields(
    dataset=str(paths.sample_dataset()),
    model="mnist_cnn",
    image_size=28,
    strategy="pipeline",
    devices=("cpu", "cpu"),
)


@pytest.fixture
def planner(qapp: QApplication) -> Iterator[RequestProcess]:
    created = create_planner()
    yield created
    created.close()


@pytest.fixture
def page(show_widget: ShowWidget) -> SplitPointsPage:
    """Return a page without a planner process. Tests emit the results of the process instead."""
    return show_widget(SplitPointsPage(), 760, 640, close=lambda widget: widget.child.close())


@pytest.fixture
def measured(page: SplitPointsPage) -> SplitPointsPage:
    page.show_job(JOB, [], {})
    page.child.cancel()
    page.child.done.emit(make_split())
    return page


@pytest.mark.long
def test_planner_measures_with_progress(planner: RequestProcess, qtbot: QtBot) -> None:
    progress: list[Progress] = []
    planner.progress.connect(progress.append)
    with qtbot.waitSignal(planner.done) as answer:
        planner.start(JOB)
    split: ModelSplit = answer.args[0]
    assert split.chosen
    assert len(split.split_points) == 1
    assert split.devices == ("cpu", "cpu")
    assert progress[0].fraction == 0.0
    assert progress[-1].fraction > 0.5
    assert not planner.running


@pytest.mark.long
def test_planner_refuses_impossible_split(planner: RequestProcess, qtbot: QtBot) -> None:
    with qtbot.waitSignal(planner.refused) as answer:
        planner.start(JOB.with_fields(devices=("cpu",) * 40))
    problems: tuple[Problem, ...] = answer.args[0]
    (problem,) = problems
    assert problem.message
    assert problem.remedy


def test_page_shows_progress(page: SplitPointsPage) -> None:
    page.show_job(JOB, [], {})
    page.child.progress.emit(Progress(0.4, "Measuring on the CPU"))
    assert page.progress.value() == 40
    assert "Measuring on the CPU" in page.activity.text()
    assert page.cancel.isVisible()


def test_page_shows_problems_instead_of_measuring(page: SplitPointsPage) -> None:
    page.show_job(JOB, [Problem("strategy", "VGG can't be split.", "Choose another model.")], {})
    assert page.failure.text() == "VGG can't be split. Choose another model."
    assert page.failure.isVisible()
    page.show_job(JOB.with_fields(devices=("box:cpu", "cpu")), [], {})
    assert page.failure.text() not in ("", "VGG can't be split. Choose another model.")
    assert not page.child.running


def test_page_ignores_unrelated_problems(measured: SplitPointsPage) -> None:
    problems = [Problem("resume_from", "There is no such file."), Problem("split_points", "Unknown split points.")]
    measured.show_job(JOB, problems, {})
    assert measured.view.isVisible()
    assert not measured.failure.isVisible()


def test_page_shows_refusal_and_failure_with_retry(page: SplitPointsPage) -> None:
    page.show_job(JOB, [], {})
    page.child.done.emit(make_split())
    page.back.setFocus()
    page.focusNextChild()
    assert page.focusWidget() is page.view.diagram.handles[0]
    assert page.title.text() == "Split points of MNIST CNN"
    assert page.subtitle.text() == "Pipeline, 2 stages on 2 devices · GPipe, 8 microbatches of 4 images"
    page.set_job(JOB.with_fields(batch_size=64))
    page.show_job(JOB.with_fields(batch_size=64), [], {})
    page.set_job(JOB)
    for problems in ([Problem("strategy", "It can't be split.")], []):
        page.child.done.emit(make_split())
        assert page.notice.isVisible()  # the job has changed during the trial
        page.show_job(JOB, problems, {})
        assert not page.notice.isVisible()
    assert (page.found, page.focusWidget()) == (None, page.cancel)
    page.child.refused.emit((Problem("devices", "Too many stages.", "Use fewer devices."),))
    assert (page.focusWidget(), page.notice.isVisible()) == (page.retry, False)
    assert page.failure.text() == "Too many stages. Use fewer devices."
    assert (page.title.text(), page.subtitle.text()) == ("Split points of the model", "")
    page.child.failed.emit("Measuring the model ended early: killed")
    assert "ended early: killed Measure again" in page.failure.text()
    page.child.cancel()
    page.job_requested.connect(lambda: page.show_job(JOB, [], {}))
    page.retry.click()
    assert page.child.running


def test_page_uses_moved_or_automatic_split_points(measured: SplitPointsPage, qtbot: QtBot) -> None:
    with qtbot.waitSignal(measured.closed), qtbot.waitSignal(measured.used) as used:
        measured.view.use.click()
    assert used.args == [{"split_points": ()}]
    measured.view.diagram.step(0, 1)
    with qtbot.waitSignal(measured.used) as used:
        measured.view.use.click()
    assert used.args == [{"split_points": ("block3",)}]


def test_automatic_button_resets_moved_split_point(
    measured: SplitPointsPage, qtbot: QtBot, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_split: ModelSplit) -> ModelSplit:
        raise CannotSplit("it is too small", remedy="Use fewer devices.")

    measured.view.diagram.step(0, 2)
    assert measured.found.split_points == ("block4",)
    measured.view.automatic.click()
    assert measured.found.split_points == ("block2",)
    assert measured.found.chosen
    measured.view.diagram.step(0, -1)
    with monkeypatch.context() as patch:
        patch.setattr("gui.split_points.page.choose_points", fail)
        measured.view.automatic.click()
    assert measured.notice.text() == "There are no automatic split points: it is too small. Use fewer devices."
    assert measured.found.split_points == ("block1",)
    qtbot.keyClick(measured.view.diagram.handles[0], Qt.Key.Key_Home)
    assert measured.found.split_points == ("block2",)


def test_page_reuses_measurement_with_split_points_of_job(measured: SplitPointsPage) -> None:
    measured.show_job(JOB.with_fields(split_points=("block1",), epochs=9), [], {})
    assert not measured.child.running
    assert measured.found.split_points == ("block1",)
    assert not measured.found.chosen
    measured.show_job(JOB, [], {})
    assert measured.found.split_points == ("block2",)


def test_page_rejects_split_points_of_another_model(measured: SplitPointsPage) -> None:
    measured.show_job(JOB.with_fields(split_points=("nowhere",)), [], {})
    assert measured.found.split_points == ("block2",)
    assert measured.notice.isVisible()


def test_changed_job_makes_split_points_stale(measured: SplitPointsPage) -> None:
    assert measured.view.use.isEnabled()
    measured.set_job(JOB.with_fields(batch_size=64))
    assert measured.notice.isVisible()
    assert not measured.view.use.isEnabled()
    measured.set_job(JOB.with_fields(epochs=7))
    assert not measured.notice.isVisible()
    assert measured.view.use.isEnabled()


def test_escape_leaves_page_and_cancels(page: SplitPointsPage, qtbot: QtBot) -> None:
    page.show_job(JOB, [], {})
    qtbot.waitUntil(page.isActiveWindow)
    with qtbot.waitSignal(page.closed):
        qtbot.keyClick(page.cancel, Qt.Key.Key_Escape)
    assert not page.child.running


@pytest.mark.long
def test_form_opens_page_and_takes_split_points(open_window: OpenWindow, qtbot: QtBot) -> None:
    window = open_window()
    window.form.set_job(JOB)
    window.workspace.devices.set_selection(JOB.parallel.devices)
    qtbot.waitUntil(window.form.train.isEnabled)
    window.form.split_points.show_button.click()
    page = window.workspace.get_page("split_points")
    assert window.pages.currentWidget() is page
    qtbot.waitUntil(lambda: page.found is not None)
    handle = page.view.diagram.handles[0]
    qtbot.keyClick(handle, Qt.Key.Key_Left)
    qtbot.keyClick(handle, Qt.Key.Key_Left)
    moved_points = page.found.split_points
    assert list_tab_stops(window, page.back, 6, qtbot) == [
        "Back from the split points", "Split point 1 of 1", "Automatic split points", "Measure the model again",
        "Use these split points", "Table of stages",
    ]  # fmt: skip
    page.view.use.click()
    assert window.pages.currentWidget() is window.train
    assert window.form.split_points.line.text() == "moved by hand (1 split point)"
    qtbot.waitUntil(lambda: window.form.job is not None and window.form.job.parallel.split_points == moved_points)
    window.form.rows["split_points"].reset.click()
    assert window.form.split_points.line.text() == "automatic"
    window.form.split_points.show_button.click()
    assert page.found.chosen
    assert not page.child.running
    page.view.measure_again.click()
    assert page.child.running
    window.header.show_page(0)
    assert window.pages.currentWidget() is window.train


def list_tab_stops(window: MainWindow, first: QWidget, count: int, qtbot: QtBot) -> list[str]:
    """Return the accessible names of `first` and the `count` - 1 widgets that Tab reaches after it."""
    qtbot.waitUntil(window.isActiveWindow)
    first.setFocus()
    names = []
    for _ in range(count):
        focused = QApplication.focusWidget()
        interface = QAccessible.queryAccessibleInterface(focused)
        names.append(interface.text(QAccessible.Text.Name))
        window.focusNextChild()
    return names
