"""Widgets that follow the text size, and the popup lists of combo boxes."""

from __future__ import annotations

import pytest
from PySide6.QtCore import QPoint, Qt
from PySide6.QtWidgets import QApplication, QLineEdit, QSpinBox, QToolButton, QToolTip, QWidget
from pytestqt.qtbot import QtBot

from gui.style import icons, theme
from gui.widgets.buttons import create_reset_button, tool_button
from gui.widgets.column_model import create_text_table
from gui.widgets.editors import ComboBox
from gui.widgets.labeled_field import LabeledField
from gui.widgets.labels import ElidedLabel
from gui.widgets.layouts import hbox
from tests.support.clipping import find_clipped_texts
from tests.support.widgets import ShowWidget, request_tool_tip

LONG = "A title that is much longer than the room of its box"


@pytest.mark.usefixtures("normal_text")
def test_sizes_follow_text_size(show_widget: ShowWidget) -> None:
    table = show_widget(create_text_table("Numbers", ["One"]))
    height = table.verticalHeader().defaultSectionSize()
    theme.scale_with_text(table.setMinimumWidth, 100)
    field = show_widget(LabeledField("Rate", QLineEdit(), label_width=50))
    theme.choose("system", 200)
    assert table.minimumWidth() == 200
    assert field.label.width() == 100
    assert table.verticalHeader().defaultSectionSize() >= height + 14


@pytest.mark.usefixtures("normal_text")
@pytest.mark.parametrize("text_percent", [75, 100, 110, 150, 200])
def test_fields_are_as_high_as_their_buttons(show_widget: ShowWidget, text_percent: int) -> None:
    theme.choose("system", text_percent)
    page, line = QWidget(), QLineEdit()
    reset, find = create_reset_button(lambda: None, "Reset", "Reset"), tool_button(icon=icons.icon("find", "muted"))
    page.setLayout(hbox(line, QSpinBox(), ComboBox(), reset, find))
    show_widget(page)
    kinds = (QLineEdit, QSpinBox, ComboBox, QToolButton)
    heights = {each.sizeHint().height() for each in page.children() if isinstance(each, kinds)}
    assert len(heights) == 1
    width = line.width()
    reset.hide()
    QApplication.processEvents()
    assert line.width() == width, "the button keeps its space"


def test_note_of_a_stacked_field_does_not_move_editors(show_widget: ShowWidget) -> None:
    page, lines = QWidget(), (QLineEdit(), QLineEdit())
    fields = [LabeledField("Rate", line, stacked=True) for line in lines]
    page.setLayout(hbox(*fields))
    show_widget(page)
    fields[1].set_note("It is scaled by the number of devices.")
    QApplication.processEvents()
    assert lines[0].y() == lines[1].y()
    assert lines[1].geometry().bottom() < fields[1].note.y()


def test_home_and_end_go_to_the_first_and_last_row(show_widget: ShowWidget, qtbot: QtBot) -> None:
    table = show_widget(create_text_table("Numbers", ["One", "Two"]))
    table.setRowCount(3)
    table.setCurrentCell(1, 1)
    visited = []
    for key in (Qt.Key.Key_End, Qt.Key.Key_Home, Qt.Key.Key_Home):
        qtbot.keyClick(table, key)
        visited.append((table.currentRow(), table.currentColumn(), len(table.selectionModel().selectedRows())))
    assert visited == [(2, 1, 1), (0, 1, 1), (0, 1, 1)]


def test_open_list_shows_complete_titles(show_widget: ShowWidget) -> None:
    box = ComboBox()
    box.addItems([LONG, *map(str, range(3))])
    show_widget(box, 80, 30)
    assert list(find_clipped_texts(box)) == []
    box.showPopup()
    assert box.view().viewport().width() >= box.fontMetrics().horizontalAdvance(LONG)
    box.hidePopup()


@pytest.mark.usefixtures("normal_text")
@pytest.mark.parametrize("is_at_bottom", [True, False])
def test_open_list_ends_between_rows(show_widget: ShowWidget, *, is_at_bottom: bool) -> None:
    theme.choose("system", 200)
    box = ComboBox()
    box.addItems([str(number) for number in range(40)])
    box.setMaxVisibleItems(40)
    show_widget(box, 200, 40)
    screen = box.screen().availableGeometry()
    box.move(0, screen.bottom() - 60 if is_at_bottom else 5)
    box.showPopup()
    rows, rest = divmod(box.view().viewport().height(), box.view().sizeHintForRow(0))
    assert (rows > 3, rest) == (True, 0)
    assert (box.view().window().y() < box.y()) == is_at_bottom
    box.hidePopup()


def test_elided_label_has_full_text_as_tool_tip(show_widget: ShowWidget, qtbot: QtBot) -> None:
    page = QWidget()
    label = ElidedLabel(LONG)
    label.setParent(page)
    show_widget(page, 100, 40)
    label.resize(60, 20)
    assert list(find_clipped_texts(page)) == []
    drawn = label.grab().toImage()
    label.setText(f"{LONG[:20]} with another end")
    assert label.grab().toImage() == drawn, "the start is visible"
    label.setText(LONG)
    for parent_tip, expected_tip in ((f"{LONG}: help", f"{LONG}: help"), ("Another text", LONG), ("", LONG)):
        page.setToolTip(parent_tip)
        request_tool_tip(label, QPoint(5, 5))
        assert QToolTip.text() == expected_tip
        QToolTip.hideText()
    label.setToolTip("Something else")
    (fault,) = find_clipped_texts(page)
    assert "tool tip" in fault
