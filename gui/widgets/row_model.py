"""Item model and table of rows with keys. The selection follows rows when they are added, removed or moved."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, Generic, TypeVar

from PySide6.QtCore import QEvent, QItemSelectionModel, QModelIndex, QObject, Qt, Signal
from PySide6.QtGui import QKeyEvent, QShowEvent
from PySide6.QtWidgets import QAbstractItemView, QHeaderView

from gui.style import theme
from gui.widgets.column_model import RIGHT, ColumnModel, Index, RowView, apply_table_style

_ROWS_MEASURED = 40
"""Number of rows that determine the column widths."""
_MAX_COLUMN_WIDTH = 260
"""Maximum width of a fitted column, in pixels at a text size of 100%."""
_HEADER_PADDING = 8
"""Padding of titles according to the style sheet, which Qt's size hint doesn't include."""
_LONG_TEXT = 10
"""Minimum number of characters for repeating a text in the tool tip, because the column may elide it."""

Row = TypeVar("Row")


@dataclass(frozen=True)
class Column(Generic[Row]):
    """Column of a `RowModel`. Rows are sorted by `key`. Rows without a key are last."""

    title: str
    text: Callable[[Row], str]
    key: Callable[[Row], Any] = lambda _row: None
    is_numeric: bool = False
    help: str = ""
    tip: Callable[[Row], str] = lambda _row: ""


class RowModel(ColumnModel, Generic[Row]):
    """Flat item model whose persistent indexes follow their rows.

    It sorts the rows itself, because a proxy model would block the window while it compares thousands of rows.

    Attributes:
        rows: Rows from top to bottom. Change them with `set_rows`.
    """

    columns: Sequence[Column[Row]] = ()

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self.rows: list[Row] = []
        self._positions: dict[Any, int] = {}  # of the rows, by key
        self.sort_column, self.sort_order = 0, Qt.SortOrder.AscendingOrder

    def key_of(self, row: Row) -> Any:
        """Return the identity of a row, which also determines the order of equal rows."""
        raise NotImplementedError

    def cell_data(self, row: Row, column: int, role: int) -> Any:
        """Return the data of a cell for all roles except text and alignment."""
        return None

    def position(self, key: Any) -> int | None:
        """Return the position of the row with a key, or None for an unknown key."""
        return self._positions.get(key)

    def count(self) -> int:
        return len(self.rows)

    def data(self, index: Index, role: int = Qt.ItemDataRole.DisplayRole) -> Any:
        """Return a cell's data. Long texts are repeated in the tool tip."""
        if not index.isValid():
            return None
        row, column = self.rows[index.row()], self.columns[index.column()]
        if role == Qt.ItemDataRole.DisplayRole:
            return column.text(row)
        if role == Qt.ItemDataRole.TextAlignmentRole and column.is_numeric:
            return RIGHT
        value = self.cell_data(row, index.column(), role)
        if role == Qt.ItemDataRole.ToolTipRole:
            text = column.text(row)
            if len(text) > _LONG_TEXT and text not in (value or ""):
                return "\n".join(filter(None, (text, value)))
        return value

    def sort(self, column: int, order: Qt.SortOrder = Qt.SortOrder.AscendingOrder) -> None:
        """Sort the rows, and keep this order for `sorted_rows`."""
        self.sort_column, self.sort_order = column, order
        self.set_rows(self.sorted_rows(self.rows))

    def sorted_rows(self, rows: Iterable[Row]) -> list[Row]:
        """Return `rows` in the sort order that the user has selected."""
        if self.sort_column >= len(self.columns):  # the columns were replaced by fewer ones
            return list(rows)
        column = self.columns[self.sort_column]
        # Sorting is stable, so that rows with equal sort keys remain in the order of their identities.
        keyed_rows = [(column.key(row), row) for row in sorted(rows, key=self.key_of)]
        known = sorted((keyed for keyed in keyed_rows if keyed[0] is not None), key=itemgetter(0))
        if self.sort_order == Qt.SortOrder.DescendingOrder:
            known.reverse()
        return [row for _key, row in known] + [row for key, row in keyed_rows if key is None]

    def set_columns(self, columns: Sequence[Column[Row]]) -> None:
        """Replace the columns and remove all rows."""
        self.beginResetModel()
        self.columns, self.rows, self._positions = columns, [], {}
        self.endResetModel()

    def set_rows(self, rows: Sequence[Row]) -> None:
        """Show `rows` in this order. Only rows that differ are removed, moved, inserted or updated."""
        self._remove_all_but({self.key_of(row) for row in rows})
        self._reorder([key for key in map(self.key_of, rows) if key in self._positions])
        self._insert_missing(rows)
        for position, row in enumerate(rows):
            if self.rows[position] is not row and self.rows[position] != row:
                self.rows[position] = row
                self.emit_rows_changed(position)

    def _remove_all_but(self, keys: set[Any]) -> None:
        """Remove the rows whose keys are not in `keys`, in blocks from the end."""
        end = len(self.rows)
        while end > 0:
            begin = end
            while begin > 0 and self.key_of(self.rows[begin - 1]) not in keys:
                begin -= 1
            if begin < end:
                self.beginRemoveRows(QModelIndex(), begin, end - 1)
                del self.rows[begin:end]
                self.endRemoveRows()
            end = begin - 1
        self._update_positions()

    def _reorder(self, keys: list[Any]) -> None:
        """Put the rows in the order of `keys`. Selection and other persistent indexes follow their rows."""
        if [self.key_of(row) for row in self.rows] == keys:
            return
        self.layoutAboutToBeChanged.emit()
        before = self.persistentIndexList()
        moved = [self.key_of(self.rows[index.row()]) for index in before]
        self.rows = [self.rows[self._positions[key]] for key in keys]
        self._update_positions()
        after = [self.index(self._positions[key], index.column()) for key, index in zip(moved, before, strict=True)]
        self.changePersistentIndexList(before, after)
        self.layoutChanged.emit()

    def _insert_missing(self, rows: Sequence[Row]) -> None:
        """Insert the rows that the model doesn't have, in blocks. The others must be in the order of `rows`."""
        begin = 0
        while begin < len(rows):
            end = begin
            while end < len(rows) and self.key_of(rows[end]) not in self._positions:
                end += 1
            if begin < end:
                self.beginInsertRows(QModelIndex(), begin, end - 1)
                self.rows[begin:begin] = rows[begin:end]
                self.endInsertRows()
            begin = end + 1
        self._update_positions()

    def _update_positions(self) -> None:
        self._positions = {self.key_of(row): position for position, row in enumerate(self.rows)}


class RowTable(RowView):
    """Table for a `RowModel`. Enter or a double click opens a row.

    Signals:
        opened(QModelIndex): the user has opened a row.
    """

    opened = Signal(QModelIndex)

    def __init__(self, model: RowModel[Any], name: str, *, leading: int = 12, lines: int = 1) -> None:
        """Create a table with an accessible name. For `leading` and `lines`, see `apply_table_style`."""
        super().__init__()
        self._fits_content = False  # True if the columns fit their contents, see `fit`
        self._was_shown = False
        self.setAccessibleName(name)
        self.setModel(model)
        apply_table_style(self, leading, lines=lines)
        self.setSelectionMode(QAbstractItemView.SelectionMode.ExtendedSelection)
        header = self.horizontalHeader()
        header.setResizeContentsPrecision(_ROWS_MEASURED)
        header.setSectionResizeMode(QHeaderView.ResizeMode.Interactive)
        self.doubleClicked.connect(self.opened)

    def selected_rows(self) -> list[int]:
        """Return the positions of the selected rows, from top to bottom."""
        return sorted(index.row() for index in self.selectionModel().selectedRows())

    def select(self, rows: Sequence[int]) -> None:
        """Select only these rows and scroll to the last one."""
        flags = QItemSelectionModel.SelectionFlag
        self.clearSelection()
        for row in rows:
            index = self.model().index(row, 0)
            self.selectionModel().select(index, flags.Select | flags.Rows)
            self.selectionModel().setCurrentIndex(index, flags.NoUpdate)
            self.scrollTo(index)

    def content_width(self, column: int) -> int:
        """Return the width that the header and the first rows of a column need."""
        return max(self.sizeHintForColumn(column), self.horizontalHeader().sectionSizeHint(column))

    def fit(self) -> None:
        """Fit the columns to their contents, up to a maximum width, now and whenever the text size changes."""
        self._fits_content = True
        for column in range(self.model().columnCount()):
            title = self.horizontalHeader().sectionSizeHint(column) + 2 * _HEADER_PADDING
            width = max(title, self.content_width(column))
            self.setColumnWidth(column, min(width, theme.scale_pixels(_MAX_COLUMN_WIDTH)))

    def changeEvent(self, event: QEvent) -> None:
        super().changeEvent(event)
        if event.type() in (QEvent.Type.FontChange, QEvent.Type.StyleChange) and self._fits_content:
            self.fit()

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        if self._fits_content and not self._was_shown:
            self.fit()  # texts had no style before
        self._was_shown = True

    def keyPressEvent(self, event: QKeyEvent) -> None:
        is_enter = event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter)
        if is_enter and self.currentIndex().isValid() and self.state() != QAbstractItemView.State.EditingState:
            self.opened.emit(self.currentIndex())
        else:
            super().keyPressEvent(event)
