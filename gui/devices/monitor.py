"""The devices' history in full: one graph for each quantity, one line for each device."""

from __future__ import annotations

import numpy as np
from PySide6.QtCore import Qt, QTimer
from PySide6.QtGui import QHideEvent, QShowEvent
from PySide6.QtWidgets import QHBoxLayout, QLabel, QPushButton, QVBoxLayout, QWidget

from gui import theme
from gui.devices import words
from gui.devices.history import DeviceHistory
from gui.plots.columns import Floats
from gui.plots.group import PlotGroup
from gui.plots.line import LineStyle
from gui.plots.plot import LinePlot

SPAN_S = 600.0
"""Seconds that are shown until the user zooms; the history behind holds an hour."""

_LOOK_EVERY_MS = 250


class MonitorPage(QWidget):
    """Utilization, memory, power and temperature of all devices over one time axis.

    It reads `history` while it is in sight; somebody else feeds it.
    """

    def __init__(self, history: DeviceHistory, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("panel")
        self.setAttribute(Qt.WidgetAttribute.WA_StyledBackground)
        self._history = history
        self._drawn = -1
        self._titles: tuple[tuple[str, str], ...] = ()
        self.group = PlotGroup("clock", span=SPAN_S, parent=self)
        self.plots: dict[str, LinePlot] = {}
        self._newest = QPushButton("Back to newest")
        self._newest.setAccessibleDescription("Shows the last ten minutes and follows the newest data again")
        self._newest.clicked.connect(self.group.follow)
        self._newest.setEnabled(False)
        self.group.following_changed.connect(self._following_changed)
        heading = QLabel("Monitor")
        heading.setObjectName("heading")
        hint = QLabel("Time of day. Wheel or + and − zoom, drag or Shift+arrows pan, Home goes back.")
        hint.setObjectName("muted")
        hint.setWordWrap(True)
        top = QHBoxLayout()
        top.setSpacing(12)
        top.addWidget(heading)
        top.addWidget(hint, 1)
        top.addWidget(self._newest)
        self._layout = QVBoxLayout(self)
        self._layout.setContentsMargins(14, 10, 14, 10)
        self._layout.setSpacing(8)
        self._layout.addLayout(top)
        self._timer = QTimer(self, interval=_LOOK_EVERY_MS)
        self._timer.timeout.connect(self.refresh)

    def refresh(self) -> None:
        """Shows what the history holds, where it holds something new."""
        if self._history.additions == self._drawn or not self.isVisible():
            return
        self._build()
        self._drawn = self._history.additions
        devices = self._history.devices
        titles = tuple(self._history.titles.items())
        if titles != self._titles:
            self._titles = titles
            for plot in self.plots.values():
                plot.remove_lines()
                for device, title in titles:
                    plot.add_line(device, _style(title, device))
        for quantity, plot in self.plots.items():
            told = [self._history.values(device, quantity) for device in devices]
            for device, values in zip(devices, told, strict=True):
                plot.set_data(device, self._times(device), values)
            # What no device here can tell gets no room.
            plot.setVisible(not devices or any(np.isfinite(values).any() for values in told))
        if devices:
            times = self._times(devices[-1])
            first = min(self._times(device)[0] for device in devices)
            self.group.set_extent(float(first), float(times[-1]))

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        self._build()
        self._timer.start()
        self.refresh()

    def hideEvent(self, event: QHideEvent) -> None:
        super().hideEvent(event)
        self._timer.stop()

    def _times(self, device: str) -> Floats:
        if not self.group.origin:
            # The axis counts from here: seconds since the epoch are too long for a comfortable float.
            self.group.origin = float(self._history.times(device)[0])
        return self._history.times(device) - self.group.origin

    def _build(self) -> None:
        """Makes the plots when the page is first looked at."""
        if self.plots:
            return
        self.plots = {
            "utilization_percent": LinePlot(
                "Utilization", self.group, unit="%", low=0, high=100, write=lambda value: f"{value:.0f} %"
            ),
            "memory_used_bytes": LinePlot(
                "Memory in use", self.group, unit="GiB", scale=1 / words.GIB, low=0, write=lambda v: f"{v:.1f} GiB"
            ),
            "power_w": LinePlot("Power", self.group, unit="W", low=0, write=lambda value: f"{value:.0f} W"),
            "temperature_c": LinePlot("Temperature", self.group, unit="°C", write=lambda value: f"{value:.0f} °C"),
        }
        for plot in self.plots.values():
            plot.set_empty_text("Waiting for the first reading")
            plot.setMinimumHeight(110)
            self._layout.addWidget(plot, 1)

    def _following_changed(self, following: bool) -> None:
        self._newest.setEnabled(not following)


def _style(title: str, device: str) -> LineStyle:
    return LineStyle(title, lambda: theme.device_color(device))
