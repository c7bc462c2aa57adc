"""Page with all runs: the queue, the list of runs, and the details of the selected run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from PySide6.QtCore import QModelIndex, QPoint, Qt, Signal
from PySide6.QtGui import QResizeEvent, QShowEvent
from PySide6.QtWidgets import QHBoxLayout, QPushButton, QSplitter, QStackedWidget, QWidget

from engine.runs.folder import RunFolder, RunSummary
from engine.runs.notes import tags_of
from engine.system import paths
from gui.actions import WITHIN, Action, append_key, bind
from gui.format import counted, localized
from gui.runs.actions import DeletingBar, RunActions
from gui.runs.details import Details
from gui.runs.filter_bar import FilterBar
from gui.runs.interrupted import InterruptedRuns
from gui.runs.queue_view import QueueView
from gui.runs.table import RunFilter, RunsModel, RunsTable
from gui.sources.active_runs import request_pause
from gui.sources.background import in_background
from gui.sources.notes_writer import NotesWriter
from gui.sources.resume_fork import CannotPrefill, Prefill, prefill_to_fork, prefill_to_resume
from gui.sources.run_list import RunList, RunListing
from gui.titles import list_unread_runs
from gui.translation import tr
from gui.widgets.banner import Banner
from gui.widgets.buttons import styled
from gui.widgets.file_dialogs import reveal
from gui.widgets.labels import EmptyState, heading_label, muted_label
from gui.widgets.layouts import hbox, vbox
from gui.widgets.run_drag import RunDrop

_EMPTY = tr(
    "No runs yet.\n\nGo to Train, fill in the form and press Train:\nevery run is listed here and can be reopened."
)
_NO_MATCH = tr("No runs match.\n\n“Show all” clears the search and the filters.")

_WIDE = 1350
"""Minimum width of the page in pixels for placing the details next to the list instead of below it."""
_SIZES = [690, 310]
"""Initial sizes of the list and the details, in proportion."""


class RunsPage(QWidget):
    """Page for searching, sorting, opening, renaming, pausing, resuming, forking and deleting runs.

    Signals:
        run_chosen(RunFolder): the user has opened a run.
        compare_requested(list[str]): the user wants to compare the runs with these ids.
        add_to_comparison_requested(list[str]): the user wants to add these runs to the comparison.
        resume_requested(RunFolder): the user wants to resume a run without changes.
        prefill_requested(Prefill): the user wants to resume or fork a run in the form.
        message(str): an error, or a notice that there are interrupted runs. The notice is emitted if the page is hidden
            when the runs are first read.
    """

    run_chosen = Signal(object)
    compare_requested = Signal(list)
    add_to_comparison_requested = Signal(list)
    resume_requested = Signal(object)
    prefill_requested = Signal(object)
    message = Signal(str)

    def __init__(self, run_list: RunList) -> None:
        super().__init__()
        styled(self, "panel")
        self.model = RunsModel(self)
        self.table = RunsTable(self.model)
        self.acts = RunActions(self.table, self)
        tip = tr("Show runs that match all words of the search")
        self.find_action = Action(self, "find_runs", tr("Find runs"), tip, "Ctrl+F", context=WITHIN)
        self.filters = FilterBar()
        self.interrupted = InterruptedRuns()
        self.queue = QueueView()
        self.details = Details((self.acts.resume, self.acts.change, self.acts.pause, self.acts.fork))
        self.deleting = DeletingBar()
        self.notes_writer = NotesWriter(self.model.find, self)
        self.run_list = run_list
        self.unread = Banner(name=tr("Runs that can't be read"))
        self._count = muted_label()
        self._empty = EmptyState(tr("Looking for runs…"))
        self._stack = QStackedWidget()
        self._halves = QSplitter(Qt.Orientation.Vertical)
        self._is_focus_pending = False  # True until the list can take the requested focus
        self._was_read = False  # True once all runs have been read
        self._lay_out()
        self._connect()
        self._connect_actions()

    def refresh(self) -> None:
        """Read the runs and the queue on worker threads."""
        self.run_list.refresh()
        self.queue.refresh()

    def add_button(self, action: Action) -> None:
        """Add a button for an action at the top of the page."""
        self._top.addWidget(bind(QPushButton(), action))

    def close_work(self) -> None:
        """Save the notes, and end background work when the window closes."""
        self.details.save()
        self.run_list.close()
        self.queue.close_work()
        self.notes_writer.close()
        self.deleting.close_work()

    def focus_list(self) -> None:
        """Focus the list of runs. If the list is still hidden because no run has been read, focus it once it is shown."""
        self._is_focus_pending = not self.table.isVisible()
        self.table.setFocus()

    def selected(self) -> list[RunSummary]:
        """Return the selected runs from top to bottom."""
        return self.table.selected()

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        if not event.spontaneous():
            self.refresh()

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        horizontal, vertical = Qt.Orientation.Horizontal, Qt.Orientation.Vertical
        is_wide = self.width() >= _WIDE
        if is_wide != (self._halves.orientation() == horizontal):
            self._halves.setOrientation(horizontal if is_wide else vertical)
            self._halves.setSizes(_SIZES)
            self.details.set_orientation(vertical if is_wide else horizontal)

    def _lay_out(self) -> None:
        self._top = hbox(
            heading_label(tr("Runs")), self._count, 1, self.filters.clear, self.filters.favorites, spacing=10
        )
        self._stack.addWidget(self._empty)
        self._stack.addWidget(self.table)
        self._halves.setChildrenCollapsible(False)
        self._halves.setHandleWidth(9)
        self._halves.addWidget(self._stack)
        self._halves.addWidget(self.details)
        self._halves.setSizes(_SIZES)
        self.panes = (self.queue, self.table, self.details)
        banners = (self.unread, self.interrupted, self.queue)
        rows = (self._top, self.filters, *banners, (self._halves, 1), self.deleting, self._create_bottom_row())
        self.setLayout(vbox(*rows, margins=(14, 10, 14, 10)))

    def _create_bottom_row(self) -> QHBoxLayout:
        """Create the row of buttons for the selected runs.

        Runs that are dropped on its Compare button join the comparison.
        """
        compare = RunDrop(bind(QPushButton(), self.acts.compare), lambda: self.run_list.known_ids)
        compare.setToolTip(tr("Drop runs here to add them to the comparison"))
        compare.dropped.connect(self.add_to_comparison_requested)
        folder, delete, show = (
            bind(QPushButton(), action) for action in (self.acts.folder, self.acts.delete, self.acts.show)
        )
        return hbox(folder, compare, delete, bind(QPushButton(), self.acts.undo, hide_disabled=True), 1, show)

    def _connect(self) -> None:
        self.run_list.found.connect(self._on_found)
        self.run_list.complete.connect(self._on_complete)
        self.run_list.failed.connect(self._on_failed)
        self.destroyed.connect(self.run_list.close)
        self.filters.changed.connect(self._set_filter)
        self.table.selectionModel().selectionChanged.connect(self._on_selection_changed)
        self.table.opened.connect(self._show_run)
        self.table.customContextMenuRequested.connect(self._open_menu)
        self.model.renamed.connect(lambda run_id, name: self._change_notes([run_id], name=name))
        self.interrupted.resume.connect(self._resume)
        self.interrupted.delete.connect(lambda run_id: self._ask_to_delete([run_id]))
        self.interrupted.dismissed.connect(lambda run_id: self._change_notes([run_id], set_aside=True))
        self.interrupted.show_all.connect(self.filters.show_interrupted)
        self.queue.message.connect(self.message)
        self.queue.changed.connect(self.refresh)
        self.queue.run_chosen.connect(self.run_chosen)
        self.details.fork_requested.connect(self._fork)
        self.details.noted.connect(lambda run, changes: self.notes_writer.change(run, **changes))
        self.notes_writer.written.connect(self._on_noted)
        self.notes_writer.failed.connect(self.message)
        self.deleting.changed.connect(self.refresh)
        self.deleting.changed.connect(
            lambda: self.acts.undo.set_disabled_reason("" if self.deleting.can_undo else tr("Nothing has been deleted"))
        )
        self.deleting.closed.connect(self.table.setFocus)

    def _connect_actions(self) -> None:
        acts = self.acts
        self.find_action.on_trigger(self._focus_search)
        self.find_action.changed.connect(self._update_search_tip)
        self._update_search_tip()
        acts.undo.on_trigger(self.deleting.undo)
        acts.tag_changed.connect(self._change_tags)
        acts.show.on_trigger(lambda: self._show_run(self.table.currentIndex()))
        acts.folder.on_trigger(self._open_folder)
        acts.resume.on_trigger(lambda: self._resume(self.selected()[0].run_id))
        acts.change.on_trigger(lambda: self._prefill(self.selected()[0].run_id, prefill_to_resume))
        acts.pause.on_trigger(lambda: self._pause(self.selected()[0].run_id))
        acts.fork.on_trigger(lambda: self._fork(self.selected()[0].run_id))
        acts.compare.on_trigger(lambda: self.compare_requested.emit([run.run_id for run in self.selected()]))
        acts.favorite.on_trigger(self._set_favorite)
        acts.rename.on_trigger(self.table.rename)
        acts.delete.on_trigger(lambda: self._ask_to_delete([run.run_id for run in self.selected()]))

    def _on_found(self, runs: list[RunSummary]) -> None:
        """Add new runs to the list and update changed ones, without moving the visible rows."""
        with self.table.holding_position():
            self.model.merge(runs)
        self._update()

    def _on_complete(self, listing: RunListing) -> None:
        """List the runs that were read, and remove deleted ones.

        If the page is hidden when the runs are first read, a message names those that were interrupted.
        """
        with self.table.holding_position():
            self.model.keep_only([run.run_id for run in listing.runs])
        self._empty.setText(_EMPTY)
        self._update()
        self._update_filters_and_banners()
        self.table.fit()
        if not self._was_read and not self.isVisible():
            self._report_interrupted()
        self._was_read = True
        self.unread.show_message(list_unread_runs(listing.unread))
        self.queue.refresh()  # also while the page is hidden, since a command needs to know if runs are queued

    def _report_interrupted(self) -> None:
        """Emit a message about the interrupted runs, if there are any."""
        count = self.interrupted.count
        if count:
            text = (
                tr("{count} was interrupted. {runs} shows what it was doing and how to resume.")
                if count == 1
                else tr("{count} were interrupted. {runs} shows what they were doing and how to resume.")
            )
            self.message.emit(text.format(count=counted(count, "run"), runs=append_key(tr("Runs"), "runs_page")))

    def _on_noted(self, run: RunSummary) -> None:
        """Show the stored notes of a run in the list, the filters and the banners."""
        self._on_found([run])
        self._update_filters_and_banners()

    def _update_filters_and_banners(self) -> None:
        self.filters.set_runs(self.model.runs)
        self.interrupted.show_runs(self.model.runs)

    def _on_failed(self, reason: str) -> None:
        """Report that the runs folder can't be read. Known runs remain in the list."""
        text = tr("The list of runs can't be read: {reason}.").format(reason=reason)
        self.unread.show_message(text)
        self._empty.setText(tr("{text}\n\nFix this, or set FOOTPLATE_HOME to another folder.").format(text=text))
        self._update()

    def _set_filter(self, run_filter: RunFilter) -> None:
        self.model.set_filter(run_filter)
        self._update()

    def _update(self) -> None:
        """Update the number of runs, the text for an empty list, and the details of the selected run."""
        total, matching = len(self.model.runs), self.model.rowCount()
        if matching == total:
            self._count.setText(localized(total) if total else "")
        else:
            self._count.setText(
                tr("{matching} of {total}").format(matching=localized(matching), total=localized(total))
            )
        if total and not matching:
            self._empty.setText(_NO_MATCH)
        self._stack.setCurrentWidget(self.table if matching else self._empty)
        if self._is_focus_pending and self.table.isVisible():
            self._is_focus_pending = False
            self.table.setFocus()
        for widget in (self.filters, self.filters.favorites, self.details):
            widget.setVisible(total > 0)
        self._on_selection_changed()

    def _on_selection_changed(self) -> None:
        """Enable the actions that apply to the selected runs, and show the details of a single one."""
        selected = self.selected()
        self.acts.set_runs(selected)
        self.acts.folder.setToolTip(selected[0].folder if len(selected) == 1 else str(paths.runs_folder()))
        self.details.show_runs(selected)

    def _show_run(self, index: QModelIndex) -> None:
        if index.isValid():
            self.run_chosen.emit(RunFolder(Path(self.model.rows[index.row()].folder)))

    def _open_folder(self) -> None:
        selected = self.selected()
        reveal(Path(selected[0].folder) if len(selected) == 1 else paths.runs_folder())

    def _resume(self, run_id: str) -> None:
        run = self.model.find(run_id)
        if run is not None:
            self.resume_requested.emit(RunFolder(run.folder))

    def _pause(self, run_id: str) -> None:
        """Ask the supervisor of a run to pause it, on a worker thread."""
        in_background(
            lambda: request_pause(run_id),
            self,
            lambda _run: self.refresh(),
            lambda error: self.message.emit(tr("Couldn't pause {run_id}: {error}").format(run_id=run_id, error=error)),
        )

    def fork(self, run: RunFolder) -> None:
        """Prefill the form with a new run that starts from the last checkpoint of `run`.

        The run doesn't need to be in the list of runs.
        """
        in_background(
            lambda: prefill_to_fork(run.summary()), self, self.prefill_requested.emit, self._on_prefill_failed
        )

    def _fork(self, run_id: str, checkpoint: Path | None = None) -> None:
        self._prefill(run_id, lambda run: prefill_to_fork(run, checkpoint))

    def _prefill(self, run_id: str, prepare: Callable[[RunSummary], Prefill]) -> None:
        """Call `prepare` with the run `run_id`, on a worker thread, and emit `prefill_requested` with the result."""
        run = self.model.find(run_id)
        if run is not None:
            in_background(lambda: prepare(run), self, self.prefill_requested.emit, self._on_prefill_failed)

    def _on_prefill_failed(self, error: Exception) -> None:
        if not isinstance(error, CannotPrefill):
            raise error
        self.message.emit(str(error))

    def _ask_to_delete(self, run_ids: list[str]) -> None:
        runs = [self.model.find(run_id) for run_id in run_ids]
        self.deleting.ask([run for run in runs if run is not None])

    def _change_notes(self, run_ids: list[str], **changes: object) -> None:
        """Store changes to fields of the runs' `RunNotes` on a worker thread."""
        for run_id in run_ids:
            run = self.model.find(run_id)
            if run is not None:
                self.notes_writer.change(run, **changes)

    def _set_favorite(self) -> None:
        """Mark the selected runs as favorites if the favorite action is checked, otherwise remove the mark."""
        favorite = self.acts.favorite.isChecked()
        self._change_notes([run.run_id for run in self.selected() if run.favorite != favorite], favorite=favorite)

    def _change_tags(self, text: str, is_added: bool) -> None:
        """Add the tags in `text`, separated by commas, to the selected runs if `is_added`, otherwise remove them."""
        changed = tags_of(text)
        for run in self.selected():
            others = tuple(tag for tag in run.tags if tag not in changed)
            self._change_notes([run.run_id], tags=(*others, *changed) if is_added else others)

    def _open_menu(self, position: QPoint) -> None:
        known_tags = sorted({tag for run in self.model.runs for tag in run.tags})
        self.acts.create_menu(self.selected(), known_tags).popup(self.table.viewport().mapToGlobal(position))

    def _update_search_tip(self) -> None:
        self.filters.text.setToolTip(self.find_action.toolTip())

    def _focus_search(self) -> None:
        self.filters.text.setFocus()
        self.filters.text.selectAll()
