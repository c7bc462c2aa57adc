"""Model of the list of searches."""

from __future__ import annotations

from typing import Any

from PySide6.QtCore import Qt

from engine.contract.search import Status
from engine.system.format import NOT_KNOWN, duration
from gui.format import localised, moment
from gui.search.search_view import STATUS
from gui.sources.search_data import goal_words
from gui.sources.searches import SearchLine
from gui.style.icons import icon
from gui.translation import tr
from gui.widgets.row_model import Column, RowModel

_ICONS: dict[Status, tuple[str, str]] = {
    "running": ("right", "accent"),
    "completed": ("ok", "ok"),
    "stopped": ("pause", "text"),
    "failed": ("error", "error"),
    "interrupted": ("warning", "warning"),
}
_STATE = 1


def _trials(line: SearchLine) -> str:
    ended, total = line.state.originals_ended, line.state.originals_total
    return f"{localised(ended)} / {localised(total)}" if total else localised(ended)


def _best(line: SearchLine) -> str:
    if line.search is None or len(line.state.front) > 1:
        return NOT_KNOWN
    return goal_words(line.search.goals[0], line.state.reached)


def _time_left(line: SearchLine) -> str:
    return duration(line.state.seconds_left) if line.status == "running" else NOT_KNOWN


COLUMNS: tuple[Column[SearchLine], ...] = (
    Column(tr("Search"), lambda line: line.name),
    Column(tr("State"), lambda line: STATUS[line.status] if line.search is not None else tr("Can't be read")),
    Column(tr("Trials"), _trials, number=True),
    Column(
        tr("Best"), _best, number=True, help=tr("Result of the best trial: its mean over other seeds, once confirmed")
    ),
    Column(
        tr("Goal"), lambda line: " and ".join(goal.title for goal in line.search.goals) if line.search else NOT_KNOWN
    ),
    Column(tr("Time left"), _time_left, number=True),
    Column(tr("Changed"), lambda line: moment(line.changed)),
)


class SearchesModel(RowModel[SearchLine]):
    """Model of all searches, newest first."""

    columns = COLUMNS

    def key_of(self, row: SearchLine) -> str:
        return row.name

    def cell_data(self, row: SearchLine, column: int, role: int) -> Any:
        if role == Qt.ItemDataRole.ToolTipRole:
            return row.why or row.state.cause or str(row.folder.path)
        if role == Qt.ItemDataRole.DecorationRole and column == _STATE:
            return icon(*_ICONS[row.status]) if row.search is not None else icon("error", "error")
        return None
