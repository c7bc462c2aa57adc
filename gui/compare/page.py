"""Page that compares runs: their curves, and a table of their results and job differences."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from PySide6.QtCore import Qt, QTimer, Signal
from PySide6.QtGui import QDragEnterEvent, QDropEvent, QHideEvent, QShowEvent
from PySide6.QtWidgets import QPushButton, QSplitter, QStackedWidget, QWidget

from engine.runs.folder import ENDED, RunFolder
from engine.system import paths
from gui.actions import Action, bind, create_back_action
from gui.compare.compared_run import ComparedRun, LogLoader, Over
from gui.compare.comparison import create_rows
from gui.compare.curves import CompareCurves
from gui.compare.legend import Legend
from gui.compare.table import CompareTable
from gui.compare.table_model import CompareModel, generate_comparison_rows, generate_curve_rows
from gui.format import as_in_files, localized
from gui.sources.export import save_image, save_in_background, write_csv
from gui.sources.run_list import RunList
from gui.titles import list_unread_runs
from gui.translation import tr
from gui.widgets.buttons import styled
from gui.widgets.curve_controls import CurveControls
from gui.widgets.file_dialogs import add_timestamp, choose_target
from gui.widgets.labels import EmptyState, heading_label, muted_label
from gui.widgets.layouts import create_save_button, hbox, scroll_panel, vbox
from gui.widgets.run_drag import run_ids_in
from gui.widgets.tab_order import order_tabs

_EMPTY = tr("Nothing to compare yet.\n\nOn the Runs page, select two or more runs and press Compare.")
_EMPTY_PAGE, _COMPARISON_PAGE = range(2)
_REFRESH_MS = 5000
_PAUSE_FACTOR = 20
"""Pause between two reads of active runs, as a multiple of the duration of a read."""


class ComparePage(QWidget):
    """Comparison of any number of runs. While the page is visible, active runs are reloaded every few seconds.

    Signals:
        closed(): the user wants to return to the previous page.
        message(str, str): the result of saving a file, with the severity "info" or "warning".
        loaded(): all runs have been read.
    """

    closed = Signal()
    message = Signal(str, str)
    loaded = Signal()

    def __init__(self, run_list: RunList) -> None:
        """Create the page. Folders of the runs in `run_list` can be dropped on it."""
        super().__init__()
        self._run_list = run_list
        styled(self, "panel", name=tr("Compared runs page"))
        self.runs: dict[int, ComparedRun] = {}  # runs that have been read, by index in the comparison
        self._requested: dict[int, RunFolder] = {}  # all runs to compare, by index
        self._unread_reasons: dict[str, str] = {}  # by run id, "" for a run that has vanished
        self._read_start = 0.0  # monotonic time in seconds
        self._loader = LogLoader(self)
        self._refresh_timer = QTimer(self, singleShot=True)
        self._redraw_timer = QTimer(self, interval=0, singleShot=True)
        self.leave = create_back_action(self, "leave_comparison", tr("Back to the list of runs"))
        self.back = bind(QPushButton(), self.leave, tr("Back from the compared runs"))
        self._title = heading_label()
        self._state = muted_label(word_wrap=True)
        self.legend = Legend()
        self.curves = CompareCurves()
        self.controls = CompareControls(self.curves)
        self.model = CompareModel(self)
        self.table = CompareTable(self.model)
        self._stack = QStackedWidget()
        self.setAcceptDrops(True)
        self._lay_out()
        self._connect()
        self._order_tabs()
        self._show_state()

    def show_runs(self, run_ids: Sequence[str]) -> None:
        """Compare the runs with these ids, in this order."""
        self.clear()
        root = paths.runs_folder()
        self._requested = {series: RunFolder(root / run_id) for series, run_id in enumerate(dict.fromkeys(run_ids))}
        self._stack.setCurrentIndex(_COMPARISON_PAGE if self._requested else _EMPTY_PAGE)
        self._read(self._requested)
        self._show_state()

    @property
    def run_ids(self) -> list[str]:
        """Ids of the compared runs, including those that are still being read."""
        return [run.run_id for run in self._requested.values()]

    def dragEnterEvent(self, event: QDragEnterEvent) -> None:
        if run_ids_in(event.mimeData(), self._run_list.known_ids):
            event.acceptProposedAction()

    def dropEvent(self, event: QDropEvent) -> None:
        event.acceptProposedAction()
        self.show_runs([*self.run_ids, *run_ids_in(event.mimeData(), self._run_list.known_ids)])

    def clear(self) -> None:
        """Remove all runs and release their data."""
        self._refresh_timer.stop()
        self._loader.stop()
        self.runs, self._requested, self._unread_reasons = {}, {}, {}
        self.legend.clear()
        self._show_runs()
        self._stack.setCurrentIndex(_EMPTY_PAGE)

    def close_work(self) -> None:
        """Stop reading when the window closes."""
        self._refresh_timer.stop()
        self._loader.close()

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        self._schedule_refresh()

    def hideEvent(self, event: QHideEvent) -> None:
        super().hideEvent(event)
        self._refresh_timer.stop()

    def _lay_out(self) -> None:
        scroll = scroll_panel(self.curves)
        scroll.setMinimumHeight(190)
        halves = QSplitter(Qt.Orientation.Vertical)
        halves.setChildrenCollapsible(False)
        halves.addWidget(scroll)
        halves.addWidget(self.table)
        halves.setSizes([600, 300])
        halves.setStretchFactor(0, 2)
        halves.setStretchFactor(1, 1)
        self.panes = (scroll, self.table)
        body = QWidget()
        body.setLayout(vbox(self.controls, self.legend, (halves, 1)))
        self._stack.addWidget(EmptyState(_EMPTY))
        self._stack.addWidget(body)
        controls = self.controls
        top = hbox(self.back, self._title, (self._state, 1), controls.show_all, controls.save, spacing=10)
        self.setLayout(vbox(top, (self._stack, 1), margins=(14, 10, 14, 10)))

    def _order_tabs(self) -> None:
        controls, legend = self.controls, self.legend
        parts = (self.back, controls.show_all, controls.save, controls, *legend.boxes.values(), legend.all, legend.none)
        order_tabs(self, (*parts, *self.curves.ordered_plots, self.table))

    def _connect(self) -> None:
        self.leave.on_trigger(self.closed.emit)
        self.controls.acts["curves"].on_trigger(lambda: self._choose_file("curves.csv", self.save_curves))
        self.controls.acts["table"].on_trigger(lambda: self._choose_file("table.csv", self.save_table))
        self.controls.acts["image"].on_trigger(lambda: self._choose_file("curves.png", self.save_image))
        self.legend.changed.connect(self._show_curves)
        self._loader.read.connect(self._on_read)
        self._loader.unread.connect(self._on_unreadable)
        self._loader.complete.connect(self._on_complete)
        self._refresh_timer.timeout.connect(self._refresh)
        self._redraw_timer.timeout.connect(self._show_runs)

    def _read(self, runs: dict[int, RunFolder]) -> None:
        """Read the logs of `runs`, by index in the comparison, on a worker thread."""
        self._read_start = time.monotonic()
        if runs:
            self._loader.start(list(runs.items()))

    def _on_read(self, run: ComparedRun) -> None:
        """Add a run that has been read, or replace its earlier data, and schedule a redraw of all runs."""
        self.runs[run.series] = run
        self._unread_reasons.pop(run.summary.run_id, None)
        self.legend.add_run(run)
        self._redraw_timer.start()  # runs read in the same event loop pass are shown together
        self._show_state()

    def _on_unreadable(self, run_id: str, reason: str) -> None:
        """Show the reason why a run can't be read, or that it no longer exists if `reason` is "".

        A run that no longer exists isn't read again. Data that was read before stays visible.
        """
        self._unread_reasons[run_id] = reason
        if not reason:
            self._requested = {series: run for series, run in self._requested.items() if run.run_id != run_id}
        self._show_state()

    def _on_complete(self) -> None:
        """Draw the runs that were read, emit `loaded`, and read active runs again after a pause."""
        if self._redraw_timer.isActive():  # runs have been read since the last drawing
            self._show_runs()
        self._show_state()
        self._schedule_refresh()
        self.loaded.emit()

    def _list_active_runs(self) -> dict[int, RunFolder]:
        """Return the runs whose logs may still grow, by index: those that are waiting, starting or running."""
        return {
            series: run
            for series, run in self._requested.items()
            if series in self.runs and self.runs[series].summary.state not in ENDED
        }

    def _schedule_refresh(self) -> None:
        """Read active runs again after a pause while the page is visible. Slow reads lengthen the pause."""
        if self.isVisible() and not self._loader.running and self._list_active_runs():
            read_ms = 1000 * (time.monotonic() - self._read_start)
            pause_ms = min(int(_PAUSE_FACTOR * read_ms), 10 * _REFRESH_MS)
            self._refresh_timer.start(max(_REFRESH_MS, pause_ms))

    def _refresh(self) -> None:
        """Read the logs of the active runs again."""
        self._read(self._list_active_runs())

    def _list_read_runs(self) -> tuple[ComparedRun, ...]:
        """Return the runs whose logs have been read, in the order of the comparison."""
        return tuple(self.runs[series] for series in sorted(self.runs))

    def _show_runs(self) -> None:
        """Show all runs that have been read in the table, and the ones checked in the legend in the plots."""
        self._redraw_timer.stop()
        self.model.show_runs(self._list_read_runs())
        self._show_curves()
        self._order_tabs()

    def _show_curves(self) -> None:
        """Draw the curves of the runs that are checked in the legend."""
        checked = self.legend.checked
        self.curves.show_runs([run for run in self._list_read_runs() if run.series in checked])

    def _count_remaining(self) -> int:
        """Return the number of requested runs that have been neither read nor found unreadable."""
        return sum(
            series not in self.runs and run.run_id not in self._unread_reasons
            for series, run in self._requested.items()
        )

    def _show_state(self) -> None:
        """Show the number of runs, the progress of reading them, and unreadable runs. Enable saving if one was read."""
        count = len(self._requested | self.runs)  # a run that was deleted after it was read stays in the table
        self._title.setText(
            tr("Compare {count} runs").format(count=localized(count)) if count != 1 else tr("Compare 1 run")
        )
        vanished = [
            tr("{run_id} can no longer be read.").format(run_id=run_id)
            for run_id, reason in self._unread_reasons.items()
            if not reason  # see `_unread_reasons`
        ]
        unread = {run_id: reason for run_id, reason in self._unread_reasons.items() if reason}
        remaining = self._count_remaining()
        reading = (
            [tr("Reading {number} of {count}…").format(number=count - remaining + 1, count=count)] if remaining else []
        )
        self._state.setText(" ".join([*reading, *vanished, list_unread_runs(unread)]).strip())
        self.controls.save.setEnabled(bool(self.runs))

    def save_curves(self, path: Path) -> None:
        """Write all points of the visible curves to a CSV file."""
        checked = self.legend.checked
        runs = [run for run in self._list_read_runs() if run.series in checked]
        write = partial(write_csv, path, generate_curve_rows(runs))
        save_in_background(write, self.message, tr("The curves were saved to {path}."), self)

    def save_table(self, path: Path) -> None:
        """Write the displayed table to a CSV file, in the same number format on every desktop."""
        runs = self._list_read_runs()
        with as_in_files():
            table_rows = create_rows(runs)
        write = partial(write_csv, path, generate_comparison_rows(runs, table_rows))
        save_in_background(write, self.message, tr("The table was saved to {path}."), self)

    def save_image(self, path: Path) -> None:
        """Write an image of all curves with the names of the runs, including curves that are scrolled out of view."""
        with self.curves.show_names():
            save_image(path, self.curves.grab(), self.message)

    def _choose_file(self, name: str, save: Callable[[Path], None]) -> None:
        """Open a dialog for a file, whose suggested name is `name` and the time, and call `save` with its path."""
        choose_target(self, tr("Save the comparison"), add_timestamp(name), save)


_OVER: tuple[tuple[str, Over], ...] = ((tr("Steps"), "step"), (tr("Epochs"), "epoch"), (tr("Time"), "time"))


class CompareControls(CurveControls):
    """Controls for the curves. The page places the buttons `show_all` and `save`.

    Attributes:
        acts: Actions that save curves, table and image.
    """

    def __init__(self, curves: CompareCurves) -> None:
        super().__init__(_OVER, name_pattern=tr("{control} of the compared runs"))
        self.axis_chosen.connect(curves.set_over)
        self.smoothed.connect(curves.set_smoothing)
        self.log_toggled.connect(curves.set_log)
        self._show_all = Action(self, "show_whole_runs", tr("Show full runs"), tr("Zoom out to the full runs (Home)"))
        self._show_all.on_trigger(curves.group.follow)
        self.show_all = bind(QPushButton(), self._show_all)
        curves.group.following_changed.connect(self._on_following_changed)
        self._on_following_changed(True)  # full runs are shown at first
        self.acts = {
            "curves": Action(self, "save_curves", tr("&Curves as CSV…")),
            "table": Action(self, "save_table", tr("&Table as CSV…")),
            "image": Action(self, "save_image", tr("&Image as PNG…")),
        }
        self.save = create_save_button(tr("Save the comparison"), tr("Save curves or table"), self.acts.values())

    def _on_following_changed(self, is_following: bool) -> None:
        """Enable the command that shows the full runs if `is_following` is False: the user has zoomed or panned."""
        self._show_all.set_disabled_reason(tr("The full runs are shown") if is_following else "")
