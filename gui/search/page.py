"""The page Search: all searches, one of them, and the form of a new one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QHideEvent, QShowEvent
from PySide6.QtWidgets import QHBoxLayout, QHeaderView, QLabel, QPushButton, QStackedWidget, QVBoxLayout, QWidget

from engine.contract.dataset import DatasetReport
from engine.contract.job import Job
from engine.contract.problems import Problem
from engine.contract.search import Search
from engine.runs.folder import RunFolder
from engine.runs.searches import SearchFolder, create_search, start_driver, stop_driver
from engine.system import paths
from gui.actions import Action, back_action, bind
from gui.search.search_form import SearchForm
from gui.search.search_list import SearchesModel
from gui.search.search_view import SearchView
from gui.search.trials_table import SearchTable
from gui.sources.background import describe_error, in_background
from gui.sources.search_data import SearchData
from gui.sources.searches import Searches, SearchLine
from gui.widgets.banner import Banner

EMPTY = (
    "No searches yet.\n\nA search trains the job in the form many times,\neach with other settings, and finds the best."
)
NONE, LIST, ONE, FORM = range(4)


class SearchPage(QWidget):
    """Follows the searches while it is in sight.

    Signals:
        closed(): back to the page before.
        run_chosen(RunFolder): a run is to be shown.
        compare_requested(list[str]): the runs of those ids are to be compared.
        train_requested(Job): an ordinary run is to be started.
        job_opened(Job): the job of a SPACE.toml is to be put into the form.
        message(str, str): in plain words, what was done or why not; "info" or "warning".
    """

    closed = Signal()
    run_chosen = Signal(object)
    compare_requested = Signal(list)
    train_requested = Signal(object)
    job_opened = Signal(object)
    message = Signal(str, str)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("panel")
        self.setAttribute(Qt.WidgetAttribute.WA_StyledBackground)
        self.setAccessibleName("Search page")
        self.source = Searches(self)
        self.model = SearchesModel(self)
        self.list = SearchTable(self.model, "Searches")
        self.list.horizontalHeader().setSectionResizeMode(0, QHeaderView.ResizeMode.Stretch)  # the names
        self.view = SearchView()
        self.form = SearchForm()
        self.leave = back_action(self, "leave_search", "Back")
        self.back = bind(QPushButton(), self.leave, "Back from the searches")
        self.new = Action(self, "new_search", "New search …", "Searches the settings of the job in the form")
        self.title = QLabel("Searches")
        self.title.setObjectName("heading")
        self.notice = Banner(name="About the searches", close="Dismiss the notice")
        self.empty_button = bind(QPushButton(), self.new, "Make the first search")
        self.stack = QStackedWidget()
        self._read = False
        self._lay_out()
        self._connect()

    def set_job(
        self,
        job: Job | None,
        problems: list[Problem],
        devices: tuple[str, ...],
        names: Mapping[str, str],
        report: DatasetReport | None,
    ) -> None:
        """The job in the window's form; see `SearchForm.set_job`."""
        self.form.set_job(job, problems, devices, names, report)

    def show_list(self) -> None:
        """Shows all searches."""
        self.source.open("")
        self.view.clear()
        self.notice.hide()
        self._go_to(LIST if self.model.lines or not self._read else NONE)
        (self.empty_button if self.stack.currentIndex() == NONE else self.list).setFocus()

    def show_search(self, name: str) -> None:
        """Shows one search, and follows it."""
        self.view.clear()
        self.notice.hide()
        self.source.open(name)

    def close_work(self) -> None:
        """Ends what goes on in the background; searches go on."""
        self.source.close()
        self.form.close_work()

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        self.source.start()

    def hideEvent(self, event: QHideEvent) -> None:
        super().hideEvent(event)
        self.source.stop()

    # Making it

    def _lay_out(self) -> None:
        nothing = QWidget()
        middle = QVBoxLayout(nothing)
        words = QLabel(EMPTY, alignment=Qt.AlignmentFlag.AlignCenter)
        words.setObjectName("muted")
        middle.setSpacing(14)
        middle.addStretch(1)
        for widget in (words, self.empty_button):
            middle.addWidget(widget, 0, Qt.AlignmentFlag.AlignHCenter)
        middle.addStretch(2)
        for page in (nothing, self.list, self.view, self.form):
            self.stack.addWidget(page)
        top = QHBoxLayout()
        top.setSpacing(10)
        top.addWidget(self.back)
        top.addWidget(self.title, 1)
        self.new_button = bind(QPushButton(), self.new)
        top.addWidget(self.new_button)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(14, 10, 14, 10)
        layout.setSpacing(8)
        layout.addLayout(top)
        layout.addWidget(self.notice)
        layout.addWidget(self.stack, 1)
        self.stack.setCurrentIndex(LIST)

    def _connect(self) -> None:
        self.source.listed.connect(self._list)
        self.source.shown.connect(self._show)
        self.source.lost.connect(self._lose)
        self.leave.on_trigger(self._leave)
        self.new.on_trigger(self._ask_anew)
        self.list.opened.connect(lambda index: self.show_search(self.model.lines[index.row()].name))
        self.form.start_wanted.connect(self._start)
        self.form.job_opened.connect(self.job_opened)
        self.form.message.connect(self.message)
        self.view.run_chosen.connect(self._open_run)
        self.view.compare_requested.connect(self.compare_requested)
        self.view.train_requested.connect(self.train_requested)
        self.view.pause_wanted.connect(self._pause)
        self.view.continue_wanted.connect(self._continue)
        self.view.change_wanted.connect(self._change)

    # What is read

    def _list(self, lines: list[SearchLine]) -> None:
        first = not self._read or not self.model.lines
        self._read = True
        self.model.show_lines(lines)
        if first and lines:
            self.list.fit()
            self.list.selectRow(0)
        if self.stack.currentIndex() in (NONE, LIST):
            self._go_to(LIST if lines else NONE)

    def _show(self, data: SearchData) -> None:
        self.notice.hide()
        self.view.show_data(data)
        self.title.setText(data.folder.name)
        if self.stack.currentIndex() != ONE:
            self._go_to(ONE)
            self.view.table.setFocus()

    def _lose(self, words: str) -> None:
        """The search that was shown can't be any more; the list has the others."""
        self.show_list()
        self.notice.say(words)

    def _go_to(self, page: int) -> None:
        self.stack.setCurrentIndex(page)
        self.new_button.setVisible(page in (LIST, ONE))
        if page in (NONE, LIST):
            self.title.setText("Searches")

    # What is done

    def _leave(self) -> None:
        """From a search or the form to the list, from there to the page before."""
        if self.stack.currentIndex() in (ONE, FORM):
            self.show_list()
        else:
            self.closed.emit()

    def _ask_anew(self) -> None:
        self.source.open("")
        self.notice.hide()
        self.title.setText("New search")
        self.form.ask_anew({line.name for line in self.model.lines})
        self._go_to(FORM)
        self.form.focus_field("name")

    def _change(self) -> None:
        if self.view.data is not None:
            self.source.open("")
            self.title.setText(f"Change {self.view.data.folder.name}")
            self.form.change(self.view.data.search)
            self._go_to(FORM)
            self.form.focus_field("trials")

    def _start(self, search: Search) -> None:
        def start() -> SearchFolder:
            folder = create_search(search)
            start_driver(folder)
            return folder

        in_background(start, self, lambda folder: self.show_search(folder.name), partial(self._not_done, "start"))

    def _pause(self) -> None:
        data = self.view.data
        if data is not None:
            self._do("pause", partial(stop_driver, data.folder))

    def _continue(self) -> None:
        data = self.view.data
        if data is not None:
            self._do("continue", partial(start_driver, data.folder))

    def _do(self, what: str, work: Callable[[], object]) -> None:
        in_background(work, self, lambda _done: self.source.refresh(), partial(self._not_done, what))

    def _not_done(self, what: str, error: Exception) -> None:
        self.notice.say(f"Could not {what} the search: {describe_error(error)}.", "error")
        if not isinstance(error, OSError):
            raise error

    def _open_run(self, run_id: str) -> None:
        run = RunFolder(paths.runs_folder() / run_id)
        if run.path.is_dir():
            self.run_chosen.emit(run)
        else:
            self.notice.say(f"The run {run_id} is gone: its folder was moved or deleted.")
