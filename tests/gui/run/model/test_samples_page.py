"""Samples of an evaluation: filtering, opening, annotating, reviewing and exporting them."""

from __future__ import annotations

import csv
import errno
import os
import re
import threading
from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np
import pytest
from PySide6.QtCore import QPoint, QRect, QSize, Qt
from PySide6.QtGui import QColor, QImage
from PySide6.QtTest import QAbstractItemModelTester
from PySide6.QtWidgets import QFileDialog
from pytestqt.qtbot import QtBot

from engine.contract.inference.review import DuplicatePair, LabelIssue, Review, ReviewedSample, ReviewRequest
from engine.contract.messages import Progress
from engine.runs.folder import RunFolder
from gui.run.model.result import SAMPLES
from gui.run.model.samples import detail as detail_module
from gui.run.model.samples import page as samples_page
from gui.run.model.samples import review
from gui.run.model.samples.page import DETAIL, WALL, SamplesPage
from gui.run.model.samples.review import MARKS_FILE, SampleFilter, make_marks, rank_samples
from gui.run.model.samples.wall import PAD, SIDE
from gui.run.model.view import ModelView
from gui.sources.background import Background
from gui.sources.evaluations import OpenedEvaluation, SampleTable, SavedEvaluation, open_evaluation
from gui.sources.inspector import read_image
from gui.style import theme
from tests.gui.run.model.saved_evaluations import CLASSES, COUNT, save_evaluation
from tests.support.painted import PaintedRegions, describe_painting
from tests.support.widgets import HoldCalls, is_right_of, list_column_texts


@pytest.fixture
def page(view: ModelView, qtbot: QtBot) -> SamplesPage:
    view.result.tabs.setCurrentIndex(SAMPLES)
    wait_for_marks(view.result.samples, qtbot)
    return view.result.samples


def wait_for_marks(page: SamplesPage, qtbot: QtBot) -> None:
    """Wait until the marks have been read, because samples can't be marked before."""
    qtbot.waitUntil(lambda: not page.findChildren(Background, options=Qt.FindChildOption.FindDirectChildrenOnly))


def test_samples_page_filters_and_sorts(page: SamplesPage, monkeypatch: pytest.MonkeyPatch, qtbot: QtBot) -> None:
    page.wall.setFocus()
    qtbot.keyClick(page.wall, Qt.Key.Key_Backtab)
    assert page.review.isAncestorOf(page.window().focusWidget())
    assert page.wall.samples.rows[:3] == [5, 4, 1]
    assert len(page.wall.samples.rows) == COUNT
    assert not page.only_marked.isEnabled()
    assert (page.save_marked.text(), page.save_marked.isEnabled()) == ("Save marked…", False)
    assert page.save_marked.toolTip() == "Mark samples with Space first"
    page.show_rows(frozenset({7, 1}), "Two of them")
    assert (sorted(page.wall.samples.rows), page.summary.text()) == ([1, 7], "Two of them")
    page.sort.edited.emit()
    for editor, none in ((page.true, []), (page.predicted, ["-1"])):  # several labels are possible
        assert [editor.box.itemData(index) for index in range(editor.box.count())] == ["all", "0", "1", "2", *none]
    page.wall.choose(2)
    page.wrong.setChecked(True)
    assert page.wall.samples.rows[page.wall.current()] == 1
    assert re.findall(r"\d+", page.summary.text()) == ["3", str(COUNT)]
    page.true.set_value("0")
    assert page.wall.samples.rows == [1]
    page.true.set_value("all")
    page.predicted.set_value("1")
    assert page.wall.samples.rows == [1]
    page.wrong.setChecked(False)
    page.sort.set_value("order")
    assert page.wall.samples.rows == [1, 6, 7]
    page.show_rows(frozenset({5, 4, 1}), "Three of them")
    assert page.wall.samples.rows == [1, 4, 5]
    page.predicted.set_value("-1")
    assert page.summary.text() == "No samples match."
    page.wrong.setChecked(True)
    page.show_cell(1, 1)
    assert page.wall.samples.rows == [6, 7]
    page.open(1)
    page.show_cell(1, 1)
    assert (page.stack.currentIndex(), page.wall.current()) == (WALL, 0)
    page.true.set_value("all")
    page.predicted.set_value("2")
    assert sorted(page.wall.samples.rows) == [4, 5, 8, 9, 10, 11]
    page.show_cell(len(CLASSES), 2)
    assert page.wall.samples.rows == []
    monkeypatch.setattr(samples_page, "MAX_SAMPLES", 2)
    page.true.set_value("all")
    page.predicted.set_value("1")
    assert page.wall.samples.rows == [1, 6]
    assert re.findall(r"\d+", page.summary.text()) == ["2", "3", str(COUNT)]


def test_samples_page_filters_by_several_classes_only(view: ModelView, page: SamplesPage) -> None:
    opened = view.result.opened
    visible = [page.true.isVisible(), page.predicted.isVisible(), page.wrong.isVisible()]
    assert (visible, page.sort.box.count()) == ([True] * 3, 4)
    evaluation = msgspec.structs.replace(opened.evaluation, classes=CLASSES[:1])
    page.wall.samples.marked = {3}
    page.open(0)
    unsorted = replace(opened.samples, correct=None, losses=None)
    page.show_evaluation(replace(opened, saved=opened.saved._replace(evaluation=evaluation), samples=unsorted), ())
    assert (page.wall.samples.marked, page.stack.currentIndex()) == (set(), WALL)
    assert (page.true.isVisible(), page.predicted.isVisible(), page.wrong.isVisible()) == (False, False, False)
    assert [page.sort.box.itemData(index) for index in range(page.sort.box.count())] == ["sure", "order"]
    page.show_evaluation(replace(opened, samples=replace(opened.samples, true=None, true_class=None)), ())
    assert (page.true.isVisible(), page.predicted.isVisible()) == (False, True)
    several = replace(opened.samples, true_class=None)
    page.show_evaluation(replace(opened, samples=several), ())
    assert page.true.box.findData("-1") >= 0


def test_wall_loads_visible_thumbnails(page: SamplesPage, qtbot: QtBot) -> None:
    thumbnails, painted = page.wall.thumbnails, PaintedRegions(page.wall.viewport())
    thumbnails.loaded.connect(painted.found.clear)
    qtbot.waitUntil(lambda: thumbnails.image(page.wall.samples.file(0)) is not None and painted.found != [])
    image = thumbnails.image(page.wall.samples.file(0))
    assert (image.width(), image.height()) == (12, 8)


def test_samples_page_opens_and_marks_by_keys(page: SamplesPage, run: RunFolder, qtbot: QtBot) -> None:
    page.wall.choose(0)
    qtbot.keyClick(page.wall, Qt.Key.Key_Return)
    detail = page.detail
    assert (page.stack.currentIndex(), page.window().focusWidget()) == (DETAIL, detail.image.pane)
    assert detail.name.text() == "val/birch/1.png · 1 of 12"
    detail.zoom.zoom_by(2)
    for key, text, enabled in (
        (Qt.Key.Key_Up, "1 of 12", (False, True)),
        (Qt.Key.Key_Down, "2 of 12", (True, True)),
        (Qt.Key.Key_Up, "1 of 12", (False, True)),
    ):
        qtbot.keyClick(detail, key)
        assert detail.name.text().endswith(text)
        assert (detail.previous.isEnabled(), detail.next.isEnabled()) == enabled
    assert not detail.zoom.is_changed
    page.open(11)
    assert (page.wall.current(), detail.next.isEnabled()) == (11, False)
    qtbot.keyClick(detail, Qt.Key.Key_Right)
    assert detail.name.text().endswith("12 of 12")
    for is_on in (True, False):
        qtbot.keyClick(detail, Qt.Key.Key_H)
        assert (detail.maps.on.isChecked(), detail.maps.first.isVisible()) == (is_on, is_on)
    page.open(0)
    assert detail.caption.text().startswith("Truth: birch · Prediction: cedar · Loss ")
    qtbot.waitUntil(lambda: not detail.image.pane.image_rect().isEmpty())
    qtbot.keyClick(detail.image.pane, Qt.Key.Key_Space)
    assert detail.marked.isChecked()
    qtbot.keyClick(detail.image.pane, Qt.Key.Key_Right)
    assert detail.name.text() == "val/birch/0.png · 2 of 12"
    assert not detail.marked.isChecked()
    qtbot.keyClick(detail.image.pane, Qt.Key.Key_Left)
    assert detail.marked.isChecked()
    qtbot.keyClick(detail.image.pane, Qt.Key.Key_Right)
    detail.leave.trigger()
    assert page.stack.currentIndex() == WALL
    assert page.wall.current() == 1
    qtbot.keyClick(page.wall, Qt.Key.Key_Space)
    assert page.wall.samples.marked == {4, 5}
    marks = run.path / "evaluations/20261124-100000-val" / MARKS_FILE
    qtbot.waitUntil(lambda: marks.exists() and marks.read_text() == "[4,5]")


def test_image_that_arrives_after_another_sample_is_opened_is_ignored(
    page: SamplesPage, dataset: Path, qtbot: QtBot, hold_calls: HoldCalls
) -> None:
    (dataset / "val/birch/1.png").unlink()
    release = hold_calls(detail_module, "read_image", lambda file, _side: file.name == "1.png")
    for position in (0, 1):
        page.open(position)
    pane = page.detail.image.pane
    qtbot.waitUntil(lambda: not pane.image_rect().isEmpty())
    release.set()
    qtbot.waitUntil(lambda: not page.detail.findChildren(Background))
    assert not pane.image_rect().isEmpty()


def test_buttons_of_a_sample_step_mark_and_leave(page: SamplesPage, dataset: Path, qtbot: QtBot) -> None:
    page.wall.doubleClicked.emit(page.wall.samples.index(0))
    detail = page.detail
    assert detail.name.toolTip() == str(dataset / "val/birch/1.png")
    assert is_right_of(detail.next, detail.previous)
    for button, text in ((detail.next, "2 of 12"), (detail.previous, "1 of 12")):
        button.click()
        assert detail.name.text().endswith(text)
    detail.marked.click()
    detail.back.click()
    assert (page.stack.currentIndex(), page.wall.samples.marked) == (WALL, {5})
    qtbot.keyClick(page.wall, Qt.Key.Key_Enter)
    assert page.stack.currentIndex() == DETAIL


def test_wall_paints_marks_the_selection_and_missing_files(view: ModelView, dataset: Path, qtbot: QtBot) -> None:
    (dataset / "val/birch/1.png").unlink()
    view.result.tabs.setCurrentIndex(SAMPLES)
    wall = view.result.samples.wall
    wait_for_marks(view.result.samples, qtbot)
    wall.choose(2)
    qtbot.keyClick(wall, Qt.Key.Key_Space)
    wall.choose(1)
    qtbot.waitUntil(lambda: None not in [wall.thumbnails.image(wall.samples.file(row)) for row in range(COUNT)])
    assert describe_painting(wall).startswith("“no preview” muted")
    drawn, accent = wall.viewport().grab().toImage(), QColor(theme.colors().accent)
    items = [wall.visualRect(wall.samples.index(position)) for position in (1, 2)]
    corners = [QRect(item.center().x(), item.top() + 8, item.width() // 2 - 8, 16) for item in items]
    assert [drawn.pixelColor(item.left() + 2, item.center().y()) == accent for item in items] == [True, False]
    assert [len(list_colors(drawn.copy(corner))) > 3 for corner in corners] == [False, True]
    above = QPoint(items[0].center().x(), items[0].top() + 10)  # the image is wider than high
    assert drawn.pixelColor(above) == QColor(theme.colors().raised)
    assert "“birch → cedar” text, “loss 2.20 · 78% sure” muted" in describe_painting(wall)
    columns = [wall.visualRect(wall.samples.index(row)).top() for row in range(COUNT)].count(items[0].top())
    assert 0 <= wall.viewport().width() - columns * items[0].width() < SIDE
    for width in (600, 700):
        view.resize(width, 620)
        assert wall.gridSize().width() >= SIDE + 2 * PAD


def list_colors(image: QImage) -> set[str]:
    return {image.pixelColor(x, y).name() for x in range(image.width()) for y in range(image.height())}


def test_newest_marks_are_saved_even_if_the_window_closes(
    page: SamplesPage, run: RunFolder, qtbot: QtBot, monkeypatch: pytest.MonkeyPatch
) -> None:
    release, write = threading.Event(), samples_page.write_marks
    calls: list[tuple[int, ...]] = []

    def slow_first_write(saved: SavedEvaluation, rows: tuple[int, ...]) -> None:
        calls.append(rows)
        if len(calls) == 1:
            release.wait()
        write(saved, rows)

    monkeypatch.setattr(samples_page, "write_marks", slow_first_write)
    for position in range(3):
        page.wall.choose(position)
        qtbot.keyClick(page.wall, Qt.Key.Key_Space)
    qtbot.waitUntil(lambda: len(calls) == 1)
    release.set()
    page.close_work()
    assert len(calls) == 2
    assert (run.path / "evaluations/20261124-100000-val" / MARKS_FILE).read_text() == "[1,4,5]"


def test_marks_that_are_being_read_are_not_overwritten(
    view: ModelView, run: RunFolder, dataset: Path, qtbot: QtBot, hold_calls: HoldCalls
) -> None:
    marks = run.path / "evaluations/20261124-100000-val" / MARKS_FILE
    marks.write_text("[5,7]")
    release = hold_calls(samples_page, "read_marks")
    view.result.tabs.setCurrentIndex(SAMPLES)
    page = view.result.samples
    page.open(0)
    page.detail.marked.click()
    assert not page.detail.marked.isChecked()
    release.set()
    qtbot.waitUntil(page.detail.marked.isChecked)
    page.detail.next.click()
    page.detail.marked.click()
    page.close_work()
    assert marks.read_text() == "[4,5,7]"
    release.clear()
    page.show_evaluation(view.result.opened, ())
    page.wall.choose(0)
    qtbot.keyClick(page.wall, Qt.Key.Key_Space)
    release.set()
    qtbot.waitUntil(lambda: page.wall.samples.marked == {4, 5, 7})
    page.close_work()
    assert marks.read_text() == "[4,5,7]"
    other = save_evaluation(run, dataset, "20261125-100000-val")
    (other.folder / MARKS_FILE).write_text("[1]")
    release = hold_calls(samples_page, "read_marks", lambda saved: saved.folder != other.folder)
    for opened in (view.result.opened, open_evaluation(other)):
        page.show_evaluation(opened, ())
    qtbot.waitUntil(lambda: page.wall.samples.marked == {1})
    release.set()
    wait_for_marks(page, qtbot)
    assert page.wall.samples.marked == {1}


def test_marks_are_restored_filtered_and_exported(
    view: ModelView, run: RunFolder, dataset: Path, tmp_path: Path, qtbot: QtBot
) -> None:
    other = save_evaluation(run, dataset, "20261125-100000-val", date="2026-11-25T10:00:00Z")
    (other.folder / MARKS_FILE).write_text("[1,4")
    assert review.read_marks(other) == set()
    (other.folder / MARKS_FILE).write_text("[1,4,99]")
    view.result.tabs.setCurrentIndex(SAMPLES)
    view.reload(other.folder.name)
    page = view.result.samples
    qtbot.waitUntil(lambda: page.wall.samples.marked == {1, 4})
    page.only_marked.setChecked(True)
    assert page.wall.samples.rows == [4, 1]
    tip = page.wall.samples.index(0).data(Qt.ItemDataRole.ToolTipRole).splitlines()
    assert (tip[0], tip[-1]) == (str(dataset / "val/birch/0.png"), "Marked")
    assert page.save_marked.text().startswith("Save 2 ")
    page.save_marked.click()
    (dialog,) = page.findChildren(QFileDialog)
    with qtbot.waitSignal(view.message) as signal:
        dialog.fileSelected.emit(str(tmp_path / "marked.csv"))
    dialog.close()
    assert signal.args == [f"2 marked samples saved to {tmp_path / 'marked.csv'}.", "info"]
    with (tmp_path / "marked.csv").open(newline="") as stream:
        rows = list(csv.reader(stream))
    assert rows == [
        ["file", "reason", "label", "prediction", "new_label"],
        [str(dataset / "val/ash/1.png"), "marked", "ash", "birch", ""],
        [str(dataset / "val/birch/0.png"), "marked", "birch", "cedar", ""],
    ]
    page.open(0)
    for is_marked in (False, True):
        page.detail.marked.click()
        assert (page.wall.samples.marked, page.wall.samples.rows) == ({1, 4} if is_marked else {1}, [4, 1])
    page.detail.leave.trigger()
    for _ in range(2):
        qtbot.keyClick(page.wall, Qt.Key.Key_Space)
    assert (page.wall.samples.rows, page.only_marked.isEnabled()) == ([], True)
    page.show_cell(1, 1)
    assert page.wall.samples.rows == [6, 7]


def test_reasons_of_marks_are_translated(run: RunFolder, dataset: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(review, "tr", lambda text: f"<{text}>")
    opened = open_evaluation(save_evaluation(run, dataset, "20261125-100000-val"))
    reasons = [
        mark.reason
        for is_model_weak in (False, True)
        for mark in make_marks(opened, (1, 4), {4: "ash"}, is_model_weak=is_model_weak)
    ]
    assert reasons == ["<marked>", "<probably ash>", "<marked>", "<a label worth checking>"]


def test_marks_are_saved_after_others_failed(
    page: SamplesPage, view: ModelView, run: RunFolder, qtbot: QtBot, hold_calls: HoldCalls
) -> None:
    opened = view.result.opened
    other = replace(opened, saved=opened.saved._replace(folder=opened.saved.folder.with_name("other")))
    other.saved.folder.mkdir()
    error = OSError(errno.ENOSPC, "full")
    release = hold_calls(samples_page, "write_marks", lambda saved, _rows: saved is opened.saved, error)
    for each in (opened, other):
        page.show_evaluation(each, ())
        page.wall.choose(0)

        def has_marked() -> bool:
            """Mark the sample as soon as the saved marks have been read."""
            qtbot.keyClick(page.wall, Qt.Key.Key_Space)
            return bool(page.wall.samples.marked)

        qtbot.waitUntil(has_marked)
    with qtbot.waitSignal(page.message) as signal:
        release.set()
    assert signal.args[1] == "warning"
    page.close_work()
    assert (other.saved.folder / MARKS_FILE).read_text() == "[5]"


def make_review(opened: OpenedEvaluation, checked_samples: int) -> Review:
    """Return a review that lists four labels, and two images with duplicates, one of them in another split.

    It estimates that 2 of `checked_samples` samples have a wrong label.
    """
    one, other, third = (
        ReviewedSample(path=f"val/{name}.png", split="val") for name in ("birch/1", "cedar/0", "ash/3")
    )
    train = ReviewedSample(path="train/ash/7.png", split="train")
    return Review(
        id="1",
        date="2026-11-24T11:00:00Z",
        run=opened.evaluation.run,
        task="classification",
        dataset=opened.evaluation.dataset,
        evaluations=(str(opened.saved.folder.absolute()),),
        classes=CLASSES,
        samples=COUNT,
        checked_samples=checked_samples,
        held_out=True,
        origin="Predictions for validation.",
        label_issues=(
            LabelIssue(sample=one, given="birch", suggested="cedar", probability=0.1, suggested_probability=0.8),
            LabelIssue(sample=other, given="", suggested="ash", probability=0.2, suggested_probability=0.9),
            LabelIssue(sample=third, given="ash", suggested="", probability=0.3, suggested_probability=0.7),
            LabelIssue(sample=train, given="ash", suggested="birch", probability=0.3, suggested_probability=0.7),
        ),
        expected_errors=2,
        duplicates=(
            DuplicatePair(first=train, second=other, distance=0, exact=True),
            DuplicatePair(first=one, second=third, distance=3, labels_differ=True),
        ),
        missing=("Boxes weren't checked.",),
    )


@pytest.mark.parametrize(
    ("checked_samples", "texts"),
    [(20, ("about 2 wrong in total", "probably cedar")), (19, ("too weak", "a label worth checking"))],
)
def test_review_shows_wrong_labels_and_duplicates(
    view: ModelView,
    page: SamplesPage,
    qtbot: QtBot,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    *,
    checked_samples: int,
    texts: tuple[str, str],
) -> None:
    (remark, reason), opened = texts, view.result.opened
    assert not page.review.selection.isVisible()
    requests: list[ReviewRequest] = []
    monkeypatch.setattr(page.review.child, "start", requests.append)
    page.review.review_action.trigger()
    folder, evaluated = opened.saved.folder.parents[1], str(opened.saved.folder)
    assert requests == [ReviewRequest(run=str(folder), evaluations=(evaluated,), worst=0)]
    page.review.child.progress.emit(Progress(0.5, "Reviewing"))
    file, newest = folder / "reviews" / "1.json", make_review(opened, checked_samples)
    file.parent.mkdir()
    for name, found in (
        ("1", newest),
        ("0", msgspec.structs.replace(newest, date="2026-11-24T10:00:00Z", duplicates=())),
        ("2", msgspec.structs.replace(newest, date="2026-11-24T10:30:00Z", duplicates=())),
        ("3", msgspec.structs.replace(newest, date="2026-11-25T10:00:00Z", evaluations=("of another",))),
    ):
        file.with_stem(name).write_bytes(msgspec.json.encode(found))
    file.with_stem("4").write_text("{")
    page.wall.choose(3)
    qtbot.keyClick(page.wall, Qt.Key.Key_Space)
    page.only_marked.setChecked(True)
    page.review.child.done.emit(str(file))
    qtbot.waitUntil(lambda: page.wall.samples.rows == [5, 8, 3])
    assert not page.review.progress_line.isVisible()
    assert not page.only_marked.isChecked()
    assert list_column_texts(page.wall.samples, 0) == [
        "1.png: birch → cedar, 10% → 80%",
        "0.png: no ash, 20% → 90%",
        "3.png: ash → none, 30% → 70%",
    ]
    assert page.summary.text().startswith("3 labels worth checking")
    assert remark in page.summary.text()
    for position in (0, 1):
        page.wall.choose(position)
        qtbot.keyClick(page.wall, Qt.Key.Key_Space)
    assert page.wall.samples.rows == [5, 8, 3]
    with qtbot.waitSignal(page.message):
        page.save_marked.save_list(tmp_path / "marked.csv")
    assert f",{reason},birch,cedar,cedar" in (tmp_path / "marked.csv").read_text()
    assert ",marked,cedar,cedar,\r\n" in (tmp_path / "marked.csv").read_bytes().decode()
    page.review.selection.set_value("duplicates")
    duplicates = [
        "0.png: the same as 7.png, train, marked",
        "1.png: similar to 3.png, other label, marked",
        "3.png: similar to 1.png, other label",
    ]
    assert (list_column_texts(page.wall.samples, 0), page.wall.samples.rows) == (duplicates, [8, 5, 3])
    assert page.summary.text() == "2 pairs of duplicate images"
    page.wrong.setChecked(True)
    assert page.review.selection.value() == "all"
    assert page.wall.samples.rows == [5, 4, 1]
    for saved, is_reviewed in (
        (opened.saved._replace(folder=opened.saved.folder.with_name("other")), False),
        (opened.saved, True),
    ):
        page.review.child.progress.emit(Progress(0.5, "Reviewing"))
        page.show_evaluation(replace(opened, saved=saved), ())
        assert not page.review.selection.isVisible()
        assert not page.review.progress_line.isVisible()
        qtbot.waitUntil(lambda: not page.review.findChildren(Background))
        assert page.review.selection.isVisible() is page.review.origin.isVisible() is is_reviewed
    assert [page.review.selection.box.itemText(index) for index in range(3)] == [
        "all samples",
        "labels worth checking (4)",
        "duplicate images (2)",
    ]
    assert page.review.origin.text() == "Predictions for validation. Boxes weren't checked."


def test_sample_model_is_consistent(page: SamplesPage) -> None:
    tester = QAbstractItemModelTester(page.wall.samples, QAbstractItemModelTester.FailureReportingMode.Fatal, page)
    page.wrong.setChecked(True)
    assert tester.model() is page.wall.samples
    first = page.wall.samples.index(0)
    assert page.wall.samples.data(first, Qt.ItemDataRole.AccessibleTextRole).startswith("1.png: birch → cedar, loss ")


def test_rank_samples_matches_each_of_several_labels() -> None:
    samples = SampleTable(
        paths=("a", "b", "c"),
        splits=("val",) * 3,
        indices=(0, 1, 2),
        losses=np.array([0.5, np.nan, 2.0]),
        true=((0, 1), (), (1,)),
        predicted=((), (1,), (1,)),
    )
    assert rank_samples(samples, SampleFilter(true=1)).tolist() == [2, 0]
    assert rank_samples(samples, SampleFilter(predicted=-1)).tolist() == [0]
    assert rank_samples(samples, SampleFilter()).tolist() == [2, 0, 1]  # NaN is sorted last
    samples = replace(samples, confidence=np.array([0.5, 0.9, 0.7]), correct=np.array([1.0, 0.5, 0.0]))
    assert rank_samples(samples, SampleFilter(sort="sure")).tolist() == [1, 2, 0]
    assert rank_samples(samples, SampleFilter(sort="correct")).tolist() == [2, 1, 0]
    assert rank_samples(samples, SampleFilter(sort="order", wrong=True)).tolist() == [1, 2]


def test_read_image_explains_unreadable_files(tmp_path: Path) -> None:
    (tmp_path / "a.jpg").write_text("<svg xmlns='http://www.w3.org/2000/svg' width='9' height='9'/>")
    assert read_image(tmp_path / "a.jpg") == "a.jpg is not an image that can be shown here."
    assert read_image(tmp_path / "b.jpg") == "b.jpg is missing."
    image = QImage(40, 20, QImage.Format.Format_RGB32)
    assert image.save(str(tmp_path / "d.png"))
    sizes = {0: QSize(40, 20), 10: QSize(10, 5), 40: QSize(40, 20), 90: QSize(40, 20)}
    for side, size in sizes.items():
        read = read_image(tmp_path / "d.png", side)
        assert isinstance(read, QImage)
        assert read.size() == size
    content = (tmp_path / "d.png").read_bytes()
    (tmp_path / "d.png").write_bytes(content[: len(content) // 2])
    assert str(read_image(tmp_path / "d.png")).startswith("d.png can't be shown: ")
    os.mkfifo(tmp_path / "c.jpg")
    assert "is a FIFO" in str(read_image(tmp_path / "c.jpg"))
