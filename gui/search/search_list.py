"""The list of all searches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from PySide6.QtCore import QObject, Qt

from engine.contract.search import Status
from engine.system.format import NOT_KNOWN, duration
from gui.format import localised, moment
from gui.search.search_view import STATUS
from gui.sources.search_data import goal_words
from gui.sources.searches import SearchLine
from gui.style.icons import icon
from gui.widgets.column_model import RIGHT, ColumnModel, Index

_ICONS: dict[Status, tuple[str, str]] = {
    "running": ("right", "accent"),
    "completed": ("ok", "ok"),
    "stopped": ("pause", "text"),
    "failed": ("error", "error"),
    "interrupted": ("warning", "warning"),
}
_STATE = 1


@dataclass(frozen=True)
class _Column:
    title: str
    text: Callable[[SearchLine], str]
    number: bool = False
    help: str = ""


def _trials(line: SearchLine) -> str:
    ended, total = line.state.own_ended, line.state.own_total
    return f"{localised(ended)} / {localised(total)}" if total else localised(ended)


def _best(line: SearchLine) -> str:
    if line.search is None or len(line.state.front) > 1:
        return NOT_KNOWN
    return goal_words(line.search.goals[0], line.state.reached)


def _left(line: SearchLine) -> str:
    return duration(line.state.seconds_left) if line.status == "running" else NOT_KNOWN


COLUMNS = (
    _Column("Search", lambda line: line.name),
    _Column("State", lambda line: STATUS[line.status] if line.search is not None else "Can't be read"),
    _Column("Trials", _trials, number=True),
    _Column(
        "Best", _best, number=True, help="What the best trial has reached: the mean over other seeds, once confirmed"
    ),
    _Column("Goal", lambda line: " and ".join(goal.title for goal in line.search.goals) if line.search else NOT_KNOWN),
    _Column("Time left", _left, number=True),
    _Column("Changed", lambda line: moment(line.changed)),
)


class SearchesModel(ColumnModel):
    """A row for each search, the newest first."""

    columns = COLUMNS

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self.lines: list[SearchLine] = []

    def show_lines(self, lines: Sequence[SearchLine]) -> None:
        """Shows these searches; the rows stay where only their contents have changed."""
        same = [line.name for line in lines] == [line.name for line in self.lines]
        if not same:
            self.beginResetModel()
        self.lines = list(lines)
        if not same:
            self.endResetModel()
        elif lines:
            self.row_changed(0, len(lines) - 1)

    def count(self) -> int:
        return len(self.lines)

    def data(self, index: Index, role: int = Qt.ItemDataRole.DisplayRole) -> Any:
        if not index.isValid():
            return None
        line, column = self.lines[index.row()], COLUMNS[index.column()]
        if role == Qt.ItemDataRole.DisplayRole:
            return column.text(line)
        if role == Qt.ItemDataRole.ToolTipRole:
            return line.why or line.state.cause or str(line.folder.path)
        if role == Qt.ItemDataRole.TextAlignmentRole and column.number:
            return RIGHT
        if role == Qt.ItemDataRole.DecorationRole and index.column() == _STATE:
            return icon(*_ICONS[line.status]) if line.search is not None else icon("error", "error")
        return None
