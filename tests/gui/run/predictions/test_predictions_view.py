"""Sample predictions of a run: choice of sample and validation, zoom, and missing images."""

from __future__ import annotations

import threading
from collections.abc import Callable
from itertools import groupby
from pathlib import Path

import pytest
from msgspec import structs
from PySide6.QtCore import QPoint, QPointF, QRectF, QSize, Qt
from PySide6.QtGui import QColor, QDrag, QImage
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot

from engine.contract.events import AnyEvent
from engine.runs.folder import RunFolder
from gui.run.header import CLASSES, CURVES, PREDICTIONS
from gui.run.page import RunPage
from gui.run.predictions.image_pane import ImagePane, Zoom, read_image
from gui.run.predictions.view import PredictionsView
from gui.sources.background import Background
from gui.sources.run_data import RunData
from gui.style import theme
from tests.gui.run.evaluated_run import draw, make_predicted_run
from tests.gui.sources.executions import make_first_execution
from tests.gui.sources.written_runs import write_run
from tests.support.painted import describe_painting
from tests.support.run_data import make_run_data
from tests.support.widgets import ShowWidget, join_visible_texts, scroll


@pytest.fixture
def view(show_widget: ShowWidget) -> PredictionsView:
    return show_widget(PredictionsView(), 620, 560)


@pytest.fixture
def folder(view: PredictionsView) -> Path:
    """Show a run with predictions in the view, and return the run's folder."""
    run = make_predicted_run()
    data = RunData()
    data.apply_all(list(run.events()))
    view.show_run(run.path, data, is_active=False)
    return run.path


def middle(pane: ImagePane) -> QColor:
    return pane.grab().toImage().pixelColor(pane.rect().center())


def test_predictions_view_shows_truth_and_prediction(view: PredictionsView, folder: Path) -> None:
    assert middle(view.truth) == QColor("#00ff00")
    assert middle(view.prediction) == QColor("#ff0000")
    assert (view.truth_words.text(), view.prediction_words.text()) == ("ash", "birch 4%")
    assert view.name.text() == "val/0.png · sample 1 of 3"
    assert view.prediction.accessibleDescription() == "birch 4%"


def test_predictions_view_keys_step_validations_and_samples(view: PredictionsView, folder: Path, qtbot: QtBot) -> None:
    draw(folder / "predictions/000020/002.png", "#0000ff")
    for key in (Qt.Key.Key_Left, Qt.Key.Key_Left, Qt.Key.Key_Down, Qt.Key.Key_Down, Qt.Key.Key_Down):
        qtbot.keyClick(view.prediction, key)
    assert view.validation_slider.label.text() == "Epoch 2 of 4 · step 20"
    assert view.prediction_words.text() == "birch 2%"
    assert middle(view.prediction) == QColor("#0000ff")
    assert view.strip.item(2).toolTip().endswith("birch 2%")
    for key, position in ((Qt.Key.Key_Home, 0), (Qt.Key.Key_B, 3), (Qt.Key.Key_Home, 0), (Qt.Key.Key_End, 3)):
        qtbot.keyClick(view.truth, key)
        assert (view.validation_slider.position, view.prediction_words.text()) == (position, f"birch {position + 1}%")
    assert view.sample() is not None
    assert view.strip.currentRow() == 2


def test_strip_shows_truth_above_prediction(view: PredictionsView, folder: Path, qtbot: QtBot) -> None:
    names = [str(file.relative_to(folder)) for file in sorted((folder / "predictions").glob("*/*.png"))]
    assert len(names) > 8  # several batches
    qtbot.waitUntil(lambda: None not in [view.strip.thumbnail(name) for name in names])
    assert view.strip.thumbnail(names[0]).deviceIndependentSize().toSize() == QSize(62, 46)
    view.strip.clear_cache()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("gui.run.predictions.view._CACHE_SIZE", 5)
        for name in names:
            view.strip.thumbnail(name)
        qtbot.waitUntil(lambda: view.strip.thumbnail(names[-1]) is not None)
        assert view.strip.thumbnail(names[0]) is None
    view.strip.setCurrentRow(2)
    rect = view.strip.visualItemRect(view.strip.item(1))
    quarters = [QPoint(rect.center().x(), rect.top() + rect.height() * quarter // 4) for quarter in (1, 3)]

    def has_thumbnails() -> None:  # the visible ones are read again
        drawn = view.strip.viewport().grab().toImage()
        assert [drawn.pixelColor(point).name() for point in quarters] == ["#00ff00", "#ff0000"]

    qtbot.waitUntil(has_thumbnails)
    drawn = view.strip.viewport().grab().toImage()
    edges = [QPoint(rect.left() + 2, rect.center().y()), QPoint(rect.left() + rect.width() + 2, rect.center().y())]
    accent = QColor(theme.colors().accent)
    assert [drawn.pixelColor(edge) == accent for edge in edges] == [False, True]


def test_predictions_view_forgets_images_of_other_runs_and_steps(
    view: PredictionsView, folder: Path, qtbot: QtBot
) -> None:
    def show(run: Path, color: str, data: RunData) -> None:
        draw(run / "predictions/000040/000.png", color)
        view.show_run(run, data, is_active=False)
        qtbot.waitUntil(lambda: thumbnail_color() == color)

    def thumbnail_color() -> str:
        thumbnail = view.strip.thumbnail("predictions/000040/000.png")
        return thumbnail.toImage().pixelColor(20, 20).name() if thumbnail is not None else ""

    qtbot.waitUntil(lambda: thumbnail_color() == "#ff0000")
    view.strip.setCurrentRow(2)
    other = make_predicted_run()
    data = make_run_data(other.events())
    view.zoom.zoom_by(2)
    view.reset()
    assert (view.strip.currentRow(), view.zoom.is_changed) == (0, False)
    predicted = data.validation_details.predicted
    one_text = structs.replace(predicted[-1].samples[0], truth_words="")
    predicted[-1] = structs.replace(predicted[-1], samples=(one_text,))
    show(other.path, "#0000ff", data)
    assert (view.strip.count(), view.strip.currentRow()) == (1, 0)
    assert (view.truth_words.text(), view.truth_words.isVisible()) == ("", True)
    assert view.strip.item(0).toolTip() == "val/0.png\nPrediction: birch 4%"
    data.rollbacks += 1
    show(other.path, "#123456", data)


def test_predictions_view_describes_legend(view: PredictionsView, folder: Path) -> None:
    assert view.legend.isVisible()
    assert view.legend.toolTip().splitlines() == ["ash (unchanged)", "birch", "cedar"]
    assert view.legend.accessibleDescription() == "In the images: ash (unchanged)"
    view.strip.setCurrentRow(2)
    assert view.legend.accessibleDescription() == "In the images: cedar"
    run = write_run(40)
    view.reset()
    view.show_run(run.path, RunData(), is_active=True)
    assert not view.legend.isVisible()


def test_predictions_view_reports_missing_and_damaged_images(view: PredictionsView, folder: Path, qtbot: QtBot) -> None:
    (folder / "predictions/000040/001.png").unlink()
    truncated = folder / "predictions/000040/002.png"
    truncated.write_bytes(truncated.read_bytes()[:-9])
    view.strip.clear_cache()
    view.strip.setCurrentRow(1)
    assert view.prediction.problem == "predictions/000040/001.png is missing."
    assert view.prediction.accessibleDescription() == view.prediction.problem
    assert view.truth.problem == ""
    view.strip.setCurrentRow(2)
    assert "truncated" in view.prediction.problem

    def has_null_thumbnail() -> bool:
        thumbnail = view.strip.thumbnail("predictions/000040/002.png")
        return thumbnail is not None and thumbnail.isNull()

    qtbot.waitUntil(has_null_thumbnail)
    assert "“✖” error" in describe_painting(view.strip)
    assert describe_painting(view.prediction).startswith("“✖ Couldn't show predictions/000040/002.png:” error")
    draw(truncated, "#ff0000")
    view.validation_slider.step(-1)
    view.validation_slider.step(1)
    assert view.prediction.problem == ""


def test_predictions_view_responds_while_a_disk_does_not(
    view: PredictionsView, folder: Path, qtbot: QtBot, monkeypatch: pytest.MonkeyPatch
) -> None:
    responds = threading.Event()
    readers: set[threading.Thread] = set()

    def read(run_folder: Path, name: str) -> QImage | str:
        readers.add(threading.current_thread())
        if threading.current_thread() is not threading.main_thread():
            responds.wait(120)
        return read_image(run_folder, name)

    monkeypatch.setattr("gui.run.predictions.view.read_image", read)
    monkeypatch.setattr("gui.sources.background.GRACE_S", 0.0)
    view.strip.clear_cache()
    view.strip.viewport().repaint()
    view.strip.setCurrentRow(1)
    assert view.name.text() == "val/1.png · sample 2 of 3"
    assert view.truth.image_rect().isEmpty()
    responds.set()
    qtbot.waitUntil(lambda: not view.truth.image_rect().isEmpty())
    qtbot.waitUntil(lambda: view.strip.thumbnail("predictions/000040/002.png") is not None)
    assert readers
    assert threading.main_thread() not in readers
    responds.clear()
    texts: list[str] = []
    monkeypatch.setattr(view.truth, "show_image", lambda _image, text: texts.append(text))
    for row in (0, 2):  # the second is selected while the images of the first are being read
        view.strip.setCurrentRow(row)
    responds.set()
    qtbot.waitUntil(lambda: texts[-1] != "" and not view.findChildren(Background))
    assert texts == ["", "", "ash"]


@pytest.mark.parametrize("name", ["/etc/passwd", "../job.toml", "predictions/../../x.png", ""])
def test_read_image_rejects_paths_outside_run(tmp_path: Path, name: str) -> None:
    assert "is outside the run's folder" in str(read_image(tmp_path, name))


def test_read_image_rejects_other_files(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_text("hello")
    assert "not a PNG image" in str(read_image(tmp_path, "a.png"))
    draw(tmp_path / "b.png", "#ff0000")
    assert isinstance(read_image(tmp_path, "b.png"), QImage)


def test_panes_zoom_and_pan_together(view: PredictionsView, folder: Path, qtbot: QtBot) -> None:
    fitted = view.truth.image_rect()
    assert not view.reset_zoom.isVisible()
    for _ in range(4):
        qtbot.keyClick(view.prediction, Qt.Key.Key_Plus)
    assert view.reset_zoom.isVisible()
    assert view.truth.image_rect().width() == pytest.approx(fitted.width() * 1.25**4, rel=0.02)
    assert view.truth.image_rect() == view.prediction.image_rect()
    zoomed = view.truth.image_rect()
    assert zoomed.center() == fitted.center() == QRectF(view.truth.rect()).center()
    qtbot.keyClick(view.truth, Qt.Key.Key_Right, Qt.KeyboardModifier.ShiftModifier)
    moved = view.prediction.image_rect()
    assert (moved.left() < zoomed.left(), moved.top()) == (True, zoomed.top())
    qtbot.keyClick(view.truth, Qt.Key.Key_Down, Qt.KeyboardModifier.ShiftModifier)
    down, right = view.prediction.image_rect().top() - zoomed.top(), moved.left() - zoomed.left()
    assert (down / zoomed.height(), view.truth.image_rect().left()) == (
        pytest.approx(right / zoomed.width()),
        moved.left(),
    )
    view.reset_zoom.click()
    assert view.truth.image_rect() == fitted
    assert not view.reset_zoom.isVisible()


def test_keys_and_mouse_change_the_visible_part(show_widget: ShowWidget, qtbot: QtBot) -> None:
    zoom = Zoom()
    pane = show_widget(ImagePane("Truth", zoom), 244, 124)
    pane.show_image(QImage(120, 60, QImage.Format.Format_RGB32), "a tree")
    assert pane.image_rect() == QRectF(2, 2, 240, 120)
    keys, shift, none = Qt.Key, Qt.KeyboardModifier.ShiftModifier, Qt.KeyboardModifier.NoModifier
    part = lambda: (zoom.factor, zoom.center.x(), zoom.center.y())  # noqa: E731
    for key, modifier, expected in (
        (keys.Key_Equal, none, (1.25, 0.5, 0.5)),
        (keys.Key_Plus, none, (1.5625, 0.5, 0.5)),
        (keys.Key_Minus, none, (1.25, 0.5, 0.5)),
        (keys.Key_Right, shift, (1.25, 0.58, 0.5)),
        (keys.Key_Up, shift, (1.25, 0.58, 0.42)),
        (keys.Key_Left, shift, (1.25, 0.5, 0.42)),
        (keys.Key_Down, shift, (1.25, 0.5, 0.5)),
        (keys.Key_0, none, (1, 0.5, 0.5)),
    ):
        qtbot.keyClick(pane, key, modifier)
        assert part() == pytest.approx(expected)
    zoom.set(2, QPointF(0, 1))
    assert (part(), pane.image_rect()) == ((2, 0.25, 0.75), QRectF(2, -118, 480, 240))
    qtbot.mousePress(pane, Qt.MouseButton.LeftButton, pos=QPoint(90, 30))
    qtbot.mouseMove(pane, QPoint(42, 54))
    qtbot.mouseRelease(pane, Qt.MouseButton.LeftButton, pos=QPoint(42, 54))
    assert part() == pytest.approx((2, 0.35, 0.65))
    qtbot.mouseDClick(pane, Qt.MouseButton.LeftButton)
    scroll(pane, QPointF(62, 62), 1)
    assert part() == pytest.approx((1.25, 0.45, 0.5))
    zoom.zoom_by(1000)
    assert zoom.factor == 32
    pane.show_image("It is missing.", "a tree")
    assert pane.accessibleDescription() == "It is missing."


def test_enlarged_pixels_are_sharp_and_inside_the_frame(show_widget: ShowWidget, qtbot: QtBot) -> None:
    zoom = Zoom()
    pane = show_widget(ImagePane("Truth", zoom), 244, 124)
    image = QImage(2, 1, QImage.Format.Format_RGB32)
    for x, color in enumerate(("#ff0000", "#0000ff")):
        image.setPixelColor(x, 0, QColor(color))
    pane.show_image(image, "a tree")
    zoom.zoom_by(2)
    scheme = theme.colors()
    for has_focus in (False, True):
        if has_focus:
            pane.setFocus()
            qtbot.waitUntil(pane.hasFocus)
        else:
            pane.clearFocus()
        drawn = pane.grab().toImage()
        line = [drawn.pixelColor(x, 62).name() for x in range(244)]
        assert line[0] == (scheme.accent if has_focus else scheme.border)
        assert line[1] == (scheme.accent if has_focus else scheme.raised)
        assert [(color, len(list(same))) for color, same in groupby(line[2:-2])] == [("#ff0000", 120), ("#0000ff", 120)]


def test_zoom_keeps_point_and_stops_at_edges() -> None:
    zoom = Zoom()
    zoom.zoom_by(2, QPointF(0.75, 0.5))
    assert zoom.center == QPointF(0.625, 0.5)
    zoom.pan(QPointF(10, -10))
    assert zoom.center == QPointF(0.75, 0.25)
    zoom.zoom_by(0.1)
    assert (zoom.factor, zoom.center) == (1.0, QPointF(0.5, 0.5))


@pytest.mark.parametrize(
    ("logged", "is_active", "text"),
    [
        (make_first_execution(predictions=0), False, "Set Predictions kept"),
        (make_first_execution(), False, "saved no predictions"),
        (make_first_execution(5), False, "before its first validation"),
        (make_first_execution(5), True, "after the first validation"),
    ],
)
def test_predictions_view_explains_missing_predictions(
    view: PredictionsView, logged: list[AnyEvent], is_active: bool, text: str
) -> None:
    view.show_run(Path(), make_run_data(logged), is_active=is_active)
    assert text in join_visible_texts(view)


def test_page_keys_switch_view_which_stays(page: RunPage, show: Callable[[RunFolder], RunPage], qtbot: QtBot) -> None:
    show(make_predicted_run())
    assert page.log.isVisible()
    for _ in range(2):
        qtbot.keyClick(page, Qt.Key.Key_PageDown, Qt.KeyboardModifier.ControlModifier)
    assert page.header.tabs.currentIndex() == PREDICTIONS
    assert page.predictions.strip.isVisible()
    page.predictions.validation_slider.step(-2)
    assert not page.header.options.isVisible()
    show(write_run(40))
    assert page.predictions.isVisible()
    assert "saved no predictions" in join_visible_texts(page.predictions)
    qtbot.keyClick(page, Qt.Key.Key_PageUp, Qt.KeyboardModifier.ControlModifier)
    assert page.header.tabs.currentIndex() == CLASSES
    show(make_predicted_run())
    qtbot.waitUntil(lambda: page.classes.content.table.rows.rowCount() == 3)
    page.classes.validation_slider.step(-2)
    show(make_predicted_run())
    assert page.classes.validation_slider.position == 3
    page.show_view(PREDICTIONS)
    assert page.predictions.validation_slider.position == 3
    page.header.tabs.setCurrentIndex(CURVES)
    assert page.header.options.isVisible()


def test_pane_drags_image_as_png(
    view: PredictionsView, folder: Path, qtbot: QtBot, monkeypatch: pytest.MonkeyPatch
) -> None:
    drags: list[QDrag] = []
    monkeypatch.setattr(QDrag, "exec", lambda drag, _action: drags.append(drag))
    pane, start = view.prediction, view.prediction.rect().center()
    qtbot.mouseMove(pane, start)
    qtbot.mousePress(pane, Qt.MouseButton.LeftButton, pos=start)
    for distance, count in ((1, 0), (QApplication.startDragDistance(), 1), (100, 1)):
        qtbot.mouseMove(pane, start + QPoint(distance, 0))
        assert len(drags) == count
    data = drags[0].mimeData()
    assert drags[0].pixmap().size() == QSize(96, 72)
    (url,) = data.urls()
    assert url.fileName().endswith("prediction.png")
    assert QImage(url.toLocalFile()) == QImage(data.imageData()).convertToFormat(QImage(url.toLocalFile()).format())
