"""Short read-only table."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QAbstractItemView, QHeaderView, QTableWidget, QTableWidgetItem

from gui.widgets.column_model import apply_table_style

_MAX_WIDTH = 720
"""Pixels beyond which a row is hard to follow."""
_MIN_COLUMN_WIDTH = 90
_PAD = 8


class PlainTable(QTableWidget):
    """Short read-only table, as high as its rows."""

    def __init__(self, name: str, head: Sequence[str]) -> None:
        super().__init__(0, len(head))
        self.setAccessibleName(name)
        self.setHorizontalHeaderLabels(list(head))
        apply_table_style(self, _PAD)
        self.setSelectionMode(QAbstractItemView.SelectionMode.SingleSelection)
        self.setVerticalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        header = self.horizontalHeader()
        header.setSectionResizeMode(0, QHeaderView.ResizeMode.Stretch)
        self.setMaximumWidth(_MAX_WIDTH)
        for column, title in enumerate(head):
            item = QTableWidgetItem(title)
            item.setTextAlignment(_alignment(column))
            self.setHorizontalHeaderItem(column, item)

    def show_rows(self, rows: Sequence[Sequence[str]]) -> None:
        """Show `rows`; hide without any."""
        self.setRowCount(len(rows))
        for number, row in enumerate(rows):
            for column, text in enumerate(row):
                item = QTableWidgetItem(text)
                item.setTextAlignment(_alignment(column))
                item.setToolTip(text)
                self.setItem(number, column, item)
        for column in range(1, self.columnCount()):
            self._fit(column)
        height = self.horizontalHeader().sizeHint().height() + 2 * self.frameWidth() + 2
        self.setFixedHeight(height + len(rows) * self.verticalHeader().defaultSectionSize())
        self.setVisible(bool(rows))

    def _fit(self, column: int) -> None:
        """Make a column as wide as its texts and their padding, which Qt does not count."""
        head = self.horizontalHeaderItem(column)
        texts = [head.text() if head is not None else "", *(row[column] for row in self.texts())]
        width = max(map(self.fontMetrics().horizontalAdvance, texts)) + 2 * _PAD + 8
        self.horizontalHeader().setSectionResizeMode(column, QHeaderView.ResizeMode.Interactive)
        self.horizontalHeader().resizeSection(column, max(_MIN_COLUMN_WIDTH, width))

    def texts(self) -> list[list[str]]:
        """Return the displayed texts, row by row."""
        return [
            [
                item.text() if (item := self.item(row, column)) is not None else ""
                for column in range(self.columnCount())
            ]
            for row in range(self.rowCount())
        ]


def _alignment(column: int) -> Qt.AlignmentFlag:
    side = Qt.AlignmentFlag.AlignRight if column else Qt.AlignmentFlag.AlignLeft
    return side | Qt.AlignmentFlag.AlignVCenter
