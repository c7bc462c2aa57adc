"""Cards of the devices: identity, current and recent readings, and a check box for the job."""

from __future__ import annotations

import os
from collections.abc import Callable

from PySide6.QtCore import QEvent, Qt, Signal
from PySide6.QtGui import QColor, QPainter, QPaintEvent
from PySide6.QtWidgets import QCheckBox, QFrame, QGridLayout, QLabel, QSpinBox, QWidget

from engine.contract.devices import CPU, Cpu, Gpu, device_key, gpu_title
from gui.devices.sparkline import CoreBars, Sparkline
from gui.format import celsius, percent, share, size_of, watts
from gui.sources.columns import Floats
from gui.sources.devices import device_format
from gui.sources.devices.device_format import joined, states
from gui.sources.devices.history import DeviceHistory
from gui.style import theme
from gui.translation import tr
from gui.widgets.buttons import styled
from gui.widgets.labels import ElidedLabel, caption, field_label, muted_label
from gui.widgets.layouts import hbox, vbox

_MARGINS = (10, 8, 10, 10)


class GpuCard(QFrame):
    """Card of one GPU.

    Signals:
        toggled(): the check box has changed.
    """

    toggled = Signal()

    def __init__(self, gpu: Gpu, host: str = "", parent: QWidget | None = None) -> None:
        """Create the card of a GPU in `host`, "" for this machine."""
        super().__init__(parent)
        self.setObjectName("card")
        self._before = f"{host} " if host else ""
        self._key = key = device_key(host, gpu.uuid)

        def color() -> str:
            return theme.device_color(key)

        self.check = QCheckBox()
        self.check.toggled.connect(lambda _on: self.toggled.emit())
        self._name = ElidedLabel()
        self._identity = styled(ElidedLabel(), "muted")
        self._note = caption("", "warning")
        self._memory_bar = MemoryBar(color)
        self._graphs = {
            "utilization_percent": MiniGraph(
                tr("Utilization"), color, tr("Fraction of time in which at least one kernel ran.")
            ),
            "memory_used_bytes": MiniGraph(tr("Memory"), color, tr("Memory used by all programs.")),
            "power_w": MiniGraph(tr("Power"), color, tr("Power draw, averaged by the GPU over about a second.")),
            "temperature_c": MiniGraph(tr("Temperature"), color, tr("Temperature of the GPU core.")),
        }
        self._reported: tuple[str, ...] = ()
        self._body = QWidget()
        self._grid = QGridLayout(self._body)
        self._grid.setContentsMargins(0, 0, 0, 0)
        self._grid.setSpacing(8)
        for column in range(2):
            self._grid.setColumnStretch(column, 1)
        for graph in self._graphs.values():
            graph.setParent(self._body)
            graph.hide()
        head = hbox(self.check, (self._name, 1))
        parts = (head, self._identity, self._note, self._memory_bar, self._body)
        self.setLayout(vbox(*parts, spacing=6, margins=_MARGINS))

    def update_gpu(self, gpu: Gpu, history: DeviceHistory, now: float) -> None:
        """Show the state of `gpu` at `now`, in seconds since the epoch."""
        self.check.setText(gpu_title(gpu))
        title = self._before + gpu_title(gpu)
        self.check.setAccessibleName(f"{title}, {gpu.name}")
        self.check.setAccessibleDescription(device_format.describe_gpu(gpu))
        self.check.setToolTip(device_format.gpu_number_origin(gpu))
        self._name.setText(gpu.name)
        self._name.setToolTip(gpu.name)
        self._identity.setText(device_format.short_identity(gpu))
        self._identity.setToolTip(
            f"{gpu.uuid}\n{device_format.gpu_number_origin(gpu)}\nPCI {gpu.pci_bus_id or 'address unknown'}"
        )
        self._identity.setAccessibleName(f"{title} UUID {gpu.uuid}, {device_format.gpu_number_origin(gpu)}")
        self._show_note(gpu, now)
        for widget in (self._body, self._memory_bar, self._name):
            widget.setEnabled(not gpu.lost)
        self._body.setVisible(not gpu.asleep)
        if self.isVisible() and self.visibleRegion().isEmpty():
            return  # scrolled out of sight
        self._show_figures(gpu, title, history)

    def _show_note(self, gpu: Gpu, now: float) -> None:
        """Show warnings for someone about to use the GPU."""
        found = tuple(state for state in states(gpu, now) if state.alarming or gpu.asleep)
        used = "" if gpu.lost else device_format.busy(gpu.processes, device_format.current_user())
        self._note.setText("\n".join(filter(None, (joined(found), used[:1].upper() + used[1:]))))
        self._note.setVisible(bool(self._note.text()))

    def _show_figures(self, gpu: Gpu, title: str, history: DeviceHistory) -> None:
        total = gpu.memory_total_bytes
        self._memory_bar.set_memory(gpu.memory_used_bytes, total)
        self._memory_bar.setVisible(gpu.memory_used_bytes is not None)
        self._arrange(tuple(quantity for quantity in self._graphs if history.has_data(self._key, quantity)))
        texts = {
            "utilization_percent": (percent(gpu.utilization_percent, 3), 100.0),
            "memory_used_bytes": (share(gpu.memory_used_bytes, total), total),
            "power_w": (watts(gpu.power_w, width=4), gpu.power_limit_w),
            "temperature_c": (celsius(gpu.temperature_c, 3), 110.0),
        }
        times = history.x(self._key)
        for quantity in self._reported:
            text, highest = texts[quantity]
            self._graphs[quantity].show_data(title, text, times, history.values(self._key, quantity), highest)

    def _arrange(self, reported: tuple[str, ...]) -> None:
        """Lay out the graphs of the quantities that the GPU reports."""
        if reported == self._reported:
            return
        self._reported = reported
        for number, quantity in enumerate(reported):
            self._grid.addWidget(self._graphs[quantity], number // 2, number % 2)
        for quantity, graph in self._graphs.items():
            graph.setVisible(quantity in reported)


class CpuCard(QFrame):
    """Card of a machine's processor, which counts as one or more devices.

    Signals:
        toggled(): the check box or the number of workers has changed.
    """

    toggled = Signal()

    def __init__(self, host: str = "", parent: QWidget | None = None) -> None:
        """Create the card of the processor of `host`, "" for this machine."""
        super().__init__(parent)
        self.setObjectName("card")
        self._elsewhere = bool(host)
        self._title = f"{host} CPU" if host else "CPU"
        self._key = key = device_key(host, CPU)

        def color() -> str:
            return theme.device_color(key)

        self.check = styled(QCheckBox("CPU"), name=self._title)
        self.check.toggled.connect(self._changed)
        self.workers = QSpinBox(minimum=1, maximum=2 * (os.cpu_count() or 1))
        self.workers.setAccessibleName(f"{self._title} workers")
        self.workers.setAccessibleDescription(tr("Number of worker processes on the CPU; each counts as a device"))
        self.workers.setToolTip(tr("Worker processes on the CPU; each counts as a device"))
        self.workers.valueChanged.connect(self._changed)
        self._name = styled(ElidedLabel(), "muted")
        self._bars = CoreBars(color)
        self._load = MiniGraph(tr("Load"), color, tr("Average load of all cores."))
        self._memory = MiniGraph(tr("Memory"), color, tr("Memory of this machine in use."))
        self._memory_bar = MemoryBar(color)
        self._cores = muted_label(tr("Each core"))
        head = hbox(self.check, 1, field_label("&workers", self.workers), self.workers)
        graphs = hbox(self._load, self._memory)
        parts = (head, self._name, self._memory_bar, graphs, self._cores, self._bars)
        self.setLayout(vbox(*parts, spacing=6, margins=_MARGINS))
        self._changed()

    def _changed(self) -> None:
        self.workers.setEnabled(self.check.isChecked())
        self.toggled.emit()

    def update_cpu(self, cpu: Cpu, history: DeviceHistory) -> None:
        self.check.setAccessibleDescription(device_format.describe_cpu(cpu))
        name = f"{cpu.name}  ·  {celsius(cpu.temperature_c)}" if cpu.temperature_c is not None else cpu.name
        self._name.setText(name)
        self._name.setToolTip(name)
        self._bars.set_loads(cpu.core_load_percent)
        self._cores.setText(
            tr("Each of {core_load_percent_count} cores").format(core_load_percent_count=len(cpu.core_load_percent))
        )
        self._memory_bar.set_memory(cpu.memory_used_bytes, cpu.memory_total_bytes)
        if self._elsewhere:
            self.workers.setMaximum(max(self.workers.value(), 2 * len(cpu.core_load_percent)))
        times = history.x(self._key)
        load = history.values(self._key, "utilization_percent")
        memory = history.values(self._key, "memory_used_bytes")
        total = cpu.memory_total_bytes
        self._load.show_data(self._title, percent(cpu.load_percent, 3), times, load, 100.0)
        self._memory.show_data(self._title, share(cpu.memory_used_bytes, total), times, memory, total)


CARD_SPAN_S = 120.0
"""Seconds shown by a card's small graphs; the Monitor page shows more."""


class _Bar(QWidget):
    """Bar that is filled to a fraction."""

    def __init__(self, color: Callable[[], str]) -> None:
        super().__init__()
        self._color = color
        self._share = 0.0
        self.setFixedHeight(8)

    def set_share(self, share: float | None) -> None:
        """Set the fraction from 0 to 1, None if unknown."""
        self._share = min(1.0, max(0.0, share or 0.0))
        self.update()

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        scheme = theme.colors()
        painter.fillRect(self.rect(), QColor(scheme.border))
        color = self._color() if self.isEnabled() else scheme.muted
        painter.fillRect(0, 0, round(self.width() * self._share), self.height(), QColor(color))


class MemoryBar(QWidget):
    """Bar and numbers of a device's memory usage."""

    def __init__(self, color: Callable[[], str], parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._bar = _Bar(color)
        self._text = QLabel()
        self._text.setFont(theme.tabular(self._text.font()))
        self.setLayout(hbox((self._bar, 1), self._text))

    def set_memory(self, used_bytes: int | None, total_bytes: int | None) -> None:
        """Show the memory usage, None for unknown values."""
        self._bar.set_share(used_bytes / total_bytes if used_bytes is not None and total_bytes else None)
        text = size_of(used_bytes, total_bytes)
        self._text.setText(text)
        self._text.setAccessibleName(tr("Memory in use: {text}").format(text=text))


class MiniGraph(QWidget):
    """Caption, latest value and small graph of one quantity."""

    def __init__(self, caption: str, color: Callable[[], str], help_text: str, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._caption = muted_label(caption)
        self.value = QLabel()
        self.value.setFont(theme.tabular(self.value.font()))
        self.value.setAlignment(Qt.AlignmentFlag.AlignRight)
        self.graph = Sparkline(CARD_SPAN_S, color)
        self.setToolTip(f"{help_text} The last {CARD_SPAN_S / 60:.0f} minutes.")
        grid = QGridLayout(self)
        grid.setContentsMargins(0, 0, 0, 0)
        grid.setHorizontalSpacing(4)
        grid.setVerticalSpacing(2)
        grid.addWidget(self._caption, 0, 0)
        grid.addWidget(self.value, 0, 1)
        grid.addWidget(self.graph, 1, 0, 1, 2)
        grid.setColumnStretch(1, 1)

    def changeEvent(self, event: QEvent) -> None:
        super().changeEvent(event)
        if event.type() == QEvent.Type.EnabledChange:
            theme.set_kind(self.value, "" if self.isEnabled() else "muted")

    def show_data(self, device: str, text: str, times: Floats, values: Floats, highest: float | None) -> None:
        """Show the latest value as `text` and the graph up to `highest`, None to follow the data."""
        self.value.setText(text)
        self.graph.set_highest(highest)
        self.graph.set_data(times, values)
        self.graph.set_words(f"{device} {self._caption.text().lower()}", text.strip())
