"""View of the GPU processes on all hosts, as a tree or a table, with an action that ends a process."""

from __future__ import annotations

import io
from collections.abc import Iterator
from functools import partial

import psutil
from PySide6.QtCore import QModelIndex, QPoint, QSize, Qt, Signal
from PySide6.QtGui import QFont, QFontMetrics, QGuiApplication, QShowEvent
from PySide6.QtWidgets import (
    QAbstractItemView,
    QCheckBox,
    QLineEdit,
    QMenu,
    QPushButton,
    QStackedWidget,
    QTreeView,
    QWidget,
)

from engine.contract.devices import Snapshot, device_key, gpu_title
from engine.system.plain_text import CsvWriter, make_encodable
from gui.actions import WITHIN, Action, bind
from gui.format import counted, localized
from gui.monitor.processes.model import (
    COLUMNS,
    COMMAND,
    GPU,
    GPU_MEMORY,
    HOST,
    PROCESS,
    ProcessModel,
    ProcessRows,
    swatches_width,
)
from gui.monitor.processes.process_rows import ProcessRow, describe_sharing, process_rows
from gui.monitor.processes.termination import EndingBar, disabled_reason
from gui.sources.devices.device_format import gpu_sort_key
from gui.sources.devices.hosts import Hosts
from gui.sources.run_intervals import RunIntervals
from gui.style import theme
from gui.translation import tr
from gui.widgets.banner import Banner
from gui.widgets.buttons import styled
from gui.widgets.editors import ComboBox, fill_combo_box
from gui.widgets.labels import ElidedLabel, EmptyState, heading_label
from gui.widgets.layouts import hbox, vbox
from gui.widgets.trees import TreeView

ASKING_S = 5.0
"""Seconds without a list of processes after which the driver is assumed not to report any."""
_CELL_PADDING = 5
"""Padding in pixels that aligns cell texts with the header's texts."""
_PADDING, _TREE, _AFTER_ICON = 2 * _CELL_PADDING + 8, 60, 6
"""Widths in pixels of the padding, of the tree's arrows and warnings, and of the gap between icon and text."""
_MIN_PROCESS_WIDTH = 180
"""Minimum initial width of the column with process names, in pixels at a text size of 100%."""

ALL_GPUS = tr("All GPUs")
_NOBODY = tr("No process holds a GPU.\n\nProcesses appear here when they start using one.")


class ProcessesView(QWidget):
    """Table or tree of all processes that use a GPU. While the view is visible, each snapshot refreshes it.

    Signals:
        stop_run(str): the user wants to stop the run with this id.
    """

    stop_run = Signal(str)

    def __init__(self, hosts: Hosts, intervals: RunIntervals) -> None:
        super().__init__()
        self._hosts = hosts
        self._intervals = intervals
        self._requested_at: dict[str, float] = {}  # snapshot time of the first request for the processes, by host
        self._is_fitted = False  # True once the column widths fit the contents
        self.model = ProcessModel(self)
        self.rows = ProcessRows(self)
        self.rows.setSourceModel(self.model)
        self.filter = QLineEdit(clearButtonEnabled=True)
        self.filter.setPlaceholderText(tr("Filter"))
        self.filter.setAccessibleName(tr("Filter processes"))
        self.only_mine = QCheckBox(tr("Only &mine"))
        self.gpus = styled(ComboBox(), name="GPU", description=tr("The GPU whose processes are shown"))
        self.gpus.addItem(ALL_GPUS, "")
        self.as_tree = QCheckBox(tr("As &tree"))
        self.as_tree.setChecked(True)
        self.as_tree.setToolTip(tr("Group processes under the run or process that started them"))
        self.tree = self._make_tree()
        self.bar = EndingBar()
        self._warning = Banner()
        self._count = heading_label()
        self._reason = styled(ElidedLabel(), "muted")
        copy_tip = tr("Copy the selected rows as a table")
        self.acts = {
            "copy": Action(self.tree, "copy_processes", tr("&Copy"), copy_tip, "Ctrl+C", context=WITHIN),
            "command": Action(self.tree, "copy_process_command", tr("Copy the command")),
            "end": Action(self.tree, "end_process", tr("&End process…"), "", tr("Delete"), context=WITHIN),
        }
        self.copy, self.end = (bind(QPushButton(), self.acts[name]) for name in ("copy", "end"))
        self._empty = EmptyState()
        self._stack = QStackedWidget()
        self._stack.addWidget(self._empty)
        self._stack.addWidget(self.tree)
        self._lay_out()
        self._create_shortcuts()
        self._connect()
        self._update_actions()

    def selected(self) -> ProcessRow | None:
        """Return the selected row, or None unless exactly one row is selected."""
        chosen = self.tree.selectionModel().selectedRows()
        return self.rows.line(chosen[0]) if len(chosen) == 1 else None

    def refresh(self) -> None:
        """Show the processes in the last snapshots."""
        snapshots = self._hosts.snapshots
        lines = [
            line
            for host, snapshot in snapshots.items()
            for line in process_rows(host, snapshot, self._intervals.intervals, _name_of, tree=self.as_tree.isChecked())
        ]
        chosen = self.selected()
        self._show_gpus(snapshots)
        self.model.show_lines(lines)
        self._fit_columns(lines)
        if chosen is not None and self.selected() is None:  # the row may have moved to another parent
            self.tree.setCurrentIndex(self.rows.mapFromSource(self.model.find(chosen.key)))
        for column in range(1, len(COLUMNS)):
            has_values = len(snapshots) > 1 if column == HOST else self.model.has_been_known(column)
            self.tree.setColumnHidden(column, not has_values)
        self._warning.show_message(describe_sharing(lines, self._intervals.intervals))
        self._show_count(lines)
        self._update_actions()

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        self._requested_at = {}
        self.refresh()

    # Construction

    def _make_tree(self) -> QTreeView:
        """Create the tree, sorted by GPU memory. New groups are unfolded."""
        tree = TreeView()
        tree.setAccessibleName(tr("GPU processes"))
        tree.setAccessibleDescription(tr("Press the menu key or Shift+F10 to sort, copy or end a process"))
        tree.setModel(self.rows)
        tree.setSortingEnabled(True)
        tree.sortByColumn(GPU_MEMORY, Qt.SortOrder.DescendingOrder)
        tree.setUniformRowHeights(True)
        tree.setIconSize(QSize(120, 16))  # wide enough for a square per GPU
        tree.setAlternatingRowColors(True)
        tree.setAllColumnsShowFocus(True)
        tree.setSelectionMode(QAbstractItemView.SelectionMode.ExtendedSelection)
        tree.setContextMenuPolicy(Qt.ContextMenuPolicy.CustomContextMenu)
        tree.setStyleSheet(f"QTreeView::item {{ padding: {_CELL_PADDING}px; }}")
        header = tree.header()
        header.setStretchLastSection(True)
        header.setSectionsMovable(False)
        self.rows.rowsInserted.connect(self._unfold)
        return tree

    def _lay_out(self) -> None:
        self.filter.setMaximumWidth(240)
        top = hbox(self._count, 1, spacing=10)
        for widget in (self.as_tree, self.only_mine, self.gpus):
            top.addWidget(widget)
        top.addWidget(self.filter, 1)
        bottom = hbox((self._reason, 1), self.copy, self.end)
        self.setLayout(vbox(top, self._warning, (self._stack, 1), self.bar, bottom, margins=(0, 10, 0, 4)))

    def _connect(self) -> None:
        for source in (self._hosts.snapshot, self._hosts.changed, self._intervals.changed):
            source.connect(self._refresh_if_visible)
        self.filter.textChanged.connect(self._apply_filter)
        self.only_mine.toggled.connect(self._apply_filter)
        self.gpus.currentIndexChanged.connect(self._apply_filter)
        self.as_tree.toggled.connect(self.refresh)
        theme.notifier.changed.connect(self._refit_columns)
        self.tree.selectionModel().selectionChanged.connect(self._update_actions)
        self.tree.customContextMenuRequested.connect(self._open_menu)
        self.acts["copy"].on_trigger(self.copy_selected)
        self.acts["command"].on_trigger(self._copy_command)
        self.acts["end"].on_trigger(self._ask_to_end)
        self.bar.stop_run.connect(self.stop_run)
        self.bar.closed.connect(self.tree.setFocus)

    def _create_shortcuts(self) -> None:
        """Create the actions that go to the filter and open the menu of a process, with their shortcuts."""
        tip = tr("Show processes that match all of these words: users, commands…")
        find = Action(self, "find_processes", tr("Find processes"), tip, "Ctrl+F", context=WITHIN)
        find.on_trigger(self._go_to_filter)
        find.changed.connect(lambda: self.filter.setToolTip(find.toolTip()))
        self.filter.setToolTip(find.toolTip())
        # Qt handles only the menu key.
        menu = Action(self.tree, "process_menu", tr("Menu of the process"), "", "Shift+F10", context=WITHIN)
        menu.on_trigger(self._open_menu_by_key)

    # Event handlers

    def _refresh_if_visible(self) -> None:
        if self.isVisible():
            self.refresh()

    def _apply_filter(self) -> None:
        """Show only the processes that match the text, the owner and the GPU that are set in the filter."""
        self.rows.set_filter(
            text=self.filter.text(), only_mine=self.only_mine.isChecked(), device=self.gpus.currentData() or ""
        )
        self.refresh()

    def _show_gpus(self, snapshots: dict[str, Snapshot]) -> None:
        """List all known GPUs in the filter. The choice is kept while its GPU exists."""
        offered = [(ALL_GPUS, "")]
        for host, snapshot in snapshots.items():
            prefix = f"{snapshot.host} · " if len(snapshots) > 1 else ""
            for gpu in sorted(snapshot.gpus, key=gpu_sort_key):
                offered.append((prefix + gpu_title(gpu), device_key(host, gpu.uuid)))
        chosen = self.gpus.currentData()
        fill_combo_box(self.gpus, offered, chosen)
        if self.gpus.currentData() != chosen:
            self._apply_filter()

    def _refit_columns(self) -> None:
        """Fit the columns again at the next refresh, since the text size may have changed."""
        self._is_fitted = False
        self._refresh_if_visible()

    def _fit_columns(self, lines: list[ProcessRow]) -> None:
        """Fit the columns to the first rows. Afterwards, only the user and the text size change their widths."""
        if not lines or self._is_fitted:
            return
        self._is_fitted = True
        advance = self.tree.fontMetrics().horizontalAdvance
        for number, column in enumerate(COLUMNS[:COMMAND]):
            cells = [self._cell_width(number, line) for line in lines]
            self.tree.setColumnWidth(number, max(advance(column.title), advance(column.widest), *cells) + _PADDING)
        narrow = max(theme.scale_pixels(_MIN_PROCESS_WIDTH), self.width() * 3 // 10)
        self.tree.setColumnWidth(PROCESS, min(narrow, self.tree.columnWidth(PROCESS)))

    def _cell_width(self, number: int, line: ProcessRow) -> int:
        """Return the width in pixels of a cell's text and of the symbols before it.

        `number` is the index of the column.
        """
        font = QFont(self.tree.font())
        font.setBold(line.group)
        text = QFontMetrics(font).horizontalAdvance(COLUMNS[number].text(line))
        symbol_widths = {PROCESS: _TREE, GPU: swatches_width(len(line.devices)) + _AFTER_ICON}
        return text + symbol_widths.get(number, 0)

    def _unfold(self, parent: QModelIndex, first: int, last: int) -> None:
        for row in range(first, last + 1):
            self.tree.expand(self.rows.index(row, 0, parent))

    def _show_count(self, lines: list[ProcessRow]) -> None:
        """Show how many processes there are and how many pass the filter, or why the table is empty."""
        total = sum(not line.group for line in lines)
        visible_lines = [self.rows.line(index) for index in _all_rows(self.rows, QModelIndex())]
        visible = sum(line is not None and not line.group for line in visible_lines)
        count_text = counted(total, "process")
        self._count.setText(
            count_text
            if visible == total
            else tr("{visible} of {processes}").format(visible=localized(visible), processes=count_text)
        )
        self._count.setVisible(total > 0)
        empty = self._explain_empty_table(total, visible)
        self._empty.setText(empty)
        self._stack.setCurrentWidget(self._empty if empty else self.tree)

    def _explain_empty_table(self, total: int, visible: int) -> str:
        """Return the text for a table that shows `visible` of `total` processes, or "" if it shows any."""
        snapshots = self._hosts.snapshots
        if visible:
            return ""
        if total:
            return tr("No matching processes.\n\nClear the filter to see all of them.")
        if not snapshots:
            return tr("Looking for devices…")
        gpus = [gpu for snapshot in snapshots.values() for gpu in snapshot.gpus if not gpu.lost]
        if not gpus:
            messages = [snapshot.nvml.message for snapshot in snapshots.values() if snapshot.nvml.message]
            return "\n".join(messages) or tr("This machine has no NVIDIA GPU.")
        if all(gpu.processes is None for gpu in gpus):
            asleep = all(gpu.asleep for gpu in gpus)
            return (
                tr("The GPU is asleep; it is not woken to list its processes.")
                if asleep
                else self._explain_missing_processes(snapshots)
            )
        answering = any(snapshot.nvml.status == "ok" for snapshot in snapshots.values())
        return _NOBODY if answering else tr("No process held a GPU when NVML last responded.")

    def _explain_missing_processes(self, snapshots: dict[str, Snapshot]) -> str:
        """Return why there are no processes: they are being listed, or the driver doesn't report them."""
        for host, snapshot in snapshots.items():
            since = self._requested_at.setdefault(host, snapshot.time)
            if snapshot.time - since < ASKING_S:
                return tr("Listing GPU processes…")
        return tr("The driver does not report GPU processes.")

    def _update_actions(self) -> None:
        """Enable the actions that apply to the selected processes, and show why the selected process can't be ended.

        For a process of a run, the End action stops the run.
        """
        line = self.selected()
        local = self._hosts.latest.get("")
        has_foreign_pids = local is not None and local.foreign_pids  # in a container, no pid can be used
        would_stop_run = line is not None and line.run is not None
        reason = "" if would_stop_run else disabled_reason(line, has_foreign_pids)
        if line is None and len(self.tree.selectionModel().selectedRows()) > 1:
            reason = tr("Select a single process to end it.")
        if would_stop_run:
            self.acts["end"].set_appearance(tr("Stop the &run…"), tr("Stop the run after a confirmation"))
        else:
            self.acts["end"].set_appearance(
                tr("&End process…"), tr("End the process after a confirmation; it may save its work first")
            )
        self.acts["end"].set_disabled_reason(reason)
        self.acts["copy"].set_disabled_reason(
            "" if self.tree.selectionModel().hasSelection() else tr("Select the processes to copy")
        )
        self.acts["command"].set_disabled_reason(
            "" if line is not None and line.command else tr("Select one process whose command is known")
        )
        reason_text = reason if self.rows.rowCount() else ""
        self._reason.setText(reason_text)
        self._reason.setToolTip(reason_text)

    def _ask_to_end(self) -> None:
        line = self.selected()
        if line is not None:
            self.bar.ask(line)

    def copy_selected(self) -> None:
        """Copy the selected rows with their column titles, as tab-separated text."""
        columns = [COLUMNS[number] for number in self._visible_columns()]
        selected = self.tree.selectionModel().isSelected
        chosen = [index for index in _all_rows(self.rows, QModelIndex()) if selected(index)]
        lines = [line for index in chosen if (line := self.rows.line(index)) is not None]
        if lines:
            text = io.StringIO()
            writer = CsvWriter(text, delimiter="\t", line_end="\n")
            writer.write_row([column.title for column in columns])
            for line in lines:
                writer.write_row([column.text(line) for column in columns])
            QGuiApplication.clipboard().setText(text.getvalue().removesuffix("\n"))

    def _copy_command(self) -> None:
        line = self.selected()
        if line is not None:
            QGuiApplication.clipboard().setText(line.command)

    def _open_menu(self, point: QPoint) -> None:
        """Open the context menu of the selected processes at `point` of the table."""
        menu = QMenu(self)
        menu.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        menu.addActions([self.acts["copy"], self.acts["command"]])
        self._add_sorting(menu)
        menu.addSeparator()
        menu.addAction(self.acts["end"])
        menu.popup(self.tree.viewport().mapToGlobal(point))

    def _open_menu_by_key(self) -> None:
        self._open_menu(self.tree.visualRect(self.tree.currentIndex()).center())

    def _add_sorting(self, menu: QMenu) -> None:
        """Add menu entries that sort by each column, for use with the keyboard."""
        sorting = menu.addMenu(tr("Sort by"))
        for number in self._visible_columns():
            action = sorting.addAction(COLUMNS[number].title, partial(self.sort_by, number))
            action.setCheckable(True)
            action.setChecked(number == self.tree.header().sortIndicatorSection())

    def sort_by(self, column: int) -> None:
        """Sort by a column: numbers descending, texts ascending. Repeated calls reverse the order."""
        order = Qt.SortOrder.DescendingOrder if COLUMNS[column].is_numeric else Qt.SortOrder.AscendingOrder
        header = self.tree.header()
        if (header.sortIndicatorSection(), header.sortIndicatorOrder()) == (column, order):
            order = Qt.SortOrder(1 - order.value)
        self.tree.sortByColumn(column, order)

    def _visible_columns(self) -> list[int]:
        return [n for n in range(len(COLUMNS)) if not self.tree.isColumnHidden(n)]

    def _go_to_filter(self) -> None:
        self.filter.setFocus()
        self.filter.selectAll()


def _all_rows(rows: ProcessRows, parent: QModelIndex) -> Iterator[QModelIndex]:
    """Yield all rows below `parent` in display order."""
    for row in range(rows.rowCount(parent)):
        index = rows.index(row, PROCESS, parent)
        yield index
        yield from _all_rows(rows, index)


def _name_of(pid: int) -> str | None:
    """Return the name of a local process, or None if it has ended or can't be seen."""
    try:
        return make_encodable(psutil.Process(pid).name())
    except psutil.Error:
        return None
