"""Panel of a search's plots in one to three columns."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import QTimer, Signal
from PySide6.QtGui import QResizeEvent, QShowEvent
from PySide6.QtWidgets import QGridLayout, QLabel, QWidget

from gui.search.field_plots import ParallelCoordinates, TwoFields
from gui.search.plots import HistoryPlot, ImportancePlot, ParetoPlot, TrialCurves, TrialPlot, describe
from gui.sources.search_data import SearchData
from gui.translation import tr
from gui.widgets.layouts import hbox, vbox

_MIN_PLOT_WIDTH = 330
_MAX_COLUMNS = 3


class SearchPlots(QWidget):
    """Plots of a search, drawn one at a time between events so that the window stays responsive.

    Signals:
        picked(int): the user clicked the point of the trial of that number.
    """

    picked = Signal(int)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.curves = TrialCurves(tr("Goal of all trials by epoch"))
        self.history = HistoryPlot(tr("Goal by trial, and the best so far"))
        self.pareto = ParetoPlot(tr("Two goals against each other"))
        self.importance = ImportancePlot(tr("Importance of the fields"))
        self.fields = TwoFields()
        self.parallel = ParallelCoordinates(tr("Parallel coordinates of all trials"))
        self.all: list[TrialPlot] = [self.curves, self.pareto, self.history, self.importance]
        self.all += [self.fields, self.parallel]
        self._titles = {plot: QLabel(plot.title) for plot in self.all}
        self._panels = {plot: self._panel(plot) for plot in self.all}
        self._data: SearchData | None = None
        self.pending: list[TrialPlot] = []
        self._columns = 0
        self._grid = QGridLayout(self)
        self._grid.setContentsMargins(0, 0, 0, 0)
        self._grid.setSpacing(10)
        self._draw_timer = QTimer(self, interval=0, singleShot=True)
        self._draw_timer.timeout.connect(self._draw_next)
        self._arrange()
        for plot in self.all:
            plot.picked.connect(self.picked)

    def show_data(self, data: SearchData) -> None:
        """Show the current state of a search."""
        has_other_plots = self._data is None or len(self._data.search.goals) != len(data.search.goals)
        self._data = data
        self._panels[self.pareto].setVisible(len(data.search.goals) > 1)
        self._panels[self.history].setVisible(len(data.search.goals) == 1)
        self.pending = list(self.all)
        if has_other_plots:
            self._arrange(force=True)
        self._draw_timer.start()

    def select(self, rows: Sequence[int]) -> None:
        """Highlight the trials at these indices in all plots."""
        for plot in self.all:
            plot.select(rows)

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        self._draw_timer.start()

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._arrange()

    def _draw_next(self) -> None:
        if self._data is None or not self.pending or not self.isVisible():
            return
        plot = self.pending.pop(0)
        plot.show_data(self._data)
        plot.setAccessibleDescription(describe(self._data))
        self._titles[plot].setText(plot.title)
        self._draw_timer.start()

    def _panel(self, plot: TrialPlot) -> QWidget:
        title = self._titles[plot]
        title.setObjectName("heading")
        choices = (plot.x, QLabel("and"), plot.y) if isinstance(plot, TwoFields) else ()
        panel = QWidget(self)
        panel.setLayout(vbox(hbox(title, 1, *choices), (plot, 1), spacing=2))
        return panel

    def _arrange(self, *, force: bool = False) -> None:
        """Lay the plots out if the number of columns changes or `force`; the last plot fills its row."""
        columns = max(1, min(_MAX_COLUMNS, self.width() // _MIN_PLOT_WIDTH))
        if columns == self._columns and not force:
            return
        self._columns = columns
        while self._grid.count():
            self._grid.takeAt(0)
        shown = [panel for panel in self._panels.values() if not panel.isHidden()]
        for number, panel in enumerate(shown):
            column = number % columns
            span = columns - column if panel is shown[-1] else 1
            self._grid.addWidget(panel, number // columns, column, 1, span)
        for column in range(_MAX_COLUMNS):
            self._grid.setColumnStretch(column, int(column < columns))
