"""Several runs side by side: their curves over one another, and a table of how they did and what differs in them."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

from PySide6.QtCore import Qt, QTimer, Signal
from PySide6.QtGui import QDragEnterEvent, QDropEvent, QHideEvent, QShowEvent
from PySide6.QtWidgets import (
    QFileDialog,
    QHBoxLayout,
    QLabel,
    QPushButton,
    QSplitter,
    QStackedWidget,
    QTableView,
    QVBoxLayout,
    QWidget,
)

from engine.runs.folder import RunFolder
from engine.system import paths
from gui.actions import back_action, bind
from gui.compare.compared_run import ComparedRun
from gui.compare.comparison import rows
from gui.compare.controls import CompareControls
from gui.compare.csv_tables import CurvesTable, RowsTable
from gui.compare.curves import CompareCurves
from gui.compare.legend import Legend
from gui.compare.log_loader import Reading
from gui.compare.table_model import CompareModel
from gui.format import as_in_files, localised
from gui.sources.background import in_background
from gui.sources.export import ExportError, Table, export_png, write_csv
from gui.titles import unread_words
from gui.widgets.empty_state import EmptyState
from gui.widgets.file_dialogs import choose_target
from gui.widgets.run_drag import run_ids_in
from gui.widgets.scroll_panel import scroll_panel
from gui.widgets.tab_order import order_tabs

_EMPTY = "Nothing to compare yet.\n\nOn the Runs page, select two or more runs and press Compare."
_LOOK_EVERY_MS = 5000
_SHARE_OF_TIME = 20
"""Active runs are reread after this multiple of the time that reading them took."""
_PADDING = 6
_WIDEST = 260
"""Pixels that a column of the table has at first at most."""


class ComparePage(QWidget):
    """Compares any number of runs; those that go on are read again every few seconds while the page is in sight.

    Signals:
        closed(): back to the page before.
        message(str, str): in plain words, what was saved or why not; "info" or "warning".
    """

    closed = Signal()
    message = Signal(str, str)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("panel")
        self.setAttribute(Qt.WidgetAttribute.WA_StyledBackground)
        self.setAccessibleName("Compared runs page")
        self.runs: dict[int, ComparedRun] = {}
        self._wanted: dict[int, RunFolder] = {}
        self._unread: dict[str, str] = {}
        self._began = 0.0
        self._reading = Reading(self)
        self._again = QTimer(self, singleShot=True)
        self._soon = QTimer(self, interval=0, singleShot=True)
        self.leave = back_action(self, "leave_comparison", "Back to the list of runs")
        self.back = bind(QPushButton(), self.leave, "Back from the compared runs")
        self._title = QLabel()
        self._title.setObjectName("heading")
        self._state = QLabel(wordWrap=True)
        self._state.setObjectName("muted")
        self.legend = Legend()
        self.curves = CompareCurves()
        self.controls = CompareControls(self.curves)
        self.model = CompareModel(self)
        self.table = QTableView()
        self._stack = QStackedWidget()
        self.setAcceptDrops(True)
        self._lay_out()
        self._connect()
        self._order_tabs()
        self._tell()

    def show_runs(self, run_ids: Sequence[str]) -> None:
        """Compares the runs of these ids, in this order."""
        self.clear()
        root = paths.runs_folder()
        self._wanted = {series: RunFolder(root / run_id) for series, run_id in enumerate(dict.fromkeys(run_ids))}
        self._stack.setCurrentIndex(1 if self._wanted else 0)
        self._read(self._wanted)
        self._tell()

    @property
    def run_ids(self) -> list[str]:
        """The runs that are compared, or are being read for it."""
        return [run.run_id for run in self._wanted.values()]

    def dragEnterEvent(self, event: QDragEnterEvent) -> None:
        if run_ids_in(event.mimeData()):
            event.acceptProposedAction()

    def dropEvent(self, event: QDropEvent) -> None:
        event.acceptProposedAction()
        self.show_runs([*self.run_ids, *run_ids_in(event.mimeData())])

    def clear(self) -> None:
        """Compares nothing any more, and lets go of what was read."""
        self.close_work()
        self.runs, self._wanted, self._unread = {}, {}, {}
        self.legend.clear()
        self._show()
        self._stack.setCurrentIndex(0)

    def close_work(self) -> None:
        """Ends the reading that goes on in the background."""
        self._again.stop()
        self._reading.close()

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        self._read_on_later()

    def hideEvent(self, event: QHideEvent) -> None:
        super().hideEvent(event)
        self._again.stop()

    # Making it

    def _lay_out(self) -> None:
        empty = EmptyState(_EMPTY)
        scroll = scroll_panel(self.curves)
        scroll.setMinimumHeight(190)
        self._prepare_table()
        halves = QSplitter(Qt.Orientation.Vertical)
        halves.setChildrenCollapsible(False)
        halves.addWidget(scroll)
        halves.addWidget(self.table)
        halves.setSizes([600, 300])
        halves.setStretchFactor(0, 2)
        halves.setStretchFactor(1, 1)
        body = QWidget()
        inside = QVBoxLayout(body)
        inside.setContentsMargins(0, 0, 0, 0)
        inside.setSpacing(8)
        inside.addWidget(self.controls)
        inside.addWidget(self.legend)
        inside.addWidget(halves, 1)
        self._stack.addWidget(empty)
        self._stack.addWidget(body)
        top = QHBoxLayout()
        top.setSpacing(10)
        top.addWidget(self.back)
        top.addWidget(self._title)
        top.addWidget(self._state, 1)
        top.addWidget(self.controls.whole)
        top.addWidget(self.controls.save)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(14, 10, 14, 10)
        layout.setSpacing(8)
        layout.addLayout(top)
        layout.addWidget(self._stack, 1)

    def _prepare_table(self) -> None:
        table = self.table
        table.setModel(self.model)
        table.setAccessibleName("Compared runs")
        table.setAlternatingRowColors(True)
        table.setShowGrid(False)
        table.setTabKeyNavigation(False)
        table.setWordWrap(False)
        table.setMinimumHeight(120)
        table.setHorizontalScrollMode(QTableView.ScrollMode.ScrollPerPixel)
        table.horizontalHeader().setHighlightSections(False)
        table.horizontalHeader().setDefaultAlignment(Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignVCenter)
        table.verticalHeader().setHighlightSections(False)
        table.verticalHeader().setDefaultSectionSize(table.fontMetrics().height() + 10)
        table.setStyleSheet(
            f"QTableView::item {{ padding: 0 {_PADDING}px; }}"
            "QTableCornerButton::section { background: transparent; border: none; }"
        )
        table.setCornerButtonEnabled(False)

    def _order_tabs(self) -> None:
        controls, legend = self.controls, self.legend
        parts = (self.back, controls.whole, controls.save, controls, *legend.boxes.values(), legend.all, legend.none)
        order_tabs(self, (*parts, *self.curves.in_order, self.table))

    def _connect(self) -> None:
        self.leave.on_trigger(self.closed.emit)
        self.controls.acts["curves"].on_trigger(lambda: self._ask("curves.csv", self.save_curves))
        self.controls.acts["table"].on_trigger(lambda: self._ask("table.csv", self.save_table))
        self.controls.acts["image"].on_trigger(lambda: self._ask("curves.png", self.save_image))
        self.legend.changed.connect(self._show_curves)
        self.model.modelReset.connect(self._fit_columns)
        self._reading.read.connect(self._take)
        self._reading.unread.connect(self._miss)
        self._reading.complete.connect(self._read_whole)
        self._again.timeout.connect(self._read_on)
        self._soon.timeout.connect(self._show)

    # Reading

    def _read(self, wanted: dict[int, RunFolder]) -> None:
        self._began = time.monotonic()
        if wanted:
            self._reading.start(list(wanted.items()))

    def _take(self, run: ComparedRun) -> None:
        self.runs[run.series] = run
        self._unread.pop(run.summary.run_id, None)
        self.legend.add_run(run)
        self._soon.start()  # runs that are read at once are shown at once
        self._tell()

    def _miss(self, run_id: str, why: str) -> None:
        self._unread[run_id] = why
        if not why:
            self._wanted = {series: run for series, run in self._wanted.items() if run.run_id != run_id}
        self._tell()

    def _read_whole(self) -> None:
        if self._soon.isActive():
            self._show()
        self._tell()
        self._read_on_later()

    def _going_on(self) -> dict[int, RunFolder]:
        return {
            series: run
            for series, run in self._wanted.items()
            if series in self.runs and self.runs[series].summary.state in ("starting", "running")
        }

    def _read_on_later(self) -> None:
        if self.isVisible() and not self._reading.running and self._going_on():
            took_ms = 1000 * (time.monotonic() - self._began)
            self._again.start(max(_LOOK_EVERY_MS, min(int(_SHARE_OF_TIME * took_ms), 10 * _LOOK_EVERY_MS)))

    def _read_on(self) -> None:
        self._read(self._going_on())

    # Showing

    def _ordered(self) -> tuple[ComparedRun, ...]:
        return tuple(self.runs[series] for series in sorted(self.runs))

    def _show(self) -> None:
        self._soon.stop()
        self.model.show_runs(self._ordered())
        self._show_curves()
        self._order_tabs()

    def _fit_columns(self) -> None:
        self.table.resizeColumnsToContents()
        for column in range(self.model.columnCount()):
            # Qt does not count the padding that a style sheet gives to items.
            self.table.setColumnWidth(column, min(_WIDEST, self.table.columnWidth(column) + 2 * _PADDING))

    def _show_curves(self) -> None:
        shown = self.legend.shown
        self.curves.show_runs([run for run in self._ordered() if run.series in shown])

    def _tell(self) -> None:
        count = len(self._wanted)
        self._title.setText(f"Compare {localised(count)} runs" if count != 1 else "Compare 1 run")
        gone = [f"{run_id} can no longer be read." for run_id, why in self._unread.items() if not why]
        unread = {run_id: why for run_id, why in self._unread.items() if why}
        left = [
            series for series, run in self._wanted.items() if series not in self.runs and run.run_id not in self._unread
        ]
        reading = [f"Reading {count - len(left) + 1} of {count} …"] if left else []
        self._state.setText(" ".join([*reading, *gone, unread_words(unread)]).strip())
        self.controls.save.setEnabled(bool(self.runs))

    # Saving

    def save_curves(self, path: Path) -> None:
        """Writes every point of the curves of the runs that are shown."""
        shown = self.legend.shown
        table = CurvesTable(tuple(run for run in self._ordered() if run.series in shown))
        self._write(path, table, "The curves were saved to")

    def save_table(self, path: Path) -> None:
        """Writes the table as it is on screen, but for the desktop's way with numbers."""
        runs = self._ordered()
        with as_in_files():
            table = RowsTable(runs, tuple(rows(runs)))
        self._write(path, table, "The table was saved to")

    def save_image(self, path: Path) -> None:
        """Writes an image of all curves, also those that are scrolled out of sight, with the names of the runs."""
        try:
            with self.curves.named():
                export_png(path, self.curves.grab())
        except ExportError as error:
            self.message.emit(str(error), "warning")
        else:
            self.message.emit(f"The image was saved to {path}.", "info")

    def _write(self, path: Path, table: Table, done: str) -> None:
        in_background(
            lambda: write_csv(path, table),
            self,
            lambda written: self.message.emit(f"{done} {written}.", "info"),
            lambda error: self.message.emit(str(error), "warning"),
        )

    def _ask(self, name: str, chosen: Callable[[Path], None]) -> QFileDialog:
        return choose_target(
            self, "Save the comparison", f"footplate-{time.strftime('%Y-%m-%d-%H%M%S')}-{name}", chosen
        )
