"""The list of runs, past and present."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from PySide6.QtCore import QModelIndex, QPoint, Qt, Signal
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QHBoxLayout, QLabel, QPushButton, QSplitter, QStackedWidget, QVBoxLayout, QWidget

from engine.runs.folder import RunFolder, RunSummary
from engine.runs.notes import tags_of
from engine.system import paths
from gui.actions import WITHIN, Action, bind, with_key
from gui.format import counted, localised
from gui.runs.actions import RunActions
from gui.runs.deleting import DeletingBar
from gui.runs.details import Details
from gui.runs.filter_bar import FilterBar
from gui.runs.interrupted import InterruptedRuns
from gui.runs.model import RunsModel
from gui.runs.orphans import Orphans
from gui.runs.queue_view import QueueView
from gui.runs.run_filter import RunFilter
from gui.runs.table import RunsTable
from gui.sources.active_runs import ask_to_pause
from gui.sources.background import in_background
from gui.sources.notes_writer import NotesWriter
from gui.sources.prefill import Prefill
from gui.sources.resume_fork import CannotPrefill, to_fork, to_resume
from gui.sources.run_list import RunList, RunsRead
from gui.titles import unread_words
from gui.widgets.banner import Banner
from gui.widgets.empty_state import EmptyState
from gui.widgets.file_dialogs import reveal
from gui.widgets.run_drag import RunDrop

_EMPTY = "No runs yet.\n\nGo to Train, fill in the form and press Train:\nevery run is listed here and can be reopened."
_NOTHING_LIKE_THAT = "No runs match.\n\n“Show all” clears the search and the filters."

_WIDE = 1350
"""From this width on, in pixels, the details stand beside the list rather than below it."""

_SHARES = [690, 310]
"""How the list and the details share the room at first."""


class RunsPage(QWidget):
    """Searches, sorts, opens, names, pauses, resumes, forks and deletes runs.

    Signals:
        run_chosen(RunFolder): a run is to be shown.
        compare_wanted(list[str]): the runs of those ids are to be compared.
        compare_also(list[str]): the runs of those ids are to be added to what is compared.
        searches_wanted(): the searches over settings are to be shown.
        resume_wanted(RunFolder): that run is to go on as it is.
        prefill_requested(Prefill): the form is to show that job, to resume or fork its run.
        message(str): something that went wrong, in words for the user; when the list has first been read out of sight, that
            runs were interrupted.
    """

    run_chosen = Signal(object)
    compare_wanted = Signal(list)
    compare_also = Signal(list)
    searches_wanted = Signal()
    resume_wanted = Signal(object)
    prefill_requested = Signal(object)
    message = Signal(str)

    def __init__(self, runs: RunList | None = None, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("panel")
        self.setAttribute(Qt.WidgetAttribute.WA_StyledBackground)
        self.model = RunsModel(self)
        self.table = RunsTable(self.model)
        self.acts = RunActions(self.table, self)
        self.searches = Action(self, "searches", "Searches", "Shows the searches over settings, or makes one")
        self.filters = FilterBar()
        self.interrupted = InterruptedRuns()
        self.orphans = Orphans()
        self.queue = QueueView()
        self.details = Details((self.acts.resume, self.acts.change, self.acts.pause, self.acts.fork))
        self.deleting = DeletingBar()
        self.notes_writer = NotesWriter(self.model.find, self)
        self._count = QLabel()
        self._count.setObjectName("muted")
        self.unread = Banner(name="Runs that can't be read")
        self._empty = EmptyState("Looking for runs …")
        self._stack = QStackedWidget()
        self._halves = QSplitter(Qt.Orientation.Vertical)
        self._summaries = runs or RunList(self)
        self._read_before = False
        self._lay_out()
        self._connect()

    def refresh(self) -> None:
        """Reads the list anew, in the background."""
        self._summaries.refresh()
        self.look_around()

    def offer(self, action: Action) -> None:
        """Adds a button for a command of the window."""
        self._top.addWidget(bind(QPushButton(), action))

    def look_around(self) -> None:
        """Looks for runs in line and for workers without a supervisor, in the background."""
        self.queue.look()
        self.orphans.look()

    def close_work(self) -> None:
        """Ends what goes on in the background, and has what was typed written first."""
        self.details.keep()
        self._summaries.close()
        self.queue.close_work()
        self.orphans.close_work()
        self.notes_writer.close()
        self.deleting.close_work()

    def selected(self) -> list[RunSummary]:
        """The runs that are chosen, from the top."""
        return self.table.selected()

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        way = Qt.Orientation.Horizontal if self.width() >= _WIDE else Qt.Orientation.Vertical
        if way != self._halves.orientation():
            self._halves.setOrientation(way)
            self._halves.setSizes(_SHARES)
            self.details.set_beside(way == Qt.Orientation.Horizontal)

    # Making it

    def _lay_out(self) -> None:
        heading = QLabel("Runs")
        heading.setObjectName("heading")
        self._top = top = QHBoxLayout()
        top.setSpacing(10)
        top.addWidget(heading)
        top.addWidget(self._count)
        top.addStretch(1)
        self.searches.on_trigger(self.searches_wanted.emit)
        top.addWidget(bind(QPushButton(), self.searches))
        top.addWidget(self.filters.clear)
        top.addWidget(self.filters.favourites)
        self._stack.addWidget(self._empty)
        self._stack.addWidget(self.table)
        self._halves.setChildrenCollapsible(False)
        self._halves.setHandleWidth(9)
        self._halves.addWidget(self._stack)
        self._halves.addWidget(self.details)
        self._halves.setSizes(_SHARES)
        bottom = QHBoxLayout()
        bottom.setSpacing(8)
        compare = RunDrop(bind(QPushButton(), self.acts.compare))
        compare.setToolTip("Drop runs here to add them to the comparison")
        compare.dropped.connect(self.compare_also)
        for widget in (
            bind(QPushButton(), self.acts.folder), compare, bind(QPushButton(), self.acts.delete),
            bind(QPushButton(), self.acts.undo, offered=True),
        ):  # fmt: skip
            bottom.addWidget(widget)
        bottom.addStretch(1)
        bottom.addWidget(bind(QPushButton(), self.acts.show))
        layout = QVBoxLayout(self)
        layout.setContentsMargins(14, 10, 14, 10)
        layout.setSpacing(8)
        layout.addLayout(top)
        layout.addWidget(self.filters)
        layout.addWidget(self.unread)
        layout.addWidget(self.orphans)
        layout.addWidget(self.interrupted)
        layout.addWidget(self.queue)
        layout.addWidget(self._halves, 1)
        layout.addWidget(self.deleting)
        layout.addLayout(bottom)

    def _connect(self) -> None:
        self._summaries.found.connect(self._found)
        self._summaries.complete.connect(self._complete)
        self._summaries.failed.connect(self._failed)
        self.destroyed.connect(self._summaries.close)
        self.filters.changed.connect(self._choose_runs)
        self.table.selectionModel().selectionChanged.connect(self._selection_changed)
        self.table.chosen.connect(self._show_run)
        self.table.customContextMenuRequested.connect(self._open_menu)
        self.model.renamed.connect(self._rename)
        self.interrupted.resume.connect(self._resume)
        self.interrupted.delete.connect(lambda run_id: self._ask_to_delete([run_id]))
        self.interrupted.set_aside.connect(lambda run_id: self._note([run_id], set_aside=True))
        self.interrupted.show_all.connect(self.filters.show_interrupted)
        self.orphans.message.connect(self.message)
        self.queue.message.connect(self.message)
        self.queue.changed.connect(self.refresh)
        self.queue.run_chosen.connect(self.run_chosen)
        self.details.fork_wanted.connect(self._fork)
        self.details.noted.connect(lambda run, changes: self.notes_writer.change(run, **changes))
        self.notes_writer.written.connect(self._noted)
        self.notes_writer.failed.connect(self.message)
        self.deleting.changed.connect(self.refresh)
        self.deleting.changed.connect(lambda: self.acts.undo.allow(self.deleting.why_no_undo))
        self.acts.undo.on_trigger(self.deleting.undo)
        self.deleting.closed.connect(self.table.setFocus)
        self.acts.tag_wanted.connect(self._tag)
        self.acts.show.on_trigger(lambda: self._show_run(self.table.currentIndex()))
        self.acts.folder.on_trigger(self._open_folder)
        self.acts.resume.on_trigger(lambda: self._resume(self.selected()[0].run_id))
        self.acts.change.on_trigger(lambda: self._prefill(self.selected()[0].run_id, to_resume))
        self.acts.pause.on_trigger(lambda: self._pause(self.selected()[0].run_id))
        self.acts.fork.on_trigger(lambda: self._fork(self.selected()[0].run_id))
        self.acts.compare.on_trigger(lambda: self.compare_wanted.emit([run.run_id for run in self.selected()]))
        self.acts.favourite.on_trigger(self._favour)
        self.acts.rename.on_trigger(self.table.rename)
        self.acts.delete.on_trigger(lambda: self._ask_to_delete([run.run_id for run in self.selected()]))
        Action(self, "find_runs", "Find runs", "Goes to the search", "Ctrl+F", context=WITHIN).on_trigger(
            self._go_to_search
        )

    # The list

    def _found(self, runs: list[RunSummary]) -> None:
        with self.table.holding_position():
            self.model.merge(runs)
        self._show_all()

    def _complete(self, read: RunsRead) -> None:
        with self.table.holding_position():
            self.model.keep_only([run.run_id for run in read.runs])
        self._empty.setText(_EMPTY)
        self._show_all()
        self._show_around()
        self.table.fit()
        if not self._read_before and not self.isVisible():
            self._tell_of_interrupted()
        self._read_before = True
        self.unread.say(unread_words(read.unread))
        if self.isVisible():
            self.look_around()

    def _tell_of_interrupted(self) -> None:
        count = self.interrupted.count
        if count:
            runs = with_key("Runs", "runs_page")
            state = (
                f"was interrupted. {runs} shows what it was doing"
                if count == 1
                else f"were interrupted. {runs} shows what they were doing"
            )
            self.message.emit(f"{counted(count, 'run')} {state} and how to resume.")

    def _noted(self, run: RunSummary) -> None:
        self._found([run])
        self._show_around()

    def _show_around(self) -> None:
        """Renews what stands above the list and is gathered from all runs."""
        self.filters.offer(self.model.runs)
        self.interrupted.show_runs(self.model.runs)

    def _failed(self, why: str) -> None:
        """The runs that were last known stay in the list."""
        words = f"The list of runs can't be read: {why}."
        self.unread.say(words)
        self._empty.setText(f"{words}\n\nFix this, or set FOOTPLATE_HOME to another folder.")
        self._show_all()

    def _choose_runs(self, wanted: RunFilter) -> None:
        self.model.choose(wanted)
        self._show_all()

    def _show_all(self) -> None:
        """Says how many there are, and shows what is chosen as it now stands."""
        total, shown = len(self.model.runs), self.model.rowCount()
        if shown == total:
            self._count.setText(localised(total) if total else "")
        else:
            self._count.setText(f"{localised(shown)} of {localised(total)}")
        if total and not shown:
            self._empty.setText(_NOTHING_LIKE_THAT)
        self._stack.setCurrentWidget(self.table if shown else self._empty)
        for widget in (self.filters, self.filters.favourites, self.details):
            widget.setVisible(total > 0)
        self._selection_changed()

    def _selection_changed(self) -> None:
        chosen = self.selected()
        self.acts.choose(chosen)
        self.acts.folder.setToolTip(chosen[0].folder if len(chosen) == 1 else str(paths.runs_folder()))
        self.details.show_runs(chosen)

    # What is done with runs

    def _show_run(self, index: QModelIndex) -> None:
        if index.isValid():
            self.run_chosen.emit(RunFolder(Path(self.model.run(index.row()).folder)))

    def _open_folder(self) -> None:
        chosen = self.selected()
        reveal(Path(chosen[0].folder) if len(chosen) == 1 else paths.runs_folder())

    def _resume(self, run_id: str) -> None:
        run = self.model.find(run_id)
        if run is not None:
            self.resume_wanted.emit(RunFolder(run.folder))

    def _pause(self, run_id: str) -> None:
        in_background(
            lambda: ask_to_pause(run_id),
            self,
            lambda _run: self.refresh(),
            lambda error: self.message.emit(f"Could not pause {run_id}: {error}"),
        )

    def fork(self, run: RunFolder) -> None:
        """Has a new run put into the form that starts from the last checkpoint of `run`, in the list or not."""
        in_background(lambda: to_fork(run.summary()), self, self.prefill_requested.emit, self._not_prefilled)

    def _fork(self, run_id: str, checkpoint: Path | None = None) -> None:
        self._prefill(run_id, lambda run: to_fork(run, checkpoint))

    def _prefill(self, run_id: str, make: Callable[[RunSummary], Prefill]) -> None:
        """Has the run's job put into the form, as `make` prepares it."""
        run = self.model.find(run_id)
        if run is not None:
            in_background(lambda: make(run), self, self.prefill_requested.emit, self._not_prefilled)

    def _not_prefilled(self, error: Exception) -> None:
        if not isinstance(error, CannotPrefill):
            raise error
        self.message.emit(str(error))

    def _ask_to_delete(self, run_ids: list[str]) -> None:
        self.deleting.ask([run for run_id in run_ids if (run := self.model.find(run_id)) is not None])

    def _note(self, run_ids: list[str], **changes: object) -> None:
        for run_id in run_ids:
            run = self.model.find(run_id)
            if run is not None:
                self.notes_writer.change(run, **changes)

    def _rename(self, run_id: str, name: str) -> None:
        self._note([run_id], name=name)

    def _favour(self) -> None:
        favourite = self.acts.favourite.isChecked()
        self._note([run.run_id for run in self.selected() if run.favourite != favourite], favourite=favourite)

    def _tag(self, text: str, wanted: bool) -> None:
        meant = tags_of(text)
        for run in self.selected():
            others = tuple(tag for tag in run.tags if tag not in meant)
            self._note([run.run_id], tags=(*others, *meant) if wanted else others)

    def _open_menu(self, where: QPoint) -> None:
        known = sorted({tag for run in self.model.runs for tag in run.tags})
        self.acts.menu(self.selected(), known).popup(self.table.viewport().mapToGlobal(where))

    def _go_to_search(self) -> None:
        self.filters.text.setFocus()
        self.filters.text.selectAll()
