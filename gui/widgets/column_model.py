"""Item models with a list of columns, the table style, and tables of numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Protocol

from PySide6.QtCore import (
    QAbstractTableModel,
    QItemSelectionModel,
    QModelIndex,
    QObject,
    QPersistentModelIndex,
    QRect,
    QSortFilterProxyModel,
    Qt,
)
from PySide6.QtGui import QColor, QPainter, QPen
from PySide6.QtWidgets import (
    QAbstractItemView,
    QStyle,
    QStyledItemDelegate,
    QStyleOptionViewItem,
    QTableView,
    QTableWidget,
)

from gui.style import fills, theme

Index = QModelIndex | QPersistentModelIndex
NOTHING = QModelIndex()
LEFT = Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignVCenter
RIGHT = Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter
PAD = 8
"""Space in pixels at the sides of a cell's text, as in the style sheet of the headers."""
_TEXT_MARGIN = 3
"""Space in pixels that Qt adds at the sides of a cell's text."""


class HeaderColumn(Protocol):
    """Column of a table.

    `is_numeric` is True for a column of numbers, which are aligned to the right. `help` is the header's tool tip, or "".
    """

    @property
    def title(self) -> str: ...
    @property
    def is_numeric(self) -> bool: ...
    @property
    def help(self) -> str: ...


def header_data(columns: Sequence[HeaderColumn], section: int, orientation: Qt.Orientation, role: int) -> Any:
    """Return `headerData` of an item model for the horizontal header of `columns`, or None for other requests."""
    if orientation != Qt.Orientation.Horizontal or not 0 <= section < len(columns):
        return None
    column = columns[section]
    if role == Qt.ItemDataRole.DisplayRole:
        return column.title
    if role == Qt.ItemDataRole.ToolTipRole:
        return column.help or None
    if role == Qt.ItemDataRole.TextAlignmentRole:
        return RIGHT if column.is_numeric else LEFT
    return None


class ColumnModel(QAbstractTableModel):
    """Flat item model with `columns`. Subclasses implement `count` and `data`."""

    columns: Sequence[HeaderColumn] = ()

    def count(self) -> int:
        """Return the number of rows."""
        raise NotImplementedError

    def rowCount(self, parent: Index = NOTHING) -> int:
        return 0 if parent.isValid() else self.count()

    def columnCount(self, parent: Index = NOTHING) -> int:
        return 0 if parent.isValid() else len(self.columns)

    def headerData(self, section: int, orientation: Qt.Orientation, role: int = Qt.ItemDataRole.DisplayRole) -> Any:
        return header_data(self.columns, section, orientation, role)

    def emit_rows_changed(self, first: int, last: int | None = None) -> None:
        """Emit `dataChanged` for the cells of the rows from `first` to `last`, or of one row if `last` is None."""
        last = first if last is None else last
        self.dataChanged.emit(self.index(first, 0), self.index(last, len(self.columns) - 1))


class RowView(QTableView):
    """Table of rows. Home and End go to the first and the last row instead of the first and the last column."""

    def moveCursor(self, action: QAbstractItemView.CursorAction, modifiers: Qt.KeyboardModifier) -> QModelIndex:
        end = _find_end_index(self, action)
        return super().moveCursor(action, modifiers) if end is None else end


class RowWidget(QTableWidget):
    """Table of rows that holds its items. Home and End go to the first and the last row, as in `RowView`."""

    def texts(self) -> list[list[str]]:
        """Return the texts of all cells, row by row."""
        items = [[self.item(row, column) for column in range(self.columnCount())] for row in range(self.rowCount())]
        return [[item.text() if item is not None else "" for item in row] for row in items]

    def moveCursor(self, action: QAbstractItemView.CursorAction, modifiers: Qt.KeyboardModifier) -> QModelIndex:
        end = _find_end_index(self, action)
        return super().moveCursor(action, modifiers) if end is None else end


def _find_end_index(table: QTableView, action: QAbstractItemView.CursorAction) -> QModelIndex | None:
    """Return the index in the first or last row that Home or End leads to, or None for other cursor actions."""
    ends = {QAbstractItemView.CursorAction.MoveHome: 0, QAbstractItemView.CursorAction.MoveEnd: -1}
    if action not in ends:
        return None
    model = table.model()
    row = ends[action] % max(1, model.rowCount())  # -1 stands for the last row
    return model.index(row, max(0, table.currentIndex().column()))


def select_row(table: QTableView, row: int) -> None:
    """Select only this row of `table` and make it the current one.

    Unlike `QTableView.selectRow`, this doesn't depend on the modifier keys that are pressed.
    """
    flag = QItemSelectionModel.SelectionFlag
    table.selectionModel().setCurrentIndex(table.model().index(row, 0), flag.ClearAndSelect | flag.Rows)


def create_text_table(name: str, titles: Sequence[str]) -> QTableWidget:
    """Create an empty table for texts, with an accessible name and left-aligned titles."""
    table = RowWidget(0, len(titles))
    table.setAccessibleName(name)
    table.setHorizontalHeaderLabels(list(titles))
    apply_table_style(table, leading=16)
    table.setAlternatingRowColors(False)
    table.setSelectionMode(QAbstractItemView.SelectionMode.SingleSelection)
    table.horizontalHeader().setDefaultAlignment(LEFT)
    return table


def apply_table_style(table: QTableView, leading: int = 12, padding: int = PAD, lines: int = 1) -> None:
    """Apply the window's table style.

    `leading` is the space in pixels above and below the text of a cell, `padding` the space at its sides, and `lines`
    the number of lines of text in a row.
    """
    table.setSelectionBehavior(QAbstractItemView.SelectionBehavior.SelectRows)
    table.setEditTriggers(QAbstractItemView.EditTrigger.NoEditTriggers)
    table.setHorizontalScrollMode(QAbstractItemView.ScrollMode.ScrollPerPixel)
    table.setAlternatingRowColors(True)
    table.setShowGrid(False)
    table.setTabKeyNavigation(False)
    table.setWordWrap(False)
    table.setStyleSheet(f"QTableView::item {{ padding: 0 {padding - _TEXT_MARGIN}px; }}")
    table.verticalHeader().hide()
    _RowHeight(table, leading, lines)
    table.horizontalHeader().setHighlightSections(False)


class _RowHeight(QObject):
    """Child object of a table that keeps its rows as high as `lines` of text plus `leading` pixels."""

    def __init__(self, table: QTableView, leading: int, lines: int) -> None:
        super().__init__(table)
        self._table, self._leading, self._lines = table, leading, lines
        theme.notifier.changed.connect(self._fit)
        self._fit()

    def _fit(self) -> None:
        height = self._lines * self._table.fontMetrics().height() + self._leading
        self._table.verticalHeader().setDefaultSectionSize(height)


VALUE = int(Qt.ItemDataRole.UserRole)
"""Item role of the number that a cell is sorted by. Unknown numbers are NaN."""
BAR = VALUE + 1
"""Item role of the length of a cell's bar, from 0 to 1, or None or NaN for no bar."""
INTERVAL = VALUE + 2
"""Item role of the interval that is drawn on the bar: a pair of limits, or None for no interval."""
BAR_COLOR = VALUE + 3
"""Item role of the bar's color, or None for the accent color."""

_THICKNESS = 4


class NumberRows(QSortFilterProxyModel):
    """Proxy model that sorts rows by a cell's numeric value (role `VALUE`). Rows without a value are always last."""

    def lessThan(self, left: Index, right: Index) -> bool:
        """Return True if the row of `left` comes first in ascending order, or last in descending order.

        Missing values come last in both orders.
        """
        left_value, right_value = float(left.data(VALUE)), float(right.data(VALUE))
        if math.isnan(left_value) == math.isnan(right_value):
            return left_value < right_value
        # One value is missing. Qt reverses the result for the descending order.
        is_ascending = self.sortOrder() == Qt.SortOrder.AscendingOrder
        return math.isnan(right_value) if is_ascending else math.isnan(left_value)


def style_number_table(table: QTableView) -> None:
    """Let the user select one row and sort by the header, and apply the style of number tables."""
    table.setItemDelegate(BarDelegate(table))
    table.setSortingEnabled(True)
    apply_table_style(table)
    table.setSelectionMode(QAbstractItemView.SelectionMode.SingleSelection)


class BarDelegate(QStyledItemDelegate):
    """Delegate that draws a cell's fraction as a thin bar below its text, and the confidence interval as a line."""

    def paint(self, painter: QPainter, option: QStyleOptionViewItem, index: Index) -> None:
        """Draw the cell, and at its lower edge a bar for its fraction, with the confidence interval if there is one."""
        super().paint(painter, option, index)
        fraction = index.data(BAR)
        if fraction is None or math.isnan(fraction):
            return
        scheme = theme.colors()
        rect: QRect = option.rect
        state: QStyle.StateFlag = option.state
        is_selected = bool(state & QStyle.StateFlag.State_Selected)
        bar = QRect(rect.left() + PAD, rect.bottom() - _THICKNESS - 1, rect.width() - 2 * PAD, _THICKNESS)
        painter.fillRect(bar, fills.blend(scheme.accent, scheme.panel, 0.75) if is_selected else QColor(scheme.grid))
        length = round(bar.width() * min(1.0, max(0.0, fraction)))
        color = QColor(scheme.accent_text if is_selected else index.data(BAR_COLOR) or scheme.accent)
        painter.fillRect(QRect(bar.left(), bar.top(), length, bar.height()), color)
        interval = index.data(INTERVAL)
        if interval is not None:
            low, high = (bar.left() + round(bar.width() * min(1.0, max(0.0, end))) for end in interval)
            middle = bar.center().y()
            painter.setPen(QPen(QColor(scheme.accent_text if is_selected else scheme.text), 1))
            painter.drawLine(low, middle, high, middle)
            for end in (low, high):
                painter.drawLine(end, bar.top() - 1, end, bar.bottom() + 1)
