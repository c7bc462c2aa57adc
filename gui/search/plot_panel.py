"""Panel with the plots of a search in one to three columns."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyqtgraph as pg
from PySide6.QtCore import QRectF, QTimer, Signal
from PySide6.QtGui import QResizeEvent, QShowEvent
from PySide6.QtWidgets import QComboBox, QGridLayout, QLabel, QWidget

from gui.format import localized, significant
from gui.plots.axes import compute_log_ticks
from gui.plots.themed import ThemedPlot
from gui.search.plots import (
    BEST_WIDTH,
    NO_POSITIONS,
    HistoryPlot,
    ImportancePlot,
    ParetoPlot,
    TrialCurves,
    TrialPlot,
    TrialPositions,
    compute_axis_range,
    describe_best,
    pick_shade,
    score_trials,
)
from gui.sources.columns import Floats
from gui.sources.searches import Axis, SearchData
from gui.style import theme
from gui.translation import tr
from gui.widgets.editors import ComboBox, fill_combo_box
from gui.widgets.labels import heading_label
from gui.widgets.layouts import hbox, vbox

_MIN_PLOT_WIDTH = 330
_MAX_COLUMNS = 3


class SearchPlots(QWidget):
    """Plots of a search. They are drawn one at a time between events, so that the window stays responsive.

    Signals:
        picked(int): the user has clicked the point of the trial with the given number.
    """

    picked = Signal(int)

    def __init__(self) -> None:
        super().__init__()
        self.curves = TrialCurves(tr("Goal of all trials by epoch"))
        self.history = HistoryPlot(tr("Goal by trial, and the best so far"))
        self.pareto = ParetoPlot(tr("Two goals against each other"))
        self.importance = ImportancePlot(tr("Importance of the fields"))
        self.fields = TwoFieldPlot()
        self.parallel = ParallelCoordinatesPlot(tr("Parallel coordinates of all trials"))
        self.plots: list[TrialPlot] = [self.curves, self.pareto, self.history, self.importance]
        self.plots += [self.fields, self.parallel]
        self._titles = {plot: heading_label(plot.title) for plot in self.plots}
        self._panels = {plot: self._make_panel(plot) for plot in self.plots}
        self._data: SearchData | None = None
        self.pending: list[TrialPlot] = []  # plots that must be redrawn
        self._columns = 0
        self._grid = QGridLayout(self)
        self._grid.setContentsMargins(0, 0, 0, 0)
        self._grid.setSpacing(10)
        self._draw_timer = QTimer(self, interval=0, singleShot=True)
        self._draw_timer.timeout.connect(self._draw_next)
        self._arrange()
        for plot in self.plots:
            plot.picked.connect(self.picked)

    def show_data(self, data: SearchData) -> None:
        """Show the trials and results of a search in all plots."""
        previous, self._data = self._data, data
        has_other_plots = previous is None or _get_plot_conditions(previous) != _get_plot_conditions(data)
        self._panels[self.fields].setVisible(len(data.axes) > 1)
        self._panels[self.pareto].setVisible(len(data.search.goals) > 1)
        self._panels[self.history].setVisible(len(data.search.goals) == 1)
        self.pending = list(self.plots)
        if has_other_plots:
            self._arrange(force=True)
        self._draw_timer.start()

    def select(self, rows: Sequence[int]) -> None:
        """Highlight the trials at the indices `rows` in all plots."""
        for plot in self.plots:
            plot.select(rows)

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        self._draw_timer.start()

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._arrange()

    def _draw_next(self) -> None:
        """Draw one outdated plot, and schedule the next, so that the window responds in between."""
        if self._data is None or not self.pending or not self.isVisible():
            return
        plot = self.pending.pop(0)
        plot.show_data(self._data)
        plot.setAccessibleDescription(describe_best(self._data))
        self._titles[plot].setText(plot.title)
        self._draw_timer.start()

    def _make_panel(self, plot: TrialPlot) -> QWidget:
        """Create a panel with the title of a plot, its choices of fields, and the plot."""
        choices = (plot.x, QLabel(tr("and")), plot.y) if isinstance(plot, TwoFieldPlot) else ()
        panel = QWidget(self)
        panel.setLayout(vbox(hbox(self._titles[plot], 1, *choices), (plot, 1), spacing=2))
        return panel

    def _arrange(self, *, force: bool = False) -> None:
        """Lay out the plots if the number of columns has changed, or if `force`. The last plot fills its row."""
        columns = max(1, min(_MAX_COLUMNS, self.width() // theme.scale_pixels(_MIN_PLOT_WIDTH)))
        if columns == self._columns and not force:
            return
        self._columns = columns
        while self._grid.count():
            self._grid.takeAt(0)
        visible = [panel for panel in self._panels.values() if not panel.isHidden()]
        for number, panel in enumerate(visible):
            column = number % columns
            span = columns - column if panel is visible[-1] else 1
            self._grid.addWidget(panel, number // columns, column, 1, span)
        for column in range(_MAX_COLUMNS):
            self._grid.setColumnStretch(column, int(column < columns))


def _get_plot_conditions(data: SearchData) -> tuple[int, bool]:
    """Return the number of goals, and True if several fields are varied.

    These facts determine which plots are visible.
    """
    return len(data.search.goals), len(data.axes) > 1


_SHADES, _FAINTEST = 8, -0.1
_GRID = 80
"""Number of cells of the contour plot in each direction."""
_BANDS = 8
_MIN_CONTOUR_TRIALS = 10
_MIN_WEIGHT = 0.135
"""Minimum weight of a cell in the contour plot: the weight of a single trial two standard deviations away."""
_MAX_TICKS = 6
_MAX_LOG_TICKS = 5
_MAX_TICK_LENGTH = 14


class ParallelCoordinatesPlot(TrialPlot):
    """Parallel coordinates: each trial is a line through its field values and its result.

    Better trials have a stronger color.
    """

    title = tr("Parallel coordinates")

    def draw_trials(self, data: SearchData) -> bool:
        """Draw a line per trial, stronger for better trials, and emphasize the best one.

        Return False without results.
        """
        scores = score_trials(data)
        if not np.isfinite(scores).any():
            return False
        heights = self._compute_heights(data)
        ranked = np.argsort(scores)[: np.isfinite(scores).sum()]  # rows from bad to best; NaN is sorted last
        for band, rows in enumerate(np.array_split(ranked, _SHADES)):
            if len(rows):
                strength = (band / (_SHADES - 1)) ** 3  # from 0 to 1; only the best bands are strong
                color = pick_shade(_FAINTEST + (1 - _FAINTEST) * strength)
                self.draw_line(("band", band), *_join_lines(heights[rows]), color)
        if data.best is not None:
            row = data.trials.index(data.best)
            self.draw_line("best", *_join_lines(heights[[row]]), theme.colors().accent, BEST_WIDTH)
        self._draw_axes(data)
        return True

    def locate(self, data: SearchData, rows: list[int]) -> TrialPositions:
        x, y = _join_lines(self._compute_heights(data)[rows])
        return TrialPositions(x, y, are_lines=True)

    def draw(self) -> None:
        super().draw()
        self.getAxis("left").hide()
        self.showGrid(x=False, y=False)

    def _draw_axes(self, data: SearchData) -> None:
        """Draw a vertical axis with ticks for each field and for the goal. All axes are scaled to 0..1."""
        colors, goal = theme.colors(), data.search.goals[0]
        low, high = compute_axis_range(data.values[:, 0], goal)  # of the results by the first goal
        goal_ticks = [
            (height, f"{localized(value, 1)}%" if goal.percent else significant(value, 4))
            for height, value in ((0.0, low), (1.0, high))
        ]
        ticks = [
            [(float(_to_fraction(axis, position)), text) for position, text in axis.ticks()][:_MAX_TICKS]
            for axis in data.axes
        ]
        for x, axis_ticks in enumerate([*ticks, goal_ticks]):
            self.draw_line(("axis", x), np.array([x, x]), np.array([0, 1]), colors.muted)
            for height, text in axis_ticks:
                self.draw_text((x, height), _elide(text), x, height, (0.5, height))
        titles = [*(axis.label for axis in data.axes), goal.title]
        self.getAxis("bottom").setTicks([list(enumerate(titles))])
        self.setXRange(-0.35, len(titles) - 0.65, padding=0)
        self.setYRange(-0.12, 1.12, padding=0)

    def _compute_heights(self, data: SearchData) -> Floats:
        """Return the positions of all trials on the axes, from 0 (bottom) to 1 (top), [trials, axes].

        There is an axis for each field, followed by one for the goal.
        """
        low, high = compute_axis_range(data.values[:, 0], data.search.goals[0])
        goal = np.clip((data.values[:, :1] - low) / (high - low), 0, 1)
        fields = [_to_fraction(axis, data.positions[:, index]) for index, axis in enumerate(data.axes)]
        return np.column_stack([*fields, goal])


class TwoFieldPlot(TrialPlot):
    """Scatter plot of the trials over two fields, with contours of the smoothed goal if both fields are numeric.

    Attributes:
        x: Combo box for the horizontal field.
        y: Combo box for the vertical field.
    """

    title = tr("Two fields")

    def __init__(self) -> None:
        super().__init__(tr("Two fields"))
        self.x, self.y = ComboBox(), ComboBox()
        for box, name in ((self.x, tr("Horizontal field")), (self.y, tr("Vertical field"))):
            box.setAccessibleName(name)
            box.setSizeAdjustPolicy(QComboBox.SizeAdjustPolicy.AdjustToContents)
            box.currentIndexChanged.connect(lambda _index: self.recolor())

    def show_data(self, data: SearchData) -> None:
        """Draw the trials over the two selected fields. If other fields are searched now, fill the combo boxes first.

        The two most important fields are then selected.
        """
        names = [axis.name for axis in data.axes]
        if [self.x.itemData(index) for index in range(self.x.count())] != names:
            ranked = list(dict.fromkeys([*data.state.importance, *names]))
            for box, field in ((self.x, ranked[0]), (self.y, ranked[min(1, len(ranked) - 1)])):
                fill_combo_box(box, ((axis.label, axis.name) for axis in data.axes), field)
        super().show_data(data)

    def draw_trials(self, data: SearchData) -> bool:
        """Draw the trials by two fields, over bands of the average result.

        The bands are left out if there are few trials, or if a field isn't numeric. Returns False if no trial has a
        result, or if there are no fields.
        """
        scores, axes = score_trials(data), self._find_axes(data)
        if not np.isfinite(scores).any() or axes is None:
            return False
        x_axis, y_axis = axes
        x, y = data.positions[:, data.axes.index(x_axis)], data.positions[:, data.axes.index(y_axis)]
        is_finite = np.isfinite(x) & np.isfinite(y) & np.isfinite(scores)
        is_numeric = x_axis is not y_axis and not x_axis.choices and not y_axis.choices
        if is_finite.sum() >= _MIN_CONTOUR_TRIALS and is_numeric:
            self._draw_contours(x_axis, y_axis, x[is_finite], y[is_finite], scores[is_finite])
        self.draw_points(x, y, data)
        _fit_axis(self, "bottom", x_axis)
        _fit_axis(self, "left", y_axis)
        return True

    def locate(self, data: SearchData, rows: list[int]) -> TrialPositions:
        axes = self._find_axes(data)
        if axes is None:
            return NO_POSITIONS
        x, y = (data.positions[rows, data.axes.index(axis)] for axis in axes)
        return TrialPositions(x, y, are_lines=False)

    def _find_axes(self, data: SearchData) -> tuple[Axis, Axis] | None:
        """Return the axes of the chosen fields, or None if a field isn't searched anymore."""
        by_name = {axis.name: axis for axis in data.axes}
        x, y = by_name.get(self.x.currentData()), by_name.get(self.y.currentData())
        return (x, y) if x is not None and y is not None else None

    def _draw_contours(self, x_axis: Axis, y_axis: Axis, x: Floats, y: Floats, scores: Floats) -> None:
        """Draw bands of the average result, which is weighted by the distance to the trials.

        Weights are Gaussian, with a width according to Scott's rule (1992). `x` and `y` are the positions of the trials
        on both axes, and `scores` their results from 0 (bad) to 1 (best).
        """
        width = 0.29 * len(x) ** (-1 / 6)  # 0.29 is the standard deviation of positions that are uniform in 0..1
        cells = (np.arange(_GRID, dtype=np.float32) + 0.5) / _GRID
        near_x = np.exp(-0.5 * ((cells[:, None] - _to_fraction(x_axis, x)[None]) / width) ** 2)
        near_y = np.exp(-0.5 * ((cells[:, None] - _to_fraction(y_axis, y)[None]) / width) ** 2)
        # Don't use BLAS, whose threads would wait for each other while trials use all cores.
        weights = np.einsum("ik,jk->ij", near_x, near_y)
        average = np.einsum("ik,jk->ij", near_x * scores, near_y) / np.maximum(weights, 1e-12)
        low, high = float(average.min()), float(average.max())
        bands = np.floor((average - low) / max(high - low, 1e-9) * _BANDS).clip(0, _BANDS - 1).astype(int)
        colors = np.array([pick_shade(band / _BANDS * 0.5).getRgb() for band in range(_BANDS)], np.uint8)
        image = colors[bands]
        image[weights < _MIN_WEIGHT, 3] = 0  # transparent where no trial is near
        item = self.get_or_create_item("contour", lambda: pg.ImageItem(axisOrder="col-major"))
        item.setImage(image, levels=None)
        item.setRect(QRectF(x_axis.low, y_axis.low, x_axis.high - x_axis.low, y_axis.high - y_axis.low))


def _fit_axis(plot: ThemedPlot, side: str, axis: Axis) -> None:
    """Set the label, the ticks and the range of a plot's axis. `side` is "bottom" or "left"."""
    axis_item = plot.getAxis(side)
    if axis.choices:
        ticks = axis.ticks()
    elif axis.log:  # the labels of pyqtgraph's logarithmic axes overlap
        ticks = [
            (position, significant(10**position, 2))
            for position in compute_log_ticks(axis.low, axis.high, _MAX_LOG_TICKS)
        ]
    else:
        ticks = None
    axis_item.setTicks(None if ticks is None else [ticks])
    plot.label(side, axis.label)
    set_range = plot.setXRange if side == "bottom" else plot.setYRange
    set_range(axis.low, axis.high, padding=0.25 if axis.choices else 0.03)


def _to_fraction(axis: Axis, position: Floats | float) -> Floats:
    """Convert a position on the axis to a fraction of its length. An axis with a single value has the fraction 0."""
    return np.clip((np.asarray(position) - axis.low) / (axis.high - axis.low or 1), 0, 1)


def _join_lines(heights: Floats) -> tuple[Floats, Floats]:
    """Join lines with heights of shape [lines, axes] to a polyline with gaps, and return its x and y."""
    lines, axes = heights.shape
    x = np.tile(np.append(np.arange(axes, dtype=np.float64), np.nan), lines)
    return x, np.column_stack([heights, np.full(lines, np.nan)]).ravel()


def _elide(text: str) -> str:
    """Shorten a tick label that is too long."""
    return text if len(text) <= _MAX_TICK_LENGTH else text[: _MAX_TICK_LENGTH - 1] + "…"
