"""The runs as a table that is sorted and filtered as it stands."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from PySide6.QtCore import QMimeData, QModelIndex, QObject, Qt, Signal
from PySide6.QtGui import QIcon

from engine.runs.folder import RunSummary
from engine.runs.metrics import best_measure, best_words
from engine.system.format import NOT_KNOWN, duration
from engine.system.plain_text import shortened
from gui.format import localised, moment
from gui.runs.deleting import GOING_ON
from gui.runs.run_filter import RunFilter
from gui.style.icons import icon
from gui.titles import devices_words, model_title, run_title, strategy_title
from gui.widgets.column_model import RIGHT, ColumnModel, Index
from gui.widgets.run_drag import dragged_runs

_ICONS = {
    "completed": ("ok", "ok"),
    "failed": ("error", "error"),
    "unsaved": ("error", "error"),
    "interrupted": ("warning", "warning"),
    "paused": ("pause", "text"),
    "stopped": ("stop", "muted"),
    "waiting": ("clock", "accent"),
    "running": ("right", "accent"),
    "starting": ("right", "accent"),
}


@dataclass(frozen=True)
class _Column:
    """`key` is what is sorted by."""

    title: str
    text: Callable[[RunSummary], str]
    key: Callable[[RunSummary], str | float]
    number: bool = False
    help: str = ""


def _best_key(run: RunSummary) -> float:
    best = best_measure(run)
    return best[1] if best is not None else float("-inf")


def state_words(run: RunSummary) -> str:
    """ "Completed", or "Waiting in SLURM"."""
    return f"{run.state.capitalize()} in SLURM" if run.slurm and run.state in GOING_ON else run.state.capitalize()


COLUMNS: tuple[_Column, ...] = (
    _Column("Name", run_title, lambda run: run_title(run).lower()),
    _Column("State", state_words, lambda run: run.state),
    _Column("Best", lambda run: best_words(run, localised), _best_key, number=True),
    _Column("Model", lambda run: model_title(run.model), lambda run: model_title(run.model).lower()),
    _Column("Strategy", lambda run: strategy_title(run.strategy), lambda run: strategy_title(run.strategy)),
    _Column("Devices", lambda run: devices_words(run.devices), lambda run: devices_words(run.devices)),
    _Column(
        "Duration",
        lambda run: duration(run.seconds) if run.seconds is not None else NOT_KNOWN,
        lambda run: run.seconds if run.seconds is not None else -1.0,
        number=True,
    ),
    _Column("Started", lambda run: moment(run.started), lambda run: run.started),
    _Column("Tags", lambda run: ", ".join(run.tags), lambda run: ", ".join(run.tags).lower()),
)
NAME, STATE, MODEL, STRATEGY, DEVICES, STARTED = 0, 1, 3, 4, 5, 7


class RunsModel(ColumnModel):
    """One row for each run that is wanted, in the order asked for. Rows keep their indexes as others come and go.

    Sorts and filters by itself, since thousands of comparisons through a proxy model would take longer than the list
    may take to show.

    Signals: renamed(str, str) - the run of that id is to have that name.
    """

    renamed = Signal(str, str)
    columns = COLUMNS

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._all: dict[str, RunSummary] = {}
        self._shown: list[RunSummary] = []
        self._rows: dict[str, int] = {}
        self._wanted = RunFilter()
        self._column, self._order = STARTED, Qt.SortOrder.DescendingOrder

    @property
    def runs(self) -> Collection[RunSummary]:
        """All runs, wanted or not."""
        return self._all.values()

    def run(self, row: int) -> RunSummary:
        return self._shown[row]

    def find(self, run_id: str) -> RunSummary | None:
        """The run of that id, wanted or not."""
        return self._all.get(run_id)

    def row(self, run_id: str) -> int | None:
        """The row that the run is shown in; None where it is not."""
        return self._rows.get(run_id)

    def merge(self, runs: Iterable[RunSummary]) -> None:
        """Adds runs that are new and renews those that have changed."""
        changed = False
        for run in runs:
            known = self._all.get(run.run_id)
            if known is not run and known != run:
                self._all[run.run_id] = run
                changed = True
        if changed:
            self._arrange()

    def keep_only(self, run_ids: Iterable[str]) -> None:
        """Takes out the runs whose folders are gone."""
        here = set(run_ids)
        if not self._all.keys() <= here:
            self._all = {run_id: run for run_id, run in self._all.items() if run_id in here}
            self._arrange()

    def choose(self, wanted: RunFilter) -> None:
        """Shows the runs that are like that alone."""
        if wanted != self._wanted:
            self._wanted = wanted
            self._arrange()

    def sort(self, column: int, order: Qt.SortOrder = Qt.SortOrder.AscendingOrder) -> None:
        self._column, self._order = column, order
        self._arrange()

    def count(self) -> int:
        return len(self._shown)

    def flags(self, index: Index) -> Qt.ItemFlag:
        flags = super().flags(index)
        if not index.isValid():
            return flags
        flags |= Qt.ItemFlag.ItemIsDragEnabled
        return flags | Qt.ItemFlag.ItemIsEditable if index.column() == NAME else flags

    def mimeData(self, indexes: Sequence[QModelIndex]) -> QMimeData:
        """The runs that are dragged out of the table."""
        return dragged_runs(self._shown[row] for row in sorted({index.row() for index in indexes}))

    def data(self, index: Index, role: int = Qt.ItemDataRole.DisplayRole) -> Any:
        if not index.isValid():
            return None
        run, column_index = self._shown[index.row()], index.column()
        column = COLUMNS[column_index]
        answer: Any = None
        if role == Qt.ItemDataRole.DisplayRole:
            answer = column.text(run)
        elif role == Qt.ItemDataRole.EditRole:
            answer = run.name if column_index == NAME else column.text(run)
        elif role == Qt.ItemDataRole.ToolTipRole:
            answer = "\n".join(
                filter(
                    None, (run.cause, run.slurm, run.notes, shortened(run.dataset), ", ".join(run.devices), run.folder)
                )
            )
        elif role == Qt.ItemDataRole.TextAlignmentRole and column.number:
            answer = RIGHT
        elif role == Qt.ItemDataRole.AccessibleTextRole and column_index == NAME and run.favourite:
            answer = f"{run_title(run)}, favourite"
        elif role == Qt.ItemDataRole.DecorationRole:
            answer = _mark(run, column_index)
        return answer

    def setData(self, index: Index, value: Any, role: int = Qt.ItemDataRole.EditRole) -> bool:
        """Asks for a run to be renamed; it has the new name once that is on the disk."""
        if role != Qt.ItemDataRole.EditRole or not index.isValid() or index.column() != NAME:
            return False
        run = self._shown[index.row()]
        if str(value) != run.name:
            self.renamed.emit(run.run_id, str(value))
        return True

    def _arrange(self) -> None:
        """Brings the rows into line with what is wanted: some go, some change places, some come, some are renewed."""
        key = COLUMNS[self._column].key
        wanted = [run for run in self._all.values() if self._wanted.takes(run)]
        wanted.sort(key=lambda run: (key(run), run.run_id), reverse=self._order == Qt.SortOrder.DescendingOrder)
        kept = {run.run_id for run in wanted}
        self._take_out(kept)
        self._reorder([run.run_id for run in wanted if run.run_id in self._rows])
        self._put_in(wanted)
        for row, run in enumerate(wanted):
            if self._shown[row] is not run:
                self._shown[row] = run
                self.row_changed(row)

    def _take_out(self, kept: set[str]) -> None:
        end = len(self._shown)
        while end > 0:
            if self._shown[end - 1].run_id in kept:
                end -= 1
                continue
            begin = end - 1
            while begin > 0 and self._shown[begin - 1].run_id not in kept:
                begin -= 1
            self.beginRemoveRows(QModelIndex(), begin, end - 1)
            del self._shown[begin:end]
            self.endRemoveRows()
            end = begin
        self._number()

    def _reorder(self, run_ids: list[str]) -> None:
        if [run.run_id for run in self._shown] == run_ids:
            return
        self.layoutAboutToBeChanged.emit()
        before = self.persistentIndexList()
        names = [self._shown[index.row()].run_id for index in before]
        shown = {run.run_id: run for run in self._shown}
        self._shown = [shown[run_id] for run_id in run_ids]
        self._number()
        after = [self.index(self._rows[name], index.column()) for name, index in zip(names, before, strict=True)]
        self.changePersistentIndexList(before, after)
        self.layoutChanged.emit()

    def _put_in(self, wanted: list[RunSummary]) -> None:
        row = 0
        while row < len(wanted):
            if wanted[row].run_id in self._rows:
                row += 1
                continue
            end = row + 1
            while end < len(wanted) and wanted[end].run_id not in self._rows:
                end += 1
            self.beginInsertRows(QModelIndex(), row, end - 1)
            self._shown[row:row] = wanted[row:end]
            self.endInsertRows()
            row = end
        self._number()

    def _number(self) -> None:
        self._rows = {run.run_id: row for row, run in enumerate(self._shown)}


def _mark(run: RunSummary, column_index: int) -> QIcon | None:
    if column_index == STATE:
        return icon(*_ICONS[run.state])
    return icon("star", "warning") if column_index == NAME and run.favourite else None
