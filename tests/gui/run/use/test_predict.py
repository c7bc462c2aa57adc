"""Form for predictions, and their result, without a model."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from PySide6.QtGui import QColor
from PySide6.QtWidgets import QFileDialog
from pytestqt.qtbot import QtBot

from engine.contract.inference.prediction import Predicted, PredictedRow, PredictRequest, SkippedFile, WrittenFormat
from gui.run.predictions.image_pane import ImagePane
from gui.run.use import predict
from gui.run.use.predict import PredictForm, PredictResult
from gui.sources.background import Background
from tests.gui.run.evaluated_run import draw
from tests.gui.sources.written_runs import job, write_run
from tests.support.widgets import HoldCalls, ShowWidget


def test_predict_form_requests_the_chosen_settings(show_widget: ShowWidget, qtbot: QtBot) -> None:
    form, run = show_widget(PredictForm(), 700, 700), write_run(8)
    (run.checkpoints / "best.pt").write_bytes(b"weights")
    form.show_run(run, job())
    qtbot.waitUntil(lambda: form.checkpoint.has_checkpoint)
    form.add(["a.png", "b.png", "a.png", ""])
    for action, names in ((form.add_files, ["b.png", "c.png"]), (form.add_folder, ["d.png"])):
        action.trigger()
        (dialog,) = form.findChildren(QFileDialog)
        mode = QFileDialog.FileMode.ExistingFiles if action is form.add_files else QFileDialog.FileMode.Directory
        assert (dialog.fileMode(), dialog.directory().path()) == (mode, str(Path.home()))
        (dialog.filesSelected if len(names) > 1 else dialog.fileSelected).emit(names if len(names) > 1 else names[0])
        dialog.close()
        qtbot.waitUntil(lambda: not form.findChildren(QFileDialog))
    assert form.paths() == ["a.png", "b.png", "c.png", "d.png"]
    for row in (0, 2):
        form.files.item(row).setSelected(True)
    assert form.remove.disabled_reason == ""
    form.remove.trigger()
    assert form.remove.disabled_reason == "Select lines of the list first"
    form.tile.set_value("auto")  # hidden, because whole images are classified
    form.threshold.set_value(0.0)
    form.overlays.set_value(False)
    form.format.set_value("json")
    form.out.set_value("~/results")
    expected = PredictRequest(
        run=str(run.path), checkpoint="best.pt", devices=("cpu",), paths=("b.png", "d.png"),
        out=str(Path.home() / "results"), formats=("json",), threshold=0.0,
    )  # fmt: skip
    assert form.build_request() == expected
    names = [editor.control.accessibleName() for editor in (form.tile, form.format)]
    assert names == ["Handling of large images", "Format of the results"]
    form.overlays.set_value(True)
    assert form.build_request() == msgspec.structs.replace(expected, overlays=True)
    qtbot.waitUntil(lambda: form.submit_action.disabled_reason == "")
    form.devices.boxes["cpu"].click()
    assert (form.submit_action.disabled_reason, form.build_request()) == ("Choose a device", None)
    form.devices.boxes["cpu"].click()
    for threshold, problem in ((1.01, "Set a threshold from 0 to 1"), (1.0, "")):
        form.threshold.set_value(threshold)
        assert form.submit_action.disabled_reason == problem
    form.show_run(run, job())
    assert (form.paths(), form.out.value(), form.format.value()) == ([], "", "default")


@pytest.mark.parametrize(
    ("task", "has_tiles", "has_threshold"),
    [("classification", False, False), ("multilabel", False, True), ("segmentation", True, False), ("detection", True, True)],
)  # fmt: skip
def test_predict_form_shows_the_settings_of_the_task(
    show_widget: ShowWidget, task: str, has_tiles: bool, has_threshold: bool
) -> None:
    form = show_widget(PredictForm(), 700, 700)
    form.show_run(write_run(8), job(task=task))
    form.add(["a.png"])
    assert [form.tile.isVisible(), form.threshold.isVisible()] == [has_tiles, has_threshold]
    default = form.build_request()
    assert (default.threshold, default.overlays, default.formats, default.tile) == (0.5, True, (), None)
    form.tile.set_value("auto")
    assert form.build_request().tile == ("auto" if has_tiles else None)


@pytest.fixture
def result(show_widget: ShowWidget) -> PredictResult:
    return show_widget(PredictResult(), 800, 600)


@pytest.fixture
def predicted(tmp_path: Path) -> Predicted:
    """Write the images of three results, and return the results.

    The first one has an overlay and a mask, the second a mask, and the third neither.
    """
    for name, color in (("out/over.png", "#ff0000"), ("out/mask.png", "#00ff00"), ("source.png", "#0000ff")):
        draw(tmp_path / name, color)
    source = str(tmp_path / "source.png")
    drawings = ({"overlay": "over.png", "mask": "mask.png"}, {"mask": "mask.png"}, {})
    rows = [PredictedRow(path=f"{source[:-4]}.png", text=f"text {n}", **files) for n, files in enumerate(drawings)]
    rows[1] = msgspec.structs.replace(rows[1], path="/elsewhere/b.png")
    request = PredictRequest(run="", checkpoint="best", devices=("cpu",), paths=(source,), out=str(tmp_path / "out"))
    return Predicted(
        run="", checkpoint="best.pt", sha256="", task="classification", classes=("a", "b"), request=request, samples=6,
        predicted=4, skipped_count=2, skipped=(SkippedFile("c.png", "It is damaged"),), seconds=1.0, rows=tuple(rows),
        finished_at=0.0,
    )  # fmt: skip


def write(folder: Path, predicted: Predicted) -> str:
    (folder / "predictions.json").write_bytes(msgspec.json.encode(predicted))
    return str(folder / "predictions.json")


def middle(pane: ImagePane) -> str:
    return QColor(pane.grab().toImage().pixelColor(pane.rect().center())).name()


def test_predict_result_shows_the_drawing_of_each_row(
    result: PredictResult, predicted: Predicted, tmp_path: Path, qtbot: QtBot
) -> None:
    file = write(tmp_path, predicted)
    with open(file, "ab") as stream:
        stream.write(b" " * (16 << 20))  # as large as a file with very many rows
    result.show_file(file)
    qtbot.waitUntil(lambda: result.list.count() == 3)
    assert [result.list.item(row).text() for row in range(3)] == [
        "source.png: text 0",
        "b.png: text 1",
        "source.png: text 2",
    ]
    assert [result.list.item(row).toolTip() for row in range(3)] == [row.path for row in predicted.rows]
    assert result.list.currentRow() == 0
    assert result.list.width() < result.image.width()
    for row, color in enumerate(("#ff0000", "#00ff00", "#0000ff")):
        result.list.setCurrentRow(row)
        assert result.caption.text() == f"text {row}"
        qtbot.waitUntil(lambda color=color: middle(result.image) == color)
    assert result.skipped.text() == "Skipped 2 files: c.png: It is damaged; and 1 more."
    assert result.heading.text() == "Predicted for 4 samples in 1 s"
    files = (WrittenFormat(path="masks", format="overlays", count=2),)
    second = msgspec.structs.replace(
        predicted, skipped_count=0, skipped=(), rows=predicted.rows[:1], files=files, images_per_second=25.0
    )
    result.show_file(write(tmp_path, second))
    qtbot.waitUntil(lambda: result.list.count() == 1)
    assert (result.skipped.text(), result.list.currentRow()) == ("", 0)
    assert result.heading.text().endswith("(25 images/s)")
    assert result.files.text() == f"{tmp_path / 'out'}: masks (2 files)"
    result.show_file(write(tmp_path, msgspec.structs.replace(second, rows=())))
    qtbot.waitUntil(lambda: result.list.count() == 0)
    assert result.caption.text() == ""
    (tmp_path / "predictions.json").write_text("{")
    result.show_file(str(tmp_path / "predictions.json"))
    qtbot.waitUntil(lambda: "predictions.json" in result.skipped.text())


def test_predict_result_ignores_the_image_of_the_previous_row(
    result: PredictResult, predicted: Predicted, tmp_path: Path, qtbot: QtBot, hold_calls: HoldCalls
) -> None:
    release = hold_calls(predict, "read_image", lambda path, _max_side: path.name == "over.png")
    result.show_file(write(tmp_path, predicted))
    qtbot.waitUntil(lambda: result.list.currentRow() == 0)
    result.list.setCurrentRow(1)
    qtbot.waitUntil(lambda: middle(result.image) == "#00ff00")
    release.set()
    qtbot.waitUntil(lambda: not result.findChildren(Background))
    assert middle(result.image) == "#00ff00"
