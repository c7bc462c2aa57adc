"""View of a model's measured pipeline stages: diagram, balance, table and buttons."""

from __future__ import annotations

from itertools import pairwise
from typing import Any, NamedTuple

from PySide6.QtCore import QObject, Qt
from PySide6.QtWidgets import QHeaderView, QLabel, QPushButton, QTableView, QWidget

from engine.contract.model_split import ModelSplit
from engine.parallel.split_points import Stage, compute_stages
from gui.format import localized, milliseconds, size
from gui.split_points import stage_format
from gui.split_points.diagram import StageDiagram
from gui.style import theme
from gui.translation import tr
from gui.widgets.buttons import push_button, styled
from gui.widgets.column_model import LEFT, RIGHT, ColumnModel, Index, apply_table_style
from gui.widgets.labels import caption, muted_label
from gui.widgets.layouts import hbox, vbox
from gui.widgets.row_model import Column

HELP = tr(
    "The bar shows the time of one microbatch, forward and backward. Drag a split point, or Tab to it and press "
    "Left or Right; Home resets to the automatic ones. Below each split point is the data sent there."
)

MIN_TABLE_HEIGHT, FRAME, _PADDING = 110, 2, 5


class SplitPointsView(QWidget):
    """Diagram, balance and table of a model's pipeline stages."""

    def __init__(self) -> None:
        super().__init__()
        self.balance = styled(QLabel(wordWrap=True), "heading")
        self.origin = muted_label(word_wrap=True)
        self.diagram = StageDiagram()
        self.model = StageTable(self)
        self.table = QTableView()
        self.automatic = QPushButton(tr("Automatic"))
        self.automatic.setAccessibleName(tr("Automatic split points"))
        self.automatic.setToolTip(tr("Back to the measured automatic split points (Home)"))
        self.measure_again = push_button(tr("Measure again"), name=tr("Measure the model again"))
        self.use = QPushButton(tr("Use these split points"))
        self.use.setObjectName("primary")
        self.use.setToolTip(tr("Train with these split points; reset Split points in the form to return to automatic"))
        self._prepare_table()
        self._lay_out()

    def show_split(self, split: ModelSplit, titles: tuple[str, ...]) -> None:
        """Show `split`. `titles` are the names of its ranks' devices. Raises ValueError for impossible split points."""
        stages = compute_stages(split)
        previous_count = len(self.diagram.handles)
        self.diagram.show_split(split, titles)
        self.model.show_split(split, titles)
        self.balance.setText(stage_format.describe_balance(split, stages))
        devices_over_memory = sorted({titles[stage.group_rank] for stage in stages if stage.over_memory})
        if devices_over_memory:
            self.origin.setText(tr("⚠ Exceeds the memory of {over}.").format(over=", ".join(devices_over_memory)))
        else:
            self.origin.setText(stage_format.describe_origin(split))
        theme.set_kind(self.origin, "warning" if devices_over_memory else "muted")
        self.automatic.setEnabled(not split.chosen)
        if previous_count != len(self.diagram.handles):
            self._limit_table_height()

    def order_tabs(self, after: QWidget) -> None:
        """Set the tab order: `after`, split points, buttons, table."""
        widgets = [after, *self.diagram.handles, self.automatic, self.measure_again, self.use, self.table]
        for widget, next_widget in pairwise(widgets):
            QWidget.setTabOrder(widget, next_widget)

    def _prepare_table(self) -> None:
        """Set the style of the table. The column of modules gets the remaining width."""
        self.table.setModel(self.model)
        self.table.setAccessibleName(tr("Table of stages"))
        apply_table_style(self.table, leading=16, padding=_PADDING)
        self.table.horizontalHeader().setStyleSheet(f"QHeaderView::section {{ padding: {_PADDING}px; }}")
        self.table.setMinimumHeight(MIN_TABLE_HEIGHT)
        self.table.setTextElideMode(Qt.TextElideMode.ElideMiddle)
        self.table.setFont(theme.with_tabular_digits(self.table.font()))
        self.table.horizontalHeader().setSectionResizeMode(QHeaderView.ResizeMode.ResizeToContents)
        self.table.horizontalHeader().setSectionResizeMode(MODULES, QHeaderView.ResizeMode.Stretch)

    def _lay_out(self) -> None:
        help_text = caption(HELP)
        buttons = hbox(self.automatic, self.measure_again, 1, self.use)
        self.setLayout(vbox(self.balance, self.origin, self.diagram, help_text, buttons, (self.table, 1), 0))

    def _limit_table_height(self) -> None:
        """Limit the height of the table to its rows."""
        rows = self.table.verticalHeader().length()
        self.table.setMaximumHeight(rows + self.table.horizontalHeader().sizeHint().height() + 2 * FRAME)


class _Row(NamedTuple):
    """Row of the table for stage `number`."""

    number: int
    stages: tuple[Stage, ...]
    titles: tuple[str, ...]

    @property
    def stage(self) -> Stage:
        return self.stages[self.number]


COLUMNS: tuple[Column[_Row], ...] = (
    Column(tr("Stage"), lambda row: str(row.number)),
    Column(tr("Device"), lambda row: row.titles[row.stage.group_rank]),
    Column(tr("Modules"), lambda row: stage_format.format_modules(row.stage)),
    Column(tr("Layers"), lambda row: localized(row.stage.layers), is_numeric=True, help=tr("Layers with parameters")),
    Column(tr("Parameters"), lambda row: stage_format.format_count(row.stage.parameters), is_numeric=True),
    Column(
        tr("Time"),
        lambda row: milliseconds(row.stage.seconds),
        is_numeric=True,
        help=tr("Forward and backward of one microbatch, including the received activations"),
    ),
    Column(
        tr("Share"),
        lambda row: stage_format.format_fraction(row.stage),
        is_numeric=True,
        help=tr("Share of the total time of all stages"),
    ),
    Column(
        tr("Memory"),
        lambda row: ("⚠ " if row.stage.over_memory else "") + size(row.stage.memory_bytes),
        is_numeric=True,
        help=tr(
            "Parameters with gradients and optimizer state, and activations of the microbatches in flight; ⚠ if the "
            "device has less"
        ),
    ),
    Column(
        tr("Sent"),
        lambda row: stage_format.format_transfer(row.stages, row.number),
        is_numeric=True,
        help=tr("Activations that each microbatch sends to the next stage; gradients of the same size come back"),
    ),
)
MODULES = 2
"""Index of the column with the modules, which gets the remaining width."""


class StageTable(ColumnModel):
    """Item model of the table, with a row for each stage."""

    columns = COLUMNS

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._split: ModelSplit | None = None
        self._stages: tuple[Stage, ...] = ()
        self._titles: tuple[str, ...] = ()

    def show_split(self, split: ModelSplit, titles: tuple[str, ...]) -> None:
        """Show the stages of `split`. `titles` are the names of its ranks' devices."""
        stages = compute_stages(split)
        if len(stages) != len(self._stages) or titles != self._titles:
            self.beginResetModel()
            self._split, self._stages, self._titles = split, stages, titles
            self.endResetModel()
            return
        self._split, self._stages = split, stages
        self.emit_rows_changed(0, len(stages) - 1)

    def count(self) -> int:
        return len(self._stages)

    def data(self, index: Index, role: int = Qt.ItemDataRole.DisplayRole) -> Any:
        """Return a cell's text, or the description of its stage as its tool tip."""
        if not index.isValid() or self._split is None:
            return None
        row, column = _Row(index.row(), self._stages, self._titles), COLUMNS[index.column()]
        if role == Qt.ItemDataRole.DisplayRole:
            return column.text(row)
        if role == Qt.ItemDataRole.ToolTipRole:
            return stage_format.describe_stage(row.number, row.stages, self._split, row.titles[row.stage.group_rank])
        if role == Qt.ItemDataRole.TextAlignmentRole:
            return RIGHT if column.is_numeric else LEFT
        return None
