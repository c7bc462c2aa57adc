"""The run's classes on screen: the table, the confusion matrix, and what can be done with them."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest
from PySide6.QtCore import QModelIndex, QPointF, Qt
from PySide6.QtGui import QColor
from PySide6.QtTest import QAbstractItemModelTester
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot

from engine.contract.events import Planned
from gui.run.classes.confusion_matrix import ConfusionMatrix
from gui.run.classes.table import ClassTable, class_names
from gui.run.classes.view import ClassesView
from gui.sources.run_data import RunData
from gui.sources.run_series import ClassFigures
from gui.style import theme
from tests.gui.run.evaluated_run import CLASSES, CONFUSION, events
from tests.gui.sources.written_runs import job


def data_of(steps: int = 40) -> RunData:
    data = RunData()
    for n, event in enumerate(events(job(), steps), 1):
        event.n = n
        data.apply(event)
    return data


@pytest.fixture
def view(styled: QApplication, qtbot: QtBot) -> ClassesView:
    made = ClassesView()
    qtbot.addWidget(made)
    made.resize(620, 560)
    made.show()
    return made


def shown(table: ClassTable) -> list[list[str]]:
    rows = table.rows
    return [[rows.index(r, c).data() for c in range(rows.columnCount())] for r in range(rows.rowCount())]


def test_that_the_newest_validation_is_shown_class_by_class(view: ClassesView) -> None:
    view.show_data(data_of(), active=False)
    assert shown(view.shown.table) == [
        ["ash", "40.0 %", "40.0 %", "8"],
        ["birch", "80.0 %", "80.0 %", "10"],
        ["cedar", "–", "–", "0"],
    ]
    assert view.shown.headline.text() == "Lowest IoU: ash 40.0 %, birch 80.0 %"
    assert view.validation_slider.words.text() == "Epoch 4 of 4 · step 40 (newest, best)"


def test_that_classes_are_sorted_by_number_with_the_unknown_last_both_ways(view: ClassesView) -> None:
    view.show_data(data_of(), active=False)
    for order, names in (
        (Qt.SortOrder.AscendingOrder, ["ash", "birch", "cedar"]),
        (Qt.SortOrder.DescendingOrder, ["birch", "ash", "cedar"]),
    ):
        view.shown.table.sortByColumn(1, order)
        assert [row[0] for row in shown(view.shown.table)] == names


def test_that_the_model_keeps_the_rules_of_its_kind(view: ClassesView, qtbot: QtBot) -> None:
    fatal = QAbstractItemModelTester.FailureReportingMode.Warning
    tester = QAbstractItemModelTester(view.shown.table.rows, fatal, view)
    view.show_data(data_of(), active=False)
    view.validation_slider.go(-2)
    assert tester.model() is view.shown.table.rows
    assert view.shown.table.model_.rowCount(QModelIndex()) == 3


def test_that_the_slider_leads_to_earlier_validations_and_stays_there_while_more_come(view: ClassesView) -> None:
    whole, part = data_of(), data_of()
    del part.validation_details.classes[3:]
    view.show_data(part, active=True)
    view.validation_slider.go(-1)
    assert shown(view.shown.table)[0][1] == "20.0 %"
    view.show_data(whole, active=True)
    assert shown(view.shown.table)[0][1] == "20.0 %"
    assert view.validation_slider.words.text() == "Epoch 2 of 4 · step 20"
    view.validation_slider.best.click()
    assert shown(view.shown.table)[0][1] == "40.0 %"


def test_that_one_at_the_newest_goes_on_with_it(view: ClassesView) -> None:
    part = data_of()
    del part.validation_details.classes[2:]
    view.show_data(part, active=True)
    assert view.validation_slider.position == 1
    view.show_data(data_of(), active=True)
    assert view.validation_slider.position == 3


def test_that_a_cell_of_the_matrix_is_told_in_words_and_chosen_by_keys(view: ClassesView, qtbot: QtBot) -> None:
    view.show_data(data_of(), active=False)
    assert view.shown.cell.text() == "Confused most often: Of 8 ash, 2 (25.0 %) were predicted as birch."
    qtbot.keyClick(view.shown.matrix, Qt.Key.Key_Down)
    qtbot.keyClick(view.shown.matrix, Qt.Key.Key_Down)
    assert view.shown.matrix.cell == (1, 0)
    assert view.shown.cell.text() == "Of 10 birch, 1 (10.0 %) were predicted as ash."
    assert view.shown.table.chosen() == 1
    assert view.shown.matrix.accessibleDescription() == view.shown.cell.text()


def test_that_a_class_chosen_in_the_table_is_chosen_in_the_matrix(view: ClassesView) -> None:
    view.show_data(data_of(), active=False)
    view.shown.table.choose(2)
    assert view.shown.matrix.cell == (2, 2)
    assert view.shown.cell.text() == "No samples of cedar."


def test_that_clicking_a_cell_chooses_it(view: ClassesView, qtbot: QtBot) -> None:
    view.show_data(data_of(), active=False)
    middle = view.shown.matrix.cell_rect(0, 1).center().toPoint()
    qtbot.mouseClick(view.shown.matrix, Qt.MouseButton.LeftButton, pos=middle)
    assert view.shown.matrix.cell == (0, 1)


def test_that_a_matrix_of_many_classes_keeps_cells_that_can_be_told_apart(styled: QApplication, qtbot: QtBot) -> None:
    image = ConfusionMatrix()
    qtbot.addWidget(image)
    image.show_counts([f"class {n}" for n in range(64)], np.eye(64, dtype=np.int64))
    assert image.minimumWidth() > 64 * 14
    image.resize(image.minimumSize())
    assert image.cell_rect(63, 63).right() <= image.width()
    assert not image.grab().isNull()


def test_that_a_cell_is_as_full_as_its_share_of_its_row(styled: QApplication, qtbot: QtBot) -> None:
    image = ConfusionMatrix()
    qtbot.addWidget(image)
    image.show_counts(["frequent", "rare"], np.array([[90, 10], [4, 6]]))
    assert image.most_confused() == (1, 0)  # of the columns, 10 of 16 would be more than 4 of 94
    drawn = image.grab().toImage()
    near_the_corner = QPointF(4, 4)  # where no number stands
    over, under = QColor(theme.colors().accent), QColor(theme.colors().panel)
    for (row, column), share in {(0, 0): 0.9, (0, 1): 0.1, (1, 0): 0.4, (1, 1): 0.6}.items():
        seen = drawn.pixelColor((image.cell_rect(row, column).topLeft() + near_the_corner).toPoint())
        assert seen.red() == pytest.approx(share * over.red() + (1 - share) * under.red(), abs=2)


def test_that_both_tables_are_saved_as_csv(view: ClassesView, qtbot: QtBot, tmp_path: Path) -> None:
    view.show_data(data_of(), active=False)
    for save, expected in (
        (view.shown.save_measures, [["class", "IoU", "F1"], ["ash", "0.4", "0.4"], ["birch", "0.8", "0.8"], ["cedar", "", ""]]),
        (view.shown.save_confusion, [["true class", *CLASSES], *([c, *map(str, r)] for c, r in zip(CLASSES, CONFUSION, strict=True))]),
    ):  # fmt: skip
        with qtbot.waitSignal(view.message) as told:
            save(tmp_path / "out.csv")
        assert told.args[1] == "info"
        assert list(csv.reader((tmp_path / "out.csv").read_text(encoding="utf-8").splitlines())) == expected


def test_that_a_file_that_cannot_be_written_is_said(view: ClassesView, qtbot: QtBot, tmp_path: Path) -> None:
    view.show_data(data_of(), active=False)
    with qtbot.waitSignal(view.message) as told:
        view.shown.save_measures(tmp_path / "no such folder" / "out.csv")
    assert told.args[1] == "warning"
    assert "Could not save" in told.args[0]


@pytest.mark.parametrize(
    ("active", "validated", "words"),
    [
        (True, False, "after the first validation"),
        (False, True, "has no per-class metrics"),
        (False, False, "ended before"),
    ],
)
def test_that_without_figures_it_is_said_what_to_expect(
    view: ClassesView, active: bool, validated: bool, words: str
) -> None:
    data = data_of() if validated else RunData()
    data.validation_details.classes.clear()
    view.show_data(data, active)
    assert words in view._empty.text()
    assert view._empty.isVisible()


def test_that_many_classes_can_be_filtered(view: ClassesView) -> None:
    names = tuple(f"kind {n}" for n in range(40))
    data = RunData(plan=Planned(
        epochs=1, steps_per_epoch=1, train_images=1, val_images=1, classes=names, image_size=8, parameters=1,
        trainable_parameters=1,
    ))  # fmt: skip
    data.validation_details.classes.append(ClassFigures(1, 1, {"AP": np.linspace(0, 1, 40)}, None))
    view.show_data(data, active=True)
    assert view.shown.filter.isVisible()
    assert not view.shown.matrix.isVisible()
    view.shown.filter.setText("kind 3")
    assert len(shown(view.shown.table)) == 11
    view.shown.table.choose(39)
    assert view.shown.table.chosen() == 39


def test_that_classes_without_a_name_get_one() -> None:
    assert class_names(("a", "b"), 3) == ["a", "b", "none of them"]
    assert class_names(("a",), 3) == ["a", "class 1", "class 2"]
    assert class_names(("a", "b"), 1) == ["a"]
