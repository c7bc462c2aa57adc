"""Table of the stages of a cut."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from PySide6.QtCore import QObject, Qt

from engine.contract.cut import Cut
from engine.parallel.cut import Stage, stages
from gui.cut import cut_format
from gui.format import localised, milliseconds, size
from gui.translation import tr
from gui.widgets.column_model import LEFT, RIGHT, ColumnModel, Index


class _Row(NamedTuple):
    """Stage `number` of the cut."""

    number: int
    cut_stages: tuple[Stage, ...]
    titles: tuple[str, ...]

    @property
    def stage(self) -> Stage:
        return self.cut_stages[self.number]


@dataclass(frozen=True)
class _Column:
    title: str
    text: Callable[[_Row], str]
    help: str = ""
    number: bool = True


COLUMNS: tuple[_Column, ...] = (
    _Column(tr("Stage"), lambda row: str(row.number), number=False),
    _Column(tr("Device"), lambda row: row.titles[row.stage.group_rank], number=False),
    _Column(tr("Modules"), lambda row: cut_format.format_modules(row.stage), number=False),
    _Column(tr("Layers"), lambda row: localised(row.stage.layers), tr("Layers with parameters")),
    _Column(tr("Parameters"), lambda row: cut_format.format_count(row.stage.parameters)),
    _Column(
        tr("Time"),
        lambda row: milliseconds(row.stage.seconds),
        tr("Forward and backward of one microbatch, including the received activations"),
    ),
    _Column(
        tr("Share"), lambda row: cut_format.format_fraction(row.stage), tr("Share of the total time of all stages")
    ),
    _Column(
        tr("Memory"),
        lambda row: ("⚠ " if row.stage.over_memory else "") + size(row.stage.memory_bytes),
        tr(
            "Parameters with gradients and optimizer state, and activations of the microbatches in flight; ⚠ if the "
            "device has less"
        ),
    ),
    _Column(
        tr("Sent"),
        lambda row: cut_format.format_transfer(row.cut_stages, row.number),
        tr("Activations that each microbatch sends to the next stage; gradients of the same size come back"),
    ),
)
MODULES = 2
"""Index of the column that stretches."""


class StageTable(ColumnModel):
    """Item model with a row per stage."""

    columns = COLUMNS

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._cut: Cut | None = None
        self._stages: tuple[Stage, ...] = ()
        self._titles: tuple[str, ...] = ()

    def show_cut(self, cut: Cut, titles: tuple[str, ...]) -> None:
        """Show the stages of `cut`; `titles` name the devices of its ranks."""
        cut_stages = stages(cut)
        if len(cut_stages) != len(self._stages) or titles != self._titles:
            self.beginResetModel()
            self._cut, self._stages, self._titles = cut, cut_stages, titles
            self.endResetModel()
            return
        self._cut, self._stages = cut, cut_stages
        self.row_changed(0, len(cut_stages) - 1)

    def count(self) -> int:
        return len(self._stages)

    def data(self, index: Index, role: int = Qt.ItemDataRole.DisplayRole) -> Any:
        if not index.isValid() or self._cut is None:
            return None
        row, column = _Row(index.row(), self._stages, self._titles), COLUMNS[index.column()]
        if role == Qt.ItemDataRole.DisplayRole:
            return column.text(row)
        if role == Qt.ItemDataRole.ToolTipRole:
            return cut_format.describe_stage(row.number, row.cut_stages, self._cut, row.titles[row.stage.group_rank])
        if role == Qt.ItemDataRole.TextAlignmentRole:
            return RIGHT if column.number else LEFT
        return None
