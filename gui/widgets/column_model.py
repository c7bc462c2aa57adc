"""Item models of rows under a list of columns, and the style of their tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from PySide6.QtCore import QAbstractTableModel, QModelIndex, QPersistentModelIndex, Qt
from PySide6.QtWidgets import QAbstractItemView, QTableView

Index = QModelIndex | QPersistentModelIndex
NOTHING = QModelIndex()
LEFT = Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignVCenter
RIGHT = Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter


class HeaderColumn(Protocol):
    """Column of a table: its title, its alignment (right for a `number`), and the header's tool tip, "" for none."""

    @property
    def title(self) -> str: ...
    @property
    def number(self) -> bool: ...
    @property
    def help(self) -> str: ...


def header_data(columns: Sequence[HeaderColumn], section: int, orientation: Qt.Orientation, role: int) -> Any:
    """Return an item model's `headerData` for the horizontal header over `columns`, None for other requests."""
    if orientation != Qt.Orientation.Horizontal or not 0 <= section < len(columns):
        return None
    column = columns[section]
    if role == Qt.ItemDataRole.DisplayRole:
        return column.title
    if role == Qt.ItemDataRole.ToolTipRole:
        return column.help or None
    if role == Qt.ItemDataRole.TextAlignmentRole:
        return RIGHT if column.number else LEFT
    return None


class ColumnModel(QAbstractTableModel):
    """Flat item model under `columns`. A subclass counts its rows and implements `data`."""

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

    def row_changed(self, first: int, last: int | None = None) -> None:
        """Emit `dataChanged` for the cells of these rows."""
        last = first if last is None else last
        self.dataChanged.emit(self.index(first, 0), self.index(last, len(self.columns) - 1))


def apply_table_style(table: QTableView, padding: int = 6, leading: int = 12) -> None:
    """Apply that style to `table`, with `padding` at the sides of cells and `leading` above and below their text."""
    table.setSelectionBehavior(QAbstractItemView.SelectionBehavior.SelectRows)
    table.setEditTriggers(QAbstractItemView.EditTrigger.NoEditTriggers)
    table.setHorizontalScrollMode(QAbstractItemView.ScrollMode.ScrollPerPixel)
    table.setAlternatingRowColors(True)
    table.setShowGrid(False)
    table.setTabKeyNavigation(False)
    table.setWordWrap(False)
    table.setStyleSheet(f"QTableView::item {{ padding: 0 {padding}px; }}")
    table.verticalHeader().hide()
    table.verticalHeader().setDefaultSectionSize(table.fontMetrics().height() + leading)
    table.horizontalHeader().setHighlightSections(False)
