"""The runs as a table."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from PySide6.QtCore import QAbstractTableModel, QModelIndex, QObject, QPersistentModelIndex, Qt

from engine.contract.runs import RunSummary
from gui import theme
from gui.icons import icon
from gui.run.words import devices_words, duration, find_measure, measure_words, model_title, strategy_title

SORT_ROLE = Qt.ItemDataRole.UserRole
"""What a column is sorted by: a number or a text."""

_Index = QModelIndex | QPersistentModelIndex
_NOTHING = QModelIndex()
_ICONS = {
    "completed": ("ok", "ok"),
    "failed": ("error", "error"),
    "interrupted": ("warning", "warning"),
    "stopped": ("stop", "muted"),
    "running": ("right", "accent"),
    "starting": ("right", "accent"),
}


@dataclass(frozen=True)
class _Column:
    title: str
    text: Callable[[RunSummary], str]
    key: Callable[[RunSummary], str | float]
    number: bool = False


def best_measure(run: RunSummary) -> tuple[str, float] | None:
    """The first of the run's best measures that is an accuracy, else the first of all."""
    chosen = next((name for name in run.best if (m := find_measure("classification", name)) and m.percent), None)
    chosen = chosen or next(iter(run.best), None)
    return (chosen, run.best[chosen]) if chosen is not None else None


def _best_text(run: RunSummary) -> str:
    best = best_measure(run)
    return measure_words("classification", *best).replace(" accuracy", "") if best is not None else "–"


def title(run: RunSummary) -> str:
    """The run's own name, else the dataset's with enough of the run's id to tell runs apart."""
    return run.name or f"{Path(run.dataset).name} · {run.run_id[-4:]}"


def _best_key(run: RunSummary) -> float:
    best = best_measure(run)
    return best[1] if best is not None else float("-inf")


def _started(run: RunSummary) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(run.started))


COLUMNS: tuple[_Column, ...] = (
    _Column("Name", title, lambda run: title(run).lower()),
    _Column("State", lambda run: run.state.capitalize(), lambda run: run.state),
    _Column("Best", _best_text, _best_key, number=True),
    _Column("Model", lambda run: model_title(run.model), lambda run: model_title(run.model).lower()),
    _Column("Strategy", lambda run: strategy_title(run.strategy), lambda run: strategy_title(run.strategy)),
    _Column("Devices", lambda run: devices_words(run.devices), lambda run: devices_words(run.devices)),
    _Column(
        "Duration",
        lambda run: duration(run.seconds) if run.seconds is not None else "–",
        lambda run: run.seconds if run.seconds is not None else -1.0,
        number=True,
    ),
    _Column("Started", _started, lambda run: run.started),
)
STATE, STARTED = 1, 7
_RIGHT = Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter
_LEFT = Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignVCenter


class RunsModel(QAbstractTableModel):
    """One row for each run, in the order in which they were found."""

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._runs: list[RunSummary] = []
        self._rows: dict[str, int] = {}
        theme.notifier.changed.connect(self._recolor)

    def run(self, row: int) -> RunSummary:
        return self._runs[row]

    def merge(self, runs: Iterable[RunSummary]) -> None:
        """Adds runs that are new and renews those that have changed."""
        fresh = []
        for run in runs:
            row = self._rows.get(run.run_id)
            if row is None:
                fresh.append(run)
            elif self._runs[row] != run:
                self._runs[row] = run
                self.dataChanged.emit(self.index(row, 0), self.index(row, len(COLUMNS) - 1))
        if fresh:
            first = len(self._runs)
            self.beginInsertRows(QModelIndex(), first, first + len(fresh) - 1)
            self._runs += fresh
            self._rows.update({run.run_id: first + place for place, run in enumerate(fresh)})
            self.endInsertRows()

    def keep_only(self, run_ids: Iterable[str]) -> None:
        """Takes out the runs whose folders are gone."""
        wanted = set(run_ids)
        for row in reversed(range(len(self._runs))):
            if self._runs[row].run_id not in wanted:
                self.beginRemoveRows(QModelIndex(), row, row)
                del self._runs[row]
                self._rows = {run.run_id: place for place, run in enumerate(self._runs)}
                self.endRemoveRows()

    def rowCount(self, parent: _Index = _NOTHING) -> int:
        return 0 if parent.isValid() else len(self._runs)

    def columnCount(self, parent: _Index = _NOTHING) -> int:
        return 0 if parent.isValid() else len(COLUMNS)

    def headerData(self, section: int, orientation: Qt.Orientation, role: int = Qt.ItemDataRole.DisplayRole) -> Any:
        if orientation != Qt.Orientation.Horizontal:
            return None
        if role == Qt.ItemDataRole.TextAlignmentRole:
            return _RIGHT if COLUMNS[section].number else _LEFT
        return COLUMNS[section].title if role == Qt.ItemDataRole.DisplayRole else None

    def data(self, index: _Index, role: int = Qt.ItemDataRole.DisplayRole) -> Any:
        if not index.isValid():
            return None
        run, column = self._runs[index.row()], COLUMNS[index.column()]
        answer: Any = None
        if role == Qt.ItemDataRole.DisplayRole:
            answer = column.text(run)
        elif role == SORT_ROLE:
            answer = column.key(run)
        elif role == Qt.ItemDataRole.ToolTipRole:
            answer = "\n".join(filter(None, (run.cause, run.dataset, ", ".join(run.devices), run.folder)))
        elif role == Qt.ItemDataRole.TextAlignmentRole and column.number:
            answer = _RIGHT
        elif role == Qt.ItemDataRole.DecorationRole and index.column() == STATE:
            name, color = _ICONS[run.state]
            answer = icon(name, getattr(theme.colors(), color))
        return answer

    def _recolor(self) -> None:
        if self._runs:
            self.dataChanged.emit(self.index(0, STATE), self.index(len(self._runs) - 1, STATE))
