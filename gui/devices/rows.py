"""Rows for devices: a check box, the state, and the latest readings."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial

from PySide6.QtCore import QSignalBlocker, QSize, Qt, Signal
from PySide6.QtGui import QColor, QMouseEvent, QPainter, QPaintEvent
from PySide6.QtWidgets import QCheckBox, QFrame, QGridLayout, QLabel, QSpinBox, QWidget

from engine.contract.devices import CPU, Cpu, Gpu, device_key, gpu_title
from gui.devices.sparkline import Sparkline
from gui.format import capitalize, celsius, counted, percent, size_of
from gui.sources.devices import device_format
from gui.sources.devices.device_format import join_states, states
from gui.sources.devices.history import DeviceHistory
from gui.style import theme
from gui.translation import tr
from gui.widgets.buttons import styled
from gui.widgets.editors import indent_text
from gui.widgets.labels import ElidedLabel, field_label
from gui.widgets.layouts import hbox, vbox

SPAN_S = 120.0
"""Seconds in a row's small graph. The Monitor page shows more."""
_MARGINS = (7, 2, 7, 4)


class DeviceRow(QFrame):
    """Row for a device. A click anywhere on it toggles the check box.

    Signals:
        toggled(): the user has changed the check box.
    """

    toggled = Signal()

    def __init__(self, key: str, title: str, graph_tip: str) -> None:
        """Create the row for a device.

        Args:
            key: Key of the device, which determines its color and its readings in the history.
            title: Accessible name.
            graph_tip: Tool tip of the graph.
        """
        super().__init__()
        self._key, self._title = key, title
        color = partial(theme.device_color, key)
        self.check = QCheckBox()
        self.check.toggled.connect(self._on_toggled)
        self.name = styled(ElidedLabel(), "muted")
        self.note = styled(ElidedLabel(), "muted")
        self.bar = _MemoryBar(color)
        self.graph = styled(Sparkline(SPAN_S, color), tip=graph_tip)
        self.load, self.temperature = _Figure(), _Figure()
        self._grid = QGridLayout()
        self._grid.setHorizontalSpacing(6)
        self._grid.setVerticalSpacing(0)
        self._grid.setColumnStretch(0, 1)
        self._grid.addLayout(hbox(self.check, (self.name, 1), spacing=6), 0, 0)
        self._grid.addWidget(self.note, 1, 0)
        self._grid.addWidget(self.graph, 0, 1, 2, 1)
        self._grid.addWidget(self.load, 0, 2)
        self._grid.addWidget(self.temperature, 1, 2)
        self._grid.addWidget(self.bar, 2, 0, 1, 3)
        self.setLayout(vbox(self._grid, spacing=2, margins=_MARGINS))
        self.set_checked(False)

    def set_checked(self, is_checked: bool) -> None:
        """Check or uncheck the device without emitting `toggled`."""
        with QSignalBlocker(self.check):
            self.check.setChecked(is_checked)
        self.setObjectName("checked-row" if is_checked else "row")
        self.style().polish(self)

    def mousePressEvent(self, event: QMouseEvent) -> None:
        """Toggle the check box, as a click on the box itself does."""
        if event.button() == Qt.MouseButton.LeftButton and self.check.isEnabled():
            self.check.click()

    def show_readings(self, load: float | None, temperature: float | None, history: DeviceHistory) -> None:
        """Show the latest load in percent, the temperature in °C (or nothing for None), and the load in `history`."""
        key = self._key
        self.load.setText(percent(load, 3) if load is not None else "")
        self.temperature.setText(celsius(temperature, 3) if temperature is not None else "")
        has_graph = history.has_data(key, "utilization_percent")
        self.graph.setVisible(has_graph)
        if has_graph:
            self.graph.set_data(history.x(key), history.values(key, "utilization_percent"))
            self.graph.set_description(tr("{title} utilization").format(title=self._title), percent(load))

    def _on_toggled(self, is_checked: bool) -> None:
        self.set_checked(is_checked)
        self.toggled.emit()


class GpuRow(DeviceRow):
    """Row for a GPU: name, state or used memory, utilization and temperature."""

    def __init__(self, gpu: Gpu, host: str = "") -> None:
        """Create the row for a GPU of `host` ("" for this machine)."""
        title = f"{host} {gpu_title(gpu)}".strip()
        tip = tr("Utilization of the last two minutes: the fraction of time in which at least one kernel ran.")
        super().__init__(device_key(host, gpu.uuid), title, tip)

    def update_gpu(self, gpu: Gpu, history: DeviceHistory, now: float) -> None:
        """Show the state of `gpu` at time `now`, in seconds since the epoch, and a graph of its load in `history`."""
        self.check.setText(gpu_title(gpu))
        self.check.setAccessibleName(f"{self._title}, {gpu.name}")
        self.check.setAccessibleDescription(device_format.describe_gpu(gpu))
        self.name.setText(device_format.short_name(gpu.name))
        self._show_note(gpu, now)
        for widget in (self.name, self.bar, self.graph, self.load, self.temperature):
            widget.setEnabled(not gpu.lost)
        if self.isVisible() and self.visibleRegion().isEmpty():
            return  # scrolled out of sight
        self.bar.show_usage(gpu.memory_used_bytes, gpu.memory_total_bytes)
        is_awake = not gpu.asleep and not gpu.lost
        self.show_readings(
            gpu.utilization_percent if is_awake else None, gpu.temperature_c if is_awake else None, history
        )

    def _show_note(self, gpu: Gpu, now: float) -> None:
        """Show the warnings about the GPU, and if it is asleep. Otherwise, show which programs use it.

        If no program uses it either, show the used memory. The tool tip contains all of these facts.
        """
        notable_states = tuple(state for state in states(gpu, now) if state.alarming or gpu.asleep)
        warning = join_states(notable_states)
        user = device_format.current_user()
        users = "" if gpu.lost else capitalize(device_format.describe_use(gpu.processes, user))
        brief_users = capitalize(device_format.describe_use_briefly(gpu.processes, user))
        memory = size_of(gpu.memory_used_bytes, gpu.memory_total_bytes) if gpu.memory_used_bytes is not None else ""
        self.note.setText(warning or brief_users or memory)
        theme.set_kind(self.note, "warning" if notable_states or users else "muted")
        facts = (
            gpu.name, memory, warning, users,
            f"UUID {gpu.uuid}", device_format.describe_gpu_numbers(gpu),
            f"PCI {gpu.pci_bus_id}" if gpu.pci_bus_id else tr("PCI address unknown"),
        )  # fmt: skip
        self.setToolTip("\n".join(filter(None, facts)))


class CpuRow(DeviceRow):
    """Row for a machine's CPU, which counts as one or more devices.

    Signals:
        toggled(): the check box or the number of workers has changed.
    """

    def __init__(self, host: str = "") -> None:
        """Create the row for the CPU of `host` ("" for this machine)."""
        self._workers_row = QWidget()  # the base class unchecks the row, which hides it
        super().__init__(device_key(host, CPU), f"{host} CPU".strip(), tr("Average load of all cores."))
        self._is_remote = bool(host)
        self.check.setText("CPU")
        self.check.setAccessibleName(self._title)
        self.workers = indent_text(QSpinBox(minimum=1, maximum=2 * (os.cpu_count() or 1)))
        meaning = tr("Worker processes on the CPU; each counts as a device")
        styled(self.workers, name=tr("{cpu} workers").format(cpu=self._title), tip=meaning, description=meaning)
        self.workers.valueChanged.connect(lambda _number: self.toggled.emit())
        self._workers_row.setLayout(hbox(field_label(tr("&Workers"), self.workers), self.workers, 1))
        layout = self.layout()
        assert layout is not None
        layout.addWidget(self._workers_row)

    def set_checked(self, is_checked: bool) -> None:
        super().set_checked(is_checked)
        self._workers_row.setVisible(is_checked)

    def update_cpu(self, cpu: Cpu, history: DeviceHistory) -> None:
        """Show load, temperature and memory of the CPU. For a remote CPU, also set the maximum number of workers."""
        cores = counted(len(cpu.core_load_percent), "core")
        loads = ", ".join(f"{load:.0f}" for load in cpu.core_load_percent)
        memory = size_of(cpu.memory_used_bytes, cpu.memory_total_bytes)
        self.check.setAccessibleDescription(device_format.describe_cpu(cpu))
        self.name.setText(device_format.short_name(cpu.name))
        self.note.setText(memory)
        self.setToolTip(
            "\n".join((cpu.name, f"{memory} · {cores}", tr("Load of each core: {loads}%").format(loads=loads)))
        )
        self.bar.show_usage(cpu.memory_used_bytes, cpu.memory_total_bytes)
        if self._is_remote:  # the limit of this machine is known in advance
            self.workers.setMaximum(max(self.workers.value(), 2 * len(cpu.core_load_percent)))
        self.show_readings(cpu.load_percent, cpu.temperature_c, history)


class _Figure(QLabel):
    """Right-aligned number with a fixed width, so that the rows stay aligned."""

    def __init__(self) -> None:
        super().__init__(alignment=Qt.AlignmentFlag.AlignRight)
        self.setFont(theme.with_tabular_digits(self.font()))

    def sizeHint(self) -> QSize:
        return QSize(self.fontMetrics().horizontalAdvance(celsius(100, 3)), super().sizeHint().height())

    def minimumSizeHint(self) -> QSize:
        return self.sizeHint()


class _MemoryBar(QWidget):
    """Bar that shows the used fraction of a memory."""

    def __init__(self, color: Callable[[], str]) -> None:
        super().__init__()
        self._color = color
        self._used_fraction = 0.0
        self.setFixedHeight(4)

    def show_usage(self, used_bytes: int | None, total_bytes: int | None) -> None:
        """Show the used fraction of the memory. The bar is empty if the fraction is unknown."""
        self._used_fraction = 0.0
        if used_bytes is not None and total_bytes:
            self._used_fraction = min(1.0, used_bytes / total_bytes)
        self.update()

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        scheme = theme.colors()
        painter.fillRect(self.rect(), QColor(scheme.border))
        color = self._color() if self.isEnabled() else scheme.muted
        painter.fillRect(0, 0, round(self.width() * self._used_fraction), self.height(), QColor(color))
