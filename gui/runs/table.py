"""Table of the runs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from math import ceil

from PySide6.QtCore import Qt
from PySide6.QtGui import QFocusEvent, QResizeEvent
from PySide6.QtWidgets import QAbstractItemView, QLineEdit

from engine.runs.folder import RunSummary
from gui.runs.model import DEVICES, MODEL, NAME, STARTED, STRATEGY, RunsModel
from gui.translation import tr
from gui.widgets.row_model import RowTable

_MAX_COLUMN_WIDTH = 400
_MIN_WIDTHS = {NAME: 130, MODEL: 96, STRATEGY: 96, DEVICES: 96}
"""Minimum widths in pixels of text columns in a narrow table; longer text is elided."""


class RunsTable(RowTable):
    """Table of the runs, whose names can be edited and whose rows can be dragged."""

    def __init__(self, model: RunsModel) -> None:
        super().__init__(model, tr("Runs"), leading=14)
        self._model = model
        self._is_fitting = self._has_user_widths = False
        self.setSortingEnabled(True)
        self.sortByColumn(STARTED, Qt.SortOrder.DescendingOrder)
        self.setDragEnabled(True)
        self.setDragDropMode(QAbstractItemView.DragDropMode.DragOnly)
        self.setDefaultDropAction(Qt.DropAction.CopyAction)
        self.setContextMenuPolicy(Qt.ContextMenuPolicy.CustomContextMenu)
        self.horizontalHeader().setStretchLastSection(True)
        self.horizontalHeader().sectionResized.connect(self._on_section_resized)

    def selected(self) -> list[RunSummary]:
        """Return the selected runs from top to bottom."""
        return [self._model.rows[row] for row in self.selected_rows()]

    def rename(self) -> None:
        """Open the name of the current run for editing."""
        index = self.currentIndex()
        if index.isValid():
            self.edit(self._model.index(index.row(), NAME))
            for editor in self.viewport().findChildren(QLineEdit):
                editor.setAccessibleName(tr("Name of the run"))

    @contextmanager
    def holding_position(self) -> Iterator[None]:
        """Keep the row at the top of the view there while rows change; at the top of the list, show new rows."""
        top = self.rowAt(0)
        run_id = self._model.rows[top].run_id if top > 0 else None
        yield
        row = self._model.position(run_id)
        if row is not None and row != self.rowAt(0):
            self.scrollTo(self._model.index(row, 0), QAbstractItemView.ScrollHint.PositionAtTop)

    def fit(self) -> None:
        """Fit the columns to their content and to the table, until the user changes a width."""
        if self._has_user_widths or not self._model.rowCount():
            return
        header, last = self.horizontalHeader(), self._model.columnCount() - 1
        widths = [min(self.content_width(column), _MAX_COLUMN_WIDTH) for column in range(last)]
        missing = sum(widths) + header.sectionSizeHint(last) - self.viewport().width()
        spare = [max(0, width - _MIN_WIDTHS.get(column, width)) for column, width in enumerate(widths)]
        fraction = min(1.0, max(0, missing) / max(1, sum(spare)))
        self._is_fitting = True
        for column, width in enumerate(widths):
            self.setColumnWidth(column, width - ceil(fraction * spare[column]))
        header.setStretchLastSection(False)  # otherwise it would keep the width that it had in a wider table
        header.resizeSection(last, header.sectionSizeHint(last))
        header.setStretchLastSection(True)
        self._is_fitting = False

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self.fit()

    def focusInEvent(self, event: QFocusEvent) -> None:
        """Select the current row on Tab; in a table of one row, arrow keys could never select it."""
        super().focusInEvent(event)
        by_tab = event.reason() in (Qt.FocusReason.TabFocusReason, Qt.FocusReason.BacktabFocusReason)
        if by_tab and self.currentIndex().isValid() and not self.selectionModel().hasSelection():
            self.selectRow(self.currentIndex().row())

    def _on_section_resized(self, column: int, _before: int, _now: int) -> None:
        if not self._is_fitting and column < self._model.columnCount() - 1:  # the last column stretches
            self._has_user_widths = True
