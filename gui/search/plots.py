"""Plots of a search: curves, history of the trials, Pareto front and importance of the fields."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyqtgraph as pg
from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QColor
from PySide6.QtWidgets import QLabel

from engine.contract.search import PARAMETERS, SECONDS, Goal
from gui.plots.themed import ThemedPlot, create_plain_text
from gui.sources.columns import Floats
from gui.sources.searches import SearchData, field_label, format_goal_value, join_curves
from gui.style import theme
from gui.style.fills import blend
from gui.translation import tr

BEST_WIDTH, SELECTED_WIDTH, POINT_SIZE = 2.5, 1.5, 7
_MIN_HEIGHT = 200
_SHADES = 6
_OUTLIERS = 5.0
"""Distance from the median above which values are left out, as a multiple of the best value's distance."""


class TrialPositions(NamedTuple):
    """Coordinates of trials in a plot: a polyline with gaps at NaN if `are_lines`, otherwise a point for each trial."""

    x: Floats
    y: Floats
    are_lines: bool


NO_POSITIONS = TrialPositions(np.empty(0), np.empty(0), are_lines=False)


class TrialPlot(ThemedPlot):
    """Base class for plots of trials.

    Subclasses draw all trials in `draw_trials`, and return the coordinates of selected ones in `locate`. Items are
    reused, because creating them takes most of the drawing time.

    Signals:
        picked(int): the user has clicked the point of the trial with the given number.

    Attributes:
        has_content: True if there is something to draw.
        items: Items by key.
    """

    picked = Signal(int)
    title = ""
    empty = tr("No trial has been validated yet")

    def __init__(self, name: str) -> None:
        super().__init__(name)
        theme.scale_with_text(self.setMinimumHeight, _MIN_HEIGHT)
        self.data: SearchData | None = None
        self._selected: list[int] = []  # rows of the selected trials
        self.has_content = False
        self.items: dict[Any, pg.GraphicsObject] = {}  # by key, see `get_or_create_item`
        self._drawn_keys: list[Any] = []  # keys of the items that the last drawing used
        self.selection = pg.PlotDataItem(connect="finite", antialias=True)
        self._empty_label = QLabel(self.empty, self, alignment=Qt.AlignmentFlag.AlignCenter, wordWrap=True)
        self._empty_label.setObjectName("muted")
        self._empty_label.setAttribute(Qt.WidgetAttribute.WA_TransparentForMouseEvents)
        self.recolor()

    def show_data(self, data: SearchData) -> None:
        """Draw the trials and results of a search."""
        self.data = data
        self.redraw()

    def select(self, rows: Sequence[int]) -> None:
        """Highlight the trials at the indices `rows`."""
        self._selected = list(rows)
        self._highlight()

    def redraw(self) -> None:
        """Draw the plot again, reusing its items, and hide the items that weren't used."""
        self._drawn_keys = []
        self.draw()
        for key in self.items.keys() - set(self._drawn_keys):
            self.items[key].hide()

    def draw(self) -> None:
        """Draw trials and selection, or a text in place of the axes if there is nothing to draw."""
        self.has_content = self.data is not None and self.draw_trials(self.data)
        self._empty_label.setVisible(not self.has_content)
        for side in ("bottom", "left"):
            self.getAxis(side).setVisible(self.has_content)
        # Mark the selection as drawn, so that `redraw` doesn't hide it, and place it above the trials.
        self.get_or_create_item("selection", lambda: self.selection)
        self._highlight()

    def get_or_create_item(self, key: Any, create: Callable[[], Any]) -> Any:
        """Return the item with a key, created by `create` on first use, and place it above earlier items."""
        item = self.items.get(key)
        if item is None:
            item = self.items[key] = create()
            self.addItem(item, ignoreBounds=True)
        item.setZValue(len(self._drawn_keys))
        item.show()
        self._drawn_keys.append(key)
        return item

    def draw_line(self, key: Any, x: Floats, y: Floats, color: QColor | str, width: float = 1) -> None:
        """Draw a line through the points (x, y), with gaps at NaN.

        `key` identifies the item of the line, which is reused.
        """
        item = self.get_or_create_item(key, pg.PlotCurveItem)
        item.setData(x, y, pen=pg.mkPen(color, width=width), connect="finite", antialias=width > 1)

    def draw_text(self, key: Any, text: str, x: float, y: float, anchor: tuple[float, float]) -> None:
        """Show `text` with its point `anchor` (fractions of its size) at (x, y). `key` identifies the item."""
        item = self.get_or_create_item(key, lambda: create_plain_text(anchor))
        if item.toPlainText() != text or item.color != pg.mkColor(theme.colors().text):
            item.setText(text, theme.colors().text)
            item.fill = pg.mkBrush(theme.colors().panel)
        item.setPos(x, y)

    def _label_goal(self, side: str, goal: Goal) -> None:
        """Set the title of the axis "bottom" or "left" for a goal, and hide ticks at impossible values."""
        units = {SECONDS: "s"}
        unit = "%" if goal.percent else units.get(goal.measure, "")
        self.label(side, f"{goal.title}, {unit}" if unit else goal.title)
        self.set_bounds(side, *find_goal_bounds(goal))

    def draw_trials(self, data: SearchData) -> bool:
        """Draw the trials. Return False if there is nothing to draw."""
        raise NotImplementedError

    def locate(self, data: SearchData, rows: list[int]) -> TrialPositions:
        """Return the coordinates of the trials at the indices `rows`."""
        raise NotImplementedError

    def resizeEvent(self, event: object) -> None:
        """Keep the text for an empty plot as large as the plot."""
        super().resizeEvent(event)
        if hasattr(self, "_empty_label"):  # pyqtgraph resizes the plot in its constructor
            self._empty_label.setGeometry(self.rect())

    def _highlight(self) -> None:
        """Emphasize the selected trials by lines or rings, or remove the emphasis if none is selected."""
        rows = [row for row in self._selected if self.data is not None and row < len(self.data.trials)]
        if self.data is None or not rows or not self.has_content:
            self.selection.setData([], [])
            return
        positions = self.locate(self.data, rows)
        color = theme.colors().text
        self.selection.setData(
            positions.x,
            positions.y,
            pen=pg.mkPen(color, width=SELECTED_WIDTH) if positions.are_lines else None,
            symbol=None if positions.are_lines else "o",
            symbolSize=POINT_SIZE + 5,
            symbolBrush=None,
            symbolPen=pg.mkPen(color, width=SELECTED_WIDTH),
        )

    def draw_points(self, x: Floats, y: Floats, data: SearchData) -> None:
        """Draw a clickable point for each trial.

        Better trials have stronger colors, and pruned and failed ones are gray.

        Each color is a separate item, because pyqtgraph is slow to draw items with several colors.
        """
        is_finite = np.isfinite(x) & np.isfinite(y)
        scores = score_trials(data)
        is_gray = np.array([row.state in ("pruned", "failed") for row in data.trials]) | np.isnan(scores)
        shades = np.where(is_gray, -1, np.round(np.nan_to_num(scores) * (_SHADES - 1)))  # -1 is gray
        edge = pg.mkPen(theme.colors().panel, width=1)
        for shade in range(-1, _SHADES):
            rows = np.flatnonzero(is_finite & (shades == shade))
            item = self.get_or_create_item(("points", shade), self._create_points)
            brush = pick_gray() if shade < 0 else pick_shade(shade / (_SHADES - 1))
            item.setData(x[rows], y[rows], data=rows, size=POINT_SIZE, pen=edge, brush=brush)

    def _create_points(self) -> pg.ScatterPlotItem:
        """Create an item for points, which emits `picked` when the user clicks a point."""
        item = pg.ScatterPlotItem()
        item.sigClicked.connect(lambda _item, points, _event: self._on_point_clicked(points[0].data()))
        return item

    def _on_point_clicked(self, row: int) -> None:
        """Emit `picked` with the number of the trial at index `row`."""
        if self.data is not None and row < len(self.data.trials):
            self.picked.emit(self.data.trials[row].number)


class TrialCurves(TrialPlot):
    """Curves of the first goal over epochs. Pruned trials are gray, and the best trial is emphasized."""

    def draw_trials(self, data: SearchData) -> bool:
        """Draw the curves of pruned, other and best trials. Return False if there are none."""
        colors, goal = theme.colors(), data.search.goals[0]
        self.title = tr("{goal} by epoch").format(goal=goal.title)
        if not len(data.pruned.x) + len(data.others.x):
            return False
        self.setLabel("bottom", tr("Epoch"))
        self._label_goal("left", goal)
        self.draw_line("pruned", data.pruned.x, data.pruned.y, pick_gray())
        self.draw_line("others", data.others.x, data.others.y, blend(colors.accent, colors.panel, 0.5))
        if data.best is not None:
            best = join_curves([data.best], goal)
            self.draw_line("best", best.x, best.y, colors.accent, BEST_WIDTH)
        self.setXRange(0, max(row.epochs for row in data.trials), padding=0.02)
        self.setYRange(*compute_axis_range(np.concatenate((data.pruned.y, data.others.y)), goal))
        self.getAxis("bottom").setTickSpacing(*_compute_integer_spacing(max(row.epochs for row in data.trials)))
        return True

    def locate(self, data: SearchData, rows: list[int]) -> TrialPositions:
        lines = join_curves([data.trials[row] for row in rows], data.search.goals[0])
        return TrialPositions(lines.x, lines.y, are_lines=True)


class HistoryPlot(TrialPlot):
    """Plot of each trial's result, and of the best result up to each trial."""

    def draw_trials(self, data: SearchData) -> bool:
        """Draw the results and the best so far. Return False if no trial has a result."""
        goal = data.search.goals[0]
        self.title = tr("{goal} by trial").format(goal=goal.title)
        if not len(data.values) or not np.isfinite(data.values[:, 0]).any():
            return False
        self.setLabel("bottom", tr("Trial"))
        self._label_goal("left", goal)
        numbers, values = _list_numbers(data), data.values[:, 0]
        completed = np.array([row.state == "completed" for row in data.trials])
        # The running best stays infinite until a trial has been completed.
        worst = -np.inf if goal.higher_is_better else np.inf
        better_of = np.maximum if goal.higher_is_better else np.minimum
        running_best = better_of.accumulate(np.where(completed & np.isfinite(values), values, worst))
        is_finite = np.isfinite(running_best)
        self.draw_line(
            "best", *_make_step_line(numbers[is_finite], running_best[is_finite]), theme.colors().accent, BEST_WIDTH
        )
        self.draw_points(numbers, values, data)
        self.setXRange(0, numbers[-1] + 1, padding=0.02)
        self.setYRange(*compute_axis_range(values, goal))
        self.getAxis("bottom").setTickSpacing(*_compute_integer_spacing(int(numbers[-1]) + 1))
        return True

    def locate(self, data: SearchData, rows: list[int]) -> TrialPositions:
        return TrialPositions(_list_numbers(data)[rows], data.values[rows, 0], are_lines=False)


class ParetoPlot(TrialPlot):
    """Plot of one goal against another, with a line through the Pareto front."""

    def draw_trials(self, data: SearchData) -> bool:
        """Plot the trials by the first two goals, with the Pareto front.

        Return False if there are fewer than two goals, or no trial has a result for both.
        """
        if len(data.search.goals) < 2:
            return False
        first, second = data.search.goals[:2]
        self.title = tr("{first} against {second}").format(first=first.title, second=second.title.lower())
        if not len(data.values) or not np.isfinite(data.values[:, :2]).all(axis=1).any():
            return False
        self._label_goal("bottom", second)
        self._label_goal("left", first)
        # Indices of the trials on the front, in the order of the second goal.
        front = [row for row, trial in enumerate(data.trials) if trial.number in data.state.front]
        front.sort(key=lambda row: data.values[row, 1])
        self.draw_line(
            "front", *_make_step_line(data.values[front, 1], data.values[front, 0]), theme.colors().accent, BEST_WIDTH
        )
        self.draw_points(data.values[:, 1], data.values[:, 0], data)
        self.setXRange(*compute_axis_range(data.values[:, 1], second))
        self.setYRange(*compute_axis_range(data.values[:, 0], first))
        return True

    def locate(self, data: SearchData, rows: list[int]) -> TrialPositions:
        return TrialPositions(data.values[rows, 1], data.values[rows, 0], are_lines=False)


class ImportancePlot(TrialPlot):
    """Bar chart of the importance of each field for the result."""

    title = tr("Importance of fields")
    empty = tr("Available after four completed trials")

    def draw_trials(self, data: SearchData) -> bool:
        """Draw a bar per field, the most important one at the top. Return False if the importance is unknown."""
        importance = data.state.importance
        if not importance:
            return False
        positions = np.arange(len(importance))[::-1]
        widths = [100 * fraction for fraction in importance.values()]
        bars = self.get_or_create_item("bars", lambda: pg.BarGraphItem(x0=0, y=[0], height=0.6, width=[0]))
        bars.setOpts(y=positions, width=widths, brush=theme.colors().accent, pen=None)
        for position, width in zip(positions, widths, strict=True):
            self.draw_text(position, f"{width:.0f}%", width, position, (0, 0.5))
        self.getAxis("left").setTicks([list(zip(positions, map(field_label, importance), strict=True))])
        self.setLabel("bottom", tr("Importance, %"))
        self.set_bounds("bottom", 0, 100)
        self.setXRange(0, 1.15 * max(widths), padding=0)
        self.setYRange(-0.6, len(importance) - 0.4, padding=0)
        return True

    def locate(self, data: SearchData, rows: list[int]) -> TrialPositions:
        return NO_POSITIONS


def find_goal_bounds(goal: Goal) -> tuple[float, float]:
    """Return the smallest and largest possible value of a goal."""
    if goal.percent:
        return 0.0, 100.0
    return (0.0, math.inf) if goal.measure in (SECONDS, PARAMETERS) else (-math.inf, math.inf)


def compute_axis_range(values: Floats, goal: Goal) -> tuple[float, float]:
    """Return the range of a goal's axis. It covers `values` except outliers that are much worse than the median."""
    finite = values[np.isfinite(values)]
    if not len(finite):
        return 0.0, 1.0
    best = float(finite.max() if goal.higher_is_better else finite.min())
    worst = float(finite.min() if goal.higher_is_better else finite.max())
    median = float(np.median(finite))
    limit = median + _OUTLIERS * (median - best)
    if median != best:
        worst = max(worst, limit) if goal.higher_is_better else min(worst, limit)
    if best != worst:
        return min(best, worst), max(best, worst)
    lowest, highest = find_goal_bounds(goal)  # a single value is in the middle of a range of 1, if possible
    return max(lowest, best - 0.5), min(highest, best + 0.5)


def score_trials(data: SearchData) -> Floats:
    """Return a score of each trial's first goal, from 0 (bad) to 1 (best), or NaN without a result."""
    if not len(data.values):
        return np.empty(0)
    low, high = compute_axis_range(data.values[:, 0], data.search.goals[0])
    scaled = np.clip((data.values[:, 0] - low) / (high - low), 0, 1)
    return scaled if data.search.goals[0].higher_is_better else 1 - scaled


def pick_shade(score: float) -> QColor:
    """Return the color for a score of `score_trials`. Lower scores are fainter."""
    colors = theme.colors()
    return blend(colors.accent, colors.panel, 0.2 + 0.8 * score)


def pick_gray() -> QColor:
    """Return the color of pruned and failed trials."""
    return blend(theme.colors().muted, theme.colors().panel, 0.4)


def describe_best(data: SearchData) -> str:
    """Describe the best trial for screen readers."""
    best, goal = data.best, data.search.goals[0]
    if best is None:
        return TrialPlot.empty
    return tr("Best: trial {number}, {title} {goal}").format(
        number=best.number, title=goal.title, goal=format_goal_value(goal, best.values[0])
    )


def _list_numbers(data: SearchData) -> Floats:
    """Return the numbers of all trials, which are their x positions."""
    return np.array([row.number for row in data.trials], np.float64)


def _make_step_line(x: Floats, y: Floats) -> tuple[Floats, Floats]:
    """Return the points of a step line. Each y remains constant until the next x."""
    return np.repeat(x, 2)[1:], np.repeat(y, 2)[:-1]


def _compute_integer_spacing(count: int) -> tuple[float, float]:
    """Return the distances between major ticks and between minor ticks, for an axis of integers from 0 to `count`.

    The axis has at most about eight major ticks. Minor ticks have the same distance, so that none is between integers.
    """
    spacing = next(step for step in (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 10**5) if step * 8 >= count)
    return float(spacing), float(spacing)
