"""View of a measured cut: diagram, balance, table and buttons."""

from __future__ import annotations

from itertools import pairwise

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QAbstractItemView, QHeaderView, QLabel, QPushButton, QTableView, QWidget

from engine.contract.cut import Cut
from engine.parallel.cut import stages
from gui.cut import cut_format
from gui.cut.diagram import CutDiagram
from gui.cut.table import MODULES, StageTable
from gui.style import theme
from gui.translation import tr
from gui.widgets.labels import caption
from gui.widgets.layouts import hbox, vbox

HELP = tr(
    "The bar shows the time of one microbatch, forward and backward. Drag a cut, or Tab to it and press Left or "
    "Right; Home resets to the automatic cut. Below each cut is the data sent there."
)

MIN_TABLE_HEIGHT, FRAME = 110, 2


class CutView(QWidget):
    """Diagram, balance and table of a cut."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.balance = QLabel(wordWrap=True)
        self.balance.setObjectName("heading")
        self.origin = QLabel(wordWrap=True)
        self.origin.setObjectName("muted")
        self.diagram = CutDiagram()
        self.model = StageTable(self)
        self.table = QTableView()
        self.automatic = QPushButton(tr("Automatic"))
        self.automatic.setAccessibleName(tr("Automatic cut"))
        self.automatic.setToolTip(tr("Back to the measured automatic cut (Home)"))
        self.measure_again = QPushButton(tr("Measure again"))
        self.measure_again.setAccessibleName(tr("Measure the cut again"))
        self.use = QPushButton(tr("Use this cut"))
        self.use.setObjectName("primary")
        self.use.setToolTip(tr("Trains with this cut; reset Cuts in the form to return to automatic"))
        self._prepare_table()
        self._lay_out()

    def show_cut(self, cut: Cut, titles: tuple[str, ...]) -> None:
        """Show `cut`; `titles` name the devices of its ranks. Raises ValueError for impossible cuts."""
        cut_stages = stages(cut)
        before = len(self.diagram.handles)
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
        if before != len(self.diagram.handles):
            self._limit_table_height()

    def order_tabs(self, after: QWidget) -> None:
        """Set the tab order from `after` through cuts and buttons to the table."""
        chain = [after, *self.diagram.handles, self.automatic, self.measure_again, self.use, self.table]
        for widget, next_widget in pairwise(chain):
            QWidget.setTabOrder(widget, next_widget)

    def show_origin(self, text: str, is_warning: bool = False) -> None:
        """Show the origin of the cut or a warning."""
        self.origin.setText(text)
        name = "warning" if is_warning else "muted"
        if self.origin.objectName() != name:
            self.origin.setObjectName(name)
            self.origin.style().unpolish(self.origin)
            self.origin.style().polish(self.origin)

    def _prepare_table(self) -> None:
        self.table.setModel(self.model)
        self.table.setAccessibleName(tr("Stages of the cut"))
        self.table.setTabKeyNavigation(False)
        self.table.setSelectionBehavior(QAbstractItemView.SelectionBehavior.SelectRows)
        self.table.setAlternatingRowColors(True)
        self.table.setShowGrid(False)
        self.table.setMinimumHeight(MIN_TABLE_HEIGHT)
        self.table.setWordWrap(False)
        self.table.setTextElideMode(Qt.TextElideMode.ElideMiddle)
        self.table.setFont(theme.tabular(self.table.font()))
        self.table.verticalHeader().hide()
        self.table.horizontalHeader().setHighlightSections(False)
        self.table.horizontalHeader().setSectionResizeMode(QHeaderView.ResizeMode.ResizeToContents)
        self.table.horizontalHeader().setSectionResizeMode(MODULES, QHeaderView.ResizeMode.Stretch)
        # Align the header with the text of the cells.
        self.table.horizontalHeader().setStyleSheet("QHeaderView::section { padding: 5px 3px; }")

    def _lay_out(self) -> None:
        help_text = caption(HELP)
        buttons = hbox(self.automatic, self.measure_again, 1, self.use)
        self.setLayout(vbox(self.balance, self.origin, self.diagram, help_text, buttons, (self.table, 1), 0))

    def _limit_table_height(self) -> None:
        """Limit the height of the table to its rows."""
        rows = self.table.verticalHeader().length()
        self.table.setMaximumHeight(rows + self.table.horizontalHeader().sizeHint().height() + 2 * FRAME)
