"""A measured cut: its image, how even it is, its table, and what can be done with it."""

from __future__ import annotations

from itertools import pairwise

from PySide6.QtCore import Qt
from PySide6.QtWidgets import (
    QAbstractItemView,
    QHBoxLayout,
    QHeaderView,
    QLabel,
    QPushButton,
    QTableView,
    QVBoxLayout,
    QWidget,
)

from engine.contract.cut import Cut
from engine.parallel.cut import stages
from gui.cut import cut_format
from gui.cut.diagram import CutDiagram
from gui.cut.table import MODULES, StageTable
from gui.style import theme

HELP = (
    "The bar shows the time of one microbatch, forward and backward. Drag a cut, or Tab to it and press Left or "
    "Right; Home resets to the automatic cut. Below each cut is the data sent there."
)

LEAST_TABLE_HEIGHT, FRAME = 110, 2


class CutView(QWidget):
    """Shows one `Cut` in every way at once."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.balance = QLabel(wordWrap=True)
        self.balance.setObjectName("heading")
        self.whose = QLabel(wordWrap=True)
        self.whose.setObjectName("muted")
        self.image = CutDiagram()
        self.model = StageTable(self)
        self.table = QTableView()
        self.automatic = QPushButton("Automatic")
        self.automatic.setAccessibleName("Automatic cut")
        self.automatic.setToolTip("Back to the measured automatic cut (Home)")
        self.measure_again = QPushButton("Measure again")
        self.measure_again.setAccessibleName("Measure the cut again")
        self.use = QPushButton("Use this cut")
        self.use.setObjectName("primary")
        self.use.setToolTip("Trains with this cut; reset Cuts in the form to return to automatic")
        self._prepare_table()
        self._lay_out()

    def show_cut(self, cut: Cut, titles: tuple[str, ...]) -> None:
        """Shows `cut`; `titles` name the devices of its places. Raises ValueError where its cuts cannot be."""
        held = stages(cut)
        before = len(self.image.handles)
        self.image.show_cut(cut, titles)
        self.model.show_cut(cut, titles)
        self.balance.setText(cut_format.balance_words(cut, held))
        over = sorted({titles[stage.group_rank] for stage in held if stage.over_memory})
        self.say(f"⚠ Exceeds the memory of {', '.join(over)}." if over else cut_format.whose_words(cut), bool(over))
        self.automatic.setEnabled(not cut.chosen)
        if before != len(self.image.handles):
            self._fit_table()

    def order_tabs(self, after: QWidget) -> None:
        """Tab goes from `after` to the cuts, the buttons and the table, as they are read."""
        chain = [after, *self.image.handles, self.automatic, self.measure_again, self.use, self.table]
        for one, next_one in pairwise(chain):
            QWidget.setTabOrder(one, next_one)

    def say(self, text: str, warning: bool = False) -> None:
        """One line about whose cut this is, or what is wrong with it."""
        self.whose.setText(text)
        name = "warning" if warning else "muted"
        if self.whose.objectName() != name:
            self.whose.setObjectName(name)
            self.whose.style().unpolish(self.whose)
            self.whose.style().polish(self.whose)

    def _prepare_table(self) -> None:
        self.table.setModel(self.model)
        self.table.setAccessibleName("Stages of the cut")
        self.table.setTabKeyNavigation(False)
        self.table.setSelectionBehavior(QAbstractItemView.SelectionBehavior.SelectRows)
        self.table.setAlternatingRowColors(True)
        self.table.setShowGrid(False)
        self.table.setMinimumHeight(LEAST_TABLE_HEIGHT)
        self.table.setWordWrap(False)
        self.table.setTextElideMode(Qt.TextElideMode.ElideMiddle)
        self.table.setFont(theme.tabular(self.table.font()))
        self.table.verticalHeader().hide()
        self.table.horizontalHeader().setHighlightSections(False)
        self.table.horizontalHeader().setSectionResizeMode(QHeaderView.ResizeMode.ResizeToContents)
        self.table.horizontalHeader().setSectionResizeMode(MODULES, QHeaderView.ResizeMode.Stretch)
        # As far in as the cells' own texts.
        self.table.horizontalHeader().setStyleSheet("QHeaderView::section { padding: 5px 3px; }")

    def _lay_out(self) -> None:
        help_text = QLabel(HELP, wordWrap=True)
        help_text.setObjectName("muted")
        buttons = QHBoxLayout()
        buttons.setSpacing(8)
        buttons.addWidget(self.automatic)
        buttons.addWidget(self.measure_again)
        buttons.addStretch(1)
        buttons.addWidget(self.use)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(8)
        layout.addWidget(self.balance)
        layout.addWidget(self.whose)
        layout.addWidget(self.image)
        layout.addWidget(help_text)
        layout.addLayout(buttons)
        layout.addWidget(self.table, 1)
        layout.addStretch()

    def _fit_table(self) -> None:
        """No higher than its rows; where there is less room, it scrolls."""
        rows = self.table.verticalHeader().length()
        self.table.setMaximumHeight(rows + self.table.horizontalHeader().sizeHint().height() + 2 * FRAME)
