"""Requests for drawings of samples. The process that would draw them isn't started."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from PySide6.QtGui import QImage
from pytestqt.qtbot import QtBot

from engine.contract.images import LegendEntry
from engine.contract.inference.explanation import ExplainRequest
from engine.contract.inference.messages import SampleDrawing, SampleDrawings, ShowRequest
from engine.contract.messages import Progress
from engine.contract.problems import Problem
from engine.runs.folder import RunFolder
from gui.run.model.samples import drawings as drawings_module
from gui.run.model.samples.detail import SampleDetail
from gui.run.model.samples.drawings import BATCH, Drawing, Drawings
from gui.sources.background import Background
from gui.sources.evaluations import open_evaluation
from tests.gui.run.evaluated_run import draw
from tests.gui.run.model.saved_evaluations import save_evaluation
from tests.support.widgets import HoldCalls, ShowWidget, join_visible_texts


def test_drawings_are_requested_in_advance_and_removed(
    run: RunFolder, dataset: Path, qtbot: QtBot, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = open_evaluation(save_evaluation(run, dataset, "20261125-100000-val"))
    drawings, requests = Drawings(), []
    monkeypatch.setattr(drawings.child, "start", requests.append)
    drawings.show_evaluation(opened, ("cpu", "cpu"))
    assert not drawings.is_offered  # the class of an image is a text
    drawn = msgspec.structs.replace(opened.evaluation, task="segmentation")
    drawings.show_evaluation(replace(opened, saved=opened.saved._replace(evaluation=drawn)), ("cpu", "cpu"))
    assert drawings.is_offered
    drawings.request(range(3, 40))
    qtbot.waitUntil(lambda: len(requests) == 1)
    (request,) = requests
    assert isinstance(request, ShowRequest)
    assert (request.run, request.checkpoint, request.devices) == (str(run.path), "best.pt", ("cpu",))
    assert (request.evaluation, request.samples) == (str(opened.saved.folder), tuple(range(3, 3 + BATCH)))
    folder = Path(request.out).parent
    assert folder.is_dir()
    drawings.close_work()
    assert not folder.exists()


def test_returning_to_a_sample_that_is_drawn_cancels_other_requests(
    run: RunFolder, dataset: Path, qtbot: QtBot, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = open_evaluation(save_evaluation(run, dataset, "20261125-100000-val"))
    drawn = msgspec.structs.replace(opened.evaluation, task="segmentation")
    drawings, requests = Drawings(), []
    monkeypatch.setattr(drawings.child, "start", requests.append)
    monkeypatch.setattr(drawings, "_is_underway", lambda row: row == 3)
    drawings.show_evaluation(replace(opened, saved=opened.saved._replace(evaluation=drawn)), ("cpu",))
    drawings.request([7])
    assert drawings._delay.isActive()
    drawings.request([3])
    assert not drawings._delay.isActive()
    assert requests == []


def test_hidden_sample_is_drawn_and_explained_once_it_is_shown_again(
    run: RunFolder, dataset: Path, show_widget: ShowWidget, qtbot: QtBot, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = open_evaluation(save_evaluation(run, dataset, "20261125-100000-val"))
    drawn = msgspec.structs.replace(opened.evaluation, task="segmentation")
    detail = show_widget(SampleDetail())
    drawings: list[ShowRequest] = []
    maps: list[ExplainRequest] = []
    monkeypatch.setattr(detail.drawings.child, "start", drawings.append)
    monkeypatch.setattr(detail.maps.child, "start", maps.append)
    detail.show_evaluation(replace(opened, saved=opened.saved._replace(evaluation=drawn)), ("cpu",))
    detail.show_sample((0, 5, 1), 1, dataset / "missing.png")
    detail.maps.on.setChecked(True)
    detail.maps.second.set_value("0")
    qtbot.waitUntil(lambda: (len(drawings), len(maps)) == (1, 1))
    assert (drawings[0].samples, maps[0].classes) == ((5, 1), ("cedar", "ash"))
    detail.drawing_progress.show_progress(Progress(0.5, "Drawing"))
    detail.hide()
    assert detail.drawing_progress.isHidden()
    detail.show()
    qtbot.waitUntil(lambda: (len(drawings), len(maps)) == (2, 2))


def test_focus_moves_between_image_and_drawing(
    run: RunFolder, dataset: Path, show_widget: ShowWidget, qtbot: QtBot
) -> None:
    detail = show_widget(SampleDetail())
    detail.show_evaluation(open_evaluation(save_evaluation(run, dataset, "20261125-100000-val")), ("cpu",))
    detail.show_sample((0, 1), 0, dataset / "missing.png")
    detail.image.pane.setFocus()
    qtbot.waitUntil(detail.image.pane.hasFocus)
    sample = SampleDrawing(number=0, truth_png="", prediction_png="")
    detail.drawings.drawn.emit(Drawing("no truth", "no prediction", sample))
    assert detail.truth.pane.hasFocus()
    detail.show_sample((0, 1), 1, dataset / "missing.png")
    assert detail.image.pane.hasFocus()


def test_drawing_has_its_texts_and_legend(run: RunFolder, dataset: Path, show_widget: ShowWidget) -> None:
    detail = show_widget(SampleDetail())
    detail.show_evaluation(open_evaluation(save_evaluation(run, dataset, "20261125-100000-val")), ("cpu",))
    detail.show_sample((0, 1), 0, dataset / "missing.png")
    caption = detail.caption.text()
    for child, work, line in (
        (detail.drawings.child, "Drawing", detail.drawing_progress),
        (detail.maps.child, "Explaining", detail.maps.progress_line),
    ):
        child.progress.emit(Progress(0.5, work))
        assert f"{work}…" in join_visible_texts(detail)
        assert (line.progress.isVisible(), line.progress.value()) == (True, 50)
        child.refused.emit((Problem("", "It is unknown."),))
        assert line.problems.text() == "It is unknown."
        assert not line.progress.isVisible()
        assert not line.activity.isVisible()
        child.failed.emit("It can't be drawn.")
        assert line.problems.text() == "It can't be drawn."
    detail.maps.progress_line.end()
    image = QImage(2, 2, QImage.Format.Format_RGB32)
    for legend, truth, prediction in (
        ((), "", "a tree"),
        ((LegendEntry("ash", ""), LegendEntry("oak", "#ff0000")), "two trees", ""),
    ):
        detail.drawings.legend = legend
        sample = SampleDrawing(
            number=0, truth_png="", prediction_png="", truth_words=truth, prediction_words=prediction, legend=(1,)
        )
        detail.drawings.drawn.emit(Drawing(image, image, sample))
        descriptions = [titled.pane.accessibleDescription() for titled in (detail.truth, detail.prediction)]
        assert descriptions == [truth or caption, prediction or caption]
        assert "It can't be drawn." not in join_visible_texts(detail)
        assert detail.legend.isVisible() is bool(legend)
    assert detail.legend.accessibleDescription() == "In the images: oak"
    assert detail.caption.text().startswith("Truth: two trees · Prediction: ash")
    detail.drawings.failed.emit((Problem("", "It can't be drawn."),))
    detail.show_sample((0, 1), 1, dataset / "missing.png")
    assert "It can't be drawn." not in join_visible_texts(detail)
    assert not detail.legend.isVisible()


def test_heat_maps_are_next_to_the_image(show_widget: ShowWidget) -> None:
    detail, image = show_widget(SampleDetail()), QImage(2, 2, QImage.Format.Format_RGB32)
    for titles in (["ash"], ["ash", "oak"], []):
        detail.maps.maps = [(title, image) for title in titles]
        detail.maps.changed.emit()
        assert [each.title.text() for each in detail.heat_panes if each.isVisible()] == titles


def test_drawings_are_cached_and_problems_reported(
    run: RunFolder, dataset: Path, tmp_path: Path, qtbot: QtBot, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = open_evaluation(save_evaluation(run, dataset, "20261125-100000-val"))
    segmented = msgspec.structs.replace(opened.evaluation, task="segmentation")
    drawings, requests = Drawings(), []
    monkeypatch.setattr(drawings.child, "start", requests.append)
    drawings.show_evaluation(replace(opened, saved=opened.saved._replace(evaluation=segmented)), ("cpu",))
    drawings.request([3, 4, 5])
    draw(tmp_path / "3.png", "#ff0000")
    samples = tuple(SampleDrawing(number=row, truth_png="3.png", prediction_png="none.png") for row in (4, 3))
    file = tmp_path / "drawings.json"
    file.write_bytes(msgspec.json.encode(SampleDrawings(legend=(LegendEntry("ash", ""),), samples=samples)))
    for row in (3, 4):
        with qtbot.waitSignal(drawings.drawn) as drawn:
            if row == 3:
                drawings.child.done.emit(str(file))
            else:
                drawings.request([4, 5, 6])
        assert (drawn.args[0].sample.number, drawn.args[0].truth.width()) == (row, 8)
        assert drawn.args[0].prediction == "none.png is missing."
    assert [entry.name for entry in drawings.legend] == ["ash"]
    numbers: list[int] = []
    drawings.drawn.connect(lambda late: numbers.append(late.sample.number))
    for row in (3, 4):
        drawings.request([row])
    qtbot.waitUntil(lambda: not drawings.findChildren(Background))
    assert numbers == [4]
    drawings.request([5, 4, 6])
    qtbot.waitUntil(lambda: len(requests) == 1)
    assert requests[0].samples == (5, 6)
    for content, text in (
        (file.read_bytes(), "The sample can no longer be read."),
        (b"{", "drawings.json is damaged"),
    ):
        file.write_bytes(content)
        with qtbot.waitSignal(drawings.failed) as failed:
            drawings.child.done.emit(str(file))
        assert text in str(failed.args[0][0])
    other = SampleDrawing(number=6, truth_png="3.png", prediction_png="none.png")
    file.write_bytes(msgspec.json.encode(SampleDrawings(samples=(other,))))
    for show in (lambda: drawings.request([3]), lambda: drawings.child.done.emit(str(file))):
        with qtbot.waitSignal(drawings.drawn) as drawn:
            show()
        assert drawn.args[0].sample.number == 3  # also after another sample has been drawn
    drawings.close_work()


@pytest.mark.parametrize("is_readable", [True, False])
def test_late_drawings_of_another_evaluation_are_ignored(
    run: RunFolder,
    dataset: Path,
    qtbot: QtBot,
    monkeypatch: pytest.MonkeyPatch,
    hold_calls: HoldCalls,
    *,
    is_readable: bool,
) -> None:
    monkeypatch.setattr(drawings_module, "_read_drawings", lambda _path: SampleDrawings())
    release = hold_calls(drawings_module, "_read_drawings", error=None if is_readable else OSError("damaged"))
    first = open_evaluation(save_evaluation(run, dataset, "20261125-100000-val"))
    second = open_evaluation(save_evaluation(run, dataset, "20261125-110000-val"))
    drawings, failures = Drawings(), []
    monkeypatch.setattr(drawings.child, "start", lambda _request: None)
    drawings.failed.connect(failures.append)
    drawings.show_evaluation(first, ("cpu",))
    drawings.child.done.emit("result.json")
    drawings.show_evaluation(second, ("cpu",))
    drawings.request([0])
    release.set()
    qtbot.waitUntil(lambda: not drawings.findChildren(Background))
    assert failures == []
