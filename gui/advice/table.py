"""The ways to train a job that were tried, as a table that can be sorted."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from PySide6.QtCore import QObject, Qt
from PySide6.QtGui import QFont, QResizeEvent
from PySide6.QtWidgets import QHeaderView, QTableView

from engine.contract.advice import Candidate
from gui.advice import advice_format as words
from gui.style import icons
from gui.widgets.column_model import LEFT, RIGHT, ColumnModel, Index
from gui.widgets.number_table import BAR, INTERVAL, PAD, VALUE, NumberRows, prepare


@dataclass(frozen=True)
class _Column:
    title: str
    text: Callable[[Candidate], str]
    value: Callable[[Candidate], float | None] | None = None
    help: str = ""
    about: Callable[[Candidate], str] | None = None

    @property
    def number(self) -> bool:
        return self.value is not None


COLUMNS: tuple[_Column, ...] = (
    _Column("Way to train", words.name, help="In the order of the answer"),
    _Column(
        "Images/s",
        words.speed,
        lambda of: of.images_per_second,
        "Images per second over all devices, with the interval that holds the median",
        words.speed_help,
    ),
    _Column(
        "Memory (GiB)",
        lambda of: words.memory(of).removesuffix(" GiB"),
        lambda of: of.memory_bytes if of.memory_bytes is not None else of.estimated_bytes,
        "Per device, the most that was used of what it has; ≈ where it is estimated",
        words.memory_help,
    ),
    _Column(
        "Whole job",
        words.whole_job,
        lambda of: of.time.total_s if of.time is not None else None,
        "The time that the job would take from start to end",
        words.whole_job_help,
    ),
    _Column(
        "Efficiency",
        words.efficiency,
        lambda of: of.efficiency,
        "Speed per device, as a share of the best that was measured on one device",
    ),
    _Column("Energy", words.joules, lambda of: of.joules_per_thousand_images, "Per thousand images, of the GPUs alone"),
    _Column("Note", words.note),
)
WAY, SPEED, ENERGY, NOTE = 0, 1, 5, 6
MARKS = {"trying": ("resume", "accent"), "too_large": ("warning", "warning"), "failed": ("error", "error")}
"""The icons of states; those that are not here have none."""
_MOST_ROWS = 14
_WAY_SHARE = 0.4
"""How much of the table's width the names of the ways may take."""


class AdviceModel(ColumnModel):
    """A row for each candidate, in the order of the answer; the advised one is bold behind a star."""

    columns = COLUMNS

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self.candidates: Sequence[Candidate] = ()
        self._advised = False
        self._bold = QFont()
        self._bold.setBold(True)

    def show_candidates(self, candidates: Sequence[Candidate], advised: bool) -> None:
        """Shows `candidates`, the first of which is the advice where `advised`."""
        self.beginResetModel()
        self.candidates, self._advised = candidates, advised
        self.endResetModel()

    def count(self) -> int:
        return len(self.candidates)

    def data(self, index: Index, role: int = Qt.ItemDataRole.DisplayRole) -> Any:
        if not index.isValid():
            return None
        row, column = self.candidates[index.row()], COLUMNS[index.column()]
        advised = self._advised and index.row() == 0
        value = column.value(row) if column.value is not None else float(index.row())
        told: dict[int, Any] = {
            Qt.ItemDataRole.DisplayRole: column.text(row),
            VALUE: math.nan if value is None else float(value),
            Qt.ItemDataRole.TextAlignmentRole: RIGHT if column.number else LEFT,
            Qt.ItemDataRole.ToolTipRole: column.about(row) if column.about is not None else column.text(row),
            Qt.ItemDataRole.FontRole: self._bold if advised and index.column() in (WAY, SPEED) else None,
        }
        told |= {WAY: self._way(row, advised), SPEED: self._bar(row)}.get(index.column(), {})
        return told.get(role)

    def _way(self, row: Candidate, advised: bool) -> dict[int, Any]:
        name, color = ("star", "accent") if advised else MARKS.get(row.state, ("", ""))
        return {
            Qt.ItemDataRole.DecorationRole: icons.icon(name, color) if name else None,
            Qt.ItemDataRole.AccessibleTextRole: f"{'Advised: ' if advised else ''}{words.name(row)}, {words.note(row)}",
        }

    def _bar(self, row: Candidate) -> dict[int, Any]:
        most = max((each.high or each.images_per_second or 0.0 for each in self.candidates), default=0.0)
        if row.images_per_second is None or not most:
            return {}
        ends = (row.low / most, row.high / most) if row.low is not None and row.high is not None else None
        return {BAR: row.images_per_second / most, INTERVAL: ends}


class AdviceTable(QTableView):
    """The candidates, with a bar under each speed; as high as its rows, up to `_MOST_ROWS`."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.model_ = AdviceModel(self)
        self.rows = NumberRows(self)
        self.rows.setSourceModel(self.model_)
        self.setModel(self.rows)
        prepare(self)
        self.setAccessibleName(name)
        self.setTextElideMode(Qt.TextElideMode.ElideMiddle)  # ways differ by how their names end
        header = self.horizontalHeader()
        header.setSectionResizeMode(QHeaderView.ResizeMode.ResizeToContents)
        header.setSectionResizeMode(WAY, QHeaderView.ResizeMode.Interactive)
        header.setSortIndicatorClearable(True)
        header.setStretchLastSection(True)
        self.sortByColumn(-1, Qt.SortOrder.AscendingOrder)

    def show_candidates(self, candidates: Sequence[Candidate], advised: bool = False) -> None:
        """Shows them; what was chosen stays chosen, else it is the first."""
        chosen = self.chosen()
        self.model_.show_candidates(candidates, advised)
        self.setColumnHidden(ENERGY, all(each.joules_per_thousand_images is None for each in candidates))
        self._fit()
        names = [each.name for each in candidates]
        if names:
            number = names.index(chosen.name) if chosen is not None and chosen.name in names else 0
            self.selectRow(self.rows.mapFromSource(self.model_.index(number, 0)).row())

    def chosen(self) -> Candidate | None:
        """The candidate whose row is chosen."""
        rows = self.selectionModel().selectedRows()
        return self.model_.candidates[self.rows.mapToSource(rows[0]).row()] if rows else None

    def texts(self) -> list[list[str]]:
        """The cells in sight, row by row, the titles first."""
        shown = [column for column in range(len(COLUMNS)) if not self.isColumnHidden(column)]
        rows = [[self.rows.index(row, column).data() for column in shown] for row in range(self.rows.rowCount())]
        return [[COLUMNS[column].title for column in shown], *rows]

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._fit()

    def _fit(self) -> None:
        """Names as wide as they are, as far as there is room; and no higher than the rows."""
        asked = self.sizeHintForColumn(WAY) + 2 * PAD
        self.setColumnWidth(WAY, max(170, min(asked, round(_WAY_SHARE * self.viewport().width()))))
        rows = min(_MOST_ROWS, max(1, self.rows.rowCount())) * self.verticalHeader().defaultSectionSize()
        bar = self.horizontalScrollBar()
        scroll = bar.sizeHint().height() if bar.maximum() else 0
        self.setFixedHeight(rows + self.horizontalHeader().sizeHint().height() + scroll + 2 * self.frameWidth() + 2)
