"""Predictions on screen: truth beside prediction, through samples and validations, and images that are not there."""

from __future__ import annotations

from pathlib import Path

import pytest
from PySide6.QtCore import QPointF, Qt
from PySide6.QtGui import QColor, QImage
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot

from gui.run.header import CLASSES, CURVES, PREDICTIONS
from gui.run.page import RunPage
from gui.run.predictions.image_pane import ImagePane, Zoom, read_image
from gui.run.predictions.view import PredictionsView
from gui.sources.run_data import RunData
from gui.sources.run_session import RunSession
from tests.gui.run.evaluated_run import a_looked_run, draw
from tests.gui.sources.written_runs import a_run


@pytest.fixture
def view(styled: QApplication, qtbot: QtBot) -> PredictionsView:
    made = PredictionsView()
    qtbot.addWidget(made)
    made.resize(620, 560)
    made.show()
    return made


@pytest.fixture
def folder(view: PredictionsView) -> Path:
    """A past run's, which the view shows."""
    run = a_looked_run()
    data = RunData()
    data.apply_all(list(run.events()))
    view.show_data(run.path, data, active=False)
    return run.path


def middle(pane: ImagePane) -> QColor:
    return pane.grab().toImage().pixelColor(pane.rect().center())


def test_that_truth_stands_beside_prediction_with_their_words(view: PredictionsView, folder: Path) -> None:
    assert middle(view.truth) == QColor("#00ff00")
    assert middle(view.prediction) == QColor("#ff0000")
    assert (view.truth_words.text(), view.prediction_words.text()) == ("ash", "birch 4 %")
    assert view.name.text() == "val/0.png · sample 1 of 3"
    assert view.prediction.accessibleDescription() == "birch 4 %"


def test_that_keys_on_an_image_go_through_validations_and_samples(
    view: PredictionsView, folder: Path, qtbot: QtBot
) -> None:
    draw(folder / "predictions/000020/002.png", "#0000ff")
    for key in (Qt.Key.Key_Left, Qt.Key.Key_Left, Qt.Key.Key_Down, Qt.Key.Key_Down, Qt.Key.Key_Down):
        qtbot.keyClick(view.prediction, key)
    assert view.validation_slider.words.text() == "Epoch 2 of 4 · step 20"
    assert view.prediction_words.text() == "birch 2 %"
    assert middle(view.prediction) == QColor("#0000ff")
    qtbot.keyClick(view.truth, Qt.Key.Key_Home)
    assert view.validation_slider.position == 0
    qtbot.keyClick(view.truth, Qt.Key.Key_B)
    assert view.validation_slider.position == 3
    assert view.sample() is not None
    assert view.strip.currentRow() == 2


def test_that_a_legend_says_what_the_colours_stand_for_and_which_are_in_the_images(
    view: PredictionsView, folder: Path
) -> None:
    assert view.legend.isVisible()
    assert view.legend.toolTip().splitlines() == ["ash (unchanged)", "birch", "cedar"]
    assert view.legend.accessibleDescription() == "In the images: ash (unchanged)"
    view.strip.setCurrentRow(2)
    assert view.legend.accessibleDescription() == "In the images: cedar"
    run = a_run(40)
    view.restart()
    view.show_data(run.path, RunData(), active=True)
    assert not view.legend.isVisible()


def test_that_an_image_that_is_missing_or_damaged_is_said_in_place(
    view: PredictionsView, folder: Path, qtbot: QtBot
) -> None:
    (folder / "predictions/000040/001.png").unlink()
    cut = folder / "predictions/000040/002.png"
    cut.write_bytes(cut.read_bytes()[:-9])
    view.strip.forget()
    view.strip.setCurrentRow(1)
    assert view.prediction.trouble == "predictions/000040/001.png is missing."
    assert view.prediction.accessibleDescription() == view.prediction.trouble
    assert view.truth.trouble == ""
    view.strip.setCurrentRow(2)
    assert view.prediction.trouble == "predictions/000040/002.png can't be shown: it is truncated."
    assert not view.grab().isNull()
    qtbot.waitUntil(lambda: not view.strip._waiting and len(view.strip._small) == 6)
    small = view.strip.small("predictions/000040/002.png")
    assert small is not None
    assert small.isNull()
    draw(cut, "#ff0000")
    view.validation_slider.go(-1)
    view.validation_slider.go(1)
    assert view.prediction.trouble == ""


@pytest.mark.parametrize("name", ["/etc/passwd", "../job.toml", "predictions/../../x.png", ""])
def test_that_no_file_outside_the_runs_folder_is_read(tmp_path: Path, name: str) -> None:
    assert "is outside the run's folder" in str(read_image(tmp_path, name))


def test_that_a_file_that_is_no_image_is_said_to_be_none(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_text("hello")
    assert read_image(tmp_path, "a.png") == "a.png can't be shown: it is not a PNG image."
    draw(tmp_path / "b.png", "#ff0000")
    assert isinstance(read_image(tmp_path, "b.png"), QImage)


def test_that_both_images_zoom_and_pan_together(view: PredictionsView, folder: Path, qtbot: QtBot) -> None:
    whole = view.truth.image_rect()
    for _ in range(4):
        qtbot.keyClick(view.prediction, Qt.Key.Key_Plus)
    assert view.truth.image_rect().width() == pytest.approx(whole.width() * 1.25**4, rel=0.02)
    assert view.truth.image_rect() == view.prediction.image_rect()
    left = view.truth.image_rect().left()
    qtbot.keyClick(view.truth, Qt.Key.Key_Right, Qt.KeyboardModifier.ShiftModifier)
    assert view.prediction.image_rect().left() < left
    view.whole.click()
    assert view.truth.image_rect() == whole


def test_that_zooming_keeps_the_place_under_the_pointer_and_ends_at_the_edges() -> None:
    zoom = Zoom()
    zoom.by(2, QPointF(0.75, 0.5))
    assert zoom.centre == QPointF(0.625, 0.5)
    zoom.pan(QPointF(10, -10))
    assert zoom.centre == QPointF(0.75, 0.25)
    zoom.by(0.1)
    assert (zoom.factor, zoom.centre) == (1.0, QPointF(0.5, 0.5))


def test_that_a_run_without_predictions_says_why(view: PredictionsView) -> None:
    for changes, words in (({"predictions": 0}, "Set Predictions kept"), ({}, "saved no predictions")):
        run = a_run(40, **changes)  # type: ignore[arg-type]
        data = RunData()
        data.apply_all(list(run.events()))
        view.show_data(run.path, data, active=False)
        assert view._empty.isVisible()
        assert words in view._empty.text()


# On the run's page


@pytest.fixture
def page(styled: QApplication, qtbot: QtBot) -> RunPage:
    store = RunSession()
    made = RunPage(store)
    store.setParent(made)
    qtbot.addWidget(made, before_close_func=lambda _page: store.close())
    made.resize(640, 700)
    made.show()
    made.activateWindow()
    return made


def opened(page: RunPage, run: object, qtbot: QtBot) -> None:
    page.store.open(run)  # type: ignore[arg-type]
    qtbot.waitUntil(lambda: not page.store.loading and page.charts is not None)
    qtbot.waitUntil(lambda: page.store.up_to_date)


def test_that_keys_change_the_view_which_stays_for_the_next_run(page: RunPage, qtbot: QtBot) -> None:
    opened(page, a_looked_run(), qtbot)
    assert page.log.isVisible()
    for _ in range(2):
        qtbot.keyClick(page, Qt.Key.Key_PageDown, Qt.KeyboardModifier.ControlModifier)
    assert page.header.tabs.currentIndex() == PREDICTIONS
    assert page.predictions.strip.isVisible()
    assert not page.header.controls.axis.isVisible()
    opened(page, a_run(40), qtbot)
    assert page.predictions.isVisible()
    assert "saved no predictions" in page.predictions._empty.text()
    qtbot.keyClick(page, Qt.Key.Key_PageUp, Qt.KeyboardModifier.ControlModifier)
    assert page.header.tabs.currentIndex() == CLASSES
    opened(page, a_looked_run(), qtbot)
    qtbot.waitUntil(lambda: page.classes.shown.table.rows.rowCount() == 3)
    page.header.tabs.setCurrentIndex(CURVES)
    assert page.header.controls.axis.isVisible()


def test_that_an_image_is_dragged_out_as_a_png_file(view: PredictionsView, folder: Path) -> None:
    data = view.prediction.dragged()
    (url,) = data.urls()
    assert url.fileName().endswith("prediction.png")
    assert QImage(url.toLocalFile()) == QImage(data.imageData()).convertToFormat(QImage(url.toLocalFile()).format())
