"""The plots of a search, each under its title, in as many columns as have room."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import QTimer, Signal
from PySide6.QtGui import QResizeEvent, QShowEvent
from PySide6.QtWidgets import QGridLayout, QHBoxLayout, QLabel, QVBoxLayout, QWidget

from gui.search.field_plots import ParallelCoordinates, TwoFields
from gui.search.plots import History, Importance, ParetoPlot, TrialCurves, TrialPlot, describe
from gui.sources.search_data import SearchData

_LEAST_WIDTH = 330
"""Pixels that a plot has at least before another stands beside it."""
_MOST_COLUMNS = 3


class SearchPlots(QWidget):
    """All plots of the search that is shown; those out of sight are drawn once they come into it. One plot is drawn
    at a time, so that the window never waits for all.

    Signals: picked(int) - the number of the trial whose point was pressed.
    """

    picked = Signal(int)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.curves = TrialCurves("Goal of all trials by epoch")
        self.history = History("Goal by trial, and the best so far")
        self.pareto = ParetoPlot("Two goals against one another")
        self.importance = Importance("Importance of the fields")
        self.fields = TwoFields()
        self.parallel = ParallelCoordinates("Parallel coordinates of all trials")
        self.all: tuple[TrialPlot, ...] = (
            *(self.curves, self.pareto, self.history, self.importance, self.fields, self.parallel),
        )
        self._titles = {plot: QLabel(plot.title) for plot in self.all}
        self._panels = {plot: self._panel(plot) for plot in self.all}
        self._data: SearchData | None = None
        self._due: list[TrialPlot] = []
        self._columns = 0
        self._grid = QGridLayout(self)
        self._grid.setContentsMargins(0, 0, 0, 0)
        self._grid.setSpacing(10)
        self._next = QTimer(self, interval=0, singleShot=True)
        self._next.timeout.connect(self._draw_next)
        self._arrange()
        for plot in self.all:
            plot.picked.connect(self.picked)

    def show_data(self, data: SearchData) -> None:
        """Shows the search as it now stands."""
        others = self._data is None or len(self._data.search.goals) != len(data.search.goals)
        self._data = data
        self._panels[self.pareto].setVisible(len(data.search.goals) > 1)
        self._panels[self.history].setVisible(len(data.search.goals) == 1)
        self._due = list(self.all)
        if others:
            self._arrange(anew=True)
        self._next.start()

    def choose(self, rows: Sequence[int]) -> None:
        """Marks the trials at these places among all."""
        for plot in self.all:
            plot.choose(rows)

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        self._next.start()

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._arrange()

    def _draw_next(self) -> None:
        if self._data is None or not self._due or not self.isVisible():
            return
        plot = self._due.pop(0)
        plot.show_data(self._data)
        plot.setAccessibleDescription(describe(self._data))
        self._titles[plot].setText(plot.title)
        self._next.start()

    def _panel(self, plot: TrialPlot) -> QWidget:
        title = self._titles[plot]
        title.setObjectName("heading")
        row = QHBoxLayout()
        row.addWidget(title)
        row.addStretch(1)
        if isinstance(plot, TwoFields):
            row.addWidget(plot.x)
            row.addWidget(QLabel("and"))
            row.addWidget(plot.y)
        panel = QWidget(self)
        layout = QVBoxLayout(panel)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(2)
        layout.addLayout(row)
        layout.addWidget(plot, 1)
        return panel

    def _arrange(self, anew: bool = False) -> None:
        """Lays them out; the last, which is the widest, takes what is left of its row."""
        columns = max(1, min(_MOST_COLUMNS, self.width() // _LEAST_WIDTH))
        if columns == self._columns and not anew:
            return
        self._columns = columns
        while self._grid.count():
            self._grid.takeAt(0)
        shown = [panel for panel in self._panels.values() if not panel.isHidden()]
        for number, panel in enumerate(shown):
            column = number % columns
            span = columns - column if panel is shown[-1] else 1
            self._grid.addWidget(panel, number // columns, column, 1, span)
        for column in range(_MOST_COLUMNS):
            self._grid.setColumnStretch(column, int(column < columns))
