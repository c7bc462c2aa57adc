"""The table of runs: its keys, its look, and that it stays where it is while rows come and go."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from math import ceil

from PySide6.QtCore import QModelIndex, Qt, Signal
from PySide6.QtGui import QFocusEvent, QKeyEvent, QResizeEvent
from PySide6.QtWidgets import QAbstractItemView, QHeaderView, QLineEdit, QTableView

from engine.runs.folder import RunSummary
from gui.runs.model import DEVICES, MODEL, NAME, STARTED, STRATEGY, RunsModel
from gui.widgets.table_look import apply_table_style

_ROWS_MEASURED = 40
"""Rows that decide how wide the columns are at first."""

_PADDING = 6
_WIDEST = 400
"""Pixels that a column takes by itself at most."""

_NARROWEST = {NAME: 130, MODEL: 96, STRATEGY: 96, DEVICES: 96}
"""Pixels that columns of words keep where the table is narrower than its columns: what is cut off ends with an
ellipsis."""


class RunsTable(QTableView):
    """Signals: chosen(QModelIndex) - by Enter or a double click."""

    chosen = Signal(QModelIndex)

    def __init__(self, model: RunsModel) -> None:
        super().__init__()
        self._model = model
        self._fitting = self._widths_are_the_users = False
        self.setAccessibleName("Runs")
        self.setModel(model)
        self.setSortingEnabled(True)
        self.sortByColumn(STARTED, Qt.SortOrder.DescendingOrder)
        apply_table_style(self, _PADDING, leading=14)
        self.setSelectionMode(QAbstractItemView.SelectionMode.ExtendedSelection)
        self.setDragEnabled(True)
        self.setDragDropMode(QAbstractItemView.DragDropMode.DragOnly)
        self.setDefaultDropAction(Qt.DropAction.CopyAction)
        self.setContextMenuPolicy(Qt.ContextMenuPolicy.CustomContextMenu)
        header = self.horizontalHeader()
        header.setSectionResizeMode(QHeaderView.ResizeMode.Interactive)
        header.setStretchLastSection(True)
        header.setResizeContentsPrecision(_ROWS_MEASURED)
        header.sectionResized.connect(self._section_resized)
        self.doubleClicked.connect(self.chosen)

    def selected(self) -> list[RunSummary]:
        """The runs that are chosen, from the top."""
        rows = sorted(index.row() for index in self.selectionModel().selectedRows())
        return [self._model.run(row) for row in rows]

    def rename(self) -> None:
        """Opens the name of the current run for editing."""
        index = self.currentIndex()
        if index.isValid():
            self.edit(self._model.index(index.row(), NAME))
            for editor in self.viewport().findChildren(QLineEdit):
                editor.setAccessibleName("Name of the run")

    @contextmanager
    def holding_position(self) -> Iterator[None]:
        """Keeps the row at the top of the view there, whatever comes and goes above it; a list that is at its top stays
        there, and shows what is new.
        """
        top = self.rowAt(0)
        run_id = self._model.run(top).run_id if top > 0 else None
        yield
        row = self._model.row(run_id) if run_id is not None else None
        if row is not None and row != self.rowAt(0):
            self.scrollTo(self._model.index(row, 0), QAbstractItemView.ScrollHint.PositionAtTop)

    def fit(self) -> None:
        """Makes the columns as wide as the first rows ask for and the table allows, until the user sets a width."""
        if self._widths_are_the_users or not self._model.rowCount():
            return
        header, last = self.horizontalHeader(), self._model.columnCount() - 1
        columns = range(last)
        # Qt does not count the style sheet's padding of items.
        asked = [self.sizeHintForColumn(column) + 2 * _PADDING for column in columns]
        heads = [header.sectionSizeHint(column) for column in columns]
        widths = [min(max(pair), _WIDEST) for pair in zip(asked, heads, strict=True)]
        lacking = sum(widths) + header.sectionSizeHint(last) - self.viewport().width()
        spare = [max(0, width - _NARROWEST.get(column, width)) for column, width in enumerate(widths)]
        share = min(1.0, max(0, lacking) / max(1, sum(spare)))
        self._fitting = True
        for column in columns:
            self.setColumnWidth(column, widths[column] - ceil(share * spare[column]))
        header.setStretchLastSection(False)  # by itself it would keep the room that it had in a wider table
        header.resizeSection(last, header.sectionSizeHint(last))
        header.setStretchLastSection(True)
        self._fitting = False

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self.fit()

    def _section_resized(self, column: int, _before: int, _now: int) -> None:
        if not self._fitting and column < self._model.columnCount() - 1:  # the last one takes what room there is
            self._widths_are_the_users = True

    def focusInEvent(self, event: QFocusEvent) -> None:
        """Chooses the row that Tab comes to, as Qt would not: arrow keys could never choose the only one."""
        super().focusInEvent(event)
        by_tab = event.reason() in (Qt.FocusReason.TabFocusReason, Qt.FocusReason.BacktabFocusReason)
        if by_tab and self.currentIndex().isValid() and not self.selectionModel().hasSelection():
            self.selectRow(self.currentIndex().row())

    def keyPressEvent(self, event: QKeyEvent) -> None:
        editing = self.state() == QAbstractItemView.State.EditingState
        if event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter) and self.currentIndex().isValid() and not editing:
            self.chosen.emit(self.currentIndex())
        else:
            super().keyPressEvent(event)
