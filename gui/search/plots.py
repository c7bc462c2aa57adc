"""What a search's plots have in common, and those that go by trial and epoch: curves, values, the Pareto front,
importance.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyqtgraph as pg
from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QColor
from PySide6.QtWidgets import QLabel

from engine.contract.search import Goal
from gui.plots.themed import ThemedPlot, plain_text
from gui.sources.columns import Floats
from gui.sources.search_data import SearchData, field_label, goal_words, lines_of
from gui.style import theme
from gui.style.fills import blend

STRONG, MARKED, POINT = 2.5, 1.5, 7
_LEAST_HEIGHT = 200
_SHADES = 6
_OUTLIERS = 5.0
"""Values further from the median than this many times the best are out of sight: one that diverged would flatten all
others."""


class TrialPlot(ThemedPlot):
    """Draws the trials of a search: `draw_trials` all of them, `mark` those that are chosen in the table.

    Signals: picked(int) - the number of the trial whose point was pressed. Attribute: title - what stands above it.
    """

    picked = Signal(int)
    title = ""
    empty = "No trial has been validated yet"

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.setMinimumHeight(_LEAST_HEIGHT)
        self.data: SearchData | None = None
        self._chosen: list[int] = []
        self._there = False
        self._items: dict[Any, pg.GraphicsObject] = {}
        self._drawn: list[Any] = []
        self._marks = pg.PlotDataItem(connect="finite", antialias=True)
        self._nothing = QLabel(self.empty, self, alignment=Qt.AlignmentFlag.AlignCenter, wordWrap=True)
        self._nothing.setObjectName("muted")
        self._nothing.setAttribute(Qt.WidgetAttribute.WA_TransparentForMouseEvents)
        self.recolor()

    def show_data(self, data: SearchData) -> None:
        """Draws the search as it now stands."""
        self.data = data
        self.redraw()

    def choose(self, rows: Sequence[int]) -> None:
        """Marks the trials at these places among all."""
        self._chosen = list(rows)
        self._mark()

    def redraw(self) -> None:
        """Items are kept and given new data: making them is most of what a drawing costs."""
        self._drawn = []
        self.draw()
        for key in self._items.keys() - set(self._drawn):
            self._items[key].hide()

    def draw(self) -> None:
        self._there = there = self.data is not None and self.draw_trials(self.data)
        self._nothing.setVisible(not there)
        for side in ("bottom", "left"):
            self.getAxis(side).setVisible(there)
        self.put("marks", lambda: self._marks)
        self._mark()

    def put(self, key: Any, make: Callable[[], Any]) -> Any:
        """The item of that key, above those put before it; `make` makes it where there is none yet."""
        item = self._items.get(key)
        if item is None:
            item = self._items[key] = make()
            self.addItem(item, ignoreBounds=True)
        item.setZValue(len(self._drawn))
        item.show()
        self._drawn.append(key)
        return item

    def line(self, key: Any, x: Floats, y: Floats, color: QColor | str, width: float = 1) -> None:
        """Puts a line onto the plot, which is broken where a value is not known."""
        item = self.put(key, pg.PlotCurveItem)
        item.setData(x, y, pen=pg.mkPen(color, width=width), connect="finite", antialias=width > 1)

    def text(self, key: Any, words: str, x: float, y: float, anchor: tuple[float, float]) -> None:
        """Puts a text onto the plot."""
        item = self.put(key, lambda: plain_text(anchor))
        if item.toPlainText() != words or item.color != pg.mkColor(theme.colors().text):
            item.setText(words, theme.colors().text)
            item.fill = pg.mkBrush(theme.colors().panel)
        item.setPos(x, y)

    def draw_trials(self, data: SearchData) -> bool:
        """Puts the trials onto the plot; False where there is nothing to show."""
        raise NotImplementedError

    def mark(self, data: SearchData, rows: list[int]) -> tuple[Floats, Floats, bool]:
        """Where the trials at these places are: x and y, and whether a line goes through them."""
        raise NotImplementedError

    def resizeEvent(self, event: object) -> None:
        super().resizeEvent(event)
        if hasattr(self, "_nothing"):
            self._nothing.setGeometry(self.rect())

    def _mark(self) -> None:
        rows = [row for row in self._chosen if self.data is not None and row < len(self.data.trials)]
        if self.data is None or not rows or not self._there:
            self._marks.setData([], [])
            return
        x, y, lines = self.mark(self.data, rows)
        color = theme.colors().text
        self._marks.setData(
            x,
            y,
            pen=pg.mkPen(color, width=MARKED) if lines else None,
            symbol=None if lines else "o",
            symbolSize=POINT + 5,
            symbolBrush=None,
            symbolPen=pg.mkPen(color, width=MARKED),
        )

    def points(self, x: Floats, y: Floats, data: SearchData) -> None:
        """Puts a point for each trial onto the plot, the stronger the better, and grey where it was stopped early or
        failed; it can be pressed. One item for each colour, since an item with many colours is drawn point by
        point.
        """
        known = np.isfinite(x) & np.isfinite(y)
        early = np.array([row.state in ("pruned", "failed") for row in data.trials]) | np.isnan(goodness(data))
        steps = np.where(early, -1, np.round(np.nan_to_num(goodness(data)) * (_SHADES - 1)))
        edge = pg.mkPen(theme.colors().panel, width=1)
        for step in range(-1, _SHADES):
            rows = np.flatnonzero(known & (steps == step))
            key = ("points", step)
            item = self.put(key, self._new_points)
            brush = grey() if step < 0 else shade(step / (_SHADES - 1))
            item.setData(x[rows], y[rows], data=rows, size=POINT, pen=edge, brush=brush)

    def _new_points(self) -> pg.ScatterPlotItem:
        item = pg.ScatterPlotItem()
        item.sigClicked.connect(lambda _item, hit, _event: self._pressed(hit[0].data()))
        return item

    def _pressed(self, row: int) -> None:
        if self.data is not None and row < len(self.data.trials):
            self.picked.emit(self.data.trials[row].number)


class TrialCurves(TrialPlot):
    """The first goal over the epochs: trials that were stopped early in grey, the best drawn strong."""

    def draw_trials(self, data: SearchData) -> bool:
        colors, goal = theme.colors(), data.search.goals[0]
        self.title = f"{goal.title} by epoch"
        if not len(data.pruned.x) + len(data.others.x):
            return False
        self.setLabel("bottom", "Epoch")
        self.label("left", named(goal))
        self.line("pruned", data.pruned.x, data.pruned.y, grey())
        self.line("others", data.others.x, data.others.y, blend(colors.accent, colors.panel, 0.5))
        if data.best is not None:
            best = lines_of([data.best], goal)
            self.line("best", best.x, best.y, colors.accent, STRONG)
        self.setXRange(0, max(row.epochs for row in data.trials), padding=0.02)
        self.setYRange(*in_sight(np.concatenate((data.pruned.y, data.others.y)), goal))
        self.getAxis("bottom").setTickSpacing(*_whole(max(row.epochs for row in data.trials)))
        return True

    def mark(self, data: SearchData, rows: list[int]) -> tuple[Floats, Floats, bool]:
        lines = lines_of([data.trials[row] for row in rows], data.search.goals[0])
        return lines.x, lines.y, True


class History(TrialPlot):
    """What each trial reached, and the best so far."""

    def draw_trials(self, data: SearchData) -> bool:
        goal = data.search.goals[0]
        self.title = f"{goal.title} by trial"
        if not len(data.values) or not np.isfinite(data.values[:, 0]).any():
            return False
        self.setLabel("bottom", "Trial")
        self.label("left", named(goal))
        numbers, values = _numbers(data), data.values[:, 0]
        completed = np.array([row.state == "completed" for row in data.trials])
        worst = -np.inf if goal.higher_is_better else np.inf
        best = np.maximum if goal.higher_is_better else np.minimum
        so_far = best.accumulate(np.where(completed & np.isfinite(values), values, worst))
        known = np.isfinite(so_far)
        self.line("best", *_steps(numbers[known], so_far[known]), theme.colors().accent, STRONG)
        self.points(numbers, values, data)
        self.setXRange(0, numbers[-1] + 1, padding=0.02)
        self.setYRange(*in_sight(values, goal))
        self.getAxis("bottom").setTickSpacing(*_whole(int(numbers[-1]) + 1))
        return True

    def mark(self, data: SearchData, rows: list[int]) -> tuple[Floats, Floats, bool]:
        return _numbers(data)[rows], data.values[rows, 0], False


class ParetoPlot(TrialPlot):
    """Two goals against one another, with the trials that none beats in both."""

    def draw_trials(self, data: SearchData) -> bool:
        if len(data.search.goals) < 2:
            return False
        first, second = data.search.goals[:2]
        self.title = f"{first.title} against {second.title.lower()}"
        if not len(data.values) or not np.isfinite(data.values[:, :2]).all(axis=1).any():
            return False
        self.label("bottom", named(second))
        self.label("left", named(first))
        front = [row for row, trial in enumerate(data.trials) if trial.number in data.state.front]
        front.sort(key=lambda row: data.values[row, 1])
        self.line("front", *_steps(data.values[front, 1], data.values[front, 0]), theme.colors().accent, STRONG)
        self.points(data.values[:, 1], data.values[:, 0], data)
        self.setXRange(*in_sight(data.values[:, 1], second))
        self.setYRange(*in_sight(data.values[:, 0], first))
        return True

    def mark(self, data: SearchData, rows: list[int]) -> tuple[Floats, Floats, bool]:
        return data.values[rows, 1], data.values[rows, 0], False


class Importance(TrialPlot):
    """How much each field decides whether a trial is among the better ones."""

    title = "What matters"
    empty = "Known after four completed trials"

    def draw_trials(self, data: SearchData) -> bool:
        shares = list(data.state.importance.items())
        if not shares:
            return False
        places = np.arange(len(shares))[::-1]
        colors = theme.colors()
        widths = [100 * share for _name, share in shares]
        bars = self.put("bars", lambda: pg.BarGraphItem(x0=0, y=[0], height=0.6, width=[0]))
        bars.setOpts(y=places, width=widths, brush=colors.accent, pen=None)
        for place, width in zip(places, widths, strict=True):
            self.text(place, f"{width:.0f} %", width, place, (0, 0.5))
        self.getAxis("left").setTicks(
            [[(place, field_label(name)) for place, (name, _share) in zip(places, shares, strict=True)]]
        )
        self.setLabel("bottom", "Importance, %")
        self.setXRange(0, 1.15 * max(widths), padding=0)
        self.setYRange(-0.6, len(shares) - 0.4, padding=0)
        return True

    def mark(self, data: SearchData, rows: list[int]) -> tuple[Floats, Floats, bool]:
        return np.empty(0), np.empty(0), False


def named(goal: Goal) -> str:
    """A goal as the title of an axis."""
    return f"{goal.title}, %" if goal.percent else goal.title


def in_sight(values: Floats, goal: Goal) -> tuple[float, float]:
    """The ends of an axis for a goal's values, of which those are left out that are far worse than most."""
    known = values[np.isfinite(values)]
    if not len(known):
        return 0.0, 1.0
    best = float(known.max() if goal.higher_is_better else known.min())
    worst = float(known.min() if goal.higher_is_better else known.max())
    median = float(np.median(known))
    reach = median + _OUTLIERS * (median - best)
    if median != best:
        worst = max(worst, reach) if goal.higher_is_better else min(worst, reach)
    return (min(best, worst), max(best, worst)) if best != worst else (best - 0.5, best + 0.5)


def goodness(data: SearchData) -> Floats:
    """[trials]: 0 for a bad trial by the first goal, 1 for the best; NaN for one without a value."""
    if not len(data.values):
        return np.empty(0)
    low, high = in_sight(data.values[:, 0], data.search.goals[0])
    shares = np.clip((data.values[:, 0] - low) / (high - low), 0, 1)
    return shares if data.search.goals[0].higher_is_better else 1 - shares


def shade(share: float) -> QColor:
    """The colour of how good something is: the fainter, the worse."""
    colors = theme.colors()
    return blend(colors.accent, colors.panel, 0.2 + 0.8 * share)


def grey() -> QColor:
    """The colour of trials that were stopped early or failed."""
    return blend(theme.colors().muted, theme.colors().panel, 0.4)


def describe(data: SearchData) -> str:
    """The best so far, as a sentence for screen readers."""
    best, goal = data.best, data.search.goals[0]
    return f"Best: trial {best.number}, {goal.title} {goal_words(goal, best.values[0])}" if best else TrialPlot.empty


def _numbers(data: SearchData) -> Floats:
    return np.array([row.number for row in data.trials], np.float64)


def _steps(x: Floats, y: Floats) -> tuple[Floats, Floats]:
    """A line that keeps each y until the next x."""
    return np.repeat(x, 2)[1:], np.repeat(y, 2)[:-1]


def _whole(count: int) -> tuple[float, float]:
    """The spacing of ticks that stand at whole numbers alone."""
    major = next(step for step in (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 10**5) if step * 8 >= count)
    return float(major), float(major)
