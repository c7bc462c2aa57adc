"""One search: how far it is, its trials, and what is seen of them all."""

from __future__ import annotations

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QHBoxLayout, QLabel, QProgressBar, QPushButton, QSplitter, QVBoxLayout, QWidget

from engine.contract.search import SearchState, Status, TrialRow
from engine.runs.searches import best_job, confirmed_words, confirming_words
from engine.system.format import duration
from gui.actions import HERE, Action, bind
from gui.format import counted, localised
from gui.search.plot_panel import SearchPlots
from gui.search.trials_model import TrialsModel
from gui.search.trials_table import SearchTable
from gui.sources.search_data import SearchData, field_label, goal_words, value_words
from gui.widgets.banner import Banner, QuestionBar
from gui.widgets.flow_layout import FlowLayout
from gui.widgets.scroll_panel import scroll_panel

STATUS: dict[Status, str] = {
    "running": "Running",
    "completed": "Completed",
    "stopped": "Paused",
    "failed": "Failed",
    "interrupted": "Interrupted",
}
_MOST_FIELDS = 6


class SearchView(QWidget):
    """Signals:
    run_chosen(str), compare_requested(list[str]) - the runs of these ids are to be shown, or compared.
    train_requested(Job) - the best settings are to be trained in full.
    pause_wanted(), continue_wanted(), change_wanted() - of the search that is shown.
    """

    run_chosen = Signal(str)
    compare_requested = Signal(list)
    train_requested = Signal(object)
    pause_wanted = Signal()
    continue_wanted = Signal()
    change_wanted = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.data: SearchData | None = None
        self.progress = QProgressBar()
        self.progress.setAccessibleName("Progress of the search")
        self.progress.setTextVisible(False)
        self.progress.setFixedHeight(10)
        self.how_far = QLabel(wordWrap=True)
        self.how_far.setObjectName("muted")
        self.best = QLabel(wordWrap=True)
        self.best.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        self.notice = Banner(name="About the search")
        self.question = QuestionBar("Train the best in full")
        self.model = TrialsModel(self)
        self.table = SearchTable(self.model, "Trials")
        self.plots = SearchPlots()
        self._make_actions()
        self._lay_out()
        self._connect()
        self.table.setSortingEnabled(True)
        self.table.sortByColumn(0, Qt.SortOrder.AscendingOrder)

    def show_data(self, data: SearchData) -> None:
        """Shows a search as it now stands; what is selected stays where it is the same one."""
        self.data = data
        first = not self.model.rowCount()
        self.model.show_data(data)
        if first and data.trials:
            self.table.fit()
        self.plots.show_data(data)
        self._tell(data)
        self._allow()

    def clear(self) -> None:
        """The next search is another one."""
        self.data = None
        self.question.hide()
        self.table.clearSelection()

    # Making it

    def _make_actions(self) -> None:
        self.resume = Action(
            self, "continue_search", "Continue", "Goes on with the trials that were paused and new ones"
        )
        self.pause = Action(
            self,
            "pause_search",
            "Pause",
            "Pauses the trials in hand after their current step; Continue goes on from there",
        )
        self.change = Action(self, "change_search", "Change …", "Changes budget, devices, pruning and confirmation")
        self.train = Action(
            self, "train_best", "Train the best …", "Trains the best settings in full, as an ordinary run"
        )
        self.open_best = Action(self, "show_best_trial", "Show the best", "Opens the run of the best trial")
        tip = "Opens the run of the selected trial (Enter)"
        self.open = Action(self.table, "show_trial", "Show run", tip, context=HERE)
        tip = "Compares the runs of the selected trials"
        self.compare = Action(self.table, "compare_trials", "Compare", tip, "Ctrl+Shift+C", context=HERE)

    def _lay_out(self) -> None:
        buttons = QWidget()
        flow = FlowLayout(buttons)
        for action in (self.pause, self.resume, self.change, self.train, self.open_best):
            flow.addWidget(bind(QPushButton(), action, offered=action in (self.pause, self.resume)))
        below = QHBoxLayout()
        below.addStretch(1)
        for action in (self.compare, self.open):
            below.addWidget(bind(QPushButton(), action))
        scroll = scroll_panel(self.plots)
        scroll.setMinimumHeight(220)
        self.table.setMinimumHeight(120)
        halves = QSplitter(Qt.Orientation.Vertical)
        halves.setChildrenCollapsible(False)
        halves.setHandleWidth(9)
        halves.addWidget(scroll)
        halves.addWidget(self.table)
        halves.setSizes([620, 260])
        halves.setStretchFactor(0, 2)
        halves.setStretchFactor(1, 1)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(6)
        for widget in (self.progress, self.how_far, self.best, self.notice, buttons, self.question):
            layout.addWidget(widget)
        layout.addWidget(halves, 1)
        layout.addLayout(below)

    def _connect(self) -> None:
        self.table.opened.connect(lambda index: self._open(self.model.trial(index.row())))
        self.table.selectionModel().selectionChanged.connect(self._selected)
        self.plots.picked.connect(self._pick)
        self.open.on_trigger(lambda: self._open(self._chosen()[0]))
        self.compare.on_trigger(lambda: self.compare_requested.emit([row.run_id for row in self._chosen()]))
        self.open_best.on_trigger(lambda: self._open(self.data.best if self.data is not None else None))
        self.train.on_trigger(self._ask)
        self.question.yes.clicked.connect(self._train)
        self.question.no.clicked.connect(self.question.hide)
        self.pause.on_trigger(self.pause_wanted.emit)
        self.resume.on_trigger(self.continue_wanted.emit)
        self.change.on_trigger(self.change_wanted.emit)

    # What is said

    def _tell(self, data: SearchData) -> None:
        state, total = data.state, data.state.total
        ended = sum(row.ended for row in state.trials)
        self.progress.setRange(0, max(1, total or ended or 1))
        self.progress.setValue(ended)
        self.how_far.setText(progress_words(data.status, state))
        best = data.best
        self.best.setText(_best_words(data, best) if best is not None else "")
        self.best.setVisible(best is not None)
        failed = data.status in ("failed", "interrupted")
        cause = state.cause or ("Its process ended unexpectedly. Continue takes it up again." if failed else "")
        self.notice.say(cause, "error" if data.status == "failed" else "warning" if failed else "info")

    def _allow(self) -> None:
        data, chosen = self.data, self._chosen()
        running = data is not None and data.status == "running"
        self.pause.allow("" if running else "It is not running")
        done = data is not None and data.status == "completed"
        self.resume.allow("It is running" if running else "It is complete: raise its budget first" if done else "")
        self.change.allow("Pause it first" if running else "")
        best = data.best if data is not None else None
        self.train.allow("" if best is not None else "No trial is complete yet")
        self.open_best.allow("" if best is not None else "No trial is complete yet")
        self.open.allow("" if len(chosen) == 1 else "Select one trial")
        self.compare.allow("" if len(chosen) > 1 else "Select two or more trials")

    # What happens

    def _chosen(self) -> list[TrialRow]:
        return [self.model.trial(row) for row in self.table.rows()]

    def _selected(self) -> None:
        if self.data is not None:
            places = {row.number: place for place, row in enumerate(self.data.trials)}
            self.plots.choose([places[row.number] for row in self._chosen() if row.number in places])
        self._allow()

    def _pick(self, number: int) -> None:
        row = self.model.row_of(number)
        if row is not None:
            self.table.select([row])
            self.table.setFocus()

    def _open(self, row: TrialRow | None) -> None:
        if row is not None:
            self.run_chosen.emit(row.run_id)

    def _ask(self) -> None:
        if self.data is None or self.data.best is None:
            return
        epochs = self.data.search.best_epochs or self.data.search.job.training.epochs
        what = f"Train the settings of trial {self.data.best.number} for {counted(epochs, 'epoch')}?"
        self.question.say(what, "info", "Train", "Cancel")
        self.question.yes.setFocus()

    def _train(self) -> None:
        self.question.hide()
        if self.data is not None and self.data.best is not None:
            self.train_requested.emit(best_job(self.data.search, self.data.best))


def progress_words(status: Status, state: SearchState) -> str:
    """ "Running · 12 of 40 trials · 2 running, 5 pruned · 1:20:00 h, 2:10:00 h left"."""
    ended, total = state.own_ended, state.own_total
    trials = f"{localised(ended)} of {counted(total, 'trial')}" if total else counted(ended, "trial")
    counts = [
        f"{count} {what}"
        for what in ("running", "waiting", "paused", "pruned", "failed")
        if (count := state.count(what))
    ]
    left = f", about {duration(state.seconds_left)} left" if state.seconds_left is not None else ""
    worked = f"{duration(state.worked_s)}{left if status == 'running' else ''}" if state.worked_s else ""
    return " · ".join(filter(None, (STATUS[status], trials, confirming_words(state), ", ".join(counts), worked)))


def _best_words(data: SearchData, best: TrialRow) -> str:
    goals = ", ".join(
        f"{goal.title} {goal_words(goal, value)}" for goal, value in zip(data.search.goals, best.values, strict=True)
    )
    again = confirmed_words(data.state, lambda value: goal_words(data.search.goals[0], value))
    fields = [f"{field_label(name)} {value_words(name, value)}" for name, value in best.params.items()]
    more = [f"{len(fields) - _MOST_FIELDS} more"] if len(fields) > _MOST_FIELDS else []
    which = "Best so far" if data.status == "running" else "Best"
    reached = "; ".join(filter(None, (goals, again)))
    return f"{which}: trial {best.number}, {reached}: {', '.join([*fields[:_MOST_FIELDS], *more])}"
