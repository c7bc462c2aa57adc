"""Page of the batch-size finder."""

from __future__ import annotations

import pytest
from PySide6.QtCore import Qt
from pytestqt.qtbot import QtBot

from engine.contract.advice import BatchFound, BatchTrial
from engine.contract.job import Job
from engine.system import paths
from gui.finders.batch_size import BatchPage, describe_scaled_rate
from tests.support.widgets import ShowWidget

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
def page(show_widget: ShowWidget) -> BatchPage:
    """Return a page whose finder process has been canceled. Tests emit the messages of the process instead."""
    page = show_widget(BatchPage(), 700, 600, close=lambda widget: widget.child.close())
    page.show_job(JOB, [])
    page.child.cancel()
    return page


def test_batch_page_suggests_fast_enough_size(page: BatchPage, qtbot: QtBot) -> None:
    page.child.done.emit(FOUND)
    texts = [[page.table.item(row, column).text() for column in range(4)] for row in range(4)]
    assert texts == [
        ["64", "0.1 of 1.0 GiB", "300", ""],
        ["256", "0.2 of 1.0 GiB", "590", "fast enough"],
        ["900", "0.9 of 1.0 GiB", "600", "largest"],
        ["1,100", "doesn't fit", "–", ""],
    ]
    (line,) = page.plot.listDataItems()
    assert [line.xData.tolist(), line.yData.tolist()] == [[64, 256, 900], [300, 590, 600]]
    assert page.use.text() == "Use 256"
    with qtbot.waitSignal(page.closed), qtbot.waitSignal(page.used) as used:
        page.use.click()
    assert used.args == [{"batch_size": 256}]


def test_batch_page_selects_clicked_size_that_fits(page: BatchPage, qtbot: QtBot) -> None:
    page.child.done.emit(BatchFound(trials=(a_trial(4, None),), largest=None, knee=None, why="None fits.", remedy=""))
    page.child.done.emit(FOUND)
    assert (page.why.isVisible(), page.no_result.isVisible()) == (True, False)
    position = page.table.visualItemRect(page.table.item(0, 0)).center()
    qtbot.mouseClick(page.table.viewport(), Qt.MouseButton.LeftButton, pos=position)
    assert page.chosen() == 64
    assert "0.02" in page.rate.text()
    position = page.table.visualItemRect(page.table.item(3, 0)).center()
    qtbot.mouseClick(page.table.viewport(), Qt.MouseButton.LeftButton, pos=position)
    assert page.chosen() == 64  # since 1100 doesn't fit


def test_batch_page_shows_remedy_if_nothing_fits(page: BatchPage) -> None:
    page.child.done.emit(
        BatchFound(trials=(a_trial(4, None),), largest=None, knee=None, why="None fits.", remedy="Use smaller images.")
    )
    assert page.no_result.text() == "None fits. Use smaller images."
    assert not page.why.isVisible()
    assert not page.use.isEnabled()
    assert not page.plot.isVisible()
    page.child.done.emit(BatchFound(trials=FOUND.trials[::3], largest=64, knee=64, why="One fits."))
    assert (page.use.text(), page.table.item(0, 3).text()) == ("Use 64", "fast enough, largest")
    assert not page.plot.isVisible()


def test_batch_page_is_outdated_by_model_not_batch_size(page: BatchPage) -> None:
    page.child.done.emit(FOUND)
    page.set_job(JOB.with_fields(batch_size=64))
    assert page.notice.text() == ""
    page.set_job(JOB.with_fields(model="resnet18"))
    assert page.notice.text()


def test_scaled_rate_depends_on_optimizer() -> None:
    assert "0.002" in describe_scaled_rate("adamw", 0.001, 32, 128)
    assert "0.004" in describe_scaled_rate("sgd", 0.001, 32, 128)
    assert describe_scaled_rate("sgd", 0.001, 32, 32) == ""
