"""The list of runs, past and present."""

from __future__ import annotations

from pathlib import Path

from PySide6.QtCore import QModelIndex, QSortFilterProxyModel, Qt, QTimer, Signal
from PySide6.QtGui import QCloseEvent, QHideEvent, QKeyEvent, QShowEvent
from PySide6.QtWidgets import (
    QAbstractItemView,
    QHBoxLayout,
    QHeaderView,
    QLabel,
    QLineEdit,
    QPushButton,
    QStackedWidget,
    QTableView,
    QVBoxLayout,
    QWidget,
)

from engine.contract import paths
from engine.contract.runs import RunFolder, RunSummary
from gui.files import reveal
from gui.runs.model import SORT_ROLE, STARTED, RunsModel
from gui.runs.summaries import Summaries

_EMPTY = (
    "No runs yet.\n\n"
    "Go to Train, choose what to train and press Train:\n"
    "every run is listed here and can be opened again."
)


_LOOK_EVERY_MS = 3000
"""Runs may be started and ended elsewhere, so that the list is read anew while it is in sight."""

_ROWS_MEASURED = 100
"""Rows that decide how wide the columns are at first."""


_PADDING = 6


class _Table(QTableView):
    """A table that says when a row is chosen with the keyboard as with the mouse.

    Signals: chosen(QModelIndex)
    """

    chosen = Signal(QModelIndex)

    def __init__(self) -> None:
        super().__init__()
        self.doubleClicked.connect(self.chosen)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter) and self.currentIndex().isValid():
            self.chosen.emit(self.currentIndex())
        else:
            super().keyPressEvent(event)


class RunsPage(QWidget):
    """Sorts, filters and opens runs.

    Signals:
        run_chosen(RunFolder): a run is to be shown.
    """

    run_chosen = Signal(object)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("panel")
        self.setAttribute(Qt.WidgetAttribute.WA_StyledBackground)
        self.model = RunsModel(self)
        self.rows = QSortFilterProxyModel(self)
        self.rows.setSourceModel(self.model)
        self.rows.setSortRole(SORT_ROLE)
        self.rows.setFilterKeyColumn(-1)
        self.rows.setFilterCaseSensitivity(Qt.CaseSensitivity.CaseInsensitive)
        self.table = self._make_table()
        self.filter = QLineEdit(clearButtonEnabled=True)
        self.filter.setPlaceholderText("Name, model, state …")
        self.filter.setAccessibleName("Filter runs")
        self.filter.textChanged.connect(self._filter)
        self._count = QLabel()
        self._count.setObjectName("muted")
        self._open = QPushButton("Show run")
        self._open.clicked.connect(lambda: self._choose(self.table.currentIndex()))
        self._folder = QPushButton("Open folder")
        self._folder.clicked.connect(self._open_folder)
        self._empty = QLabel("Looking for runs …")
        self._empty.setObjectName("muted")
        self._empty.setAlignment(Qt.AlignmentFlag.AlignCenter)
        self._empty.setWordWrap(True)
        self._stack = QStackedWidget()
        self._stack.addWidget(self._empty)
        self._stack.addWidget(self.table)
        self._lay_out()
        self._fitted = False
        self._timer = QTimer(self, interval=_LOOK_EVERY_MS)
        self._timer.timeout.connect(self.refresh)
        self._summaries = Summaries(self)
        self._summaries.found.connect(self._found)
        self._summaries.complete.connect(self._complete)
        self.table.selectionModel().selectionChanged.connect(self._enable_buttons)
        self.destroyed.connect(self._summaries.close)
        self._enable_buttons()

    def refresh(self) -> None:
        """Reads the list anew, in the background."""
        self._summaries.refresh()

    def close_reading(self) -> None:
        """Ends the reading that goes on in the background."""
        self._summaries.close()

    def selected(self) -> RunFolder | None:
        index = self.table.currentIndex()
        return RunFolder(Path(self._run_folder(index))) if index.isValid() else None

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        self._timer.start()

    def hideEvent(self, event: QHideEvent) -> None:
        super().hideEvent(event)
        self._timer.stop()

    def closeEvent(self, event: QCloseEvent) -> None:
        self.close_reading()
        super().closeEvent(event)

    def _make_table(self) -> _Table:
        table = _Table()
        table.setAccessibleName("Runs")
        table.setModel(self.rows)
        table.setSortingEnabled(True)
        table.sortByColumn(STARTED, Qt.SortOrder.DescendingOrder)
        table.setSelectionBehavior(QAbstractItemView.SelectionBehavior.SelectRows)
        table.setSelectionMode(QAbstractItemView.SelectionMode.SingleSelection)
        table.setAlternatingRowColors(True)
        table.setShowGrid(False)
        table.setTabKeyNavigation(False)
        table.setWordWrap(False)
        table.verticalHeader().hide()
        table.verticalHeader().setDefaultSectionSize(table.fontMetrics().height() + 14)
        header = table.horizontalHeader()
        header.setHighlightSections(False)
        header.setSectionResizeMode(QHeaderView.ResizeMode.Interactive)
        header.setStretchLastSection(True)
        header.setResizeContentsPrecision(_ROWS_MEASURED)
        table.setStyleSheet(f"QTableView::item {{ padding: 0 {_PADDING}px; }}")
        table.chosen.connect(self._choose)
        return table

    def _lay_out(self) -> None:
        heading = QLabel("Runs")
        heading.setObjectName("heading")
        label = QLabel("&Filter")
        label.setBuddy(self.filter)
        top = QHBoxLayout()
        top.setSpacing(10)
        top.addWidget(heading)
        top.addWidget(self._count)
        top.addStretch(1)
        top.addWidget(label)
        top.addWidget(self.filter)
        self.filter.setFixedWidth(240)
        bottom = QHBoxLayout()
        bottom.addStretch(1)
        bottom.addWidget(self._folder)
        bottom.addWidget(self._open)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(14, 10, 14, 10)
        layout.setSpacing(8)
        layout.addLayout(top)
        layout.addWidget(self._stack, 1)
        layout.addLayout(bottom)

    def _found(self, runs: list[RunSummary]) -> None:
        self.model.merge(runs)
        self._show_count()

    def _complete(self, run_ids: list[str]) -> None:
        self.model.keep_only(run_ids)
        self._show_count()
        self._empty.setText(_EMPTY)
        if run_ids and not self._fitted:
            self._fitted = True
            self.table.resizeColumnsToContents()
            for column in range(self.model.columnCount()):
                # Qt does not count the padding that a style sheet gives to items.
                self.table.setColumnWidth(column, self.table.columnWidth(column) + 2 * _PADDING)

    def _filter(self, text: str) -> None:
        self.rows.setFilterFixedString(text)
        self._show_count()

    def _show_count(self) -> None:
        total, shown = self.model.rowCount(), self.rows.rowCount()
        if shown == total:
            self._count.setText(f"{total:,}" if total else "")
        else:
            self._count.setText(f"{shown:,} of {total:,}")
        self._stack.setCurrentWidget(self.table if total else self._empty)

    def _enable_buttons(self) -> None:
        chosen = self.table.selectionModel().hasSelection()
        self._open.setEnabled(chosen)
        self._folder.setEnabled(True)
        self._folder.setToolTip("The selected run's folder" if chosen else str(paths.runs_folder()))

    def _run_folder(self, index: QModelIndex) -> str:
        return self.model.run(self.rows.mapToSource(index).row()).folder

    def _choose(self, index: QModelIndex) -> None:
        if index.isValid():
            self.run_chosen.emit(RunFolder(Path(self._run_folder(index))))

    def _open_folder(self) -> None:
        run = self.selected()
        reveal(run.path if run is not None else paths.runs_folder())
