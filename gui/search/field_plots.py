"""The plots that go by the searched fields: parallel coordinates, and two fields against one another."""

from __future__ import annotations

import numpy as np
import pyqtgraph as pg
from PySide6.QtCore import QRectF
from PySide6.QtWidgets import QComboBox

from gui.format import localised, significant
from gui.plots.themed import ThemedPlot
from gui.search.plots import STRONG, TrialPlot, goodness, in_sight, shade
from gui.sources.columns import Floats
from gui.sources.search_data import Axis, SearchData
from gui.style import theme
from gui.widgets.editors import ComboBox

_SHADES, _FAINTEST = 8, -0.1
_GRID = 80
"""Cells of the contour in each direction."""
_BANDS = 8
_LEAST_FOR_CONTOUR = 10
_LEAST_WEIGHT = 0.135
"""Further than two widths of the kernel from any trial nothing is known."""
_MOST_TICKS = 6
_LONGEST_TICK = 14


class ParallelCoordinates(TrialPlot):
    """A line for each trial through its values of all fields to its goal; the better, the stronger."""

    title = "Parallel coordinates"

    def draw_trials(self, data: SearchData) -> bool:
        shares = goodness(data)
        if not np.isfinite(shares).any():
            return False
        heights = self._heights(data)
        ranked = np.argsort(shares)[: np.isfinite(shares).sum()]
        for band, rows in enumerate(np.array_split(ranked, _SHADES)):
            if len(rows):
                color = shade(_FAINTEST + (1 - _FAINTEST) * (band / (_SHADES - 1)) ** 3)
                self.line(("band", band), *_joined(heights[rows]), color)
        if data.best is not None:
            row = data.trials.index(data.best)
            self.line("best", *_joined(heights[[row]]), theme.colors().accent, STRONG)
        self._draw_axes(data)
        return True

    def mark(self, data: SearchData, rows: list[int]) -> tuple[Floats, Floats, bool]:
        x, y = _joined(self._heights(data)[rows])
        return x, y, True

    def draw(self) -> None:
        super().draw()
        self.getAxis("left").hide()
        self.showGrid(x=False, y=False)

    def _draw_axes(self, data: SearchData) -> None:
        colors, goal = theme.colors(), data.search.goals[0]
        low, high = in_sight(data.values[:, 0], goal)
        ends = [
            (at, f"{localised(value, 1)} %" if goal.percent else significant(value, 4))
            for at, value in ((0.0, low), (1.0, high))
        ]
        ticks = [[(float(_share(axis, at)), words) for at, words in axis.ticks()][:_MOST_TICKS] for axis in data.axes]
        for x, marks in enumerate([*ticks, ends]):
            self.line(("axis", x), np.array([x, x]), np.array([0, 1]), colors.muted)
            for height, words in marks:
                self.text((x, height), _short(words), x, height, (0.5, height))
        titles = [*(axis.label for axis in data.axes), goal.title]
        self.getAxis("bottom").setTicks([list(enumerate(titles))])
        self.setXRange(-0.35, len(titles) - 0.65, padding=0)
        self.setYRange(-0.12, 1.12, padding=0)

    def _heights(self, data: SearchData) -> Floats:
        """[trials, fields and goal], from 0 to 1."""
        low, high = in_sight(data.values[:, 0], data.search.goals[0])
        goal = np.clip((data.values[:, :1] - low) / (high - low), 0, 1)
        fields = [_share(axis, data.positions[:, index]) for index, axis in enumerate(data.axes)]
        return np.column_stack([*fields, goal])


class TwoFields(TrialPlot):
    """The trials by two fields that are chosen, and where both are numbers the goal between them, smoothed.

    Attributes: x, y - the lists that choose the fields.
    """

    title = "Two fields"

    def __init__(self) -> None:
        self.x, self.y = ComboBox(), ComboBox()
        for box, name in ((self.x, "Horizontal field"), (self.y, "Vertical field")):
            box.setAccessibleName(name)
            box.setSizeAdjustPolicy(QComboBox.SizeAdjustPolicy.AdjustToContents)
            box.currentIndexChanged.connect(lambda _index: self.recolor())
        super().__init__("Two fields")

    def show_data(self, data: SearchData) -> None:
        names = [axis.name for axis in data.axes]
        if [self.x.itemData(index) for index in range(self.x.count())] != names:
            ranked = [*data.state.importance, *names]
            for box, wanted in ((self.x, ranked[0]), (self.y, next((n for n in ranked if n != ranked[0]), ranked[0]))):
                box.blockSignals(True)
                box.clear()
                for axis in data.axes:
                    box.addItem(axis.label, axis.name)
                box.setCurrentIndex(names.index(wanted))
                box.blockSignals(False)
        super().show_data(data)

    def draw_trials(self, data: SearchData) -> bool:
        shares = goodness(data)
        across, up = self._axes(data)
        if not np.isfinite(shares).any() or across is None or up is None:
            return False
        x, y = data.positions[:, data.axes.index(across)], data.positions[:, data.axes.index(up)]
        known = np.isfinite(x) & np.isfinite(y) & np.isfinite(shares)
        if known.sum() >= _LEAST_FOR_CONTOUR and across is not up and not across.choices and not up.choices:
            self._draw_contour(across, up, x[known], y[known], shares[known])
        self.points(x, y, data)
        _fit_axis(self, "bottom", across)
        _fit_axis(self, "left", up)
        return True

    def mark(self, data: SearchData, rows: list[int]) -> tuple[Floats, Floats, bool]:
        across, up = self._axes(data)
        if across is None or up is None:
            return np.empty(0), np.empty(0), False
        return (
            data.positions[rows, data.axes.index(across)],
            data.positions[rows, data.axes.index(up)],
            False,
        )

    def _axes(self, data: SearchData) -> tuple[Axis | None, Axis | None]:
        by_name = {axis.name: axis for axis in data.axes}
        return by_name.get(self.x.currentData()), by_name.get(self.y.currentData())

    def _draw_contour(self, across: Axis, up: Axis, x: Floats, y: Floats, shares: Floats) -> None:
        """Bands of the trials' average, weighted by a Gaussian whose width follows Scott's rule (1992) of even
        points.
        """
        width = 0.29 * len(x) ** (-1 / 6)
        cells = (np.arange(_GRID, dtype=np.float32) + 0.5) / _GRID
        near_x = np.exp(-0.5 * ((cells[:, None] - _share(across, x)[None]) / width) ** 2)
        near_y = np.exp(-0.5 * ((cells[:, None] - _share(up, y)[None]) / width) ** 2)
        # Without BLAS, whose threads would wait for each other where all cores are busy with trials.
        weights = np.einsum("ik,jk->ij", near_x, near_y)
        average = np.einsum("ik,jk->ij", near_x * shares, near_y) / np.maximum(weights, 1e-12)
        low, high = float(average.min()), float(average.max())
        bands = np.floor((average - low) / max(high - low, 1e-9) * _BANDS).clip(0, _BANDS - 1).astype(int)
        colors = np.array([shade(band / _BANDS * 0.5).getRgb() for band in range(_BANDS)], np.uint8)
        image = colors[bands]
        image[weights < _LEAST_WEIGHT, 3] = 0
        item = self.put("contour", lambda: pg.ImageItem(axisOrder="col-major"))
        item.setImage(image, levels=None)
        item.setRect(QRectF(across.low, up.low, across.high - across.low, up.high - up.low))


def _fit_axis(plot: ThemedPlot, side: str, axis: Axis) -> None:
    shown = plot.getAxis(side)
    shown.setLogMode(**{"x" if side == "bottom" else "y": axis.log})
    shown.setTicks([axis.ticks()] if axis.choices else None)
    plot.label(side, axis.label)
    set_range = plot.setXRange if side == "bottom" else plot.setYRange
    set_range(axis.low, axis.high, padding=0.25 if axis.choices else 0.03)


def _share(axis: Axis, position: Floats | float) -> Floats:
    """From 0 to 1 along the axis."""
    return np.clip((np.asarray(position) - axis.low) / (axis.high - axis.low or 1), 0, 1)


def _joined(heights: Floats) -> tuple[Floats, Floats]:
    """[lines, axes] as one line that is broken after each."""
    lines, axes = heights.shape
    x = np.tile(np.append(np.arange(axes, dtype=np.float64), np.nan), lines)
    return x, np.column_stack([heights, np.full(lines, np.nan)]).ravel()


def _short(words: str) -> str:
    return words if len(words) <= _LONGEST_TICK else words[: _LONGEST_TICK - 1] + "…"
