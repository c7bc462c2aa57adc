"""Positions of widgets in layouts and scroll areas, and what labels and tables show."""

from __future__ import annotations

import math

import pytest
from PySide6.QtCore import QCoreApplication, QEvent, QPoint, QRect, QSize, Qt
from PySide6.QtGui import QColor, QStandardItem, QStandardItemModel
from PySide6.QtWidgets import QApplication, QLabel, QPushButton, QScrollArea, QTableView, QToolTip, QWidget
from pytestqt.qtbot import QtBot

from engine.contract.problems import Choice, Problem
from gui.style import theme
from gui.widgets.column_model import (
    BAR,
    BAR_COLOR,
    INTERVAL,
    LEFT,
    RIGHT,
    VALUE,
    NumberRows,
    header_data,
    select_row,
    style_number_table,
)
from gui.widgets.labels import ElidedLabel, ProblemLabel, RichLabel, Span, WrappingLabel
from gui.widgets.layouts import FlowLayout, FrontStack, PageScroll, create_tab_bar, lay_out_page, resize_with_text, vbox
from gui.widgets.row_model import Column
from gui.widgets.tab_order import move_focus
from tests.support.painted import describe_painting
from tests.support.widgets import ShowWidget, request_tool_tip


class Block(QLabel):
    """Label whose preferred and minimum size are fixed, with a height of 6000 / width if a layout sets its width."""

    def __init__(self, width: int, height: int) -> None:
        super().__init__()
        self._size = QSize(width, height)

    def sizeHint(self) -> QSize:  # noqa: N802  (Qt's own)
        return self._size

    def minimumSizeHint(self) -> QSize:  # noqa: N802  (Qt's own)
        return self._size

    def heightForWidth(self, width: int) -> int:  # noqa: N802  (Qt's own)
        return 6000 // width


def test_flow_layout_breaks_rows_and_ignores_hidden_widgets(show_widget: ShowWidget) -> None:
    page = QWidget()
    blocks = [Block(40, 20), Block(50, 10), Block(70, 90), Block(60, 30), Block(20, 10), Block(200, 10)]
    policy = blocks[-1].sizePolicy()
    policy.setHeightForWidth(True)
    blocks[-1].setSizePolicy(policy)
    flow = FlowLayout(page, spacing=10, line_spacing=4)
    for block in blocks:
        flow.addWidget(block)
    blocks[2].hide()
    show_widget(page)
    flow.setGeometry(QRect(0, 0, 120, 400))
    assert [each.geometry() for each in blocks if each is not blocks[2]] == [
        QRect(0, 0, 40, 20), QRect(50, 5, 50, 10), QRect(0, 24, 60, 30), QRect(70, 34, 20, 10), QRect(0, 58, 120, 50)
    ]  # fmt: skip
    assert (flow.heightForWidth(120), flow.minimumSize(), flow.sizeHint().height()) == (108, QSize(200, 30), 30)


def test_boxes_have_stretch_factors_and_alignments(styled: QApplication, qtbot: QtBot) -> None:
    page, back, title, subtitle = QWidget(), QPushButton(), QLabel(), QLabel()
    assert not create_tab_bar("Tabs", ["One"]).expanding()
    qtbot.addWidget(page)
    column = vbox(1, (title, 2), (subtitle, 3, Qt.AlignmentFlag.AlignRight), (vbox(), 4))
    assert [column.stretch(index) for index in range(4)] == [1, 2, 3, 4]
    assert column.itemAt(2).alignment() == Qt.AlignmentFlag.AlignRight
    lay_out_page(page, back, title, subtitle, QLabel(), QLabel())
    layout = page.layout()
    assert [layout.stretch(index) for index in range(3)] == [0, 0, 1]  # type: ignore[union-attr]


@pytest.mark.usefixtures("normal_text")
def test_windows_grow_with_text_up_to_the_screen(show_widget: ShowWidget) -> None:
    window = show_widget(QWidget())
    screen = window.screen().availableSize()
    theme.choose("system", 200)
    resize_with_text(window, 100, screen.height() - 10)
    assert window.size() == QSize(200, screen.height())


def test_page_scroll_fits_its_current_page(show_widget: ShowWidget) -> None:
    pages = FrontStack()
    for page in (Block(50, 300), Block(400, 20), Block(10, 10)):
        pages.addWidget(page)
    scroll = show_widget(PageScroll(pages), 200, 150)
    bar = scroll.verticalScrollBar().sizeHint().width()
    view = scroll.maximumViewportSize()
    sizes = []
    for index in range(3):
        pages.setCurrentIndex(index)
        assert pages.minimumSizeHint() == pages.currentWidget().minimumSizeHint()
        sizes.append(pages.size())
    assert sizes == [QSize(view.width() - bar, 300), QSize(400, view.height() - bar), view]


def test_focus_scrolls_nested_areas_to_the_widget(show_widget: ShowWidget) -> None:
    page, button = QWidget(), QPushButton("Far")
    inner: QWidget = button
    for _ in range(2):
        content, area = QWidget(), QScrollArea()
        content.setLayout(vbox(Block(50, 400), inner))
        area.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        area.setWidget(content)
        inner = area
    page.setLayout(vbox(inner))
    show_widget(page, 200, 300)
    assert move_focus(page, [page], forward=True)
    assert (page.focusWidget(), button.visibleRegion().boundingRect()) == (button, button.rect())


def test_problem_label_offers_each_remedy(styled: QApplication, qtbot: QtBot) -> None:
    label = ProblemLabel()
    qtbot.addWidget(label)
    choices = tuple(Choice(title, {"epochs": number}) for number, title in enumerate(("One", "Two")))
    with_choices = Problem("epochs", "Too few.", "Train longer.", choices=choices)
    for problems, texts in (
        ((with_choices, Problem("", "Plain.", "Wait.")), ["Too few.", "Plain. Wait."]),
        ((with_choices,), ["Too few."]),
    ):
        label.show_problems(problems)
        QCoreApplication.sendPostedEvents(None, QEvent.Type.DeferredDelete)
        assert [each.text() for each in label.findChildren(WrappingLabel)] == texts
        assert label.text() == "\n".join(map(str, problems))
    for choice in choices:
        button = next(each for each in label.findChildren(QPushButton) if each.text() == choice.title)
        with qtbot.waitSignal(label.chosen) as chosen:
            button.click()
        assert chosen.args == [choice]
    label.show_problems(())
    assert label.isHidden()


def test_labels_show_texts_as_they_are(show_widget: ShowWidget) -> None:
    rich = RichLabel()
    rich.show_spans([Span("a<b>", bold=True), Span("&", color="#123456")])
    assert rich.text() == '<b>a&lt;b&gt;</b><span style="color:#123456">&amp;</span>'
    for plain in (QLabel("<b>a</b>"), WrappingLabel("<b>a</b>")):
        assert describe_painting(show_widget(plain, 300, 30)) == "“<b>a</b>” text"
    label = show_widget(ElidedLabel("short"), 300, 30)
    QToolTip.hideText()
    request_tool_tip(label, QPoint(5, 5))
    assert QToolTip.text() == ""


def test_number_table_sorts_unknown_last_and_draws_bars(show_widget: ShowWidget) -> None:
    model, rows, table = QStandardItemModel(0, 1), NumberRows(), QTableView()
    for value in (2.0, math.nan, 0.5):
        item = QStandardItem()
        for role, data in ((VALUE, value), (BAR, value), (BAR_COLOR, "#ff0000"), (INTERVAL, (0.25, 0.75))):
            item.setData(data, role)
        model.appendRow(item)
    rows.setSourceModel(model)
    table.setModel(rows)
    style_number_table(table)
    assert table.isSortingEnabled()
    for order, values in ((Qt.SortOrder.DescendingOrder, [2.0, 0.5]), (Qt.SortOrder.AscendingOrder, [0.5, 2.0])):
        table.sortByColumn(0, order)
        assert [rows.index(row, 0).data(VALUE) for row in range(2)] == values
    show_widget(table, 300, 200)
    table.setColumnWidth(0, 216)  # the bar is 200 pixels wide
    image = table.viewport().grab().toImage()
    widths, ends = [], []
    for row in range(3):
        rect = table.visualRect(rows.index(row, 0))
        bottom, line = rect.bottom() - 2, rect.bottom() - 4
        widths.append(sum(image.pixelColor(x, bottom) == QColor("#ff0000") for x in range(rect.width())))
        ends.append(image.pixelColor(rect.left() + 8 + 100, line) == QColor(theme.colors().text))
    assert widths == [pytest.approx(100, abs=4), pytest.approx(200, abs=4), 0]
    assert ends == [True, True, False]
    rect = table.visualRect(rows.index(0, 0))
    columns = range(rect.left(), rect.right())
    drawn = [
        x - rect.left() - 8 for x in columns if image.pixelColor(x, rect.bottom() - 4) == QColor(theme.colors().text)
    ]
    assert (min(drawn), max(drawn)) == (pytest.approx(50, abs=2), pytest.approx(150, abs=2))
    select_row(table, 0)
    selected = table.viewport().grab().toImage().pixelColor(rect.left() + 12, rect.bottom() - 2)
    assert selected == QColor(theme.colors().accent_text)


def test_headers_are_aligned_and_explained() -> None:
    columns = (Column("A", str), Column("B", str, is_numeric=True, help="Help"))
    roles = (Qt.ItemDataRole.DisplayRole, Qt.ItemDataRole.TextAlignmentRole, Qt.ItemDataRole.ToolTipRole)
    found = [[header_data(columns, n, Qt.Orientation.Horizontal, role) for role in roles] for n in range(3)]
    assert found == [["A", LEFT, None], ["B", RIGHT, "Help"], [None, None, None]]
