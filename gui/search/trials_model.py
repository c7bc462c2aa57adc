"""Model of the trials of a search."""

from __future__ import annotations

import math
import statistics
from typing import Any

from PySide6.QtCore import QObject, Qt
from PySide6.QtGui import QFont

from engine.contract.search import Goal, TrialRow, TrialState
from engine.system.format import counted, duration, listed
from gui.sources.search_data import Axis, SearchData, goal_words, value_words
from gui.style.icons import icon
from gui.translation import tr
from gui.widgets.row_model import Column, RowModel

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
    """Model of the trials; those that are best are bold with a star."""

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._data: SearchData | None = None
        self._bold = QFont()
        self._bold.setBold(True)

    def show_data(self, data: SearchData) -> None:
        """Show the current trials of a search."""
        before, self._data = self._data, data
        if before is None or _columns_depend_on(before) != _columns_depend_on(data):
            self.set_columns(_columns(data))
        self.set_rows(self.sorted_rows(data.trials))

    def key_of(self, row: TrialRow) -> int:
        return row.number

    def cell_data(self, row: TrialRow, column: int, role: int) -> Any:
        if role == Qt.ItemDataRole.ToolTipRole:
            return "\n".join(filter(None, (self.columns[column].tip(row), row.cause, row.run_id)))
        if role == Qt.ItemDataRole.DecorationRole and column == STATE:
            return icon(*ICONS[row.state])
        return self._best_data(row, column).get(role)

    def _best_data(self, row: TrialRow, column: int) -> dict[int, Any]:
        """Return the data that highlights the best trials."""
        state = self._data.state if self._data is not None else None
        if state is None or (row.number != state.best and row.number not in state.front):
            return {}
        if column != NUMBER:
            return {Qt.ItemDataRole.FontRole: self._bold}
        return {
            Qt.ItemDataRole.FontRole: self._bold,
            Qt.ItemDataRole.DecorationRole: icon("star", "warning"),
            Qt.ItemDataRole.AccessibleTextRole: (
                f"{row.number}, {'the best' if len(state.front) < 2 else 'on the Pareto front'}"
            ),
        }


def _columns_depend_on(data: SearchData) -> tuple[object, ...]:
    return data.folder.path, data.search.space, data.confirms


def _columns(data: SearchData) -> tuple[Column[TrialRow], ...]:
    return (
        Column(tr("Trial"), lambda row: str(row.number), lambda row: row.number, number=True),
        Column(tr("State"), lambda row: row.state.capitalize(), lambda row: row.state, help=STATE_HELP),
        *(_goal_column(index, goal) for index, goal in enumerate(data.search.goals)),
        *([_confirmed_column(data.search.goals[0])] if data.confirms else []),
        *map(_field_column, data.axes),
        Column(tr("Epochs"), lambda row: f"{row.epoch} / {row.epochs}", lambda row: row.epoch, number=True),
        Column(tr("Time"), lambda row: duration(row.seconds), lambda row: row.seconds, number=True),
    )


def _goal_column(index: int, goal: Goal) -> Column[TrialRow]:
    return Column(
        goal.title, lambda row: goal_words(goal, row.values[index]), lambda row: row.values[index], number=True
    )


def _confirmed_column(goal: Goal) -> Column[TrialRow]:
    def tip(row: TrialRow) -> str:
        """Return such as "93.1 % and 93.5 % with 2 other seeds; standard deviation 0.3 %", "" for less than two."""
        if len(row.confirmed) < 2:
            return ""
        values = listed(goal_words(goal, value) for value in row.confirmed)
        spread = goal_words(goal, statistics.stdev(row.confirmed))
        return f"{values} with {counted(len(row.confirmed), 'other seed')}; standard deviation {spread}"

    return Column(
        tr("Confirmed"),
        lambda row: goal_words(goal, row.mean),
        lambda row: row.mean,
        number=True,
        help=CONFIRMED_HELP,
        tip=tip,
    )


def _field_column(axis: Axis) -> Column[TrialRow]:
    def key(row: TrialRow) -> float | None:
        position = axis.position(row.params.get(axis.name))
        return None if math.isnan(position) else position

    return Column(
        axis.label, lambda row: value_words(axis.name, row.params.get(axis.name)), key, number=not axis.choices
    )
