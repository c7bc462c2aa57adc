"""Evaluations in the model view: listing, opening, creating, deleting, comparing and saving them."""

from __future__ import annotations

import csv
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from pyqtgraph import BarGraphItem, PlotDataItem, ScatterPlotItem
from PySide6.QtCore import Qt
from PySide6.QtGui import QColor
from PySide6.QtWidgets import QFileDialog
from pytestqt.qtbot import QtBot

from engine.contract.inference.evaluation import (
    SPLITS,
    BoxErrors,
    Calibration,
    ClassCurves,
    Comparison,
    Curves,
    EvaluateRequest,
    Interval,
    ReliabilityBin,
    SizePrecision,
    SkippedSample,
)
from engine.contract.messages import Progress
from engine.contract.problems import Problem
from engine.runs.evaluations import SavedEvaluation, read_evaluations
from engine.runs.folder import RunFolder
from gui.run.model import comparison as comparison_module
from gui.run.model import curves as curves_module
from gui.run.model import view as view_module
from gui.run.model.bar import AUTOMATIC, make_class_rows
from gui.run.model.classes import BoxErrorsPage, describe_temperature
from gui.run.model.result import CALIBRATION, CLASSES, COMPARE, CURVES, ERRORS, SAMPLES, SUMMARY
from gui.run.model.view import ModelView
from gui.run.model.widgets import PlainTable, UnitPlot
from gui.run.request_pages import FAILURE, FORM, READING, RESULT, WORKING
from gui.sources.background import Background
from gui.sources.evaluations import OpenedEvaluation, SampleTable
from gui.style import theme
from gui.titles import run_title
from gui.widgets.column_model import LEFT, RIGHT
from gui.widgets.labels import IconLabel
from tests.gui.run.model.saved_evaluations import COUNT, save_evaluation
from tests.gui.sources.written_runs import write_run
from tests.support.drops import drop_files
from tests.support.widgets import HoldCalls, join_visible_texts


def rows(path: Path) -> list[list[str]]:
    with path.open(newline="", encoding="utf-8") as stream:
        return list(csv.reader(stream))


def read_headers(table: PlainTable) -> list[str]:
    return [table.horizontalHeaderItem(column).text() for column in range(table.columnCount())]


def change_evaluation(view: ModelView, **changes: Any) -> OpenedEvaluation:
    """Return the open evaluation with other results."""
    opened = view.result.opened
    assert opened is not None
    evaluation = msgspec.structs.replace(opened.evaluation, **changes)
    return replace(opened, saved=SavedEvaluation(opened.saved.folder, evaluation))


def test_model_view_shows_newest_evaluation(view: ModelView, dataset: Path) -> None:
    assert view.result.summary.metrics.texts() == [
        ["Top-1 accuracy", "75.0%", "55.0 – 85.0%"],
        ["Validation loss", "0.7240", ""],
    ]
    assert view.result.summary.thresholds.texts() == [["0.50", "90.0%", "75.0%", "70.0%", "72.0%"]]
    assert read_headers(view.result.summary.thresholds)[1:] == ["Predicted", "Precision", "Recall", "F1"]
    assert view.result.summary.about.text() == f"12 samples of validation in {dataset}, with best.pt"
    assert view.bar.list.box.currentText().endswith("validation · trees · best.pt")
    assert view.bar.list.box.toolTip().endswith(f"\n{view.result.opened.saved.folder}")
    assert "no dove" in view.result.summary.warnings.text()
    assert {each.accessibleName() for each in view.result.summary.warnings.findChildren(IconLabel)} == {"Warning"}
    assert view.result.tabs.isTabVisible(CURVES)
    assert not view.result.tabs.isTabVisible(ERRORS)
    view.result.tabs.setCurrentIndex(CALIBRATION)
    page = view.result.calibration
    bars = [each.opts for each in page.plot.items() if isinstance(each, BarGraphItem)]
    assert [[bar[side] for side in ("x0", "x1", "height")] for bar in bars] == [
        [[0.6], [0.8], [0.75]]
    ]  # not the empty bin
    assert [page.plot.getAxis(side).labelText for side in ("bottom", "left")] == ["Confidence", "Accuracy"]
    assert page.plot.accessibleDescription() == "confidence 0.60 to 0.80: 75% of 12 correct"
    assert "1.40 lowers the error from 6.0 to 2.0%" in page.temperature.text()
    assert page.error.text() == "Expected calibration error 6.2% (5.0 – 7.0%)"
    bins = tuple(ReliabilityBin(low, low + 0.2, count, low + 0.1, 0.5) for low, count in ((0.6, 12), (0.8, 3)))
    page.show_evaluation(change_evaluation(view, calibration=Calibration(Interval(0.05), bins)))
    assert page.error.text() == "Expected calibration error 5.0%"
    bars = [each.opts for each in page.plot.items() if isinstance(each, BarGraphItem)]
    is_full = {bar["x0"][0]: QColor(bar["brush"]) == QColor(theme.colors().accent) for bar in bars}
    assert is_full == {0.6: True, 0.8: False}  # bars of fewer predictions are paler
    assert page.temperature.text() == "There are too few samples to fit a temperature."


@pytest.mark.parametrize(
    ("change", "hidden"),
    [
        ({"calibration": None}, {CALIBRATION, ERRORS}),
        ({"per_class": {}}, {ERRORS}),
        ({"per_class": {}, "confusion": ()}, {CLASSES, ERRORS}),
        ({"sizes": (SizePrecision("small", 4),)}, set()),
        ({"box_errors": (BoxErrors("missed", 1, 0.1),)}, set()),
    ],
)
def test_result_has_pages_for_its_contents(view: ModelView, change: dict[str, object], hidden: set[int]) -> None:
    result = view.result
    result.tabs.setCurrentIndex(CALIBRATION)
    for opened, pages in ((change_evaluation(view, **change), hidden), (result.opened, {ERRORS})):
        result.show_evaluation(opened, ("cpu",))
        assert {number for number in range(result.tabs.count()) if not result.tabs.isTabVisible(number)} == pages
        assert result.tabs.currentIndex() == (SUMMARY if CALIBRATION in hidden else CALIBRATION)


def test_summary_explains_missing_intervals_and_hides_empty_parts(view: ModelView) -> None:
    summary = view.result.summary
    assert (summary.no_intervals.isHidden(), summary.confident.isHidden()) == (True, False)
    for table in (summary.metrics, summary.thresholds):
        last = table.visualItemRect(table.item(table.rowCount() - 1, 0))
        assert 0 <= table.viewport().height() - last.bottom() < last.height()
        assert table.item(0, 0).toolTip() == table.texts()[0][0]
    measures, skipped = {"own": Interval(0.5), "top1": Interval(0.75)}, (SkippedSample("a.png", "It is empty"),)
    summary.show_evaluation(change_evaluation(view, measures=measures, thresholds=(), skipped=skipped))
    assert (summary.no_intervals.isHidden(), summary.confident.isHidden()) == (False, True)
    assert summary.thresholds.isHidden()
    assert summary.metrics.texts() == [["Top-1 accuracy", "75.0%", ""], ["own", "0.5000", ""]]
    assert "Skipped 1 unreadable file: a.png: It is empty." in summary.warnings.text()
    assert "no dove" in summary.warnings.text()


def test_summary_has_the_matrix_only_in_wide_view(view: ModelView, qtbot: QtBot) -> None:
    view.result.tabs.setCurrentIndex(SUMMARY)
    for width in (1400, 1200, 1400):
        view.resize(width, 620)
        assert view.result.summary.matrix.isVisible() is (width == 1400)
    matrix = view.result.summary.matrix
    qtbot.mouseClick(matrix, Qt.MouseButton.LeftButton, pos=matrix.cell_rect(0, 1).center().toPoint())
    assert view.result.tabs.currentIndex() == SAMPLES
    for page in (SAMPLES, SUMMARY, SAMPLES):  # the page keeps its filter
        view.result.tabs.setCurrentIndex(page)
        assert view.result.samples.wall.samples.rows == [1]


def test_classes_page_applies_minimum_confidence(view: ModelView, qtbot: QtBot) -> None:
    view.result.tabs.setCurrentIndex(CLASSES)
    classes = view.result.classes
    assert classes.metrics_view.save.isHidden()  # the bar saves the evaluation
    first = classes.metrics_view.table.model_.index(0, 1)
    assert first.data(Qt.ItemDataRole.ToolTipRole) == "95% interval: 0.0 to 80.0%"
    assert first.data(Qt.ItemDataRole.AccessibleTextRole) == "75.0%, 95% interval: 0.0 to 80.0%"
    assert classes.metrics_view.matrix.describe_cell(0, 1) == "Of 4 ash, 1 (25.0%) were predicted as birch."
    classes.threshold.slider.setValue(780)
    assert classes.metrics_view.matrix.describe_cell(0, 3) == "Of 4 ash, 4 (100.0%) were predicted as none of them."
    assert classes.metrics_view.matrix.describe_cell(2, 2).startswith("Of 4 cedar, 4")
    assert classes.threshold.number.value() == 0.78
    classes.threshold.number.setValue(0.5)
    for key, value in ((Qt.Key.Key_Right, 0.51), (Qt.Key.Key_PageUp, 0.61)):
        qtbot.keyClick(classes.threshold.slider, key)
        assert classes.threshold.value() == value
    opened = change_evaluation(view, per_class={"Recall": (None, Interval(0.5), Interval(0.5, 0.25, 0.75))})
    for samples, has_confidence in ((opened.samples, True), (SampleTable(), False)):
        classes.show_evaluation(replace(opened, samples=samples))
        assert classes.threshold.isHidden() is not has_confidence
        assert classes.metrics_view.matrix.describe_cell(0, 1) == "Of 4 ash, 1 (25.0%) were predicted as birch."
    cells = [classes.metrics_view.table.model_.index(row, 1) for row in (1, 2)]
    assert [cell.data(Qt.ItemDataRole.ToolTipRole) for cell in cells] == [None, "95% interval: 25.0 to 75.0%"]


def test_box_errors_page_lists_the_costliest_kind_first(view: ModelView) -> None:
    page = BoxErrorsPage()
    opened = change_evaluation(
        view,
        box_errors=tuple(BoxErrors(kind, count, loss) for kind, count, loss in (("missed", 9, 0.01), ("duplicate", 2, 0.3))),
        sizes=(SizePrecision("small", 4, Interval(0.25), Interval(0.5, 0.0, 0.75)), SizePrecision("large", 0)),
    )  # fmt: skip
    page.show_evaluation(opened)
    assert page.plot.accessibleDescription() == "Duplicate: 2, 30.0 points of AP50; Missed: 9, 1.0 points of AP50"
    assert read_headers(page.sizes)[1:] == ["Count", "AP", "AP50"]
    assert [page.sizes.horizontalHeaderItem(column).textAlignment() for column in (0, 1)] == [LEFT, RIGHT]
    assert page.sizes.texts() == [
        ["Small (up to 32²)", "4", "25.0%", "50.0% (0.0 – 75.0%)"],
        ["Large", "0", "–", "–"],
    ]
    assert [line.partition(":")[0] for line in page.plot.toolTip().splitlines()] == ["Duplicate", "Missed"]
    (bars,) = (each for each in page.plot.items() if isinstance(each, BarGraphItem))
    assert bars.opts["width"] == [1.0, 30.0]
    assert page.plot.viewRange() == [[0, pytest.approx(31.5)], [-0.5, 1.5]]
    assert page.plot.getAxis("bottom").labelText == "Points of AP50"
    height = page.plot.height()
    for errors, sizes in ((opened.evaluation.box_errors[:1], ()), ((), opened.evaluation.sizes)):
        page.show_evaluation(change_evaluation(view, box_errors=errors, sizes=sizes))
        assert page.plot.height() < height
        assert [widget.isHidden() for widget in (page.title, page.plot, page.explanation)] == [not errors] * 3
        assert page.sizes_title.isHidden() is (not sizes)


@pytest.mark.parametrize(
    ("temperature", "after", "verdict"),
    [(1.4, 0.02, "overconfident"), (0.7, 0.02, "underconfident"), (1.4, 0.06, ""), (1.4, 0.08, "")],
)
def test_temperature_explains_calibration(temperature: float, after: float, verdict: str) -> None:
    calibration = Calibration(Interval(0.06), (), temperature=temperature, ece_before=0.06, ece_after=after)
    text = describe_temperature(calibration)
    assert [each for each in ("overconfident", "underconfident") if each in text] == ([verdict] if verdict else [])
    assert re.findall(r"\d+\.\d+", text) == [f"{temperature:.2f}", *(["6.0"] if verdict else []), f"{100 * after:.1f}"]


def test_curves_page_counts_at_threshold(view: ModelView, qtbot: QtBot) -> None:
    view.result.tabs.setCurrentIndex(CURVES)
    curves = view.result.curves
    curves.classes.set_value("1")
    qtbot.waitUntil(lambda: curves.counts.texts() != [])
    assert (curves.best_threshold.isVisible(), curves.best_threshold.text()) == (True, "Best F1 at 0.78")
    assert read_headers(curves.counts) == ["", "Predicted", "Not predicted"]
    assert curves.counts.texts() == [["birch", "2 right", "2 missed"], ["not birch", "0 wrong", "8 right"]]
    curves.threshold.number.setValue(0.05)
    assert curves.counts.texts() == [["birch", "4 right", "0 missed"], ["not birch", "8 wrong", "0 right"]]
    assert curves.threshold.slider.value() == 50
    assert curves.scores.text() == "Precision 33.3% · recall 100.0% · F1 50.0%"
    qtbot.mouseClick(curves.best_threshold, Qt.MouseButton.LeftButton)
    assert curves.scores.text().endswith("F1 66.7%")
    curves.show_evaluation(view.result.opened)
    assert curves.classes.value() == "1"


def read_mark(plot: UnitPlot) -> list[tuple[float, float]]:
    points = (each.getData() for each in plot.items() if isinstance(each, ScatterPlotItem))
    return [(x, y) for xs, ys in points for x, y in zip(xs, ys, strict=True)]


def read_lines(plot: UnitPlot) -> list[list[tuple[float, float]]]:
    return [list(zip(*line.getData(), strict=True)) for line in plot.listDataItems() if isinstance(line, PlotDataItem)]


def test_curves_page_marks_the_threshold(view: ModelView, qtbot: QtBot) -> None:
    view.result.tabs.setCurrentIndex(CURVES)
    curves = view.result.curves
    for value in ("1", "2", "1"):
        curves.classes.set_value(value)
        assert curves.about.text() == (
            "4 samples · average precision 90.0% (80.0 – 100.0%) · area under the ROC curve 95.0%"
        )
        if value == "2":
            assert (read_mark(curves.precision), read_mark(curves.roc)) == ([], [])  # until its counts are read
        qtbot.waitUntil(lambda: curves.counts.texts() != [])
    assert (read_mark(curves.precision), read_mark(curves.roc)) == ([(0.5, 1.0)], [(0.0, 0.5)])
    curve, diagonal = curves.curve(), [(0.0, 0.0), (1.0, 1.0)]
    points = [
        list(zip(*axes, strict=True))
        for axes in ((curve.recall, curve.precision), (curve.false_positive_rate, curve.true_positive_rate))
    ]
    assert (read_lines(curves.precision), read_lines(curves.roc)) == ([points[0]], [diagonal, points[1]])
    assert curves.roc.viewRange() == [pytest.approx([-0.02, 1.02]), pytest.approx([-0.03, 1.03])]
    titles = [[plot.getAxis(side).labelText for side in ("bottom", "left")] for plot in (curves.precision, curves.roc)]
    assert titles == [["Recall", "Precision"], ["False positive rate", "True positive rate"]]


@pytest.mark.parametrize("unit", ["object", "pixel"])
def test_curves_page_shows_pooled_curves_without_roc(view: ModelView, qtbot: QtBot, unit: str) -> None:
    view.result.tabs.setCurrentIndex(CURVES)
    opened, page = view.result.opened, view.result.curves
    assert opened is not None
    assert not page.roc.isHidden()
    qtbot.waitUntil(lambda: page.counts.texts() != [])
    opened.saved.probabilities_file.unlink()
    curve = ClassCurves(class_index=0, positives=4, recall=(0.25, 0.5), precision=(1.0, 0.0), thresholds=(0.9, 0.3))
    samples = opened.samples if unit == "object" else replace(opened.samples, true=None)
    saved = SavedEvaluation(opened.saved.folder.with_name("other"), opened.evaluation)
    page.show_evaluation(replace(opened, saved=saved, samples=samples, curves=Curves(classes=(curve,))))
    assert page.about.text() == f"4 {unit}s"
    assert page.roc.isHidden()
    assert (page.best_threshold.text(), page.best_threshold.isEnabled()) == ("Best F1", False)
    page.threshold.set(0.2)
    qtbot.waitUntil(lambda: page.counts.texts() == [["ash", "2 right", "2 missed"], ["not ash", "–", "–"]])


def test_late_error_of_another_class_is_ignored(view: ModelView, qtbot: QtBot, hold_calls: HoldCalls) -> None:
    view.result.tabs.setCurrentIndex(CURVES)
    page = view.result.curves
    qtbot.waitUntil(lambda: page.counts.texts() != [])
    release = hold_calls(curves_module, "read_outcomes", lambda _, curve: curve.class_index == 1, OSError("gone"))
    page.classes.set_value("1")
    page.classes.set_value("2")
    qtbot.waitUntil(lambda: page.counts.texts() != [])
    expected = page.scores.text()
    release.set()
    qtbot.waitUntil(lambda: not page.findChildren(Background))
    assert page.scores.text() == expected
    page.classes.set_value("1")
    qtbot.waitUntil(lambda: page.scores.text() == "Couldn't read the probabilities: OSError: gone")


def test_matrix_cell_opens_its_samples(view: ModelView, qtbot: QtBot) -> None:
    view.result.tabs.setCurrentIndex(CLASSES)
    matrix = view.result.classes.metrics_view.matrix
    qtbot.mouseClick(matrix, Qt.MouseButton.LeftButton, pos=matrix.cell_rect(1, 2).center().toPoint())
    assert view.result.tabs.currentIndex() == SAMPLES
    for page in (SUMMARY, SAMPLES):
        view.result.tabs.setCurrentIndex(page)
    assert view.result.samples.wall.samples.rows == [5, 4], "a page is as it was left"
    assert view.result.samples.summary.text() == f"2 samples of {COUNT}"


def test_evaluate_form_builds_request(empty_view: ModelView, dataset: Path, tmp_path: Path, qtbot: QtBot) -> None:
    run = write_run(8, dataset=str(dataset), devices=("cpu", "cpu"))
    view = empty_view
    assert not view.bar.isVisible()
    view.show_run(run)
    qtbot.waitUntil(lambda: view.pages.currentIndex() == FORM)
    qtbot.waitUntil(lambda: view.form.start.toolTip() == "The run has no checkpoint yet")
    assert not view.form.cancel.isVisible()
    assert not view.bar.isVisible()
    assert view.form.folder.line.placeholderText() == "the run's: trees"
    names = [editor.control.accessibleName() for editor in (view.form.folder, view.form.split)]
    assert names == ["Dataset to evaluate on", "Split to evaluate on"]
    (run.checkpoints / "best.pt").write_bytes(b"weights")
    (run.checkpoints / "last.pt").write_bytes(b"weights")
    view.form.checkpoint.refresh()
    qtbot.waitUntil(view.form.start.isEnabled)
    view.form.checkpoint.set_value("last.pt")
    drop_files(view.form, tmp_path)
    for value in (AUTOMATIC, *SPLITS):
        view.form.split.set_value(value)
        assert view.form.build_request() == EvaluateRequest(
            run=str(run.path),
            checkpoint="last.pt",
            devices=("cpu", "cpu"),
            dataset=str(tmp_path),
            split=next((split for split in SPLITS if split == value), None),
        )
    view.form.folder.set_value("~/trees")
    request = view.form.build_request()
    assert request is not None
    assert request.dataset == str(Path.home() / "trees")
    view.form.devices.boxes["cpu"].click()
    assert (view.form.start.isEnabled(), view.form.build_request()) == (False, None)
    view.show_run(write_run(8, dataset=str(dataset)))
    qtbot.waitUntil(lambda: view.form.folder.value() == "")
    assert (view.form.split.value(), view.form.devices.value()) == (AUTOMATIC, ("cpu",))


def test_devices_editor_excludes_cpu_from_gpus(view: ModelView) -> None:
    view.set_gpus({"GPU-a": "GPU 0", "GPU-b": "GPU 1"})
    assert view.form.devices.value() == ("cpu",)
    view.form.devices.boxes["GPU-a"].click()
    view.form.devices.boxes["GPU-b"].click()
    assert view.form.devices.value() == ("GPU-a", "GPU-b")
    view.form.devices.boxes["cpu"].click()
    assert view.form.devices.value() == ("cpu",)


def test_model_view_cancels_and_shows_refusal(view: ModelView, run: RunFolder, qtbot: QtBot) -> None:
    view.bar.new.trigger()
    view.reload()
    qtbot.waitUntil(lambda: not view.findChildren(Background))
    assert view.pages.currentIndex() == FORM
    assert view.form.cancel.isVisible()
    qtbot.waitUntil(view.form.start.isEnabled)
    view.form.start.click()
    assert (view.pages.currentIndex(), view.focusWidget()) == (WORKING, view.pages.cancel)
    view.pages.child.progress.emit(
        Progress(fraction=0.5, what="Evaluating 12 samples", seconds_left=192.0, images_per_second=1840.4)
    )
    assert view.pages.activity.text() == "Evaluating 12 samples, 1,840 images/s, 3:12 min left"
    assert view.pages.progress.value() == 50
    view.pages.child.progress.emit(
        Progress(fraction=0.6, what="Evaluating", seconds_left=0.0, warnings=tuple("abcdefg"))
    )
    assert view.pages.activity.text() == "Evaluating, 0 s left"
    view.pages.child.progress.emit(Progress(fraction=0.7, what="Evaluating"))
    assert join_visible_texts(view.pages.warnings).split() == list("cdefg")
    assert view.pages.activity.text() == "Evaluating…"
    qtbot.keyClick(view.pages.cancel, Qt.Key.Key_Space)
    assert not view.pages.child.running
    assert view.pages.currentIndex() == FORM
    view.form.start.click()
    assert view.pages.warnings.text() == ""
    view.pages.child.cancel()
    problems = Problem("split", "There is no test split.", "It has: val, all."), Problem("devices", "It is busy.")
    view.pages.child.refused.emit(problems)
    assert (view.pages.currentIndex(), view.focusWidget()) == (FAILURE, view.pages.retry)
    assert view.pages.failure.text().splitlines() == ["There is no test split. It has: val, all.", "It is busy."]
    (run.checkpoints / "last.pt").write_bytes(b"weights")
    view.pages.retry.click()
    qtbot.waitUntil(lambda: view.form.checkpoint.box.count() == 2)
    view.form.start.click()
    view.pages.child.cancel()
    view.pages.child.failed.emit("The evaluation ended early.")
    assert view.pages.currentIndex() == FAILURE
    assert view.pages.failure.text() == "The evaluation ended early. Try again."
    view.pages.retry.click()
    view.form.cancel.click()
    qtbot.waitUntil(lambda: view.pages.currentIndex() == RESULT)


def test_evaluation_of_another_run_is_neither_shown_nor_replaced(view: ModelView, run: RunFolder, qtbot: QtBot) -> None:
    view.bar.new.trigger()
    qtbot.waitUntil(view.form.start.isEnabled)
    view.form.start.click()
    received: list[str] = []
    view.message.connect(lambda text, _kind: received.append(text))
    view.show_run(write_run(8, dataset=view.result.opened.evaluation.dataset))  # type: ignore[union-attr]
    qtbot.waitUntil(lambda: view.pages.currentIndex() == FORM)
    first, other = view.pages.child.request, view.form.build_request()
    assert other is not None
    view.pages.start(other)
    assert (view.pages.child.request, len(received)) == (first, 1)
    view.pages.child.refused.emit((Problem("split", "There is no test split."),))
    assert (view.pages.currentIndex(), len(received)) == (FORM, 2)
    view.show_run(run)
    qtbot.waitUntil(lambda: view.pages.currentIndex() == WORKING)
    view.pages.cancel.click()


def test_mistakes_of_a_saved_evaluation_are_shown_once(view: ModelView, dataset: Path, qtbot: QtBot) -> None:
    view.show_mistakes()
    qtbot.waitUntil(lambda: view.result.tabs.currentIndex() == SAMPLES)
    view.result.tabs.setCurrentIndex(SUMMARY)
    view.reload()
    qtbot.waitUntil(lambda: not view.findChildren(Background))
    assert view.result.tabs.currentIndex() == SUMMARY
    view.show_mistakes()
    other = write_run(8, dataset=str(dataset))
    save_evaluation(other, dataset)
    view.show_run(other)
    qtbot.waitUntil(lambda: view.pages.currentIndex() == RESULT and not view.findChildren(Background))
    assert view.result.tabs.currentIndex() == SUMMARY


def test_mistakes_are_shown_after_their_evaluation(empty_view: ModelView, dataset: Path, qtbot: QtBot) -> None:
    run = write_run(8, dataset=str(dataset))
    (run.checkpoints / "best.pt").write_bytes(b"weights")
    empty_view.show_run(run)
    qtbot.waitUntil(empty_view.form.start.isEnabled)
    empty_view.show_mistakes()
    qtbot.waitUntil(lambda: empty_view.pages.currentIndex() == WORKING)
    empty_view.pages.child.cancel()
    messages: list[str] = []
    empty_view.message.connect(lambda text, _severity: messages.append(text))
    saved = save_evaluation(run, dataset)
    empty_view.pages.child.done.emit(str(saved.folder / "evaluation.json"))
    qtbot.waitUntil(lambda: empty_view.pages.currentIndex() == RESULT)
    assert empty_view.result.tabs.currentIndex() == SAMPLES
    qtbot.waitUntil(lambda: not empty_view.pages.findChildren(Background))
    assert messages == []  # the result is visible


def test_finished_evaluation_is_announced_with_title_of_run(view: ModelView, run: RunFolder, qtbot: QtBot) -> None:
    view.pages.child.request = view.form.build_request()
    view.hide()  # a visible view shows the result instead
    with qtbot.waitSignal(view.message) as signal:
        view.pages.child.done.emit(str(read_evaluations(run.path)[0].folder))
    assert signal.args == [f"The evaluation of “{run_title(run.summary())}” finished.", "info"]


def test_deleted_evaluation_is_restored(view: ModelView, run: RunFolder, dataset: Path, qtbot: QtBot) -> None:
    (saved,) = read_evaluations(run.path)
    before = {path.name: path.read_bytes() for path in saved.folder.iterdir()}
    view.bar.delete.trigger()
    qtbot.waitUntil(lambda: view.pages.currentIndex() == FORM)
    assert not saved.folder.exists()
    assert "trash" in view.deleting.text()
    view.deleting.yes.click()
    qtbot.waitUntil(lambda: view.pages.currentIndex() == RESULT)
    assert {path.name: path.read_bytes() for path in saved.folder.iterdir()} == before
    other = save_evaluation(run, dataset, "20261125-100000-val", date="2026-11-25T10:00:00Z")
    view.reload(saved.folder.name)
    qtbot.waitUntil(lambda: not view.findChildren(Background))
    view.bar.delete.trigger()
    assert view.deleting.isVisible()
    qtbot.waitUntil(lambda: view.bar.current() is not None and view.bar.current().folder == other.folder)
    assert (saved.folder.exists(), other.folder.exists()) == (False, True)
    view.show_run(write_run(9))
    assert view.deleting.isHidden()


def test_evaluation_bar_saves_csv_and_json(view: ModelView, tmp_path: Path, qtbot: QtBot) -> None:
    menu, opened = view.bar.save.menu(), view.result.opened
    assert menu is not None
    assert opened is not None
    for number, action in enumerate(menu.actions()):
        action.trigger()
        dialog = view.findChildren(QFileDialog)[-1]
        with qtbot.waitSignal(view.message) as signal:
            dialog.fileSelected.emit(str(tmp_path / f"{number}.csv"))
        dialog.close()
        assert signal.args[1] == "info"
    metrics, classes, matrix, samples = (rows(tmp_path / f"{number}.csv") for number in range(4))
    assert metrics[1] == ["Top-1 accuracy", "0.75", "0.55", "0.85"]
    assert classes[:2] == [["class", "Recall", "Recall low", "Recall high"], ["ash", "0.75", "0", "0.8"]]
    assert matrix[1] == ["ash", "3", "1", "0"]
    assert msgspec.json.decode((tmp_path / "4.csv").read_bytes())["task"] == "classification"
    unknown = list(make_class_rows(change_evaluation(view, per_class={"Recall": (None, Interval(0.5))})))
    assert unknown[1:] == [["ash", "", "", ""], ["birch", "0.5", "", ""], ["cedar", "", "", ""]]
    for change, are_enabled in (({"per_class": {}}, [False, True]), ({"confusion": ()}, [True, False])):
        view.bar.show_opened(change_evaluation(view, **change))
        assert [each.isEnabled() for each in menu.actions()] == [True, *are_enabled, True, True]
    assert samples[0][4:] == ["confidence", "correct", "loss"]
    assert samples[2][:4] == ["val/ash/1.png", "val", "ash", "birch"]
    columns = (opened.samples.confidence, opened.samples.correct, opened.samples.losses)
    assert [float(text) for text in samples[2][4:]] == pytest.approx([column[1] for column in columns])
    with qtbot.waitSignal(view.message) as signal:
        view.bar.save_json(tmp_path / "nowhere" / "evaluation.json")
    assert signal.args[1] == "warning"


def test_model_view_reports_damaged_evaluation(
    view: ModelView, run: RunFolder, dataset: Path, qtbot: QtBot, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = save_evaluation(run, dataset, "20261125-100000-val", date="2026-11-25T10:00:00Z")
    (other.folder / "samples.msgpack").write_bytes(b"\x81")
    view.reload(other.folder.name)
    qtbot.waitUntil(lambda: view.pages.currentIndex() == FAILURE)
    assert "samples.msgpack" in view.pages.failure.text()
    assert "Evaluate the model again." in view.pages.failure.text()
    (_newest, older) = saved = read_evaluations(run.path)
    for chosen in (older.folder.name, "", "gone"):
        view.bar.show_list(saved, chosen)
        assert view.bar.current() == older

    def fail(_run: Path) -> list[SavedEvaluation]:
        raise OSError("gone")

    monkeypatch.setattr(view_module, "read_evaluations", fail)
    view.reload()
    qtbot.waitUntil(lambda: view.pages.failure.text() == "Couldn't read the evaluations: OSError: gone.")


def test_late_results_of_another_selection_are_not_shown(
    view: ModelView, run: RunFolder, dataset: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads: list[tuple[Any, Any, Any]] = []
    monkeypatch.setattr(view_module, "in_background", lambda read, _owner, *then: reads.append((read, *then)))
    opened = view.result.opened
    assert opened is not None
    view.bar.chosen.emit(save_evaluation(run, dataset, "20261125-100000-val", date="2026-11-25T10:00:00Z"))
    view.bar.chosen.emit(opened.saved)
    view.reload()
    read, on_read, on_failed = reads[0]
    on_failed(OSError("gone"))
    on_read(read())
    assert (view.pages.currentIndex(), view.result.opened) == (RESULT, opened)
    view.show_run(write_run(9))
    read, on_read, on_failed = reads[2]
    on_failed(OSError("gone"))
    on_read(read())
    assert (view.pages.currentIndex(), len(reads)) == (READING, 4)


def test_comparison_page_compares_and_opens_samples(view: ModelView, dataset: Path, qtbot: QtBot) -> None:
    other = write_run(8, dataset=str(dataset), name="rival")
    save_evaluation(other, dataset, "20261124-110000-test", split="test")
    view.result.tabs.setCurrentIndex(COMPARE)
    page = view.result.comparison
    qtbot.waitUntil(lambda: not page.findChildren(Background))
    assert "Nothing to compare with yet." in join_visible_texts(page)
    save_evaluation(other, dataset, wrong=(1, 8, 9, 10, 11))
    page.refresh()
    qtbot.waitUntil(lambda: page.comparison is not None)
    assert page.differences.isVisible()
    assert page.other_choice.box.count() == 1
    assert page.other_choice.box.currentText().startswith("rival · ")
    assert read_headers(page.differences) == ["Metric", "This", "Other", "Difference", "95% interval"]
    (top1, loss) = page.differences.texts()
    assert top1[:4] == ["Top-1 accuracy", "75.0%", "58.3%", "+16.7"]
    assert loss[4].endswith(" to +0.000")  # the bound is 0
    assert "better in top-1:" in page.verdict.text()
    assert page.significance.text().startswith("4 samples")
    assert all(number in page.significance.text() for number in (" 2 only", "0.688"))
    assert [number in page.show_only_this.text() for number in "42"] == [True, False]
    assert [number in page.show_only_other.text() for number in "42"] == [False, True]
    page.show_evaluation(view.result.opened)
    assert (page.differences.texts(), page.verdict.text()) == ([], "")  # until the next comparison is there
    assert page.show_only_this.isHidden()
    qtbot.waitUntil(lambda: page.comparison is not None)
    page.show_only_this.click()
    assert view.result.tabs.currentIndex() == SAMPLES
    assert sorted(view.result.samples.wall.samples.rows) == [8, 9, 10, 11]
    assert view.result.samples.summary.text() == "4 samples that only this evaluation got right"
    page.show_only_other.click()
    assert sorted(view.result.samples.wall.samples.rows) == [4, 5]
    assert view.result.samples.summary.text() == "2 samples that only the other evaluation got right"
    newer = save_evaluation(other, dataset, "20261125-120000-val", wrong=(2,), date="2026-11-25T12:00:00Z")
    chosen = page.other_choice.value()
    page.refresh()
    qtbot.waitUntil(lambda: page.other_choice.box.count() == 2)
    assert page.other_choice.value() == chosen != str(newer.folder)
    page.other_choice.set_value(str(newer.folder))
    qtbot.waitUntil(lambda: page.verdict.text() == "This evaluation is worse in top-1: those intervals exclude 0.")


def test_comparison_without_results_per_sample_has_no_buttons(
    view: ModelView, dataset: Path, qtbot: QtBot, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_evaluation(write_run(8, dataset=str(dataset)), dataset, wrong=(1,))
    compare = comparison_module.compare
    errors: list[Exception] = [ValueError("They are of other samples.")]

    def compare_metrics(first: SavedEvaluation, second: SavedEvaluation) -> Comparison:
        if errors:
            raise errors.pop()
        comparison = compare(first, second)
        top1, loss = comparison.differences
        loss = msgspec.structs.replace(loss, difference=Interval(-0.2, -0.3, -0.1))
        return msgspec.structs.replace(
            comparison, differences=(top1, loss), only_first=None, only_second=None, mcnemar=None
        )

    monkeypatch.setattr(comparison_module, "compare", compare_metrics)
    view.result.tabs.setCurrentIndex(COMPARE)
    page = view.result.comparison
    qtbot.waitUntil(lambda: page.problem.text() == "Couldn't compare them: They are of other samples.")
    page.refresh()
    qtbot.waitUntil(lambda: page.comparison is not None)
    assert page.problem.text() == ""
    assert page.show_only_this.isHidden()
    assert page.show_only_other.isHidden()
    assert page.significance.isHidden()
    assert page.verdict.text() == (
        "This evaluation is better in validation loss and worse in top-1: those intervals exclude 0."
    )
    errors.append(OSError("gone"))
    page.refresh()
    qtbot.waitUntil(lambda: page.problem.text() == "Couldn't compare them: OSError: gone.")
    assert (page.differences.texts(), page.verdict.text()) == ([], "")


@pytest.mark.parametrize("fails", [False, True])
def test_late_comparison_with_another_evaluation_is_not_shown(
    view: ModelView, dataset: Path, qtbot: QtBot, hold_calls: HoldCalls, fails: bool
) -> None:
    evaluations = [save_evaluation(write_run(8, dataset=str(dataset)), dataset, wrong=wrong) for wrong in ((1, 4), ())]
    slow, fast = (str(saved.folder) for saved in evaluations)
    error = OSError("gone") if fails else None
    release = hold_calls(comparison_module, "compare", lambda first, _: str(first.folder) == slow, error)
    view.result.tabs.setCurrentIndex(COMPARE)
    page = view.result.comparison
    qtbot.waitUntil(lambda: page.other_choice.box.count() == 2)
    for folder in (slow, fast):
        page.other_choice.set_value(folder)
        page.other_choice.edited.emit()
    qtbot.waitUntil(lambda: page.comparison is not None)
    release.set()
    qtbot.waitUntil(lambda: not page.findChildren(Background))
    assert (page.differences.texts()[0][2], page.problem.text()) == ("100.0%", "")
    assert [button.isEnabled() for button in (page.show_only_this, page.show_only_other)] == [False, True]
    assert page.about.text().startswith("12 samples in both")
