"""The samples of an evaluation: the worst first, filtered, opened, marked and saved, by the keyboard alone."""

from __future__ import annotations

import csv
import os
from pathlib import Path

import msgspec
import numpy as np
import pytest
from PySide6.QtCore import Qt
from PySide6.QtTest import QAbstractItemModelTester
from pytestqt.qtbot import QtBot

from engine.contract.inference.review import DuplicatePair, LabelIssue, Review, ReviewedSample
from engine.runs.folder import RunFolder
from gui.run.model.result import SAMPLES
from gui.run.model.samples.marks import MARKS_FILE
from gui.run.model.samples.page import DETAIL, WALL, SamplesPage
from gui.run.model.samples.ranking import Choice, ranked
from gui.run.model.view import ModelView
from gui.sources.dataset_images import read_image
from gui.sources.evaluations import OpenedEvaluation, SampleTable
from tests.gui.run.model.written_evaluations import CLASSES, COUNT, keep


@pytest.fixture
def page(view: ModelView, qtbot: QtBot) -> SamplesPage:
    view.result.tabs.setCurrentIndex(SAMPLES)
    return view.result.samples


def test_that_the_worst_come_first_and_filters_are_for_classes_and_errors(page: SamplesPage) -> None:
    assert page.wall.shown.rows[:3] == [5, 4, 1]
    assert len(page.wall.shown.rows) == COUNT
    page.wrong.setChecked(True)
    page.true.set_value("0")
    assert page.wall.shown.rows == [1]
    page.true.set_value("all")
    page.predicted.set_value("1")
    assert page.wall.shown.rows == [1]
    page.wrong.setChecked(False)
    page.sort.set_value("order")
    assert page.wall.shown.rows == [1, 6, 7]
    page.predicted.set_value("-1")
    assert page.told.text() == "No samples match."


def test_that_thumbnails_are_read_as_they_come_into_sight(page: SamplesPage, qtbot: QtBot) -> None:
    thumbnails = page.wall.thumbnails
    qtbot.waitUntil(lambda: (page.wall.grab() is not None) and thumbnails.image(page.wall.shown.file(0)) is not None)
    image = thumbnails.image(page.wall.shown.file(0))
    assert image is not None
    assert (image.width(), image.height()) == (12, 8)


def test_that_a_sample_is_opened_marked_and_left_by_keys(page: SamplesPage, run: RunFolder, qtbot: QtBot) -> None:
    page.wall.choose(0)
    qtbot.keyClick(page.wall, Qt.Key.Key_Return)
    assert page.stack.currentIndex() == DETAIL
    detail = page.detail
    assert detail.name.text() == "val/birch/1.png · 1 of 12"
    assert detail.words.text().startswith("Truth: birch · Prediction: cedar · Loss ")
    qtbot.waitUntil(lambda: not detail.image.pane.image_rect().isEmpty())
    qtbot.keyClick(detail.image.pane, Qt.Key.Key_Space)
    qtbot.keyClick(detail.image.pane, Qt.Key.Key_Right)
    assert detail.name.text() == "val/birch/0.png · 2 of 12"
    assert not detail.marked.isChecked()
    detail.leave.trigger()
    assert page.stack.currentIndex() == WALL
    assert page.wall.current() == 1
    qtbot.keyClick(page.wall, Qt.Key.Key_Space)
    assert page.wall.shown.marked == {4, 5}
    kept = run.path / "evaluations/20261124-100000-val" / MARKS_FILE
    qtbot.waitUntil(lambda: kept.exists() and kept.read_text() == "[4,5]")


def test_that_marks_are_kept_shown_alone_and_saved(
    view: ModelView, run: RunFolder, dataset: Path, tmp_path: Path, qtbot: QtBot
) -> None:
    other = keep(run, dataset, "20261125-100000-val", date="2026-11-25T10:00:00Z")
    (other.folder / MARKS_FILE).write_text("[1,4,99]")
    view.result.tabs.setCurrentIndex(SAMPLES)
    view._look(other.folder.name)
    page = view.result.samples
    qtbot.waitUntil(lambda: page.wall.shown.marked == {1, 4})
    page.only_marked.setChecked(True)
    assert page.wall.shown.rows == [4, 1]
    assert page.menu.text() == "Save 2 marked …"
    with qtbot.waitSignal(page.message) as told:
        page.menu.save_list(tmp_path / "marked.csv")
    assert told.args == [f"2 marked samples saved to {tmp_path / 'marked.csv'}.", "info"]
    with (tmp_path / "marked.csv").open(newline="") as stream:
        rows = list(csv.reader(stream))
    assert rows == [
        ["file", "reason", "label", "prediction", "new_label"],
        [str(dataset / "val/ash/1.png"), "marked", "ash", "birch", ""],
        [str(dataset / "val/birch/0.png"), "marked", "birch", "cedar", ""],
    ]


def a_review(opened: OpenedEvaluation) -> Review:
    """One wrong label, and a pair of the same image of which one is in another split."""
    one, other = (ReviewedSample(path=f"val/{name}.png", split="val") for name in ("birch/1", "cedar/0"))
    train = ReviewedSample(path="train/ash/7.png", split="train")
    return Review(
        id="1",
        date="2026-11-24T11:00:00Z",
        run=opened.evaluation.run,
        task="classification",
        dataset=opened.evaluation.dataset,
        evaluations=(str(opened.kept.folder.absolute()),),
        classes=CLASSES,
        samples=COUNT,
        held_out=True,
        origin="Predictions for validation.",
        label_issues=(
            LabelIssue(sample=one, given="birch", suggested="cedar", probability=0.1, suggested_probability=0.8),
        ),
        expected_errors=2,
        duplicates=(DuplicatePair(first=train, second=other, distance=0, exact=True),),
    )


def test_that_a_review_shows_wrong_labels_and_what_occurs_twice(page: SamplesPage, qtbot: QtBot) -> None:
    opened = page._opened
    assert opened is not None
    assert not page.review.shown.isVisible()
    file = opened.kept.folder.parents[1] / "reviews" / "1.json"
    file.parent.mkdir()
    file.write_bytes(msgspec.json.encode(a_review(opened)))
    page.review.child.done.emit(str(file))
    qtbot.waitUntil(lambda: page.wall.shown.rows == [5])
    index = page.wall.shown.index(0)
    assert page.wall.shown.data(index) == "1.png: birch → cedar, 10 % → 80 %"
    assert page.told.text() == "1 label is probably wrong; about 2 wrong labels are to be expected in all"
    qtbot.keyClick(page.wall, Qt.Key.Key_Space)
    assert page.wall.shown.rows == [5]
    page.review.shown.set_value("twice")
    assert page.wall.shown.data(page.wall.shown.index(0)) == "0.png: the same as 7.png, train"
    page.wrong.setChecked(True)
    assert page.review.shown.value() == "all"
    assert page.wall.shown.rows == [5, 4, 1]


def test_that_the_model_of_samples_is_a_sound_one(page: SamplesPage) -> None:
    tester = QAbstractItemModelTester(page.wall.shown, QAbstractItemModelTester.FailureReportingMode.Fatal, page)
    page.wrong.setChecked(True)
    assert tester.model() is page.wall.shown
    first = page.wall.shown.index(0)
    assert page.wall.shown.data(first, Qt.ItemDataRole.AccessibleTextRole).startswith("1.png: birch → cedar, loss ")


def test_that_samples_with_several_labels_are_found_by_each_and_by_none() -> None:
    samples = SampleTable(
        paths=("a", "b", "c"),
        splits=("val",) * 3,
        indices=(0, 1, 2),
        losses=np.array([0.5, np.nan, 2.0]),
        true=((0, 1), (), (1,)),
        predicted=((), (1,), (1,)),
    )
    assert ranked(samples, Choice(true=1)).tolist() == [2, 0]
    assert ranked(samples, Choice(predicted=-1)).tolist() == [0]
    assert ranked(samples, Choice()).tolist() == [2, 0, 1]  # what has no loss comes last


def test_that_files_without_an_image_say_why(tmp_path: Path) -> None:
    (tmp_path / "a.jpg").write_text("<svg xmlns='http://www.w3.org/2000/svg' width='9' height='9'/>")
    assert read_image(tmp_path / "a.jpg") == "a.jpg is not an image that can be shown here."
    assert read_image(tmp_path / "b.jpg") == "b.jpg is missing."
    assert "is a FIFO" in str(read_image(make_fifo(tmp_path / "c.jpg")))


def make_fifo(path: Path) -> Path:
    os.mkfifo(path)
    return path
