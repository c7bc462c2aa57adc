"""A run's plots over one axis: loss and accuracy, its devices, its speed and where the time goes."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from PySide6.QtWidgets import QVBoxLayout, QWidget

from engine.contract.catalogue import load_catalogue
from engine.contract.devices import CPU, host_of
from engine.gpus.quantities import GIB
from gui.format import localised, size
from gui.plots.group import AxisKind, PlotGroup
from gui.plots.line import LineStyle
from gui.plots.plot import LinePlot
from gui.run.curves.plot_rows import PlotRows
from gui.sources.columns import Column, Floats
from gui.sources.run_data import RunData
from gui.sources.run_series import DeviceColumns, Steps, Validations
from gui.sources.settings import Settings
from gui.style import theme
from gui.titles import device_title, short_title

_MEASURE_COLOURS = (lambda: theme.colors().warning, lambda: theme.colors().ok)


class RunCharts(QWidget):
    """All plots of one run. `axis` "elapsed" lays them over the run's own seconds (see `RunData`), "count" over
    steps.
    """

    def __init__(self, settings: Settings | None = None, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.group = PlotGroup("elapsed", parent=self)
        self.loss = LinePlot("Loss", self.group)
        self.accuracy = LinePlot("Accuracy", self.group, unit="%", scale=100, write=lambda v: f"{localised(v, 1)} %")
        self.speed = LinePlot("Speed", self.group, low=0, write=lambda v: f"{localised(v)} images/s")
        self.times = LinePlot("Time per step", self.group, unit="ms", scale=1000, low=0, write=_milliseconds)
        self.devices = _device_plots(self.group)
        self._data = RunData()
        self._cuts = 0
        self._smoothing = 0.0
        self._lines()
        named = {"loss": self.loss, "accuracy": self.accuracy, **self.devices, "speed": self.speed, "times": self.times}
        self.rows = PlotRows(named, settings or Settings())
        self._without_power_and_heat(True)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.addWidget(self.rows)

    @property
    def plots(self) -> list[LinePlot]:
        return [self.loss, self.accuracy, self.speed, self.times, *self.devices.values()]

    def restart(self) -> None:
        """Another run is to be shown."""
        for plot in (self.accuracy, *self.devices.values()):
            plot.remove_lines()
        self.accuracy.set_title("Accuracy")
        self._show_accuracy(True)
        self._without_power_and_heat(True)
        self._restart_plots()
        self.group.set_axis(self.group.axis)

    def set_axis(self, axis: AxisKind) -> None:
        self.group.set_axis(axis)
        self.show_data(self._data)

    def set_smoothing(self, weight: float) -> None:
        self._smoothing = weight
        for plot in (self.loss, self.accuracy):
            plot.set_smoothing(weight)

    def show_data(self, data: RunData) -> None:
        """Hands everything to the plots; nothing is copied, and only what is in sight is drawn."""
        self._data = data
        if data.cuts != self._cuts:
            self._restart_plots()
            self._cuts = data.cuts
        steps = data.steps
        x = self._x_of(steps)
        self.loss.set_data("train", x, steps.loss.values)
        self.speed.set_data("speed", x, steps.images_per_second.values)
        self.times.set_data("wait", x, steps.data_wait_s.values)
        self.times.set_data("compute", x, steps.compute_s.values)
        if len(steps.step) or len(data.validations.step):
            self._show_measures(data, x)
        self._show_devices(data)
        ends = [column.last for column in self._ends(data) if len(column)]
        self.group.set_extent(0.0, max(ends, default=1.0))

    def _show_measures(self, data: RunData, x: Floats) -> None:
        """The loss, and beside the accuracy, where there is such a thing, the first of the task's measures that are
        shares. `x` are the positions of the steps.
        """
        shares = _shares(data)
        accuracy = data.steps.has_accuracy
        if accuracy:
            self.accuracy.add_line("train", LineStyle("training", lambda: theme.colors().accent, smooth=True))
            self.accuracy.set_smoothing(self._smoothing)
            self.accuracy.set_data("train", x, data.steps.accuracy.values)
        self.accuracy.set_title("Accuracy" if accuracy or not shares else "Metrics")
        self._show_accuracy(accuracy or bool(shares))
        for (name, title), color in zip(shares.items(), _MEASURE_COLOURS, strict=False):
            self.accuracy.add_line(name, LineStyle(f"validation {short_title(title)}", color, markers=True))
        x_values = self._x_of(data.validations)
        for plot, name in ((self.loss, "loss"), *((self.accuracy, name) for name in shares)):
            column = data.validations.measures.get(name)
            if column is not None:
                plot.set_data(name, x_values, column.values)

    def _show_accuracy(self, shown: bool) -> None:
        self.rows.set_empty("accuracy", not shown)

    def _without_power_and_heat(self, empty: bool) -> None:
        """Most processors tell neither, and empty graphs would only take room."""
        for quantity in ("power_w", "temperature_c"):
            self.rows.set_empty(quantity, empty)

    def _restart_plots(self) -> None:
        self._cuts = 0
        for plot in self.plots:
            plot.restart()

    def _show_devices(self, data: RunData) -> None:
        titles = device_titles(data)
        for device, columns in data.devices.items():
            for quantity, plot in self.devices.items():
                plot.add_line(device, LineStyle(titles.get(device, device), _color_of(device)))
                column: Column = getattr(columns, quantity)
                plot.set_data(device, self._x_of(columns), column.values)
        if any(np.isfinite(d.power_w.last) or np.isfinite(d.temperature_c.last) for d in data.devices.values()):
            self._without_power_and_heat(False)

    def _x_of(self, columns: Steps | Validations | DeviceColumns) -> Floats:
        return columns.step.values if self.group.axis == "count" else columns.seconds.values

    def _ends(self, data: RunData) -> list[Column]:
        sources: list[Steps | Validations | DeviceColumns] = [data.steps, data.validations, *data.devices.values()]
        return [source.step if self.group.axis == "count" else source.seconds for source in sources]

    def _lines(self) -> None:
        self.loss.add_line("train", LineStyle("training", lambda: theme.colors().accent, smooth=True))
        self.loss.add_line("loss", LineStyle("validation", lambda: theme.colors().warning, markers=True))
        self.speed.add_line("speed", LineStyle("all devices", lambda: theme.colors().accent))
        self.times.add_line("wait", LineStyle("data wait", lambda: theme.colors().warning))
        self.times.add_line("compute", LineStyle("compute", lambda: theme.colors().accent))
        for plot in (self.loss, self.accuracy, self.speed, self.times):
            plot.set_empty_text("Appears after the first steps")
        self.times.setToolTip("Time of each step spent waiting for data and computing")


def _shares(data: RunData) -> dict[str, str]:
    """The titles, by their ids, of the first of the task's measures that are shares; of a task whose measures are not
    known beforehand, those that have been between 0 and 1 so far.
    """
    task = load_catalogue().task(data.task)
    if task is not None and not task.file:
        found = {measure.id: measure.title for measure in task.metrics if measure.percent}
    else:
        told = {name: column.values for name, column in data.validations.measures.items() if name != "loss"}
        known = {name: values[np.isfinite(values)] for name, values in told.items()}
        found = {name: name for name, values in known.items() if len(values) and 0 <= values.min() <= values.max() <= 1}
    return dict(list(found.items())[: len(_MEASURE_COLOURS)])


def _device_plots(group: PlotGroup) -> dict[str, LinePlot]:
    plots = {
        "utilization_percent": LinePlot("Utilization", group, unit="%", low=0, high=100, write=lambda v: f"{v:.0f} %"),
        "memory_used_bytes": LinePlot(
            "Memory", group, unit="GiB", scale=1 / GIB, low=0, write=lambda v: size(v * GIB, "GiB")
        ),
        "power_w": LinePlot("Power", group, unit="W", low=0, write=lambda v: f"{v:.0f} W"),
        "temperature_c": LinePlot("Temperature", group, unit="°C", write=lambda v: f"{v:.0f} °C"),
    }
    for plot in plots.values():
        plot.setAccessibleName(f"{plot.title} of the run's devices")
        plot.set_empty_text("No samples of the run's devices yet")
    return plots


def device_titles(data: RunData) -> dict[str, str]:
    """What each of the run's devices is called in its graphs: its name, or its place among the run's where names
    repeat; of the CPU it would say less than "CPU".
    """
    names = list(data.device_names.values())
    return {
        device: device_title(device)
        if host_of(device) or device == CPU
        else name.removeprefix("NVIDIA ")
        if names.count(name) == 1
        else f"device {number}"
        for number, (device, name) in enumerate(data.device_names.items())
    }


def _milliseconds(value: float) -> str:
    return f"{localised(value, 1)} ms" if value < 100 else f"{localised(value)} ms"


def _color_of(device: str) -> Callable[[], str]:
    return lambda: theme.device_color(device)
