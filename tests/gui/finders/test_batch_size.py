"""The page of the batch-size finder: the sizes that were tried, and which of them is taken."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QApplication, QLabel
from pytestqt.qtbot import QtBot

from engine.contract.finders import BatchFound, BatchTrial
from engine.contract.job import Job
from engine.contract.problems import Problem
from engine.system import paths
from gui.finders.batch_size import BatchPage, scaled_rate
from gui.main_window import MainWindow

JOB = Job.from_fields(
    dataset=str(paths.sample_dataset()), model="mnist_cnn", image_size=28, batch_size=32, learning_rate=0.01
)


def a_trial(size: int, speed: float | None) -> BatchTrial:
    if speed is None:
        return BatchTrial(size=size, fits=False)
    return BatchTrial(
        size=size, fits=True, images_per_second=speed, memory_bytes=size << 20, limit_bytes=1 << 30, limit="memory"
    )


FOUND = BatchFound(
    trials=(a_trial(64, 300.0), a_trial(256, 590.0), a_trial(900, 600.0), a_trial(1100, None)),
    largest=900,
    knee=256,
    why="Batches of 900 are the largest that fit.",
)


@pytest.fixture
def page(styled: QApplication, qtbot: QtBot) -> Iterator[BatchPage]:
    """A page whose finder never gets far: what it would answer is said by the test."""
    made = BatchPage()
    qtbot.addWidget(made)
    made.resize(700, 600)
    made.show()
    made.show_job(JOB, [])
    made.child.cancel()
    yield made
    made.child.close()


def test_that_all_sizes_are_shown_and_the_fastest_of_few_is_chosen(page: BatchPage, qtbot: QtBot) -> None:
    page.child.done.emit(FOUND)
    texts = [[page.table.item(row, column).text() for column in range(4)] for row in range(4)]
    assert texts[1] == ["256", "0.2 of 1.0 GiB", "590", "fast enough"]
    assert texts[2][3] == "largest"
    assert texts[3][1] == "doesn't fit"
    assert page.use.text() == "Use 256"
    with qtbot.waitSignal(page.closed), qtbot.waitSignal(page.used) as used:
        page.use.click()
    assert used.args == [{"batch_size": 256}]


def test_that_a_click_takes_another_size_and_tells_what_is_usual_for_the_rate(page: BatchPage, qtbot: QtBot) -> None:
    page.child.done.emit(FOUND)
    place = page.table.visualItemRect(page.table.item(0, 0)).center()
    qtbot.mouseClick(page.table.viewport(), Qt.MouseButton.LeftButton, pos=place)
    assert page.chosen() == 64
    assert "0.01 at batch size 32 would become 0.02" in page.rate.text()
    place = page.table.visualItemRect(page.table.item(3, 0)).center()
    qtbot.mouseClick(page.table.viewport(), Qt.MouseButton.LeftButton, pos=place)
    assert page.chosen() == 64  # what does not fit cannot be taken


def test_that_where_nothing_fits_the_remedy_is_told_and_nothing_can_be_taken(page: BatchPage) -> None:
    page.child.done.emit(
        BatchFound(trials=(a_trial(4, None),), largest=None, knee=None, why="None fits.", remedy="Use smaller images.")
    )
    assert page.none.text() == "None fits. Use smaller images."
    assert not page.use.isEnabled()
    assert not page.plot.isVisible()


def test_that_another_batch_size_in_the_form_changes_nothing_and_another_model_does(page: BatchPage) -> None:
    page.child.done.emit(FOUND)
    page.set_job(JOB.with_fields(batch_size=64))
    assert page.notice.text() == ""
    page.set_job(JOB.with_fields(model="resnet18"))
    assert "has changed since" in page.notice.text()


def test_that_adaptive_optimizers_scale_the_rate_by_the_square_root() -> None:
    assert "0.001 at batch size 32 would become 0.002" in scaled_rate("adamw", 0.001, 32, 128)
    assert "would become 0.004" in scaled_rate("sgd", 0.001, 32, 128)
    assert scaled_rate("sgd", 0.001, 32, 32) == ""


def test_that_the_form_leads_to_the_page_and_its_size_back_into_the_form(
    open_window: Callable[[], MainWindow], qtbot: QtBot
) -> None:
    window = open_window()
    assert window.workspace is not None
    window.form.set_job(JOB)
    qtbot.waitUntil(lambda: window.form.job is not None and not window.form.disk.unanswered)
    window.form.find_buttons["batch_size"].click()
    page = window.workspace.finders["batch_size"]
    assert window.pages.currentWidget() is page
    assert page.child.running
    page.child.cancel()
    page.child.done.emit(FOUND)
    page.use.click()
    assert window.pages.currentWidget() is window.workspace.run
    assert window.form.field_value("batch_size") == 256
    assert window.form.find_buttons["batch_size"].hasFocus()


def test_that_a_long_fault_is_told_in_full(page: BatchPage, qtbot: QtBot) -> None:
    page.child.refused.emit((Problem("devices", "This is in the way. " * 20, "Do something about it."),))
    text = next(label for label in page.fault.findChildren(QLabel) if label.text())
    qtbot.waitUntil(lambda: text.isVisible() and text.width() > 300)
    assert text.height() >= text.heightForWidth(text.width())
    assert page.fault.geometry().center().x() == pytest.approx(page.again.geometry().center().x(), abs=2)
