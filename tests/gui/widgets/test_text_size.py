"""Widgets that follow the text size, and the popup lists of combo boxes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from PySide6.QtCore import QEvent, QPoint
from PySide6.QtGui import QHelpEvent
from PySide6.QtWidgets import QApplication, QToolTip, QWidget
from pytestqt.qtbot import QtBot

from gui.style import theme
from gui.widgets.column_model import text_table
from gui.widgets.editors import ComboBox
from gui.widgets.labels import ElidedLabel
from tests.support.clipping import clipped
from tests.support.widgets import ShowWidget

LONG = "A title that is much longer than the room of its box"


@pytest.fixture
def normal_text() -> Iterator[None]:
    yield
    theme.choose("system", 100)


@pytest.mark.usefixtures("normal_text")
def test_sizes_follow_text_size(show_widget: ShowWidget) -> None:
    table = show_widget(text_table("Numbers", ["One"]))
    height = table.verticalHeader().defaultSectionSize()
    theme.scale_with_text(table.setMinimumWidth, 100)
    theme.choose("system", 200)
    assert table.minimumWidth() == 200
    assert table.verticalHeader().defaultSectionSize() >= height + 14


def test_open_list_shows_complete_titles(show_widget: ShowWidget) -> None:
    box = ComboBox()
    box.addItems([LONG, *map(str, range(3))])
    show_widget(box, 80, 30)
    assert list(clipped(box)) == []
    box.showPopup()
    assert box.view().viewport().width() >= box.fontMetrics().horizontalAdvance(LONG)
    box.hidePopup()


def test_elided_label_has_full_text_as_tool_tip(show_widget: ShowWidget, qtbot: QtBot) -> None:
    page = QWidget()
    label = ElidedLabel(LONG, page)
    show_widget(page, 100, 40)
    label.resize(60, 20)
    assert list(clipped(page)) == []
    QApplication.sendEvent(label, QHelpEvent(QEvent.Type.ToolTip, QPoint(5, 5), label.mapToGlobal(QPoint(5, 5))))
    assert QToolTip.text() == LONG
    QToolTip.hideText()
    label.setToolTip("Something else")
    (fault,) = clipped(page)
    assert "tool tip" in fault
