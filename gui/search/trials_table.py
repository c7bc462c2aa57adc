"""The table of trials and of searches: their keys and their look."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import QAbstractItemModel, QItemSelectionModel, QModelIndex, Qt, Signal
from PySide6.QtGui import QKeyEvent
from PySide6.QtWidgets import QAbstractItemView, QHeaderView, QTableView

from gui.widgets.column_model import apply_table_style

_ROWS_MEASURED = 40
_PADDING = 6
_WIDEST = 260
"""Pixels that a column takes by itself at most."""


class SearchTable(QTableView):
    """Signals: opened(QModelIndex) - by Enter or a double click."""

    opened = Signal(QModelIndex)

    def __init__(self, model: QAbstractItemModel, name: str) -> None:
        super().__init__()
        self.setAccessibleName(name)
        self.setModel(model)
        apply_table_style(self, _PADDING)
        self.setSelectionMode(QAbstractItemView.SelectionMode.ExtendedSelection)
        header = self.horizontalHeader()
        header.setResizeContentsPrecision(_ROWS_MEASURED)
        header.setSectionResizeMode(QHeaderView.ResizeMode.Interactive)
        self.doubleClicked.connect(self.opened)

    def rows(self) -> list[int]:
        """The rows that are selected, from the top."""
        return sorted(index.row() for index in self.selectionModel().selectedRows())

    def select(self, rows: Sequence[int]) -> None:
        """Selects these rows alone, and brings the first into sight."""
        flags = QItemSelectionModel.SelectionFlag
        self.clearSelection()
        for row in rows:
            index = self.model().index(row, 0)
            self.selectionModel().select(index, flags.Select | flags.Rows)
            self.selectionModel().setCurrentIndex(index, flags.NoUpdate)
            self.scrollTo(index)

    def fit(self) -> None:
        """Makes the columns as wide as the first rows ask for."""
        for column in range(self.model().columnCount()):
            asked = max(self.sizeHintForColumn(column), self.horizontalHeader().sectionSizeHint(column))
            # Qt does not count the style sheet's padding of items.
            self.setColumnWidth(column, min(asked + 2 * _PADDING, _WIDEST))

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter) and self.currentIndex().isValid():
            self.opened.emit(self.currentIndex())
        else:
            super().keyPressEvent(event)
