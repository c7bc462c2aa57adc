"""Curves of several runs in the same plots."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QGridLayout, QWidget

from gui.compare.compared_run import ComparedRun, Over
from gui.compare.comparison import find_measure, find_measure_title, list_measures
from gui.format import significant, speed
from gui.plots.group import AxisKind, PlotGroup
from gui.plots.line import LineStyle
from gui.plots.plot import LinePlot, create_percent_plot
from gui.sources.columns import Column
from gui.sources.run_data import Steps, Validations
from gui.style import theme
from gui.translation import tr
from gui.widgets.labels import RichLabel, Span
from gui.widgets.layouts import vbox

_AXES: dict[Over, AxisKind] = {"step": "count", "epoch": "epochs", "time": "elapsed"}
_VALIDATION = "validation/"
_MIN_WIDTH = 400
"""Minimum width in pixels of plots that are side by side."""
_MIN_HEIGHT = 170


class CompareCurves(QWidget):
    """Plots of the compared runs: one per quantity, with a line for each run. Lines are labeled with the runs' numbers.

    Training figures are smoothed. From the ninth run on, lines are dashed.
    """

    def __init__(self) -> None:
        super().__init__()
        self.group = PlotGroup("count", parent=self)
        self.over: Over = "step"
        self.plots: dict[str, LinePlot] = {
            "loss": LinePlot(tr("Training loss"), self.group),
            "accuracy": create_percent_plot(tr("Training accuracy"), self.group),
            "images_per_second": LinePlot(tr("Speed"), self.group, unit="images/s", low=0, write=speed),
            "learning_rate": LinePlot(tr("Learning rate"), self.group, low=0, write=lambda v: significant(v, 3)),
        }
        self._runs: Sequence[ComparedRun] = ()
        self._smoothing_weight = 0.0
        self._is_log = False  # True if the axes of the losses are logarithmic
        self._names = RichLabel()  # names of the runs, for saved images
        self._names.hide()
        self._grid = QGridLayout()
        self._grid.setSpacing(6)
        self._layout = vbox(self._names, (self._grid, 1), spacing=6)
        self.setLayout(self._layout)
        self._columns = 0
        for plot in self.plots.values():
            self._prepare(plot)
        self._arrange()

    @property
    def ordered_plots(self) -> list[LinePlot]:
        """Visible plots: losses first, then accuracies, then all other plots."""
        order = ["loss", f"{_VALIDATION}loss", "accuracy"]
        order += [key for key in self.plots if key.startswith(_VALIDATION) and key not in order]
        order += ["images_per_second", "learning_rate"]
        return [self.plots[key] for key in order if key in self.plots and not self.plots[key].isHidden()]

    def set_over(self, over: Over) -> None:
        """Draw all plots over steps, epochs or elapsed time."""
        self.over = over
        self.group.set_axis(_AXES[over])
        self.show_runs(self._runs)

    def set_smoothing(self, weight: float) -> None:
        """Set the weight of the moving average for training figures. A weight of 0 disables smoothing."""
        self._smoothing_weight = weight
        for plot in self.plots.values():
            plot.set_smoothing(weight)

    def set_log(self, is_log: bool) -> None:
        """Draw losses over a logarithmic axis if `is_log`."""
        self._is_log = is_log
        for key in ("loss", f"{_VALIDATION}loss"):
            if key in self.plots:
                self.plots[key].set_log(is_log)

    def show_runs(self, runs: Sequence[ComparedRun]) -> None:
        """Draw the curves of only these runs."""
        self._runs = runs
        self._add_metric_plots(runs)
        logged = {f"{_VALIDATION}{name}" for name in list_measures(runs)}
        for key, plot in self.plots.items():
            plot.remove_lines()
            for run in runs:
                self._add_line(key, plot, run)
            plot.set_smoothing(self._smoothing_weight)
            plot.setVisible(not key.startswith(_VALIDATION) or key in logged)
        self._arrange(is_forced=True)
        positions = [
            run.compute_x(logged, self.over) for run in runs for logged in (run.data.steps, run.data.validations)
        ]
        self.group.set_extent(0.0, max((float(x.max()) for x in positions if len(x)), default=1.0))

    @contextmanager
    def show_names(self) -> Iterator[None]:
        """Show the names of the runs above the curves within this context, for an exported image."""
        self._names.show_spans(span for run in self._runs for span in _make_name_spans(run))
        self._names.show()
        self._layout.activate()
        yield
        self._names.hide()

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._arrange()

    def _add_line(self, key: str, plot: LinePlot, run: ComparedRun) -> None:
        """Add a line for a run if it has logged the quantity with this key."""
        is_validation = key.startswith(_VALIDATION)
        logged: Steps | Validations
        column: Column | None
        if is_validation:
            logged = run.data.validations
            column = logged.measures.get(key.removeprefix(_VALIDATION))
        else:
            logged = run.data.steps
            column = getattr(logged, key)
        x = run.compute_x(logged, self.over)
        if column is None or not len(column) or not len(x):
            return
        line = LineStyle(
            run.number,
            _make_color_function(run.series),
            smooth=key in ("loss", "accuracy", "images_per_second"),
            markers=is_validation,
            dashed=theme.series_is_dashed(run.series),
        )
        plot.add_line(run.number, line)
        plot.set_data(run.number, x, column.values)

    def _add_metric_plots(self, runs: Sequence[ComparedRun]) -> None:
        """Add a plot for each validation metric of `runs` that has none."""
        for name in list_measures(runs):
            key = f"{_VALIDATION}{name}"
            if key in self.plots:
                continue
            measure = find_measure(runs, name)
            heading = _make_title(find_measure_title(runs, name))
            if measure is not None and measure.percent:
                plot = create_percent_plot(heading, self.group)
            else:
                plot = LinePlot(heading, self.group)
            self.plots[key] = plot
            self._prepare(plot)
            if name == "loss":
                plot.set_log(self._is_log)

    def _prepare(self, plot: LinePlot) -> None:
        """Set the size and the texts of a new plot, without showing it."""
        plot.setParent(self)  # a plot without a parent would briefly be a window
        theme.scale_with_text(plot.setMinimumHeight, _MIN_HEIGHT)
        plot.setAccessibleName(tr("{plot} of the compared runs").format(plot=plot.title))
        plot.set_empty_text(tr("Not logged"))

    def _arrange(self, *, is_forced: bool = False) -> None:
        """Arrange the plots in as many columns as fit, if this number has changed or `is_forced` is True."""
        columns = max(1, min(3, self.width() // theme.scale_pixels(_MIN_WIDTH)))
        if columns == self._columns and not is_forced:
            return
        self._columns = columns
        while self._grid.count():
            self._grid.takeAt(0)
        for number, plot in enumerate(self.ordered_plots):
            self._grid.addWidget(plot, number // columns, number % columns)


def _make_title(measure: str) -> str:
    """Return a title such as "Validation loss" or "Validation top-1 accuracy"."""
    if measure.startswith("Validation"):
        return measure
    return tr("Validation {measure}").format(measure=f"{measure[:1].lower()}{measure[1:]}")


def _make_name_spans(run: ComparedRun) -> tuple[Span, Span]:
    """Return two pieces of rich text: a sample of the run's line in its color, and the run's title."""
    line = "╍" if theme.series_is_dashed(run.series) else "━"
    return Span(line, color=theme.series_color(run.series)), Span(f"\u00a0{run.title}\u00a0\u00a0 ")


def _make_color_function(series: int) -> Callable[[], str]:
    """Return a function that returns the color of the run with the index `series` in the current color scheme."""
    return lambda: theme.series_color(series)
