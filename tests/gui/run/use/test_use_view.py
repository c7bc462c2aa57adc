"""Use of a real run's model in the window: predictions, conversion and live video."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from pathlib import Path

import msgspec
import numpy as np
import pytest
from PySide6.QtCore import QPoint, Qt
from PySide6.QtGui import QImage
from pytestqt.qtbot import QtBot

from engine.contract.events import CheckpointSaved
from engine.contract.inference.messages import FRAME_FILE, LiveFrame, LiveRequest
from engine.contract.inference.prediction import PREDICTED, Predicted, PredictedRow, PredictRequest, SkippedFile
from engine.contract.messages import Progress
from engine.contract.problems import Problem
from engine.inference.video import VideoWriter
from engine.runs.folder import RunFolder
from gui.run.request_pages import FAILURE, FORM, RESULT, WORKING
from gui.run.use import live_prediction
from gui.run.use.live_prediction import LivePrediction
from gui.run.use.live_view import LiveView
from gui.run.use.view import CONVERT, LIVE, PREDICT, UseView
from gui.sources.background import Background
from tests.gui.run.evaluated_run import draw
from tests.gui.sources.written_runs import job
from tests.support.drops import drop_files
from tests.support.run_data import make_run_data
from tests.support.trained_runs import LABELS, TrainedRun
from tests.support.widgets import ShowWidget


@pytest.fixture
def trained(trained: Callable[[str], TrainedRun]) -> TrainedRun:
    return trained("classification")


@pytest.fixture
def view(show_widget: ShowWidget) -> UseView:
    return show_widget(UseView(), 800, 640)


def test_use_view_predicts_dropped_files(view: UseView, trained: TrainedRun, tmp_path: Path, qtbot: QtBot) -> None:
    view.show_run(trained.run)
    form = view.predict_form
    qtbot.waitUntil(lambda: form.submit_action.disabled_reason == "Add files first")
    folder = Path(trained.job.data.dataset, "val")
    drop_files(view, folder / "red" / "0.png", folder / "green")
    assert form.paths() == [str(folder / "red" / "0.png"), str(folder / "green")]
    assert form.threshold.isHidden()  # classification predicts the best class
    form.out.set_value(str(tmp_path / "out"))
    qtbot.mouseClick(form.start, Qt.MouseButton.LeftButton)
    drop_files(view, folder / "green")
    assert (view.predict.is_working, view.predict.currentIndex()) == (True, WORKING)
    qtbot.waitUntil(lambda: view.predict.currentIndex() in (RESULT, FAILURE))
    assert view.predict.currentIndex() == RESULT, view.predict.failure.text()
    result = view.predict_result
    qtbot.waitUntil(lambda: result.list.count() == 6)
    predicted = PREDICTED.decode((tmp_path / "out" / "predictions.json").read_bytes())
    assert predicted.predicted == 6
    qtbot.waitUntil(lambda: not result.image.image_rect().isEmpty())
    assert result.caption.text() == predicted.rows[0].text


def test_late_prediction_of_the_previous_image_is_not_shown(
    show_widget: ShowWidget, tmp_path: Path, qtbot: QtBot, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Drop a second image while the prediction of the first one is read."""
    live, run, release = show_widget(LivePrediction(), 300, 600), RunFolder(tmp_path), threading.Event()
    requests: list[PredictRequest] = []
    monkeypatch.setattr(live.child, "start", requests.append)
    live.show_image(run, "waiting.png", make_run_data([]))
    assert (live.state.text(), requests) == ("Waiting for the first checkpoint…", [])
    draw(tmp_path / "over.png", "#ff0000")

    def read_late(path: Path) -> Predicted:
        request = requests[int(path.name)]
        if path.name == "0":
            release.wait(20)
        row = PredictedRow(
            path=request.paths[0], text=f"what {request.paths[0]} shows", overlay=str(tmp_path / "over.png")
        )
        skipped = SkippedFile("trees/third.png", "It is empty")
        rows, skips = ((), (skipped,)) if path.name == "3" else ((row,), ())
        return Predicted(
            run=request.run, checkpoint=request.checkpoint, sha256="", task="classification", classes=LABELS, request=request,
            samples=1, predicted=1, seconds=1.0, rows=rows, skipped=skips, finished_at=0.0,
        )  # fmt: skip

    monkeypatch.setattr(live_prediction, "read_predicted", read_late)
    saved = CheckpointSaved(kind="best", path="checkpoints/best.pt", epoch=3, step=30, bytes=1, seconds=0.0)
    later = msgspec.structs.replace(saved, kind="last", step=40)
    for number, image in enumerate(("first.png", "second.png")):
        live.show_image(run, image, make_run_data([saved]))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(type(live.child), "running", property(lambda _child: True))
            live.show_data(run, make_run_data([saved, later]))
        live.child.done.emit(str(number))
    qtbot.waitUntil(lambda: live.history.count() == 1)
    release.set()
    qtbot.waitUntil(lambda: not live.findChildren(Background))
    assert [(*request.paths, request.checkpoint) for request in requests] == [
        ("first.png", "best"), ("second.png", "best"), ("second.png", "last")
    ]  # fmt: skip
    assert [live.history.item(row).text() for row in range(live.history.count())] == ["Step 30: what second.png shows"]
    assert live.state.text() == "Predicted by the newest checkpoint"
    assert live.image.accessibleDescription() == "what second.png shows"
    assert not live.image.image_rect().isEmpty()
    live.show_image(run, "third.png", make_run_data([saved]))
    live.child.done.emit("3")
    qtbot.waitUntil(lambda: live.failure.text() == "third.png: It is empty.")
    assert (live.state.text(), live.history.count()) == ("", 0)
    assert Path(requests[3].out).parent.exists()
    live.show_data(RunFolder(tmp_path / "other"), make_run_data([saved]))
    assert (live.isHidden(), Path(requests[3].out).parent.exists()) == (True, False)


@pytest.mark.long
def test_live_prediction_follows_new_checkpoints(
    trained: TrainedRun, tmp_path: Path, show_widget: ShowWidget, qtbot: QtBot
) -> None:
    live = show_widget(LivePrediction(), 300, 600)
    image = Path(trained.job.data.dataset, "val", "red", "0.png")
    waiting = make_run_data([])
    live.show_image(trained.run, str(image), waiting)
    assert live.state.text() == "Waiting for the first checkpoint…"
    saved = [
        CheckpointSaved(kind=kind, path=f"checkpoints/{kind}.pt", epoch=epoch, step=epoch, bytes=1, seconds=0.0)
        for epoch, kind in ((1, "best"), (2, "last"))
    ]
    for count, step_titles in ((1, ["Step 1"]), (2, ["Step 2", "Step 1"])):
        live.show_data(trained.run, make_run_data(saved[:count]))
        qtbot.waitUntil(lambda count=count: live.history.count() == count or live.failure.isVisible())
        assert not live.failure.text()
        texts = [live.history.item(row).text() for row in range(live.history.count())]
        assert [text.partition(":")[0] for text in texts] == step_titles
        assert all(any(label in text for label in LABELS) for text in texts)
    assert not live.image.image_rect().isEmpty()
    live.show_data(RunFolder(tmp_path / "other"), waiting)
    assert live.isHidden()


@pytest.mark.long
def test_use_view_converts_model(view: UseView, trained: TrainedRun, tmp_path: Path, qtbot: QtBot) -> None:
    view.show_run(trained.run)
    view.tabs.setCurrentIndex(CONVERT)
    convert = view.convert_form
    convert.targets["onnx"].setChecked(False)
    qtbot.waitUntil(lambda: convert.submit_action.disabled_reason == "Choose a format")
    convert.targets["safetensors"].setChecked(True)
    convert.out.set_value(str(tmp_path))
    qtbot.mouseClick(convert.start, Qt.MouseButton.LeftButton)
    qtbot.waitUntil(lambda: view.convert.currentIndex() in (RESULT, FAILURE))
    assert view.convert.currentIndex() == RESULT, view.convert.failure.text()
    qtbot.waitUntil(lambda: view.convert_result.files.rowCount() > 0)
    assert any(row[0].startswith("model.safetensors: ") for row in view.convert_result.files.texts())


def submit_with_full_folder(view: UseView, trained: TrainedRun, out: Path, qtbot: QtBot) -> None:
    """Request predictions that are to be written to the folder `out`, in which the user already has a file."""
    out.mkdir()
    (out / "thesis.txt").write_text("years of work")
    view.show_run(trained.run)
    form = view.predict_form
    qtbot.waitUntil(lambda: form.submit_action.disabled_reason == "Add files first")
    form.add([str(Path(trained.job.data.dataset, "val"))])
    form.threshold.set_value(0.0)  # the lowest permitted one
    form.out.set_value(str(out))
    form.submit_action.trigger()


def test_prediction_refusal_keeps_form(view: UseView, trained: TrainedRun, tmp_path: Path, qtbot: QtBot) -> None:
    submit_with_full_folder(view, trained, tmp_path / "out", qtbot)
    assert view.predict.is_working
    with qtbot.waitSignal(view.message):
        view.predict.message.emit("Another prediction is running.", "warning")
    view.predict.child.cancel()
    view.predict.child.refused.emit((Problem("out", f"{tmp_path / 'out'} is not empty.", "Choose another folder."),))
    assert view.predict.currentIndex() == FAILURE
    assert str(tmp_path / "out") in view.predict.failure.text()
    assert view.predict.failure.mapTo(view, QPoint()).y() <= view.predict.retry.mapTo(view, QPoint()).y()
    qtbot.mouseClick(view.predict.retry, Qt.MouseButton.LeftButton)
    assert view.predict.currentIndex() == FORM
    assert view.predict_form.out.value() == str(tmp_path / "out")


@pytest.mark.long
def test_engine_refuses_full_output_folder(view: UseView, trained: TrainedRun, tmp_path: Path, qtbot: QtBot) -> None:
    submit_with_full_folder(view, trained, tmp_path / "out", qtbot)
    qtbot.waitUntil(lambda: view.predict.currentIndex() == FAILURE)
    assert str(tmp_path / "out") in view.predict.failure.text()


def test_prediction_is_written_to_the_folder_that_is_shown(view: UseView, trained: TrainedRun, qtbot: QtBot) -> None:
    times = itertools.count(120000)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("gui.run.use.predict.time.strftime", lambda *_arguments: str(next(times)))
        view.show_run(trained.run)
        form = view.predict_form
        qtbot.waitUntil(lambda: form.submit_action.disabled_reason == "Add files first")
        form.add([str(Path(trained.job.data.dataset, "val"))])
        shown = form.out.line.placeholderText()
        with qtbot.waitSignal(form.submitted) as submitted:
            form.submit_action.trigger()
        view.predict.child.cancel()
    assert submitted.args[0].out == shown
    assert form.out.line.placeholderText() != shown  # for the next prediction


def test_form_has_the_focus_after_a_refusal(view: UseView) -> None:
    for tab, pages, editor in (
        (PREDICT, view.predict, view.predict_form.files),
        (CONVERT, view.convert, view.convert_form.checkpoint),
    ):
        view.tabs.setCurrentIndex(tab)
        assert view.stack.currentWidget() is pages
        view.setFocus()
        view.clearFocus()
        pages.show_failure(Problem("out", "The disk is full."))
        assert view.focusWidget() is pages.retry
        pages.retry.click()
        focused = view.focusWidget()
        assert focused is editor or editor.isAncestorOf(focused)


def test_use_view_needs_checkpoint(view: UseView, tmp_path: Path, qtbot: QtBot) -> None:
    view.show_run(RunFolder(tmp_path))
    view.predict_form.add([str(tmp_path)])
    qtbot.waitUntil(lambda: view.predict_form.submit_action.disabled_reason == "The run has no checkpoint yet")
    qtbot.waitUntil(lambda: view.convert_form.submit_action.disabled_reason == "The run has no checkpoint yet")
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "checkpoints" / "last.pt").write_bytes(b"weights")
    view.hide()
    view.show()
    for form in (view.predict_form, view.live, view.convert_form):
        qtbot.waitUntil(lambda form=form: form.checkpoint.has_checkpoint)
    view.predict.setCurrentIndex(RESULT)
    view.tabs.setCurrentIndex(LIVE)
    view.add_files(["a.png"])
    assert (view.stack.currentWidget(), view.predict.currentIndex()) == (view.predict, FORM)
    view.convert.setCurrentIndex(RESULT)
    view.convert_result.more.trigger()
    assert view.convert.currentIndex() == FORM


def test_live_view_watches_the_chosen_source(
    show_widget: ShowWidget, tmp_path: Path, qtbot: QtBot, monkeypatch: pytest.MonkeyPatch
) -> None:
    live, requests = show_widget(LiveView(), 600, 600), list[LiveRequest]()
    monkeypatch.setattr(live.child, "start", requests.append)
    live.start.trigger()
    assert (requests, live.source.value()) == ([], "camera:0")
    live.show_run(RunFolder(tmp_path), job(devices=("cpu", "cpu")))
    assert live.start.disabled_reason == "The run has no checkpoint yet"
    messages: list[str] = []
    live.message.connect(lambda text, _severity: messages.append(text))
    live.child.progress.emit(Progress(0.5, "Loading the model", warnings=("It is slow.",)))
    assert (live.caption.text(), messages) == ("Loading the model…", ["It is slow."])
    live.child.refused.emit((Problem("source", "The camera is missing."),))
    assert (live.failure.text(), live.caption.text()) == ("The camera is missing.", "")
    live.zoom.zoom_by(2)
    for source, path in (
        ("camera:rtsp://host/1", "camera:rtsp://host/1"),
        ("~/walk.mp4", str(Path.home() / "walk.mp4")),
    ):
        live.source.set_value(source)
        live.start.set_disabled_reason("")
        live.start.trigger()
        assert (requests[-1].run, requests[-1].source) == (str(tmp_path), path)
        assert requests[-1].devices == live.devices.value() == ("cpu", "cpu")
        assert Path(requests[-1].out).is_dir()
    assert (live.failure.text(), live.zoom.is_changed) == ("", False)
    assert not Path(requests[0].out).exists()
    draw(tmp_path / "frame.png", "#ff0000")
    for number, text in ((1, "Shirt 52%"), (2, "Coat 61%")):
        frame = LiveFrame(number=number, jpeg=(tmp_path / "frame.png").read_bytes(), text=text, images_per_second=25.0)
        Path(requests[1].out, FRAME_FILE).write_bytes(msgspec.msgpack.encode(frame))
        qtbot.waitUntil(lambda text=text: live.caption.text() == f"25 images/s: {text}")
    assert live.image.grab().toImage().pixelColor(live.image.rect().center()) == "#ff0000"
    live.child.progress.emit(Progress(0.6, "Watching", warnings=("It is dark.",)))
    assert (live.caption.text(), messages[1:]) == ("25 images/s: Coat 61%", ["It is dark."])
    live.start.set_disabled_reason("Already watching")
    live.child.done.emit("")
    assert live.start.disabled_reason == "The run has no checkpoint yet"
    assert not Path(requests[1].out).exists()
    assert live.caption.text() == "25 images/s: Coat 61%"
    live.checkpoint.has_checkpoint = True
    live.checkpoint.refreshed.emit()
    live.start.trigger()
    live.child.progress.emit(Progress(0.1, "Opening the video"))
    assert live.caption.text() == "Opening the video…"
    for reason, change in (
        ("Choose a video, or a camera such as camera:0", lambda: live.source.set_value("")),
        ("Choose a device", live.devices.boxes["cpu"].click),
    ):
        live.source.set_value("camera:0")
        change()
        assert live.start.disabled_reason == reason
    assert live.stop.disabled_reason == "Not watching"


def test_live_view_clears_the_frame_of_the_previous_run(show_widget: ShowWidget, tmp_path: Path) -> None:
    live = show_widget(LiveView(), 600, 600)
    live.show_run(RunFolder(tmp_path / "first"), None)
    live.image.show_image(QImage(8, 8, QImage.Format.Format_RGB32), "25 images/s")
    live.caption.setText("25 images/s")
    live.show_run(RunFolder(tmp_path / "second"), None)
    assert live.image.image_rect().isEmpty()
    assert not live.caption.text()


@pytest.mark.long
def test_live_view_watches_video_to_end(view: UseView, trained: TrainedRun, tmp_path: Path, qtbot: QtBot) -> None:
    pytest.importorskip("cv2", reason="OpenCV is an extra")
    (tmp_path / "empty.mp4").touch()
    with VideoWriter(tmp_path / "walk.mp4", 25.0) as video:
        for level in range(40):
            video.add(np.full((48, 64, 3), 6 * level, np.uint8))
    view.tabs.setCurrentIndex(LIVE)
    view.show_run(trained.run)
    live = view.live
    qtbot.waitUntil(lambda: live.start.ready)
    live.source.set_value(str(tmp_path / "empty.mp4"))
    live.start.trigger()
    assert live.stop.ready
    qtbot.waitUntil(lambda: "it is empty" in live.failure.text())
    live.source.set_value(str(tmp_path / "walk.mp4"))
    live.start.trigger()
    qtbot.waitUntil(lambda: "images/s: " in live.caption.text())
    assert any(label in live.caption.text() for label in LABELS)
    assert not live.image.image_rect().isEmpty()
    qtbot.waitUntil(lambda: not live.stop.ready)
    assert not live.failure.text()
