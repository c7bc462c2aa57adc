"""View of a model's measured pipeline stages: diagram, balance, table and buttons."""

from __future__ import annotations

from itertools import pairwise
from typing import Any, NamedTuple

from PySide6.QtCore import QObject, Qt
from PySide6.QtWidgets import QHeaderView, QLabel, QPushButton, QTableView, QWidget

from engine.contract.cut import Cut
from engine.parallel.cut import Stage, compute_stages
from gui.cut import cut_format
from gui.cut.diagram import CutDiagram
from gui.format import localized, milliseconds, size
from gui.style import theme
from gui.translation import tr
from gui.widgets.buttons import push_button, styled
from gui.widgets.column_model import LEFT, RIGHT, ColumnModel, Index, apply_table_style
from gui.widgets.labels import caption, muted_label
from gui.widgets.layouts import hbox, vbox
from gui.widgets.row_model import Column

HELP = tr(
    "The bar shows the time of one microbatch, forward and backward. Drag a cut, or Tab to it and press Left or "
    "Right; Home resets to the automatic cut. Below each cut is the data sent there."
)

MIN_TABLE_HEIGHT, FRAME, _PADDING = 110, 2, 5


class CutView(QWidget):
    """Diagram, balance and table of a model's pipeline stages."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.balance = styled(QLabel(wordWrap=True), "heading")
        self.origin = muted_label(word_wrap=True)
        self.diagram = CutDiagram()
        self.model = StageTable(self)
        self.table = QTableView()
        self.automatic = QPushButton(tr("Automatic"))
        self.automatic.setAccessibleName(tr("Automatic cut"))
        self.automatic.setToolTip(tr("Back to the measured automatic cut (Home)"))
        self.measure_again = push_button(tr("Measure again"), name=tr("Measure the cut again"))
        self.use = QPushButton(tr("Use this cut"))
        self.use.setObjectName("primary")
        self.use.setToolTip(tr("Train with this cut; reset Cuts in the form to return to automatic"))
        self._prepare_table()
        self._lay_out()

    def show_cut(self, cut: Cut, titles: tuple[str, ...]) -> None:
        """Show `cut`. `titles` are the names of its ranks' devices. Raises ValueError for impossible cuts."""
        cut_stages = compute_stages(cut)
        previous_count = len(self.diagram.handles)
        self.diagram.show_cut(cut, titles)
        self.model.show_cut(cut, titles)
        self.balance.setText(cut_format.describe_balance(cut, cut_stages))
        over = sorted({titles[stage.group_rank] for stage in cut_stages if stage.over_memory})
        self.show_origin(
            tr("⚠ Exceeds the memory of {over}.").format(over=", ".join(over))
            if over
            else cut_format.describe_origin(cut),
            bool(over),
        )
        self.automatic.setEnabled(not cut.chosen)
        if previous_count != len(self.diagram.handles):
            self._limit_table_height()

    def order_tabs(self, after: QWidget) -> None:
        """Set the tab order: `after`, cuts, buttons, table."""
        chain = [after, *self.diagram.handles, self.automatic, self.measure_again, self.use, self.table]
        for widget, next_widget in pairwise(chain):
            QWidget.setTabOrder(widget, next_widget)

    def show_origin(self, text: str, is_warning: bool = False) -> None:
        """Show `text` below the diagram: who divided the model into stages or, if `is_warning`, a warning."""
        self.origin.setText(text)
        theme.set_kind(self.origin, "warning" if is_warning else "muted")

    def _prepare_table(self) -> None:
        """Set the style of the table. The column of modules gets the remaining width."""
        self.table.setModel(self.model)
        self.table.setAccessibleName(tr("Stages of the cut"))
        apply_table_style(self.table, leading=16, padding=_PADDING)
        self.table.horizontalHeader().setStyleSheet(f"QHeaderView::section {{ padding: {_PADDING}px; }}")
        self.table.setMinimumHeight(MIN_TABLE_HEIGHT)
        self.table.setTextElideMode(Qt.TextElideMode.ElideMiddle)
        self.table.setFont(theme.tabular(self.table.font()))
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
    """Row of the table for stage `number` of the cut."""

    number: int
    cut_stages: tuple[Stage, ...]
    titles: tuple[str, ...]

    @property
    def stage(self) -> Stage:
        return self.cut_stages[self.number]


COLUMNS: tuple[Column[_Row], ...] = (
    Column(tr("Stage"), lambda row: str(row.number)),
    Column(tr("Device"), lambda row: row.titles[row.stage.group_rank]),
    Column(tr("Modules"), lambda row: cut_format.format_modules(row.stage)),
    Column(tr("Layers"), lambda row: localized(row.stage.layers), is_numeric=True, help=tr("Layers with parameters")),
    Column(tr("Parameters"), lambda row: cut_format.format_count(row.stage.parameters), is_numeric=True),
    Column(
        tr("Time"),
        lambda row: milliseconds(row.stage.seconds),
        is_numeric=True,
        help=tr("Forward and backward of one microbatch, including the received activations"),
    ),
    Column(
        tr("Share"),
        lambda row: cut_format.format_fraction(row.stage),
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
        lambda row: cut_format.format_transfer(row.cut_stages, row.number),
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
        self._cut: Cut | None = None
        self._stages: tuple[Stage, ...] = ()
        self._titles: tuple[str, ...] = ()

    def show_cut(self, cut: Cut, titles: tuple[str, ...]) -> None:
        """Show the stages of `cut`. `titles` are the names of its ranks' devices."""
        cut_stages = compute_stages(cut)
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
        """Return a cell's text, or the description of its stage as its tool tip."""
        if not index.isValid() or self._cut is None:
            return None
        row, column = _Row(index.row(), self._stages, self._titles), COLUMNS[index.column()]
        if role == Qt.ItemDataRole.DisplayRole:
            return column.text(row)
        if role == Qt.ItemDataRole.ToolTipRole:
            return cut_format.describe_stage(row.number, row.cut_stages, self._cut, row.titles[row.stage.group_rank])
        if role == Qt.ItemDataRole.TextAlignmentRole:
            return RIGHT if column.is_numeric else LEFT
        return None
