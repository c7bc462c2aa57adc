"""The trials of a search as a table: what each tried, what it reached, and how it stands."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from PySide6.QtCore import QModelIndex, QObject, Qt
from PySide6.QtGui import QFont

from engine.contract.search import Goal, TrialRow, TrialState
from engine.system.format import counted, duration, listed
from gui.sources.search_data import Axis, SearchData, goal_words, value_words
from gui.style.icons import icon
from gui.widgets.column_model import RIGHT, ColumnModel, Index

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
STATE_HELP = "Pruned: stopped early, since others did better at the same epoch"
CONFIRMED_HELP = (
    "The mean over other seeds, of the best trials and of the job's own settings; it decides which is the best"
)
NUMBER = 0


@dataclass(frozen=True)
class _Column:
    """`key` is what is sorted by."""

    title: str
    text: Callable[[TrialRow], str]
    key: Callable[[TrialRow], Any]
    number: bool = True
    help: str = ""
    tip: Callable[[TrialRow], str] = lambda _row: ""
    """What a cell says besides the trial's own tool tip."""


class TrialsModel(ColumnModel):
    """A row for each trial, in the order asked for. Rows come and move as the search goes on, and keep their
    indexes.
    """

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._data: SearchData | None = None
        self.columns: tuple[_Column, ...] = ()
        self._rows: list[TrialRow] = []
        self._column, self._order = NUMBER, Qt.SortOrder.AscendingOrder
        self._bold = QFont()
        self._bold.setBold(True)

    def show_data(self, data: SearchData) -> None:
        """Shows the trials as they now stand."""
        before, self._data = self._data, data
        same = (
            before is not None
            and before.folder.path == data.folder.path
            and (before.search.space, before.confirms) == (data.search.space, data.confirms)
        )
        numbers = {row.number for row in data.trials}
        if not same or not all(row.number in numbers for row in self._rows):
            self.beginResetModel()
            self.columns = _columns(data)
            self._rows = self._sorted(data.trials)
            self.endResetModel()
            return
        self._renew(data)

    def trial(self, row: int) -> TrialRow:
        return self._rows[row]

    def row_of(self, number: int) -> int | None:
        """The row of the trial of that number."""
        return next((row for row, trial in enumerate(self._rows) if trial.number == number), None)

    def sort(self, column: int, order: Qt.SortOrder = Qt.SortOrder.AscendingOrder) -> None:
        self._column, self._order = column, order
        self._arrange()

    def count(self) -> int:
        return len(self._rows)

    def data(self, index: Index, role: int = Qt.ItemDataRole.DisplayRole) -> Any:
        if not index.isValid() or self._data is None:
            return None
        row, column_index = self._rows[index.row()], index.column()
        column, state = self.columns[column_index], self._data.state
        best = row.number == state.best or row.number in state.front
        answer: Any = None
        if role == Qt.ItemDataRole.DisplayRole:
            answer = column.text(row)
        elif role == Qt.ItemDataRole.TextAlignmentRole and column.number:
            answer = RIGHT
        elif role == Qt.ItemDataRole.FontRole and best:
            answer = self._bold
        elif role == Qt.ItemDataRole.ToolTipRole:
            answer = "\n".join(filter(None, (column.tip(row), row.cause, row.run_id)))
        elif role == Qt.ItemDataRole.AccessibleTextRole and best and column_index == NUMBER:
            answer = f"{row.number}, {'the best' if len(state.front) < 2 else 'on the Pareto front'}"
        elif role == Qt.ItemDataRole.DecorationRole:
            answer = _mark(row, column_index, best)
        return answer

    def _renew(self, data: SearchData) -> None:
        """Takes in what is other than before: rows that are known in their places, new ones at the end, then sorted."""
        now = {row.number: row for row in data.trials}
        fresh = [row for row in data.trials if self.row_of(row.number) is None] if len(now) > len(self._rows) else []
        for place, row in enumerate(self._rows):
            if row != now[row.number]:
                self._rows[place] = now[row.number]
                self.row_changed(place)
        if fresh:
            self.beginInsertRows(QModelIndex(), len(self._rows), len(self._rows) + len(fresh) - 1)
            self._rows += fresh
            self.endInsertRows()
        self._arrange()

    def _arrange(self) -> None:
        wanted = self._sorted(self._rows)
        if [row.number for row in wanted] == [row.number for row in self._rows]:
            return
        self.layoutAboutToBeChanged.emit()
        before = self.persistentIndexList()
        places = {row.number: place for place, row in enumerate(wanted)}
        after = [self.index(places[self._rows[index.row()].number], index.column()) for index in before]
        self._rows = wanted
        self.changePersistentIndexList(before, after)
        self.layoutChanged.emit()

    def _sorted(self, rows: Any) -> list[TrialRow]:
        if self._column >= len(self.columns):
            return list(rows)
        key, down = self.columns[self._column].key, self._order == Qt.SortOrder.DescendingOrder
        known = sorted((row for row in rows if key(row) is not None), key=lambda row: row.number)
        known.sort(key=key, reverse=down)
        return [*known, *sorted((row for row in rows if key(row) is None), key=lambda row: row.number)]


def _columns(data: SearchData) -> tuple[_Column, ...]:
    goals = [
        _Column(
            goal.title,
            lambda row, index=index, goal=goal: goal_words(goal, row.values[index]),  # type: ignore[misc]
            lambda row, index=index: row.values[index],  # type: ignore[misc]
        )
        for index, goal in enumerate(data.search.goals)
    ]
    return (
        _Column("Trial", lambda row: str(row.number), lambda row: row.number),
        _Column("State", lambda row: row.state.capitalize(), lambda row: row.state, number=False, help=STATE_HELP),
        *goals,
        *([_confirmed_column(data.search.goals[0])] if data.confirms else []),
        *(map(_field_column, data.axes)),
        _Column("Epochs", lambda row: f"{row.epoch} / {row.epochs}", lambda row: row.epoch),
        _Column("Time", lambda row: duration(row.seconds), lambda row: row.seconds),
    )


def _confirmed_column(goal: Goal) -> _Column:
    def tip(row: TrialRow) -> str:
        """ "93.1 % and 93.5 % with 2 other seeds; standard deviation 0.3 %"; nothing of one."""
        if len(row.confirmed) < 2:
            return ""
        values = listed(goal_words(goal, value) for value in row.confirmed)
        spread = goal_words(goal, statistics.stdev(row.confirmed))
        return f"{values} with {counted(len(row.confirmed), 'other seed')}; standard deviation {spread}"

    return _Column(
        "Confirmed", lambda row: goal_words(goal, row.mean), lambda row: row.mean, help=CONFIRMED_HELP, tip=tip
    )


def _field_column(axis: Axis) -> _Column:
    def key(row: TrialRow) -> float | None:
        """By the order of the choices, else by size; None, which comes last, for what is empty."""
        at = axis.position(row.params.get(axis.name))
        return None if math.isnan(at) else at

    words = lambda row: value_words(axis.name, row.params.get(axis.name))  # noqa: E731
    return _Column(axis.label, words, key, number=not axis.choices)


def _mark(row: TrialRow, column_index: int, best: bool) -> Any:
    if column_index == NUMBER:
        return icon("star", "warning") if best else None
    return icon(*ICONS[row.state]) if column_index == NUMBER + 1 else None
