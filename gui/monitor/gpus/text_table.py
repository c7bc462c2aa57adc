"""Small table of texts, as high as its rows."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QAbstractItemView, QHeaderView, QSizePolicy, QTableWidget, QTableWidgetItem, QWidget

_ROW = 26


class TextTable(QTableWidget):
    """Table of texts. Unchanged cells are left alone, so that a selection stays."""

    def __init__(self, name: str, titles: Sequence[str], parent: QWidget | None = None) -> None:
        super().__init__(0, len(titles), parent)
        self.setAccessibleName(name)
        self.setHorizontalHeaderLabels(list(titles))
        self.verticalHeader().hide()
        self.verticalHeader().setDefaultSectionSize(_ROW)
        self.setStyleSheet("QTableView::item { padding-left: 5px; padding-right: 9px; }")
        header = self.horizontalHeader()
        header.setHighlightSections(False)
        header.setDefaultAlignment(Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignVCenter)
        header.setSectionResizeMode(QHeaderView.ResizeMode.ResizeToContents)
        header.setStretchLastSection(True)
        self.setEditTriggers(QAbstractItemView.EditTrigger.NoEditTriggers)
        self.setSelectionBehavior(QAbstractItemView.SelectionBehavior.SelectRows)
        self.setTabKeyNavigation(False)
        self.setShowGrid(False)
        self.setVerticalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)

    def show_rows(self, rows: Sequence[Sequence[str]]) -> None:
        if len(rows) != self.rowCount():
            self.setRowCount(len(rows))
            self._fit()
        for row, cells in enumerate(rows):
            for column, text in enumerate(cells):
                item = self.item(row, column)
                if item is None:
                    self.setItem(row, column, QTableWidgetItem(text))
                elif item.text() != text:
                    item.setText(text)

    def rows(self) -> list[list[str]]:
        """Return the texts."""
        items = [[self.item(row, column) for column in range(self.columnCount())] for row in range(self.rowCount())]
        return [[item.text() if item is not None else "" for item in row] for row in items]

    def _fit(self) -> None:
        rows = sum(self.rowHeight(row) for row in range(self.rowCount()))
        self.setFixedHeight(self.horizontalHeader().sizeHint().height() + rows + 2 * self.frameWidth() + 2)
