"""Plots of a run over a shared x axis: loss, accuracy, devices, speed and step times."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from PySide6.QtWidgets import QWidget

from engine.contract.catalogue import load_catalogue
from engine.contract.devices import CPU, host_of
from engine.gpus.quantities import GIB
from gui.format import milliseconds, size, speed
from gui.plots.group import AxisKind, PlotGroup
from gui.plots.line import LineStyle
from gui.plots.plot import LinePlot, create_percent_plot
from gui.run.curves.plot_rows import PlotRows
from gui.sources.columns import Column, Floats
from gui.sources.run_data import RunData
from gui.sources.run_series import DeviceColumns, Steps, Validations
from gui.sources.settings import Settings
from gui.style import theme
from gui.titles import device_title, shorten_title
from gui.translation import tr
from gui.widgets.layouts import vbox

_METRIC_COLORS = (lambda: theme.colors().warning, lambda: theme.colors().ok)


class RunCharts(QWidget):
    """Plots of a run over elapsed seconds (`axis` "elapsed") or steps ("count")."""

    def __init__(self, settings: Settings | None = None) -> None:
        super().__init__()
        self.group = PlotGroup("elapsed", parent=self)
        self.loss = LinePlot(tr("Loss"), self.group)
        self.accuracy = create_percent_plot(tr("Accuracy"), self.group)
        self.speed = LinePlot(tr("Speed"), self.group, unit="images/s", low=0, write=speed)
        self.times = LinePlot(
            tr("Time per step"),
            self.group,
            unit="ms",
            scale=1000,
            low=0,
            write=lambda v: milliseconds(v / 1000),
            meaning=tr("Time of each step spent waiting for data and computing"),
        )
        self.devices = _create_device_plots(self.group)
        self._data = RunData()
        self._rollbacks = 0  # how often the visible data was cut off because the run went back to a checkpoint
        self._smoothing = 0.0
        self._add_lines()
        named = {"loss": self.loss, "accuracy": self.accuracy, **self.devices, "speed": self.speed, "times": self.times}
        self.rows = PlotRows(named, settings or Settings())
        self._hide_power_and_temperature(is_hidden=True)  # until a device reports them
        self.setLayout(vbox(self.rows))

    @property
    def plots(self) -> list[LinePlot]:
        return [self.loss, self.accuracy, self.speed, self.times, *self.devices.values()]

    def reset(self) -> None:
        """Remove the lines of metrics and devices and clear all plots, before another run is shown."""
        for plot in (self.accuracy, *self.devices.values()):
            plot.remove_lines()
        self.accuracy.set_title(tr("Accuracy"))
        self.rows.set_empty("accuracy", is_empty=False)
        self._hide_power_and_temperature(is_hidden=True)  # until a device reports them
        self._clear_plots()
        self.group.set_axis(self.group.axis)  # shows all data again if the user has zoomed

    def set_axis(self, axis: AxisKind) -> None:
        """Draw all plots over elapsed time or steps."""
        self.group.set_axis(axis)
        self.show_data(self._data)

    def set_smoothing(self, weight: float) -> None:
        """Set the weight of the moving average for loss and accuracy. A weight of 0 disables smoothing."""
        self._smoothing = weight
        for plot in (self.loss, self.accuracy):
            plot.set_smoothing(weight)

    def show_data(self, data: RunData) -> None:
        """Plot the values that the run has logged, without copying them. Hidden plots aren't drawn.

        If the run went back to a checkpoint, the lines are cleared first.
        """
        self._data = data
        if data.rollbacks != self._rollbacks:
            self._clear_plots()
            self._rollbacks = data.rollbacks
        steps = data.steps
        x = self._x_column(steps).values
        self.loss.set_data("train", x, steps.loss.values)
        self.speed.set_data("speed", x, steps.images_per_second.values)
        self.times.set_data("wait", x, steps.data_wait_s.values)
        self.times.set_data("compute", x, steps.compute_s.values)
        if len(steps.step) or len(data.validations.step):  # before, it is unknown which metrics the run has
            self._show_metrics(data, x)
        self._show_devices(data)
        self._set_empty_texts(is_over=data.finished is not None)
        sources: list[Steps | Validations | DeviceColumns] = [steps, data.validations, *data.devices.values()]
        ends = [column.last for column in map(self._x_column, sources) if len(column)]
        self.group.set_extent(0.0, max(ends, default=1.0))

    def _show_metrics(self, data: RunData, step_x: Floats) -> None:
        """Plot losses, accuracy and percentage metrics. `step_x` holds the x values of the training steps."""
        percentages = _find_percentage_metrics(data)
        has_accuracy = data.steps.has_accuracy
        if has_accuracy:
            self.accuracy.add_line("train", LineStyle("training", lambda: theme.colors().accent, smooth=True))
            self.accuracy.set_smoothing(self._smoothing)
            self.accuracy.set_data("train", step_x, data.steps.accuracy.values)
        self.accuracy.set_title(tr("Accuracy") if has_accuracy or not percentages else tr("Metrics"))
        self.rows.set_empty("accuracy", is_empty=not (has_accuracy or percentages))
        for (name, title), color in zip(percentages.items(), _METRIC_COLORS, strict=False):  # at most one per color
            self.accuracy.add_line(name, LineStyle(shorten_title(title), color, markers=True))
        x_values = self._x_column(data.validations).values
        plots = {"loss": self.loss} | dict.fromkeys(percentages, self.accuracy)
        for name, plot in plots.items():
            column = data.validations.measures.get(name)
            if column is not None:
                plot.set_data(name, x_values, column.values)

    def _hide_power_and_temperature(self, *, is_hidden: bool) -> None:
        """Hide the plots of power and temperature if `is_hidden`. Most CPUs report neither."""
        for quantity in ("power_w", "temperature_c"):
            self.rows.set_empty(quantity, is_empty=is_hidden)

    def _clear_plots(self) -> None:
        """Clear all plots before another run, or the same run from an earlier checkpoint, is shown."""
        self._rollbacks = 0
        for plot in self.plots:
            plot.clear_data()

    def _show_devices(self, data: RunData) -> None:
        """Plot the readings of each device, and show power and temperature once a device reports them."""
        titles = device_titles(data)
        for device, columns in data.devices.items():
            for quantity, plot in self.devices.items():
                plot.add_line(device, LineStyle(titles.get(device, device), _color_of(device)))
                column: Column = getattr(columns, quantity)
                plot.set_data(device, self._x_column(columns).values, column.values)
        newest = [(columns.power_w.last, columns.temperature_c.last) for columns in data.devices.values()]
        if np.isfinite(newest).any():
            self._hide_power_and_temperature(is_hidden=False)

    def _x_column(self, logged: Steps | Validations | DeviceColumns) -> Column:
        """Return the x values of logged values: steps if the axis shows steps, otherwise times in seconds."""
        return logged.step if self.group.axis == "count" else logged.seconds

    def _add_lines(self) -> None:
        """Add the lines of loss, speed and step times, which every run has."""
        self.loss.add_line("train", LineStyle("training", lambda: theme.colors().accent, smooth=True))
        self.loss.add_line("loss", LineStyle("validation", lambda: theme.colors().warning, markers=True))
        self.speed.add_line("speed", LineStyle(tr("all devices"), lambda: theme.colors().accent))
        self.times.add_line("wait", LineStyle(tr("data wait"), lambda: theme.colors().warning))
        self.times.add_line("compute", LineStyle("compute", lambda: theme.colors().accent))
        self._set_empty_texts(is_over=False)

    def _set_empty_texts(self, *, is_over: bool) -> None:
        """Set the texts of empty plots. If the run `is_over`, they don't announce that data will follow."""
        steps = tr("The run ended before its first step") if is_over else tr("Appears after the first steps")
        devices = tr("No samples of the run's devices") if is_over else tr("No samples of the run's devices yet")
        for plot in self.plots:
            plot.set_empty_text(devices if plot in self.devices.values() else steps)


def _find_percentage_metrics(data: RunData) -> dict[str, str]:
    """Return the titles of the metrics to plot in percent, by id. There are at most as many as line colors.

    If the task is unknown or defined in a Python file, these are all metrics with values in [0, 1].
    """
    task = load_catalogue().task(data.task)
    if task is not None and not task.file:
        classes = len(data.plan.classes) if data.plan is not None else 0
        # Top-5 accuracy, for example, is always 1 with at most 5 classes.
        informative = (measure for measure in task.metrics if measure.percent and not measure.is_always_one(classes))
        titles = {measure.id: measure.title for measure in informative}
    else:
        titles = {}
        for name, column in data.validations.measures.items():
            finite = column.values[np.isfinite(column.values)]
            are_fractions = len(finite) > 0 and finite.min() >= 0 and finite.max() <= 1
            if are_fractions and name != "loss":
                titles[name] = name
    return dict(list(titles.items())[: len(_METRIC_COLORS)])


def _create_device_plots(group: PlotGroup) -> dict[str, LinePlot]:
    """Create the plots with a line per device, by the id of their quantity."""
    plots = {
        "utilization_percent": LinePlot(
            tr("Utilization"), group, unit="%", low=0, high=100, write=lambda v: f"{v:.0f}%"
        ),
        "memory_used_bytes": LinePlot(
            tr("Memory"), group, unit="GiB", scale=1 / GIB, low=0, write=lambda v: size(v * GIB, "GiB")
        ),
        "power_w": LinePlot(tr("Power"), group, unit="W", low=0, write=lambda v: f"{v:.0f} W"),
        "temperature_c": LinePlot(tr("Temperature"), group, unit="°C", write=lambda v: f"{v:.0f} °C"),
    }
    for plot in plots.values():
        plot.setAccessibleName(tr("{plot} of the run's devices").format(plot=plot.title))
    return plots


def device_titles(data: RunData) -> dict[str, str]:
    """Return the title of each device, by its id.

    A local GPU has its name as title, or a number if its name is unknown or not unique. The titles of CPUs and of
    devices on other machines are those of `device_title`.
    """
    names = list(data.device_names.values())
    titles = {}
    for number, (device, name) in enumerate(data.device_names.items()):
        if host_of(device) or device == CPU:
            titles[device] = device_title(device)
        elif names.count(name) == 1 and name != device:
            titles[device] = name.removeprefix("NVIDIA ")
        else:
            titles[device] = tr("device {number}").format(number=number)
    return titles


def _color_of(device: str) -> Callable[[], str]:
    """Return a function that returns the color of a device in the current color scheme."""
    return lambda: theme.device_color(device)
