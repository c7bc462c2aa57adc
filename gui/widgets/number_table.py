"""Tables of numbers: sorted by value, with bars under fractions."""

from __future__ import annotations

import math

from PySide6.QtCore import QModelIndex, QPersistentModelIndex, QRect, QSortFilterProxyModel, Qt
from PySide6.QtGui import QColor, QPainter, QPen
from PySide6.QtWidgets import QAbstractItemView, QStyle, QStyledItemDelegate, QStyleOptionViewItem, QTableView

from gui.style import fills, theme
from gui.widgets.column_model import apply_table_style

Index = QModelIndex | QPersistentModelIndex

VALUE = int(Qt.ItemDataRole.UserRole)
"""Role of the number behind a cell, for sorting; NaN if unknown."""
BAR = VALUE + 1
"""Role of the bar's length, from 0 to 1; None or NaN for no bar."""
INTERVAL = VALUE + 2
"""Role of the ends of the interval on the bar, a pair; None for no interval."""

PAD = 8
_THICKNESS = 4


class NumberRows(QSortFilterProxyModel):
    """Rows sorted by number, with unknown ones always last."""

    def lessThan(self, left: Index, right: Index) -> bool:
        a, b = float(left.data(VALUE)), float(right.data(VALUE))
        if math.isnan(a) or math.isnan(b):
            return math.isnan(b) == (self.sortOrder() == Qt.SortOrder.AscendingOrder) and math.isnan(a) != math.isnan(b)
        return a < b


def prepare(table: QTableView) -> None:
    """Apply the style and behavior of number tables to `table`: one selected row, sorting by header."""
    table.setItemDelegate(_Bars(table))
    table.setSortingEnabled(True)
    apply_table_style(table, PAD)
    table.setSelectionMode(QAbstractItemView.SelectionMode.SingleSelection)


class _Bars(QStyledItemDelegate):
    """Delegate that draws a thin bar under a fraction, with its interval as a line."""

    def paint(self, painter: QPainter, option: QStyleOptionViewItem, index: Index) -> None:
        super().paint(painter, option, index)
        share = index.data(BAR)
        if share is None or math.isnan(share):
            return
        scheme = theme.colors()
        rect: QRect = option.rect
        state: QStyle.StateFlag = option.state
        chosen = bool(state & QStyle.StateFlag.State_Selected)
        bar = QRect(rect.left() + PAD, rect.bottom() - _THICKNESS - 1, rect.width() - 2 * PAD, _THICKNESS)
        painter.fillRect(bar, fills.blend(scheme.accent, scheme.panel, 0.75) if chosen else QColor(scheme.grid))
        length = round(bar.width() * min(1.0, max(0.0, share)))
        color = QColor(scheme.accent_text if chosen else scheme.accent)
        painter.fillRect(QRect(bar.left(), bar.top(), length, bar.height()), color)
        interval = index.data(INTERVAL)
        if interval is not None:
            low, high = (bar.left() + round(bar.width() * min(1.0, max(0.0, end))) for end in interval)
            middle = bar.center().y()
            painter.setPen(QPen(QColor(scheme.accent_text if chosen else scheme.text), 1))
            painter.drawLine(low, middle, high, middle)
            for end in (low, high):
                painter.drawLine(end, bar.top() - 1, end, bar.bottom() + 1)
