"""Graph of a GPU: utilization, memory, power and temperature on a common scale from 0 to 100."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from PySide6.QtGui import QResizeEvent

from engine.gpus.quantities import BY_ID
from gui.format import format_quantity
from gui.monitor.gpus.gpu_fields import line_color, line_scale, list_graph_quantities
from gui.monitor.gpus.watched_gpu import WatchedGpu
from gui.plots.annotations import Threshold
from gui.plots.group import Mark, PlotGroup
from gui.plots.line import LineStyle
from gui.plots.plot import LinePlot
from gui.sources.devices.history import DeviceHistory
from gui.style import theme
from gui.translation import tr

_HIGHEST = 100.0
_LABELED_FROM = 150
"""Minimum height of a graph in pixels for labels at its thresholds."""
MEANING = tr("Utilization in %, memory and power in % of their maximum, temperature in °C.")


class GpuPlot(LinePlot):
    """Graph of a GPU, with lines at its slowdown and shutdown temperatures.

    If `dense`, the graph has no title row, and its parent displays the values.
    """

    def __init__(self, title: str, group: PlotGroup, *, dense: bool) -> None:
        super().__init__(title, group, unit=tr("% and °C"), low=0, high=_HIGHEST, dense=dense, meaning=MEANING)
        self._has_no_readout = dense  # True if no readout shows the values
        self._has_limit_labels = False
        self._scales: tuple[tuple[str, float], ...] = ()  # quantities with lines and their factors
        self._key = ""
        self._limits: tuple[float | None, float | None] = (None, None)

    def show_gpu(self, watched: WatchedGpu, history: DeviceHistory) -> None:
        """Show the readings of a GPU in `history`.

        Recreate the lines if the quantities with a line or their scales have changed.
        """
        self._key = watched.key
        quantities = list_graph_quantities(partial(history.has_data, watched.key))
        all_scales = [(quantity, line_scale(watched.gpu, quantity)) for quantity in quantities]
        scales = tuple((quantity, scale) for quantity, scale in all_scales if scale is not None)
        self.set_empty_text(tr("Asleep") if watched.gpu.asleep else tr("No data"))
        if scales != self._scales:
            self._scales = scales
            self.remove_lines()
            # If no readout needs the order of the lines, draw the utilization last, on top of the others.
            for quantity, scale in reversed(scales) if self._has_no_readout else scales:
                self.add_line(quantity, _style(watched.key, quantity, scale))
        x = history.x(watched.key)
        for quantity, _ in scales:
            self.set_data(quantity, x, history.values(watched.key, quantity))
        self._update_limits(watched)

    def has_mark(self, mark: Mark) -> bool:
        """Return True if `mark` is about this graph's GPU, or about no particular device."""
        return mark.of is None or self._key in mark.of

    def forget(self) -> None:
        """Remove all lines and their data, before another GPU is shown."""
        self._scales = ()
        self.remove_lines()

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        if self._has_limit_labels != (self.height() >= _LABELED_FROM):
            self._draw_limits()

    def _update_limits(self, watched: WatchedGpu) -> None:
        """Draw the temperature limits again if they have changed."""
        limits = (watched.gpu.slowdown_c, watched.gpu.shutdown_c)
        if limits != self._limits:
            self._limits = limits
            self._draw_limits()

    def _draw_limits(self) -> None:
        """Draw the temperature limits, with labels if the graph is high enough."""
        self._has_limit_labels = self.height() >= _LABELED_FROM
        self.set_thresholds(make_temperature_thresholds(*self._limits, labeled=self._has_limit_labels))


def make_temperature_thresholds(
    slowdown_c: float | None, shutdown_c: float | None, *, labeled: bool = True
) -> list[Threshold]:
    """Return thresholds for a plot at the slowdown and shutdown temperatures of a GPU, if these are known.

    They have no labels if `labeled` is False.
    """
    limits = (
        (tr("slows down"), slowdown_c, lambda: theme.colors().warning),
        (tr("shuts down"), shutdown_c, lambda: theme.colors().error),
    )
    return [
        Threshold(limit_c, f"{action} {limit_c:.0f} °C" if labeled else "", color)
        for action, limit_c, color in limits
        if limit_c is not None
    ]


def _style(key: str, quantity: str, scale: float) -> LineStyle:
    color: Callable[[], str] = partial(line_color, key, quantity)
    return LineStyle(BY_ID[quantity].title, color, scale=scale, write=partial(format_quantity, BY_ID[quantity]))
