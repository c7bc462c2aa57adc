"""Page for searches: the list of searches, the view of one search, and the form for a new one."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QHideEvent, QShowEvent
from PySide6.QtWidgets import QPushButton, QStackedWidget, QWidget

from engine.contract.search import Search, Status
from engine.runs.folder import RunFolder
from engine.runs.searches import SearchFolder, create_search, start_driver, stop_driver
from engine.system import paths
from engine.system.format import NOT_KNOWN, duration, listed
from gui.actions import Action, bind, create_back_action
from gui.format import format_date_and_time, localized
from gui.search.search_form import SearchForm
from gui.search.search_view import STATUS, SearchView
from gui.sources.background import describe_error, in_background, reraise
from gui.sources.searches import SearchData, Searches, SearchLine, format_goal_value
from gui.style.icons import icon
from gui.translation import tr
from gui.widgets.banner import Banner
from gui.widgets.buttons import styled
from gui.widgets.column_model import select_row
from gui.widgets.labels import heading_label, muted_label
from gui.widgets.layouts import hbox, vbox
from gui.widgets.row_model import Column, RowModel, RowTable

_EMPTY = tr(
    "No searches yet.\n\nA search trains the job in the form many times\nwith different settings, and finds the best."
)
NONE, LIST, SEARCH, FORM = range(4)
"""Indices of the stacked pages: no searches, the list of searches, one search, the form."""


class SearchPage(QWidget):
    """Page for searches, which are polled while it is visible.

    Signals:
        run_chosen(RunFolder): the user has opened a run.
        compare_requested(list[str]): the user wants to compare the runs with these ids.
        train_requested(Job): the user wants to start a regular run.
        job_opened(Job): a SPACE.toml with a job has been opened.
        message(str, str): a message for the user and its severity, "info" or "warning".
    """

    run_chosen = Signal(object)
    compare_requested = Signal(list)
    train_requested = Signal(object)
    job_opened = Signal(object)
    message = Signal(str, str)

    def __init__(self) -> None:
        super().__init__()
        styled(self, "panel", name=tr("Search page"))
        self.source = Searches(self)
        self.model = SearchesModel(self)
        self.list = RowTable(self.model, tr("Searches"))
        self.list.horizontalHeader().setStretchLastSection(True)
        self.view = SearchView()
        self.form = SearchForm()
        self.leave = create_back_action(self, "leave_search", tr("Back to the list of searches"))
        self.new = Action(self, "new_search", tr("New search…"), tr("Search the settings of the job in the form"))
        self.title = heading_label(tr("Searches"))
        self.notice = Banner(name=tr("About the searches"), close=tr("Dismiss the notice"))
        self.new_button = bind(QPushButton(), self.new)
        self.first_button = bind(QPushButton(), self.new, tr("Create the first search"))
        self.stack = QStackedWidget()
        self._is_listed = False  # True once the list of searches has been read
        self._lay_out()
        self._connect()

    def show_list(self) -> None:
        """Close the opened search and show the list of searches."""
        self.source.open("")
        self.view.clear()
        self.notice.hide()
        self._show_page(LIST if self.model.rows or not self._is_listed else NONE)
        (self.first_button if self.stack.currentIndex() == NONE else self.list).setFocus()

    def show_search(self, name: str) -> None:
        """Start to follow the search `name`. It is shown once it has been read."""
        self.view.clear()
        self.notice.hide()
        self.source.open(name)

    def close_work(self) -> None:
        """End background work when the window closes. Searches continue."""
        self.source.close()
        self.form.close_work()

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        self.source.start()

    def hideEvent(self, event: QHideEvent) -> None:
        super().hideEvent(event)
        self.source.stop()

    def _lay_out(self) -> None:
        for page in (self._create_empty_page(), self.list, self.view, self.form):
            self.stack.addWidget(page)
        back = bind(QPushButton(), self.leave, tr("Back to the searches"), hide_disabled=True)
        top = hbox(back, (self.title, 1), self.new_button, spacing=10)
        self.setLayout(vbox(top, self.notice, (self.stack, 1), margins=(14, 10, 14, 10)))
        self.panes = (self.stack,)
        self._show_page(LIST)

    def _create_empty_page(self) -> QWidget:
        """Create the page that is shown while there are no searches, with a button that creates one."""
        text = muted_label(_EMPTY)
        text.setAlignment(Qt.AlignmentFlag.AlignCenter)
        page = QWidget()
        page.setLayout(vbox(1, text, hbox(1, self.first_button, 1), 2, spacing=14))
        return page

    def _connect(self) -> None:
        self.source.listed.connect(self._on_listed)
        self.source.loaded.connect(self._on_loaded)
        self.source.lost.connect(self._on_lost)
        self.leave.on_trigger(self.show_list)
        self.new.on_trigger(self._show_new_form)
        self.list.opened.connect(lambda index: self.show_search(self.model.rows[index.row()].name))
        self.form.start_requested.connect(self._start)
        self.form.job_opened.connect(self.job_opened)
        self.form.message.connect(self.message)
        self.view.run_chosen.connect(self._open_run)
        self.view.compare_requested.connect(self.compare_requested)
        self.view.train_requested.connect(self.train_requested)
        self.view.pause_requested.connect(
            lambda: self._call_with_search(tr("Couldn't pause the search: {error}."), stop_driver)
        )
        self.view.continue_requested.connect(
            lambda: self._call_with_search(tr("Couldn't continue the search: {error}."), start_driver)
        )
        self.view.change_requested.connect(self._show_change_form)

    def _on_listed(self, lines: list[SearchLine]) -> None:
        """Update the list of searches. A visible search or form stays visible.

        When the list is first filled, its columns are fitted to their contents and the first row is selected.
        """
        is_first = bool(lines) and not self.model.rows
        self._is_listed = True
        self.model.set_rows(lines)
        if is_first:
            self.list.fit()
            select_row(self.list, 0)
        if self.stack.currentIndex() in (NONE, LIST):
            self._show_page(LIST if lines else NONE)

    def _on_loaded(self, data: SearchData) -> None:
        """Show new data of the opened search, and switch to its view when it is first read."""
        self.view.show_data(data)
        self.title.setText(data.folder.name)
        if self.stack.currentIndex() != SEARCH:
            self._show_page(SEARCH)
            self.view.table.setFocus()

    def _on_lost(self, reason: str) -> None:
        """Show the list of searches, because the opened search can't be read."""
        self.show_list()
        self.notice.show_message(reason)

    def _show_page(self, page: int) -> None:
        """Show the page at the index `page` of the stack, with its title, and enable the actions that apply to it."""
        self.stack.setCurrentIndex(page)
        self.new_button.setVisible(page in (LIST, SEARCH))
        self.leave.set_disabled_reason("" if page in (SEARCH, FORM) else tr("The list is already shown"))
        if page in (NONE, LIST):
            self.title.setText(tr("Searches"))

    def _show_new_form(self) -> None:
        """Show the form for a new search. It keeps the values that were entered before."""
        self.notice.hide()
        self.form.reset({line.name for line in self.model.rows})
        self._show_form(tr("New search"), "name")

    def _show_change_form(self) -> None:
        """Show the form with the values of the visible search, in which the user can change and continue it."""
        if self.view.data is not None:
            self.form.show_search(self.view.data.search)
            self._show_form(tr("Change {name}").format(name=self.view.data.folder.name), "trials")

    def _show_form(self, title: str, field: str) -> None:
        """Close the open search, show the form with `title`, and focus its field with the name `field`."""
        self.source.open("")
        self.title.setText(title)
        self._show_page(FORM)
        self.form.focus_field(field)

    def _start(self, search: Search) -> None:
        """Create or update the folder of a search and start its process on a worker thread, then show the search."""

        def start() -> SearchFolder:
            folder = create_search(search)
            start_driver(folder)
            return folder

        in_background(
            start,
            self,
            lambda folder: self.show_search(folder.name),
            partial(self._on_failed, tr("Couldn't start the search: {error}.")),
        )

    def _call_with_search(self, failure: str, function: Callable[[SearchFolder], object]) -> None:
        """Call `function` with the visible search on a worker thread, then refresh the data.

        `failure` is the message for an error, with "{error}" for its description.
        """
        if self.view.data is not None:
            self.notice.hide()
            folder = self.view.data.folder
            failed = partial(self._on_failed, failure)
            in_background(lambda: function(folder), self, lambda _result: self.source.refresh(), failed)

    def _on_failed(self, failure: str, error: Exception) -> None:
        """Show why an action on a search failed, and raise `error` unless it is an OSError.

        `failure` is the message, with "{error}" for the description of the error.
        """
        self.notice.show_message(failure.format(error=describe_error(error)), "error")
        if not isinstance(error, OSError):
            raise error

    def _open_run(self, run_id: str) -> None:
        """Emit `run_chosen` with a run of this machine. If its folder is gone, show a notice."""
        run = RunFolder(paths.runs_folder() / run_id)
        in_background(run.path.is_dir, self, partial(self._on_run_found, run), reraise)

    def _on_run_found(self, run: RunFolder, exists: bool) -> None:
        """Emit `run_chosen` with the run if it exists, otherwise show a notice."""
        if exists:
            self.run_chosen.emit(run)
        else:
            self.notice.show_message(
                tr("The run {run_id} is gone: its folder was moved or deleted.").format(run_id=run.run_id)
            )


_ICONS: dict[Status, tuple[str, str]] = {
    "running": ("right", "accent"),
    "completed": ("ok", "ok"),
    "stopped": ("pause", "text"),
    "failed": ("error", "error"),
    "interrupted": ("warning", "warning"),
}
_STATE = 1


def _format_trials(line: SearchLine) -> str:
    """Return the number of ended trials and, if it is limited, the total number."""
    ended, total = line.state.originals_ended, line.state.originals_total
    return f"{localized(ended)} / {localized(total)}" if total else localized(ended)


def _format_best(line: SearchLine) -> str:
    """Return the best result of a search, or a dash if there is none or if several trials are on the Pareto front."""
    if line.search is None or len(line.state.front) > 1:
        return NOT_KNOWN
    return format_goal_value(line.search.goals[0], line.state.best_value)


def _format_time_left(line: SearchLine) -> str:
    return duration(line.state.seconds_left) if line.status == "running" else NOT_KNOWN


COLUMNS: tuple[Column[SearchLine], ...] = (
    Column(tr("Search"), lambda line: line.name),
    Column(tr("State"), lambda line: STATUS[line.status] if line.search is not None else tr("Can't be read")),
    Column(tr("Trials"), _format_trials, is_numeric=True),
    Column(
        tr("Best"),
        _format_best,
        is_numeric=True,
        help=tr("Result of the best trial: its mean over other seeds, once confirmed"),
    ),
    Column(tr("Goal"), lambda line: listed(goal.title for goal in line.search.goals) if line.search else NOT_KNOWN),
    Column(tr("Time left"), _format_time_left, is_numeric=True),
    Column(tr("Changed"), lambda line: format_date_and_time(line.changed)),
)


class SearchesModel(RowModel[SearchLine]):
    """Model of all searches, newest first."""

    columns = COLUMNS

    def key_of(self, row: SearchLine) -> str:
        return row.name

    def cell_data(self, row: SearchLine, column: int, role: int) -> Any:
        """Return a search's problem, or else its folder, as the tool tip, or its icon for the state column."""
        if role == Qt.ItemDataRole.ToolTipRole:
            return row.why or row.state.cause or str(row.folder.path)
        if role == Qt.ItemDataRole.DecorationRole and column == _STATE:
            return icon(*_ICONS[row.status]) if row.search is not None else icon("error", "error")
        return None
