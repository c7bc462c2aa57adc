"""View of a search: its progress, plots and trials."""

from __future__ import annotations

import math
import statistics
from typing import Any

from PySide6.QtCore import QObject, Qt, Signal
from PySide6.QtGui import QFont, QResizeEvent
from PySide6.QtWidgets import QBoxLayout, QLabel, QProgressBar, QPushButton, QSplitter, QWidget

from engine.contract.search import Goal, SearchState, Status, TrialRow, TrialState
from engine.runs.searches import best_job, describe_confirmed_result, describe_pending_confirmations
from engine.system.format import duration, listed
from gui.actions import HERE, Action, bind
from gui.format import counted, localized
from gui.search.plot_panel import SearchPlots
from gui.sources.searches import Axis, SearchData, field_label, format_field_value, format_goal_value
from gui.style import theme
from gui.style.icons import icon
from gui.translation import tr
from gui.widgets.banner import Banner, QuestionBar
from gui.widgets.buttons import styled
from gui.widgets.labels import muted_label
from gui.widgets.layouts import FlowLayout, hbox, scroll_panel, vbox
from gui.widgets.row_model import Column, RowModel, RowTable

STATUS: dict[Status, str] = {
    "running": tr("Running"),
    "completed": tr("Completed"),
    "stopped": tr("Paused"),
    "failed": tr("Failed"),
    "interrupted": tr("Interrupted"),
}
_MAX_FIELDS = 6
"""Maximum number of parameters of the best trial that are displayed."""
_MIN_TABLE_HEIGHT = 160
"""Minimum height of the table in pixels."""
_WIDE = 900
"""Minimum width in pixels, at a text size of 100%, for the buttons next to the progress."""


class SearchView(QWidget):
    """View of a search.

    Signals:
        run_chosen(str): the user has opened the run with this id.
        compare_requested(list[str]): the user wants to compare the runs with these ids.
        train_requested(Job): the user wants to train with the best settings.
        pause_requested(): the user wants to pause the search.
        continue_requested(): the user wants to continue the search.
        change_requested(): the user wants to edit the search.
    """

    run_chosen = Signal(str)
    compare_requested = Signal(list)
    train_requested = Signal(object)
    pause_requested = Signal()
    continue_requested = Signal()
    change_requested = Signal()

    def __init__(self) -> None:
        super().__init__()
        self.data: SearchData | None = None
        self.progress = styled(QProgressBar(), name=tr("Progress of the search"))
        self.progress.setTextVisible(False)
        self.progress.setFixedHeight(10)
        self.progress_text = muted_label(word_wrap=True)
        self.best = QLabel(wordWrap=True)
        self.best.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        self.notice = Banner(name=tr("About the search"))
        self.question = QuestionBar(tr("Train the best in full"))
        self.model = TrialsModel(self)
        self._fitted_states: set[TrialState] = set()  # states of trials that the columns are fitted to
        self.table = RowTable(self.model, tr("Trials"))
        self.plots = SearchPlots()
        self._make_actions()
        self._lay_out()
        self._connect()
        self.table.setSortingEnabled(True)
        self.table.sortByColumn(0, Qt.SortOrder.AscendingOrder)

    def show_data(self, data: SearchData) -> None:
        """Show the progress, plots and trials of a search. The selected trials remain selected."""
        self.data = data
        previous_columns = self.model.columns
        self.model.show_data(data)
        states = {row.state for row in self.model.rows}
        if self.model.columns != previous_columns or states != self._fitted_states:
            self._fitted_states = states
            self.table.fit()
        self.plots.show_data(data)
        self._update_texts(data)
        self._update_actions()

    def clear(self) -> None:
        """Remove the data, before another search is shown."""
        self.data = None
        self.question.hide()
        self.table.clearSelection()

    def _make_actions(self) -> None:
        """Create the actions of the search, then the two actions of the selected trials."""
        self.resume = Action(
            self, "continue_search", tr("Continue"), tr("Continue with the paused trials and new ones")
        )
        self.pause = Action(
            self,
            "pause_search",
            tr("Pause"),
            tr("Pause the running trials after their current step; Continue resumes them"),
        )
        self.change = Action(
            self, "change_search", tr("Change…"), tr("Change budget, devices, pruning and confirmation")
        )
        self.train = Action(
            self, "train_best", tr("Train the best…"), tr("Train the best settings in full, as an ordinary run")
        )
        self.open_best = Action(self, "show_best_trial", tr("Show the best"), tr("Open the run of the best trial"))
        tip = tr("Open the run of the selected trial (Enter)")
        self.open = Action(self.table, "show_trial", tr("Show run"), tip, context=HERE)
        tip = tr("Compare the runs of the selected trials")
        self.compare = Action(self.table, "compare_trials", tr("Compare"), tip, "Ctrl+Shift+C", context=HERE)

    def _lay_out(self) -> None:
        buttons = QWidget()
        flow = FlowLayout(buttons)
        for action in (self.pause, self.resume, self.change, self.train, self.open_best):
            flow.addWidget(bind(QPushButton(), action, hide_disabled=action in (self.pause, self.resume)))
        self.table.setMinimumHeight(_MIN_TABLE_HEIGHT)
        halves = QSplitter(Qt.Orientation.Vertical)
        halves.setChildrenCollapsible(False)
        halves.setHandleWidth(9)
        halves.addWidget(self.plots)
        halves.addWidget(self.table)
        halves.setSizes([620, 260])
        halves.setStretchFactor(0, 2)
        halves.setStretchFactor(1, 1)
        self._scroll = scroll_panel(halves)
        self.panes = (self.plots, self.table)
        self._head = QBoxLayout(QBoxLayout.Direction.LeftToRight)
        self._head.setSpacing(14)
        self._head.addLayout(vbox(self.progress_text, self.best, spacing=4), 1)
        self._head.addWidget(buttons)
        bottom = hbox(1, bind(QPushButton(), self.compare), bind(QPushButton(), self.open))
        self.setLayout(
            vbox(self.progress, self._head, self.notice, self.question, (self._scroll, 1), bottom, spacing=6)
        )

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Place the buttons next to the progress in a wide view, otherwise below it."""
        super().resizeEvent(event)
        is_wide = self.width() >= theme.scale_pixels(_WIDE)
        direction = QBoxLayout.Direction.LeftToRight if is_wide else QBoxLayout.Direction.TopToBottom
        self._head.setDirection(direction)

    def _connect(self) -> None:
        """Connect the table, the plots and the actions."""
        self.table.opened.connect(lambda index: self._open_run(self.model.rows[index.row()]))
        self.table.selectionModel().selectionChanged.connect(self._on_selection_changed)
        self.plots.picked.connect(self._select_trial)
        self.open.on_trigger(lambda: self._open_run(self._list_selected()[0]))
        self.compare.on_trigger(lambda: self.compare_requested.emit([row.run_id for row in self._list_selected()]))
        self.open_best.on_trigger(lambda: self._open_run(self.data.best if self.data is not None else None))
        self.train.on_trigger(self._confirm_training)
        self.question.yes.clicked.connect(self._request_training)
        self.question.no.clicked.connect(self.question.hide)
        self.pause.on_trigger(self.pause_requested.emit)
        self.resume.on_trigger(self.continue_requested.emit)
        self.change.on_trigger(self.change_requested.emit)

    def _update_texts(self, data: SearchData) -> None:
        """Show progress, the best trial, and the reason why the search has failed or was interrupted."""
        state, total = data.state, data.state.total
        ended = sum(row.ended for row in state.trials)
        self.progress.setRange(0, max(1, total or ended or 1))
        self.progress.setValue(ended)
        self.progress_text.setText(format_progress(data.status, state))
        best = data.best
        self.best.setText(_describe_best(data, best) if best is not None else "")
        self.best.setVisible(best is not None)
        unexpected = tr("The search ended unexpectedly. Press Continue to resume it.")
        if data.status == "failed":
            self.notice.show_message(state.cause or unexpected, "error")
        elif data.status == "interrupted":
            self.notice.show_message(state.cause or unexpected, "warning")
        else:
            self.notice.show_message(state.cause, "info")

    def _update_actions(self) -> None:
        """Enable the actions that fit the search's status and the selected trials. Disable the others with a reason."""
        data, selected = self.data, self._list_selected()
        status = data.status if data is not None else ""
        self.pause.set_disabled_reason("" if status == "running" else tr("The search isn't running"))
        reasons_by_status = {
            "running": tr("The search is running"),
            "completed": tr("The search is complete: raise its budget first"),
        }
        self.resume.set_disabled_reason(reasons_by_status.get(status, ""))
        self.change.set_disabled_reason(tr("Pause the search first") if status == "running" else "")
        has_best = data is not None and data.best is not None
        for action in (self.train, self.open_best):
            action.set_disabled_reason("" if has_best else tr("No trial is complete yet"))
        self.open.set_disabled_reason("" if len(selected) == 1 else tr("Select one trial"))
        self.compare.set_disabled_reason("" if len(selected) > 1 else tr("Select two or more trials"))

    def _list_selected(self) -> list[TrialRow]:
        """Return the selected trials, from top to bottom."""
        return [self.model.rows[row] for row in self.table.selected_rows()]

    def _on_selection_changed(self) -> None:
        """Highlight the selected trials in the plots, and update the actions."""
        if self.data is not None:
            indices = {row.number: index for index, row in enumerate(self.data.trials)}
            self.plots.select([indices[row.number] for row in self._list_selected() if row.number in indices])
        self._update_actions()

    def _select_trial(self, number: int) -> None:
        """Select the trial with this number in the table, and scroll to it."""
        row = self.model.position(number)
        if row is not None:
            self.table.select([row])
            self.table.setFocus()
            self._scroll.ensureWidgetVisible(self.table)

    def _open_run(self, row: TrialRow | None) -> None:
        """Emit `run_chosen` with the run of a trial. Do nothing for None."""
        if row is not None:
            self.run_chosen.emit(row.run_id)

    def _confirm_training(self) -> None:
        """Ask in a banner whether to train a regular run with the best settings."""
        if self.data is None or self.data.best is None:
            return
        epochs = self.data.search.best_epochs or self.data.search.job.training.epochs
        question = tr("Train the settings of trial {number} for {epochs}?").format(
            number=self.data.best.number, epochs=counted(epochs, "epoch")
        )
        self.question.show_message(question, "info", tr("Train"), tr("Cancel"))
        self.question.yes.setFocus()

    def _request_training(self) -> None:
        """Emit `train_requested` with a job of the best settings."""
        self.question.hide()
        if self.data is not None and self.data.best is not None:
            self.train_requested.emit(best_job(self.data.search, self.data.best))


def format_progress(status: Status, state: SearchState) -> str:
    """Describe the progress, as in "Running · 12 of 40 trials · 2 running, 5 pruned · 1:20:00 h, 2:10:00 h left"."""
    ended, total = state.originals_ended, state.originals_total  # without the confirming runs
    trials = (
        tr("{ended} of {trials}").format(ended=localized(ended), trials=counted(total, "trial"))
        if total
        else counted(ended, "trial")
    )
    counts = {name: state.count(name) for name in ("running", "waiting", "paused", "pruned", "failed")}
    states = ", ".join(f"{count} {name}" for name, count in counts.items() if count)
    time = duration(state.worked_s) if state.worked_s else ""
    if time and status == "running" and state.seconds_left is not None:
        time = tr("{time}, about {left} left").format(time=time, left=duration(state.seconds_left))
    texts = (STATUS[status], trials, describe_pending_confirmations(state), states, time)
    return " · ".join(filter(None, texts))


def _describe_best(data: SearchData, best: TrialRow) -> str:
    """Describe the best trial: its results, and the values of its first fields."""
    goals = ", ".join(
        f"{goal.title} {format_goal_value(goal, value)}"
        for goal, value in zip(data.search.goals, best.values, strict=True)
    )
    confirmed = describe_confirmed_result(data.state, lambda value: format_goal_value(data.search.goals[0], value))
    fields = [f"{field_label(name)} {format_field_value(name, value)}" for name, value in best.params.items()]
    if len(fields) > _MAX_FIELDS:
        fields[_MAX_FIELDS:] = [tr("{count} more").format(count=len(fields) - _MAX_FIELDS)]
    heading = tr("Best so far") if data.status == "running" else tr("Best")
    results = "; ".join(filter(None, (goals, confirmed)))
    return tr("{heading}: trial {number}, {results}: {fields}").format(
        heading=heading, number=best.number, results=results, fields=", ".join(fields)
    )


ICONS: dict[TrialState, tuple[str, str]] = {
    "waiting": ("clock", "accent"),
    "running": ("right", "accent"),
    "paused": ("pause", "text"),
    "interrupted": ("warning", "warning"),
    "completed": ("ok", "ok"),
    "pruned": ("down", "muted"),
    "stopped": ("stop", "muted"),
    "failed": ("error", "error"),
}
STATE_HELP = tr("Pruned: stopped early, since others did better at the same epoch")
CONFIRMED_HELP = tr(
    "Mean over other seeds, of the best trials and the job's own settings; it decides which trial is the best"
)
NUMBER, STATE = 0, 1


class TrialsModel(RowModel[TrialRow]):
    """Model of the trials. The best ones are bold and have a star."""

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._data: SearchData | None = None
        self._bold = QFont()
        self._bold.setBold(True)

    def show_data(self, data: SearchData) -> None:
        """Show the trials of a search. The columns are recreated for another search and other varied fields."""
        previous, self._data = self._data, data
        if previous is None or _get_column_facts(previous) != _get_column_facts(data):
            self.set_columns(_create_columns(data))
        self.set_rows(self.sorted_rows(data.trials))

    def key_of(self, row: TrialRow) -> int:
        return row.number

    def cell_data(self, row: TrialRow, column: int, role: int) -> Any:
        """Return the tool tip of a cell, the icon of a trial's state, or what highlights a best trial, by `role`."""
        if role == Qt.ItemDataRole.ToolTipRole:
            return "\n".join(filter(None, (self.columns[column].tip(row), row.cause, row.run_id)))
        if role == Qt.ItemDataRole.DecorationRole and column == STATE:
            return icon(*ICONS[row.state])
        return self._make_best_data(row, column).get(role)

    def _make_best_data(self, row: TrialRow, column: int) -> dict[int, Any]:
        """Return the font, icon and accessible text that highlight a best trial, by role, or {} for other trials."""
        state = self._data.state if self._data is not None else None
        if state is None or (row.number != state.best and row.number not in state.front):
            return {}
        if column != NUMBER:
            return {Qt.ItemDataRole.FontRole: self._bold}
        return {
            Qt.ItemDataRole.FontRole: self._bold,
            Qt.ItemDataRole.DecorationRole: icon("star", "warning"),
            Qt.ItemDataRole.AccessibleTextRole: (
                tr("{trial}, the best") if len(state.front) < 2 else tr("{trial}, on the Pareto front")
            ).format(trial=row.number),
        }


def _get_column_facts(data: SearchData) -> tuple[object, ...]:
    """Return the facts that determine the columns: the search, its varied fields, and if it repeats trials."""
    return data.folder.path, data.search.space, data.has_repetitions


def _create_columns(data: SearchData) -> tuple[Column[TrialRow], ...]:
    """Return the columns of the table: number, state, goals, varied fields, epochs and time."""
    return (
        Column(tr("Trial"), lambda row: str(row.number), lambda row: row.number, is_numeric=True),
        Column(tr("State"), lambda row: row.state.capitalize(), lambda row: row.state, help=STATE_HELP),
        *(_create_goal_column(index, goal) for index, goal in enumerate(data.search.goals)),
        *([_create_confirmed_column(data.search.goals[0])] if data.has_repetitions else []),
        *map(_create_field_column, data.axes),
        Column(tr("Epochs"), lambda row: f"{row.epoch} / {row.epochs}", lambda row: row.epoch, is_numeric=True),
        Column(tr("Time"), lambda row: duration(row.seconds), lambda row: row.seconds, is_numeric=True),
    )


def _create_goal_column(index: int, goal: Goal) -> Column[TrialRow]:
    """Create the column for the goal at `index` among the goals of the search."""
    return Column(
        goal.title,
        lambda row: format_goal_value(goal, row.values[index]),
        lambda row: row.values[index],
        is_numeric=True,
    )


def _create_confirmed_column(goal: Goal) -> Column[TrialRow]:
    """Create the column for the mean of a goal over the runs that confirm a trial. Its tool tip lists their results."""

    def tip(row: TrialRow) -> str:
        """Describe the results, as in "93.1% and 93.5% with 2 other seeds; standard deviation 0.3%".

        Returns "" for fewer than two results.
        """
        if len(row.confirmed) < 2:
            return ""
        values = listed(format_goal_value(goal, value) for value in row.confirmed)
        spread = format_goal_value(goal, statistics.stdev(row.confirmed))
        return tr("{values} with {seeds}; standard deviation {deviation}").format(
            values=values, seeds=counted(len(row.confirmed), "other seed"), deviation=spread
        )

    return Column(
        tr("Confirmed"),
        lambda row: format_goal_value(goal, row.mean),
        lambda row: row.mean,
        is_numeric=True,
        help=CONFIRMED_HELP,
        tip=tip,
    )


def _create_field_column(axis: Axis) -> Column[TrialRow]:
    """Create the column for a varied field."""

    def key(row: TrialRow) -> float | None:
        position = axis.position(row.params.get(axis.name))
        return None if math.isnan(position) else position

    return Column(
        axis.label,
        lambda row: format_field_value(axis.name, row.params.get(axis.name)),
        key,
        is_numeric=not axis.choices,
    )
