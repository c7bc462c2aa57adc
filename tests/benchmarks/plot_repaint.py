"""Cost of repainting the plots of a long run, offscreen.

    python tests/benchmarks/plot_repaint.py [--points 36000] [--frames 60]

There are eight plots with four lines each, like those of a run on four GPUs. Each frame adds a point to every line and
paints all plots. The baseline is pyqtgraph's PlotWidget with default settings and the same lines.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import numpy as np
import pyqtgraph as pg
from PySide6.QtWidgets import QApplication, QGridLayout, QWidget

from gui.plots.group import PlotGroup
from gui.plots.line import LineStyle
from gui.plots.plot import LinePlot
from gui.sources.columns import Column
from gui.style import theme
from tests.benchmarks.frame import create_application, describe_environment, make_parser

PLOTS, LINES = 8, 4
SIZE = (1200, 1000)
Frame = Callable[[], None]


def series(points: int, seed: int) -> np.ndarray:
    random = np.random.default_rng(seed)
    return np.exp(-np.arange(points) / points) + 0.1 * random.normal(size=points)


class FootplatePlots:
    """Eight of Footplate's `LinePlot`s in a group."""

    def __init__(self, points: int, smoothing: float = 0.0) -> None:
        self.window = QWidget()
        self.group = PlotGroup("elapsed")
        self.x = Column()
        self.x.extend(np.arange(float(points)))
        self.columns = [Column() for _ in range(PLOTS * LINES)]
        self.plots = [LinePlot(f"Plot {n}", self.group) for n in range(PLOTS)]
        grid = QGridLayout(self.window)
        for number, plot in enumerate(self.plots):
            grid.addWidget(plot, number // 2, number % 2)
            for line in range(LINES):
                style = LineStyle(f"{line}", lambda line=line: theme.device_color(str(line)), smooth=True)  # type: ignore[misc]
                plot.add_line(f"{line}", style)
            plot.set_smoothing(smoothing)
        for number, column in enumerate(self.columns):
            column.extend(series(points, number))

    def update_frame(self) -> None:
        self.x.append(self.x.last + 1)
        for column in self.columns:
            column.append(0.5)
        self.group.set_extent(0.0, self.x.last)
        for number, plot in enumerate(self.plots):
            for line in range(LINES):
                plot.set_data(f"{line}", self.x.values, self.columns[number * LINES + line].values)
            plot.redraw()
            plot._view.viewport().repaint()


class PyqtgraphPlots:
    """Eight of pyqtgraph's PlotWidgets with default settings, as a baseline."""

    def __init__(self, points: int) -> None:
        self.window = QWidget()
        grid = QGridLayout(self.window)
        self.plots = [pg.PlotWidget() for _ in range(PLOTS)]
        self.curves = []
        for number, plot in enumerate(self.plots):
            grid.addWidget(plot, number // 2, number % 2)
            self.curves += [plot.plot(pen=pg.mkPen(line)) for line in range(LINES)]
        self.x = np.arange(float(points))
        self.values = [series(points, n) for n in range(PLOTS * LINES)]

    def update_frame(self) -> None:
        self.x = np.append(self.x, self.x[-1] + 1)
        for number, curve in enumerate(self.curves):
            self.values[number] = np.append(self.values[number], 0.5)
            curve.setData(self.x, self.values[number])
        for plot in self.plots:
            plot.viewport().repaint()


def measure(window: QWidget, frame: Frame, frames: int) -> tuple[float, float]:
    """Call `frame` three times for warm-up and then `frames` times. Return the median and maximum in milliseconds."""
    window.resize(*SIZE)
    window.show()
    QApplication.processEvents()
    times = []
    for _ in range(frames + 3):
        start = time.perf_counter()
        frame()
        times.append(1000 * (time.perf_counter() - start))
        QApplication.processEvents()
    window.close()
    return statistics.median(times[3:]), max(times[3:])


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--points", type=int, default=36_000)
    parser.add_argument("--frames", type=int, default=60)
    options = parser.parse_args()
    _app = create_application()
    footplate, smoothed, plain = (
        FootplatePlots(options.points),
        FootplatePlots(options.points, 0.9),
        PyqtgraphPlots(options.points),
    )
    results = {
        "ours": measure(footplate.window, footplate.update_frame, options.frames),
        "ours, smoothed": measure(smoothed.window, smoothed.update_frame, options.frames),
        "pyqtgraph's defaults": measure(plain.window, plain.update_frame, max(5, options.frames // 6)),
    }
    print(
        f"{describe_environment()}; {PLOTS} plots of {LINES} lines of {options.points} points, {SIZE[0]} x {SIZE[1]} pixels"
    )
    for name, (median, longest) in results.items():
        print(f"{name:24}  median {median:7.1f} ms   longest {longest:7.1f} ms")
    (footplate_ms, _), *_, (plain_ms, _) = results.values()
    print(f"the defaults take {plain_ms / footplate_ms:.1f} times as long")


if __name__ == "__main__":
    main()
