"""Item model of the comparison table: a row per figure or field, a column per run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from PySide6.QtCore import QAbstractTableModel, QModelIndex, QObject, QPersistentModelIndex, Qt
from PySide6.QtGui import QFont

from gui.compare.compared_run import ComparedRun
from gui.compare.comparison import Row, rows
from gui.compare.legend import swatch

_Index = QModelIndex | QPersistentModelIndex
_NO_PARENT = QModelIndex()
BEST = "★ "


def _shape(runs: Sequence[ComparedRun], table: Sequence[Row]) -> tuple[list[str], list[str]]:
    return [run.summary.run_id for run in runs], [row.title for row in table]


class CompareModel(QAbstractTableModel):
    """Comparison table with the best value of a row in bold behind a star."""

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self.runs: Sequence[ComparedRun] = ()
        self.rows: list[Row] = []
        self._bold = QFont()
        self._bold.setBold(True)

    def show_runs(self, runs: Sequence[ComparedRun]) -> None:
        """Show `runs`; with unchanged runs and rows, selection and scroll position stay."""
        new_rows = rows(runs)
        if _shape(runs, new_rows) == _shape(self.runs, self.rows):
            self.runs, self.rows = runs, new_rows
            if new_rows:
                self.dataChanged.emit(self.index(0, 0), self.index(len(new_rows) - 1, len(runs) - 1))
            return
        self.beginResetModel()
        self.runs, self.rows = runs, new_rows
        self.endResetModel()

    def rowCount(self, parent: _Index = _NO_PARENT) -> int:
        return 0 if parent.isValid() else len(self.rows)

    def columnCount(self, parent: _Index = _NO_PARENT) -> int:
        return 0 if parent.isValid() else len(self.runs)

    def flags(self, index: _Index) -> Qt.ItemFlag:
        if not index.isValid() or self.rows[index.row()].heading:
            return Qt.ItemFlag.NoItemFlags
        return super().flags(index)

    def headerData(self, section: int, orientation: Qt.Orientation, role: int = Qt.ItemDataRole.DisplayRole) -> Any:
        if orientation == Qt.Orientation.Horizontal:
            return self._run_header(self.runs[section], role) if section < len(self.runs) else None
        return self._row_header(self.rows[section], role) if section < len(self.rows) else None

    def data(self, index: _Index, role: int = Qt.ItemDataRole.DisplayRole) -> Any:
        if not index.isValid():
            return None
        row, column_index = self.rows[index.row()], index.column()
        if row.heading:
            return None
        is_best = column_index in row.best
        value: Any = None
        if role == Qt.ItemDataRole.DisplayRole:
            value = f"{BEST if is_best else ''}{row.texts[column_index]}"
        elif role == Qt.ItemDataRole.FontRole and is_best:
            value = self._bold
        elif role == Qt.ItemDataRole.AccessibleTextRole:
            value = f"{row.texts[column_index]}{', the best' if is_best else ''}"
        elif role == Qt.ItemDataRole.ToolTipRole and row.tips:
            value = row.tips[column_index] or None
        return value

    @staticmethod
    def _run_header(run: ComparedRun, role: int) -> Any:
        if role == Qt.ItemDataRole.DisplayRole:
            return run.title
        if role == Qt.ItemDataRole.DecorationRole:
            return swatch(run.series)
        if role == Qt.ItemDataRole.ToolTipRole:
            return f"{run.title}\n{run.summary.folder}"
        return None

    def _row_header(self, row: Row, role: int) -> Any:
        if role == Qt.ItemDataRole.DisplayRole:
            return row.title
        if role == Qt.ItemDataRole.FontRole:
            return self._bold if row.heading else None
        if role == Qt.ItemDataRole.ToolTipRole:
            return row.help or None
        if role == Qt.ItemDataRole.TextAlignmentRole:
            return int(Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignVCenter)
        return None
