"""Graphs of all devices: one for each quantity, with a line for each device."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import pairwise
from typing import TypeVar

from PySide6.QtCore import Signal
from PySide6.QtGui import QShowEvent
from PySide6.QtWidgets import QCheckBox, QWidget

from engine.contract.devices import Gpu
from engine.gpus.quantities import BY_ID, QUANTITIES, Quantity
from gui.format import format_quantity
from gui.monitor.gpus.gpu_plot import make_temperature_thresholds
from gui.plots.annotations import Threshold
from gui.plots.group import PlotGroup
from gui.plots.line import LineStyle
from gui.plots.plot import LinePlot
from gui.sources.devices.history import DeviceHistory
from gui.sources.settings import Settings
from gui.style import theme
from gui.translation import tr
from gui.widgets.layouts import FlowLayout, scroll_panel, vbox, with_layout

FIRST = ("utilization_percent", "sm_active_percent", "memory_used_bytes", "power_w", "temperature_c")
"""Quantities whose graphs are visible by default."""
ACTIVITY = ("sm_active_percent", "tensor_active_percent")
"""Quantities that the sampler reports only on request."""
MIN_HEIGHT = 120
_HIGHEST = {"%": 100, "°C": 110}
"""Upper limit of the vertical axis, by unit. Other axes follow the data, and always include temperature limits."""
_SETTING = "monitor_graphs"
_NONE = "none"

_Widget = TypeVar("_Widget", bound=QWidget)


class GraphsView(QWidget):
    """Check boxes for all reported quantities, and a graph for each checked one.

    Signals:
        chosen_changed(): the user has selected other graphs.
    """

    chosen_changed = Signal()

    def __init__(self, history: DeviceHistory, group: PlotGroup, settings: Settings) -> None:
        super().__init__()
        self._history = history
        self._group = group
        self._settings = settings
        self._chosen_ids = _saved_choice(settings)  # ids of the chosen quantities
        self._titles: tuple[tuple[str, str], ...] = ()  # keys and titles of the GPUs with lines
        self.plots: dict[str, LinePlot] = {}
        self.checks: dict[str, QCheckBox] = {}
        self._row = QWidget()
        self._check_layout = FlowLayout(self._row, spacing=12, line_spacing=2)
        self._list = vbox(spacing=6)
        self.setLayout(vbox(self._row, (scroll_panel(with_layout(self._list)), 1)))

    @property
    def chosen(self) -> tuple[str, ...]:
        """Ids of the checked quantities."""
        return tuple(quantity.id for quantity in QUANTITIES if quantity.id in self._chosen_ids)

    def refresh(self) -> None:
        """Show the readings in the history if the view is visible."""
        if not self.isVisible():
            return
        self._add_reported()
        titles = tuple(self._history.titles.items())
        has_new_titles, self._titles = titles != self._titles, titles
        for quantity in self.chosen:
            if quantity in self.checks:  # a chosen quantity may not have been reported on this machine
                self._update_plot(quantity, must_recreate_lines=has_new_titles)

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        self.refresh()

    def _add_reported(self) -> None:
        """Add check boxes and graphs for newly reported quantities."""
        for quantity in QUANTITIES:
            is_reported = any(self._history.has_data(key, quantity.id) for key in self._history.devices)
            if is_reported and quantity.id not in self.checks:
                self._add_check(quantity)
        for quantity in QUANTITIES:
            if quantity.id in self.checks and quantity.id in self._chosen_ids and quantity.id not in self.plots:
                self._add_plot(quantity)

    def _add_check(self, quantity: Quantity) -> None:
        """Add a check box that shows or hides a quantity's graph, at its position among the others."""
        check = self.checks[quantity.id] = QCheckBox(quantity.title)
        check.setToolTip(quantity.meaning)
        check.setAccessibleDescription(quantity.meaning)
        check.setChecked(quantity.id in self._chosen_ids)
        check.toggled.connect(partial(self._choose, quantity.id))
        boxes = _sort_for_display(self.checks)
        for box in boxes:
            self._check_layout.removeWidget(box)
            self._check_layout.addWidget(box)
        for before, after in pairwise(boxes):
            QWidget.setTabOrder(before, after)

    def _add_plot(self, quantity: Quantity) -> None:
        """Add a graph for a quantity, at its position among the others. Its lines are added by the next refresh."""
        plot = self.plots[quantity.id] = LinePlot(
            quantity.title,
            self._group,
            unit=quantity.unit,
            scale=quantity.scale,
            write=_make_formatter(quantity),
            low=0,
            high=_HIGHEST.get(quantity.unit),
            meaning=quantity.meaning,
        )
        theme.scale_with_text(plot.setMinimumHeight, MIN_HEIGHT)
        plot.set_empty_text(tr("Waiting for the first reading"))
        self._list.insertWidget(_sort_for_display(self.plots).index(plot), plot, 1)

    def _update_plot(self, quantity: str, *, must_recreate_lines: bool) -> None:
        """Show the readings of a quantity and, for temperatures, the limits of the GPUs.

        If `must_recreate_lines` is True, because devices may have changed, all lines are removed first.
        """
        plot = self.plots[quantity]
        if must_recreate_lines:
            plot.remove_lines()
        for key, title in self._titles:
            if self._history.has_data(key, quantity):
                plot.add_line(key, _style(key, title))
                plot.set_data(key, self._history.x(key), self._history.values(key, quantity))
        if quantity in _THRESHOLDS:
            gpus = [self._history.gpu(key) for key, _title in self._titles]
            plot.set_thresholds(_THRESHOLDS[quantity]([gpu for gpu in gpus if gpu is not None]))

    def _choose(self, quantity: str, on: bool) -> None:
        """Show the graph of a quantity if `on`, otherwise hide it, and save the choice."""
        self._chosen_ids = self._chosen_ids | {quantity} if on else self._chosen_ids - {quantity}
        self._settings.set(_SETTING, ",".join(self.chosen) or _NONE)
        if quantity in self.plots:
            self.plots[quantity].setVisible(on)
        self._titles = ()  # a graph that was hidden may have lines of earlier devices
        self.chosen_changed.emit()
        self.refresh()


def _saved_choice(settings: Settings) -> frozenset[str]:
    """Return the ids of the quantities that the user chose in an earlier session, or the default ones."""
    saved = settings.text(_SETTING)
    return frozenset(saved.split(",") if saved else FIRST) & BY_ID.keys()


def _make_formatter(quantity: Quantity) -> Callable[[float], str]:
    """Return a function that formats a value of `quantity` with its unit, in the desktop's number format."""
    return lambda value: format_quantity(quantity, value / quantity.scale)


def _style(key: str, title: str) -> LineStyle:
    return LineStyle(title, lambda: theme.device_color(key), dashed=theme.device_is_dashed(key))


def _core_thresholds(gpus: Sequence[Gpu]) -> list[Threshold]:
    slow, shut = _common_limit(gpu.slowdown_c for gpu in gpus), _common_limit(gpu.shutdown_c for gpu in gpus)
    return make_temperature_thresholds(slow, shut)


def _memory_thresholds(gpus: Sequence[Gpu]) -> list[Threshold]:
    """Return a threshold at the common memory temperature limit of all GPUs, or [] if there is none."""
    allowed = _common_limit(gpu.memory_max_c for gpu in gpus)
    if allowed is None:
        return []
    return [
        Threshold(allowed, tr("allowed up to {limit:.0f} °C").format(limit=allowed), lambda: theme.colors().warning)
    ]


def _common_limit(limits: Iterable[float | None]) -> float | None:
    """Return the limit of all GPUs that report one, or None if the limits differ or no GPU reports one."""
    reported = {limit for limit in limits if limit is not None}
    return reported.pop() if len(reported) == 1 else None


_THRESHOLDS = {"temperature_c": _core_thresholds, "memory_temperature_c": _memory_thresholds}
"""Functions that return the temperature limits in the graph of a quantity, by the quantity's id."""


def _sort_for_display(widgets: dict[str, _Widget]) -> list[_Widget]:
    return [widgets[quantity.id] for quantity in QUANTITIES if quantity.id in widgets]
