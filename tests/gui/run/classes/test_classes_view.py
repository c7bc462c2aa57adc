"""Class table and confusion matrix of a run."""

from __future__ import annotations

import csv
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from PySide6.QtCore import QModelIndex, QPoint, QPointF, QRect, Qt
from PySide6.QtGui import QColor, QImage
from PySide6.QtTest import QAbstractItemModelTester
from PySide6.QtWidgets import QFileDialog, QSplitter, QToolButton, QToolTip
from pytestqt.qtbot import QtBot

from gui.run.classes.confusion_matrix import MAX_SIDE, ConfusionMatrix
from gui.run.classes.table import ClassModel, ClassTable, class_names, make_class_metric_rows
from gui.run.classes.view import ClassesView
from gui.sources.run_data import RunData
from gui.sources.run_series import ClassMetrics
from gui.style import fills, theme
from gui.widgets.column_model import BAR, LEFT, RIGHT
from tests.gui.run.evaluated_run import CLASSES, CONFUSION, events
from tests.gui.sources.written_runs import job, make_plan
from tests.support.contrast import compute_contrast
from tests.support.run_data import make_run_data
from tests.support.widgets import ShowWidget, is_right_of, join_visible_texts, request_tool_tip


def make_class_data() -> RunData:
    return make_run_data(events(job()))


@pytest.fixture
def view(show_widget: ShowWidget) -> ClassesView:
    return show_widget(ClassesView(), 620, 560)


def table_texts(table: ClassTable) -> list[list[str]]:
    rows = table.rows
    return [[rows.index(r, c).data() for c in range(rows.columnCount())] for r in range(rows.rowCount())]


@pytest.mark.usefixtures("normal_text")
def test_class_table_has_space_for_its_headings(view: ClassesView) -> None:
    view.show_data(make_class_data(), is_active=False)
    header = view.content.table.horizontalHeader()

    def has_space() -> bool:
        return all(header.sectionSize(column) >= header.sectionSizeHint(column) for column in range(header.count()))

    assert has_space()
    header.resizeSection(1, 150)
    view.validation_slider.step(-1)
    assert header.sectionSize(1) == 150  # the user's width stays
    theme.choose("system", 200)
    assert has_space()
    hints = sum(map(header.sectionSizeHint, range(header.count())))
    assert hints <= view.content.table.minimumWidth() < theme.scale_pixels(500)
    model, horizontal = view.content.table.rows, Qt.Orientation.Horizontal
    sides = [model.headerData(column, horizontal, Qt.ItemDataRole.TextAlignmentRole) for column in (0, 1, 3)]
    assert sides == [LEFT, RIGHT, RIGHT]
    tips = [model.headerData(column, horizontal, Qt.ItemDataRole.ToolTipRole) for column in range(4)]
    assert [bool(tip) for tip in tips] == [False, False, False, True]  # only counts need an explanation


def test_matrix_is_below_the_table_in_narrow_view(view: ClassesView, qtbot: QtBot) -> None:
    view.show_data(make_class_data(), is_active=False)
    for width, is_beside in ((1000, True), (620, False), (1000, True)):
        view.resize(width, 560)
        qtbot.waitUntil(lambda is_beside=is_beside: is_right_of(view.content.matrix, view.content.table) is is_beside)
    splitter = view.content.findChild(QSplitter)
    splitter.setSizes([0, 1000])
    assert min(splitter.sizes()) > 0


def test_class_table_sorts_unknown_last(view: ClassesView) -> None:
    view.show_data(make_class_data(), is_active=False)
    for order, names in (
        (Qt.SortOrder.AscendingOrder, ["ash", "birch", "cedar"]),
        (Qt.SortOrder.DescendingOrder, ["birch", "ash", "cedar"]),
    ):
        view.content.table.sortByColumn(1, order)
        assert [row[0] for row in table_texts(view.content.table)] == names
    table = view.content.table
    assert table_texts(table)[:2] == [["birch", "80.0%", "80.0%", "10"], ["ash", "40.0%", "40.0%", "8"]]
    assert [table.rows.index(0, column).data(BAR) for column in range(4)] == [None, 0.8, 0.8, None]
    assert [bool(table.rows.index(row, 1).data(Qt.ItemDataRole.ToolTipRole)) for row in range(3)] == [
        False,
        False,
        True,
    ]
    assert view.content.headline.text().endswith(": ash 40.0%, birch 80.0%")
    table.choose(0)
    assert (table.selected_class(), table.currentIndex().row()) == (0, 1)


def test_class_table_is_sorted_again_by_new_values(show_widget: ShowWidget) -> None:
    table = show_widget(ClassTable(), 400, 200)
    table.sortByColumn(1, Qt.SortOrder.DescendingOrder)
    for values, first in (((0.5, 0.25), "a"), ((0.25, 0.5), "b")):
        table.show_metrics(("a", "b"), ClassMetrics(1, 1, {"F1": np.array(values)}, None))
        assert table_texts(table)[0] == [first, "50.0%"]


def test_class_table_counts_the_rows_of_a_larger_matrix() -> None:
    table, confusion = ClassModel(), np.array([[3, 0, 1], [2, 5, 0], [1, 1, 0]])
    for measures, texts in (
        ({"F1": np.array([0.5, 0.25])}, [["a", "50.0%", "4"], ["b", "25.0%", "7"]]),
        ({}, [["a", "4"], ["b", "7"], ["none of them", "2"]]),
    ):
        intervals = {"F1": np.array([[0.1, 0.6], [np.nan, np.nan]])}
        table.show_metrics(("a", "b"), ClassMetrics(1, 1, measures, confusion, intervals))
        assert [
            [table.index(r, c).data() for c in range(table.columnCount())] for r in range(table.rowCount())
        ] == texts
        tips = [table.index(row, 1).data(Qt.ItemDataRole.ToolTipRole) for row in (0, 1)]
        assert tips == (["95% interval: 10.0 to 60.0%", None] if measures else [None, None])
    changed: list[tuple[int, ...]] = []
    table.dataChanged.connect(lambda *corners: changed.extend((each.row(), each.column()) for each in corners[:2]))
    table.show_metrics(("a", "b"), ClassMetrics(1, 1, {}, confusion + 1))
    assert changed == [(0, 1), (2, 1)]  # the counts
    table.show_metrics((), None)
    assert (table.rowCount(), table.columnCount()) == (0, 1)


def test_class_model_is_consistent(view: ClassesView, qtbot: QtBot) -> None:
    mode = QAbstractItemModelTester.FailureReportingMode.Warning
    tester = QAbstractItemModelTester(view.content.table.rows, mode, view)
    view.show_data(make_class_data(), is_active=False)
    view.validation_slider.step(-2)
    assert tester.model() is view.content.table.rows
    assert view.content.table.model_.rowCount(QModelIndex()) == 3


def test_slider_stays_at_chosen_validation(view: ClassesView) -> None:
    complete, partial = make_class_data(), make_class_data()
    del partial.validation_details.classes[3:]
    view.show_data(partial, is_active=True)
    view.validation_slider.step(-1)
    assert table_texts(view.content.table)[0][1] == "20.0%"
    view.show_data(complete, is_active=True)
    assert table_texts(view.content.table)[0][1] == "20.0%"
    slider = view.validation_slider
    assert slider.label.text() == "Epoch 2 of 4 · step 20"
    assert [each.isEnabled() for each in (slider.previous, slider.next, slider.best)] == [True] * 3
    slider.best.click()
    assert table_texts(view.content.table)[0][1] == "40.0%"
    assert [each.isEnabled() for each in (slider.previous, slider.next, slider.best)] == [True, False, False]
    slider.step(-3)
    assert not slider.previous.isEnabled()
    view.reset()
    view.show_data(complete, is_active=True)
    assert slider.position == 3
    slider.step(-1)
    best = complete.checkpoints.pop("best")
    for checkpoints in ({}, {"best": best}):
        complete.checkpoints |= checkpoints
        view.show_data(complete, is_active=True)
        assert slider.best.isEnabled() is bool(checkpoints)
    complete.rollbacks += 1
    complete.validation_details.classes[2] = replace(complete.validation_details.classes[2], step=31)
    view.show_data(complete, is_active=True)
    assert slider.label.text() == "Epoch 3 of 4 · step 31"
    complete.plan = None
    view.show_data(complete, is_active=True)
    assert slider.label.text() == "Epoch 3 · step 31"
    complete.rollbacks += 1
    del complete.validation_details.classes[2:]
    view.show_data(complete, is_active=True)
    assert slider.label.text() == "Epoch 2 · step 20 (newest)"


def test_slider_follows_the_newest_validation(view: ClassesView) -> None:
    partial = make_class_data()
    del partial.validation_details.classes[2:]
    view.show_data(partial, is_active=True)
    assert view.validation_slider.position == 1
    view.show_data(make_class_data(), is_active=True)
    assert view.validation_slider.position == 3


def test_matrix_describes_cell_chosen_by_keys(view: ClassesView, qtbot: QtBot) -> None:
    view.show_data(make_class_data(), is_active=False)
    assert view.content.cell.text() == "Most common mistake: ash taken for birch (2 of 8)"
    qtbot.keyClick(view.content.matrix, Qt.Key.Key_Down)
    qtbot.keyClick(view.content.matrix, Qt.Key.Key_Down)
    assert view.content.matrix.cell == (1, 0)
    assert view.content.cell.text() == "Of 10 birch, 1 (10.0%) were predicted as ash."
    assert view.content.table.selected_class() == 1
    assert view.content.matrix.accessibleDescription() == view.content.cell.text()
    view.validation_slider.step(-1)
    assert (view.content.matrix.cell, view.content.table.selected_class()) == ((1, 0), 1)


def test_table_selection_chooses_cell(view: ClassesView) -> None:
    view.show_data(make_class_data(), is_active=False)
    view.content.table.choose(2)
    assert view.content.matrix.cell == (2, 2)
    assert view.content.cell.text() == "No samples of cedar."
    view.reset()
    view.show_data(make_class_data(), is_active=False)
    assert (view.content.matrix.cell, view.content.table.selected_class()) == (None, None)


def test_matrix_fills_cells_by_fraction_of_row(
    show_widget: ShowWidget, qtbot: QtBot, monkeypatch: pytest.MonkeyPatch
) -> None:
    matrix = show_widget(ConfusionMatrix(), 300, 300)
    matrix.show_counts(["frequent", "rare"], np.array([[90, 10], [10, 0]]))
    assert matrix.most_confused() == (1, 0)  # by column, 10 of 10 would be more than 10 of 100
    matrix.clearFocus()
    scheme, drawn = theme.colors(), matrix.grab().toImage()
    matrix.setFocus()
    qtbot.waitUntil(matrix.hasFocus)
    focused = matrix.grab().toImage()
    high, low = QColor(scheme.accent), QColor(scheme.panel)
    for (row, column), share in {(0, 0): 0.9, (0, 1): 0.1, (1, 0): 1.0, (1, 1): 0.0}.items():
        cell = matrix.cell_rect(row, column).toRect()
        fill = drawn.pixelColor(cell.topLeft() + QPoint(4, 4))  # away from the number
        assert fill.red() == pytest.approx(share * high.red() + (1 - share) * low.red(), abs=2)
        number = max(read_pixel_colors(drawn, cell.adjusted(6, 6, -6, -6)), key=partial(compute_contrast, fill))
        assert number == (fills.choose_text_color(fill) if share else fill)
        outer_edge = QRect((cell.left(), cell.right())[column] - 1, cell.center().y(), 4, 1)
        edge_color = scheme.muted if row == column else scheme.grid  # only correct cells have frames
        assert QColor(edge_color) in read_pixel_colors(drawn, outer_edge)
        outside = QPoint((cell.left() - 2, cell.right() + 2)[column], cell.center().y())
        assert [image.pixelColor(outside) == high for image in (drawn, focused)] == [False, True]
    monkeypatch.setattr(theme, "is_dark", lambda: True)
    theme.notifier.changed.emit()
    corner = matrix.cell_rect(1, 0).toRect().topLeft() + QPoint(4, 4)
    assert matrix.grab().toImage().pixelColor(corner) == QColor(theme.DARK.accent)


def read_pixel_colors(image: QImage, rect: QRect) -> list[QColor]:
    """Return the colors of the pixels in a rectangle of an image."""
    return [
        image.pixelColor(x, y)
        for x in range(rect.left(), rect.right() + 1)
        for y in range(rect.top(), rect.bottom() + 1)
    ]


def test_matrix_follows_keys_and_pointer(
    show_widget: ShowWidget, qtbot: QtBot, monkeypatch: pytest.MonkeyPatch
) -> None:
    matrix = show_widget(ConfusionMatrix(), 300, 300)
    matrix.show_counts(["ant", "bee", "cow"], np.arange(9).reshape(3, 3))
    chosen: list[tuple[int, int]] = []
    opened: list[tuple[int, int]] = []
    matrix.cell_chosen.connect(lambda row, column, _text: chosen.append((row, column)))
    matrix.cell_opened.connect(lambda row, column: opened.append((row, column)))
    for key in (Qt.Key.Key_Up, Qt.Key.Key_Left, Qt.Key.Key_Right, Qt.Key.Key_Down, Qt.Key.Key_Return, Qt.Key.Key_Enter):
        qtbot.keyClick(matrix, key)
    corner = (matrix.cell_rect(2, 0).bottomRight() - QPointF(2, 2)).toPoint()
    left_of_it = corner - QPoint(round(matrix.cell_rect(2, 0).width()) + 4, 0)
    for position in (left_of_it, corner):
        qtbot.mouseClick(matrix, Qt.MouseButton.LeftButton, pos=position)
    assert matrix.window().focusWidget() is matrix
    qtbot.keyClick(matrix, Qt.Key.Key_Down)
    assert chosen == [(0, 0), (0, 1), (1, 1), (2, 0)]
    assert opened == [(1, 1), (1, 1), (2, 0)]
    drawn = matrix.grab().toImage()
    matrix.choose(0, 1)
    highlighted = matrix.grab().toImage()
    cells = [matrix.cell_rect(index, index).toRect() for index in range(3)]
    edge = matrix.cell_rect(0, 1).toRect().topLeft() + QPoint(1, cells[0].height() // 2)
    framed = [image.pixelColor(edge) == QColor(theme.colors().text) for image in (drawn, highlighted)]
    assert framed == [False, True]
    names = [QRect(0, cell.top() + 3, cells[0].left() - 3, cell.height() - 6) for cell in cells]
    titles = [QRect(cell.left() + 3, 0, cell.width() - 6, cells[0].top() - 3) for cell in cells]
    # The name of the row with the previous cell loses its highlight.
    changed = [drawn.copy(rect) != highlighted.copy(rect) for rect in names + titles]
    assert changed == [True, False, True, True, True, False]
    request_tool_tip(matrix, matrix.cell_rect(1, 2).center().toPoint())
    assert QToolTip.text() == matrix.describe_cell(1, 2)
    hidden: list[bool] = []
    monkeypatch.setattr(QToolTip, "hideText", lambda: hidden.append(True))
    request_tool_tip(matrix, left_of_it)
    assert hidden
    matrix.choose(0, 2)
    matrix.show_counts(["ant", "bee"], np.eye(2, dtype=np.int64))
    assert matrix.cell is None
    assert matrix.accessibleDescription() == "Every class was predicted correctly."
    matrix.show_counts((), None)
    assert matrix.accessibleDescription() == ""


def test_matrix_of_many_classes_has_vertical_names_and_no_numbers(show_widget: ShowWidget) -> None:
    matrix = show_widget(ConfusionMatrix(), 300, 300)
    matrix.show_counts([f"a longer kind {number}" for number in range(40)], np.eye(40, dtype=np.int64))
    assert matrix.rect().contains(matrix.cell_rect(39, 39).toAlignedRect())
    drawn, cell = matrix.grab().toImage(), matrix.cell_rect(5, 5).toRect()
    above = matrix.cell_rect(0, 5).toRect().translated(0, -30).adjusted(0, 0, 0, 10)
    assert len({color.name() for color in read_pixel_colors(drawn, above)}) > 1
    assert len({color.name() for color in read_pixel_colors(drawn, cell.adjusted(2, 2, -2, -2))}) == 1


@pytest.mark.parametrize("size", [(240, 600), (700, 260), (900, 800)])
@pytest.mark.parametrize("names", [["ant", "bee"], ["a class with a long name", "another class with a long name"]])
def test_matrix_fills_its_widget(show_widget: ShowWidget, size: tuple[int, int], names: list[str]) -> None:
    matrix = show_widget(ConfusionMatrix())
    matrix.show_counts(names, np.array([[1, 2], [3, 4]]))
    matrix.resize(*size)
    first, last = matrix.cell_rect(0, 0), matrix.cell_rect(1, 1)
    left_over = min(matrix.width() - last.right(), matrix.height() - last.bottom())
    assert left_over >= 0
    assert left_over < 5 or first.width() == theme.scale_pixels(MAX_SIDE)
    assert first.left() >= matrix.fontMetrics().horizontalAdvance("Actual")
    assert first.top() >= 2 * matrix.fontMetrics().height()


def test_classes_view_saves_csv(view: ClassesView, qtbot: QtBot, tmp_path: Path) -> None:
    view.show_data(make_class_data(), is_active=False)
    for save, expected in (
        (view.content.save_metrics, [["class", "IoU", "F1"], ["ash", "0.4", "0.4"], ["birch", "0.8", "0.8"], ["cedar", "", ""]]),
        (view.content.save_confusion, [["true class", *CLASSES], *([c, *map(str, r)] for c, r in zip(CLASSES, CONFUSION, strict=True))]),
    ):  # fmt: skip
        with qtbot.waitSignal(view.message) as signal:
            save(tmp_path / "out.csv")
        assert signal.args[1] == "info"
        assert list(csv.reader((tmp_path / "out.csv").read_text(encoding="utf-8").splitlines())) == expected


def test_save_menu_offers_metrics_and_matrix(view: ClassesView, qtbot: QtBot, tmp_path: Path) -> None:
    view.show_data(make_class_data(), is_active=False)
    assert view.content.save.popupMode() == QToolButton.ToolButtonPopupMode.InstantPopup
    first_cells = []
    for number, action in enumerate(view.content.save.menu().actions()):
        action.trigger()
        (dialog,) = view.findChildren(QFileDialog)
        with qtbot.waitSignal(view.message):
            dialog.fileSelected.emit(str(tmp_path / f"{number}.csv"))
        dialog.close()
        qtbot.waitUntil(lambda: not view.findChildren(QFileDialog))
        first_cells.append((tmp_path / f"{number}.csv").read_text(encoding="utf-8-sig").partition(",")[0])
    assert first_cells == ["class", "true class"]


def test_classes_view_reports_failed_save(view: ClassesView, qtbot: QtBot, tmp_path: Path) -> None:
    view.show_data(make_class_data(), is_active=False)
    with qtbot.waitSignal(view.message) as signal:
        view.content.save_metrics(tmp_path / "no such folder" / "out.csv")
    assert signal.args[1] == "warning"
    assert "Could not save" in signal.args[0]


@pytest.mark.parametrize(
    ("active", "validated", "expected_text"),
    [
        (True, False, "after the first validation"),
        (False, True, "has no per-class metrics"),
        (False, False, "ended before"),
    ],
)
def test_classes_view_explains_missing_metrics(
    view: ClassesView, active: bool, validated: bool, expected_text: str
) -> None:
    data = make_class_data() if validated else RunData()
    data.validation_details.classes.clear()
    view.show_data(data, active)
    assert expected_text in join_visible_texts(view)


def test_class_table_filters_many_classes(view: ClassesView) -> None:
    names = tuple(f"kind {n}" for n in range(40))
    data = RunData(plan=make_plan(classes=names))
    data.validation_details.classes.append(ClassMetrics(1, 1, {"AP": np.linspace(0, 1, 40)}, None))
    view.show_data(data, is_active=True)
    assert view.content.filter.isVisible()
    assert not view.content.matrix.isVisible()
    assert [action.isEnabled() for action in view.content.save.menu().actions()] == [True, False]
    assert view.content.headline.text() == "Lowest AP: kind 0 0.0%, kind 1 2.6%, kind 2 5.1%"
    view.content.filter.setText("KIND 3")
    assert len(table_texts(view.content.table)) == 11
    for number in (39, 4):  # the latter isn't listed
        view.content.table.choose(number)
        assert view.content.table.selected_class() == 39
    view.reset()
    assert view.content.filter.text() == ""
    for count in (12, 11):
        data.validation_details.classes[:] = [ClassMetrics(1, 1, {"AP": np.linspace(0, 1, count)}, None)]
        view.reset()
        view.show_data(data, is_active=True)
        assert view.content.filter.isVisible() is (count == 12)
    data.validation_details.classes[:] = [ClassMetrics(1, 1, {"AP": np.full(11, np.nan)}, None)]
    view.show_data(data, is_active=True)
    assert view.content.headline.text() == "No class has a value for AP"
    data.validation_details.classes[:] = [ClassMetrics(1, 1, {}, np.eye(2, dtype=np.int64))]
    view.show_data(data, is_active=True)
    assert view.content.headline.text() == ""


def test_class_names_fill_missing_names() -> None:
    assert class_names(("a", "b"), 3) == ["a", "b", "none of them"]
    assert class_names(("a",), 3) == ["a", "class 1", "class 2"]
    assert class_names(("a", "b"), 1) == ["a"]
    metrics = ClassMetrics(1, 1, {"IoU": np.array([0.5]), "F1": np.array([0.25, 0.75])}, None)
    assert list(make_class_metric_rows(("a", "b"), metrics))[1:] == [["a", "0.5", "0.25"], ["b", "", "0.75"]]
