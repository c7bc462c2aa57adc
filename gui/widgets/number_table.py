"""Tables of numbers: sorted by what is behind the cells, with bars under those that are shares."""

from __future__ import annotations

import math

from PySide6.QtCore import QModelIndex, QPersistentModelIndex, QRect, QSortFilterProxyModel, Qt
from PySide6.QtGui import QColor, QPainter, QPen
from PySide6.QtWidgets import QAbstractItemView, QStyle, QStyledItemDelegate, QStyleOptionViewItem, QTableView

from gui.style import fills, theme
from gui.widgets.table_look import look_calm

Index = QModelIndex | QPersistentModelIndex

VALUE = int(Qt.ItemDataRole.UserRole)
"""The number behind a cell, which rows are sorted by; NaN where there is none."""
BAR = VALUE + 1
"""The length of the bar under a cell, from 0 to 1; None or NaN where there is none."""
INTERVAL = VALUE + 2
"""The ends of the interval that is drawn on the bar, a pair; None where there is none."""

PAD = 8
_THICKNESS = 4


class NumberRows(QSortFilterProxyModel):
    """Sorted by numbers; what has none comes last, whichever way it is sorted."""

    def lessThan(self, left: Index, right: Index) -> bool:
        a, b = float(left.data(VALUE)), float(right.data(VALUE))
        if math.isnan(a) or math.isnan(b):
            return math.isnan(b) == (self.sortOrder() == Qt.SortOrder.AscendingOrder) and math.isnan(a) != math.isnan(b)
        return a < b


def prepare(table: QTableView) -> None:
    """Has `table` look and behave as tables of numbers do: one row is chosen, a click on a title sorts."""
    table.setItemDelegate(_Bars(table))
    table.setSortingEnabled(True)
    look_calm(table, PAD)
    table.setSelectionMode(QAbstractItemView.SelectionMode.SingleSelection)


class _Bars(QStyledItemDelegate):
    """Draws a share as its number over a thin bar of that length, with its interval as a line on it."""

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
