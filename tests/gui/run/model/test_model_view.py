"""A run's model: its evaluations are listed, opened, made, deleted and saved."""

from __future__ import annotations

import csv
from pathlib import Path

import msgspec
from PySide6.QtCore import QMimeData, QPointF, Qt, QUrl
from PySide6.QtGui import QDropEvent
from pytestqt.qtbot import QtBot

from engine.contract.inference.evaluation import EvaluateOrder
from engine.contract.inference.messages import Progress
from engine.contract.problems import Problem
from engine.runs.evaluations import evaluations_of
from engine.runs.folder import RunFolder
from gui.run.model.csv_tables import ClassesCsv, MatrixCsv, MetricsCsv, SamplesCsv
from gui.run.model.result import CALIBRATION, CLASSES, COMPARE, CURVES, ERRORS, SAMPLES
from gui.run.model.view import ModelView
from gui.run.order_pages import FAULT, FORM, RESULT, WORKING
from tests.gui.run.model.written_evaluations import COUNT, keep
from tests.gui.sources.written_runs import a_run


def rows(path: Path) -> list[list[str]]:
    with path.open(newline="", encoding="utf-8") as stream:
        return list(csv.reader(stream))


def test_that_the_newest_evaluation_is_shown_with_its_intervals_and_what_it_lacks_is_not_there(view: ModelView) -> None:
    assert view.result.summary.measures.texts() == [
        ["Top-1 accuracy", "75.0 %", "55.0 – 85.0 %"],
        ["Validation loss", "0.7240", ""],
    ]
    assert view.bar.list.box.currentText().endswith("validation · trees · best.pt")
    assert "no dove" in view.result.summary.remarks.text()
    assert view.result.tabs.isTabVisible(CURVES)
    assert not view.result.tabs.isTabVisible(ERRORS)
    view.result.tabs.setCurrentIndex(CALIBRATION)
    assert "dividing its logits by a temperature of 1.40 lowers the error from 6.0 to 2.0 %" in (
        view.result.calibration.temperature.text()
    )


def test_that_the_classes_have_intervals_and_low_confidences_leave_the_matrix(view: ModelView) -> None:
    view.result.tabs.setCurrentIndex(CLASSES)
    classes = view.result.classes
    assert classes.figures.table.model_.interval(0, 1) == (0.1, 0.9)
    assert classes.figures.matrix.words(0, 1) == "Of 4 ash, 1 (25.0 %) were predicted as birch."
    classes.threshold.slider.setValue(780)
    assert classes.figures.matrix.words(0, 3) == "Of 4 ash, 4 (100.0 %) were predicted as none of them."
    assert classes.figures.matrix.words(2, 2).startswith("Of 4 cedar, 4")


def test_that_counts_and_points_follow_the_threshold(view: ModelView, qtbot: QtBot) -> None:
    view.result.tabs.setCurrentIndex(CURVES)
    curves = view.result.curves
    curves.classes.set_value("1")
    qtbot.waitUntil(lambda: curves.counts.texts() != [])
    assert curves.best.text() == "Best F1 at 0.78"
    assert curves.counts.texts() == [["birch", "2 right", "2 missed"], ["not birch", "0 wrong", "8 right"]]
    curves.threshold.number.setValue(0.05)
    assert curves.counts.texts() == [["birch", "4 right", "0 missed"], ["not birch", "8 wrong", "0 right"]]
    assert curves.words.text() == "Precision 33.3 % · recall 100.0 % · F1 50.0 %"
    qtbot.mouseClick(curves.best, Qt.MouseButton.LeftButton)
    assert curves.words.text().endswith("F1 66.7 %")


def test_that_a_cell_of_the_matrix_opens_its_samples(view: ModelView, qtbot: QtBot) -> None:
    view.result.tabs.setCurrentIndex(CLASSES)
    matrix = view.result.classes.figures.matrix
    qtbot.mouseClick(matrix, Qt.MouseButton.LeftButton, pos=matrix.cell_rect(1, 2).center().toPoint())
    assert view.result.tabs.currentIndex() == SAMPLES
    assert view.result.samples.wall.shown.rows == [5, 4]
    assert view.result.samples.told.text() == f"2 samples of {COUNT}"


def test_that_without_an_evaluation_one_can_be_ordered(
    empty_view: ModelView, dataset: Path, tmp_path: Path, qtbot: QtBot
) -> None:
    run = a_run(8, dataset=str(dataset), devices=("cpu", "cpu"))
    view = empty_view
    view.show_run(run)
    qtbot.waitUntil(lambda: view.pages.currentIndex() == FORM)
    qtbot.waitUntil(lambda: view.form.start.toolTip() == "The run has no checkpoint yet")
    (run.checkpoints / "best.pt").write_bytes(b"weights")
    (run.checkpoints / "last.pt").write_bytes(b"weights")
    view.form.checkpoint.look()
    qtbot.waitUntil(view.form.start.isEnabled)
    view.form.checkpoint.set_value("last.pt")
    view.form.split.set_value("test")
    drop(view, tmp_path)
    assert view.form.order() == EvaluateOrder(
        run=str(run.path), checkpoint="last.pt", devices=("cpu", "cpu"), dataset=str(tmp_path), split="test"
    )


def drop(view: ModelView, folder: Path) -> None:
    told = QMimeData()
    told.setUrls([QUrl.fromLocalFile(str(folder))])
    event = QDropEvent(
        QPointF(5, 5), Qt.DropAction.CopyAction, told, Qt.MouseButton.LeftButton, Qt.KeyboardModifier.NoModifier
    )
    view.form.dropEvent(event)


def test_that_gpus_are_offered_and_the_cpu_works_alone(view: ModelView) -> None:
    view.set_gpus({"GPU-a": "GPU 0", "GPU-b": "GPU 1"})
    assert view.form.devices.value() == ("cpu",)
    view.form.devices.boxes["GPU-a"].click()
    view.form.devices.boxes["GPU-b"].click()
    assert view.form.devices.value() == ("GPU-a", "GPU-b")
    view.form.devices.boxes["cpu"].click()
    assert view.form.devices.value() == ("cpu",)


def test_that_progress_can_be_cancelled_and_what_stands_in_the_way_is_said(view: ModelView, qtbot: QtBot) -> None:
    view.bar.new.trigger()
    assert view.pages.currentIndex() == FORM
    qtbot.waitUntil(view.form.start.isEnabled)
    view.form.start.click()
    assert view.pages.currentIndex() == WORKING
    view.pages.child.progress.emit(
        Progress(fraction=0.5, what="Evaluating 12 samples", seconds_left=192.0, images_per_second=1840.4)
    )
    assert view.pages.what.text() == "Evaluating 12 samples, 1,840 images/s, 3:12 min left"
    assert view.pages.progress.value() == 50
    qtbot.keyClick(view.pages.cancel, Qt.Key.Key_Space)
    assert not view.pages.child.running
    assert view.pages.currentIndex() == FORM
    view.form.start.click()
    view.pages.child.cancel()
    view.pages.child.refused.emit((Problem("split", "There is no test split.", "It has: val, all."),))
    assert view.pages.currentIndex() == FAULT
    assert view.pages.fault.text() == "There is no test split. It has: val, all."
    view.pages.again.click()
    view.form.cancel.click()
    qtbot.waitUntil(lambda: view.pages.currentIndex() == RESULT)


def test_that_a_deleted_evaluation_can_be_put_back(
    view: ModelView, run: RunFolder, own_trash: Path, qtbot: QtBot
) -> None:
    (kept,) = evaluations_of(run.path)
    before = {path.name: path.read_bytes() for path in kept.folder.iterdir()}
    view.bar.delete.trigger()
    qtbot.waitUntil(lambda: view.pages.currentIndex() == FORM)
    assert not kept.folder.exists()
    assert "is now in the desktop's trash" in view.deleting.text()
    view.deleting.yes.click()
    qtbot.waitUntil(lambda: view.pages.currentIndex() == RESULT)
    assert {path.name: path.read_bytes() for path in kept.folder.iterdir()} == before


def test_that_an_evaluation_is_saved_as_csv_and_json(view: ModelView, tmp_path: Path, qtbot: QtBot) -> None:
    for number, kind in enumerate((MetricsCsv, ClassesCsv, MatrixCsv, SamplesCsv)):
        with qtbot.waitSignal(view.message):
            view.bar.save_csv(kind, tmp_path / f"{number}.csv")
    metrics, classes, matrix, samples = (rows(tmp_path / f"{number}.csv") for number in range(4))
    assert metrics[1] == ["Top-1 accuracy", "0.75", "0.55", "0.85"]
    assert classes[1] == ["ash", "0.75", "0.1", "0.9"]
    assert matrix[1] == ["ash", "3", "1", "0"]
    assert samples[2][:4] == ["val/ash/1.png", "val", "ash", "birch"]
    with qtbot.waitSignal(view.message) as told:
        view.bar.save_json(tmp_path / "whole.json")
    assert told.args == [f"The evaluation was saved to {tmp_path / 'whole.json'}.", "info"]
    assert msgspec.json.decode((tmp_path / "whole.json").read_bytes())["task"] == "classification"
    with qtbot.waitSignal(view.message) as told:
        view.bar.save_json(tmp_path / "nowhere" / "whole.json")
    assert told.args[1] == "warning"


def test_that_a_damaged_evaluation_is_said_to_be_so(
    view: ModelView, run: RunFolder, dataset: Path, qtbot: QtBot
) -> None:
    other = keep(run, dataset, "20261125-100000-val", date="2026-11-25T10:00:00Z")
    (other.folder / "samples.msgpack").write_bytes(b"\x81")
    view._look(other.folder.name)
    qtbot.waitUntil(lambda: view.pages.currentIndex() == FAULT)
    assert "samples.msgpack can't be read" in view.pages.fault.text()


def test_that_two_evaluations_are_compared_and_their_samples_shown(
    view: ModelView, dataset: Path, qtbot: QtBot
) -> None:
    other = a_run(8, dataset=str(dataset), name="rival")
    keep(other, dataset, wrong=(1, 8, 9, 10, 11))
    keep(other, dataset, "20261124-110000-test", split="test")
    view.result.tabs.setCurrentIndex(COMPARE)
    page = view.result.comparison
    qtbot.waitUntil(lambda: page.comparison is not None)
    assert page.rival.box.count() == 1
    assert page.rival.box.currentText().startswith("rival · ")
    (top1, loss) = page.differences.texts()
    assert top1[:4] == ["Top-1 accuracy", "75.0 %", "58.3 %", "+16.7"]
    assert loss[4] == ""
    assert page.verdict.text().startswith("This evaluation is better in top-1")
    assert "probability of 0.688" in page.test.text()
    page.mine.click()
    assert view.result.tabs.currentIndex() == SAMPLES
    assert sorted(view.result.samples.wall.shown.rows) == [8, 9, 10, 11]
    assert view.result.samples.told.text() == "4 samples that only this evaluation has right"
