"""Cards of one machine's devices."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QWidget

from engine.contract.devices import CPU, Gpu, Snapshot, device_key, host_of, is_gpu, local_device
from gui.devices.cards import CpuCard, GpuCard
from gui.sources.devices.device_format import card_order
from gui.sources.devices.history import DeviceHistory
from gui.style import theme
from gui.translation import tr
from gui.widgets.labels import heading_label, muted_label
from gui.widgets.layouts import vbox

_NO_GPU = tr("No NVIDIA GPU is installed in {where}; training runs on the CPU.")


class MachineDevices(QWidget):
    """Cards of the GPUs and the CPU of `host` ("" for this machine), below a message about its problems.

    While another machine sends nothing, its devices can only be unchecked.

    Signals:
        toggled(): the user has checked or unchecked a device.
    """

    toggled = Signal()

    def __init__(self, history: DeviceHistory, host: str = "") -> None:
        super().__init__()
        self.host = host
        self.gpus: tuple[str, ...] = ()
        """UUIDs in the order of the cards."""
        self._history = history
        self._cards: dict[str, GpuCard] = {}
        self._awaited: tuple[str, ...] = ()
        self._error = ""
        self._message = muted_label(
            tr("Connecting to {host} …").format(host=host) if host else tr("Looking for devices …"), word_wrap=True
        )
        self._message.setTextFormat(Qt.TextFormat.PlainText)
        self._message.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        self._cpu = CpuCard(host)
        if host:
            self._cpu.hide()
        self._cpu.toggled.connect(self._toggled)
        self._list = vbox()
        self.setLayout(self._list)
        if host:
            heading = heading_label(host)
            heading.setTextFormat(Qt.TextFormat.PlainText)
            self._list.addWidget(heading)
        self._list.addWidget(self._message)
        self._list.addWidget(self._cpu)

    def selection(self) -> tuple[str, ...]:
        """Return the checked devices: GPUs in the order of the cards, then the CPU once per worker."""
        gpus = tuple(uuid for uuid, card in self._cards.items() if card.check.isChecked())
        workers = self._cpu.workers.value() if self._cpu.check.isChecked() else 0
        return tuple(device_key(self.host, device) for device in gpus + self._awaited + (CPU,) * workers)

    def choose(self, devices: Sequence[str]) -> None:
        """Check this machine's devices among `devices` only; unknown GPUs once they appear."""
        local_devices = [local_device(device) for device in devices if host_of(device) == self.host]
        workers = local_devices.count(CPU)
        changed = [self._cpu.check, self._cpu.workers, *(card.check for card in self._cards.values())]
        for widget in changed:
            widget.blockSignals(True)
        self._cpu.check.setChecked(workers > 0)
        if workers:
            self._cpu.workers.setMaximum(max(workers, self._cpu.workers.maximum()))
            self._cpu.workers.setValue(workers)
        self._cpu.workers.setEnabled(workers > 0)
        for uuid, card in self._cards.items():
            card.check.setChecked(uuid in local_devices)
        for widget in changed:
            widget.blockSignals(False)
        self._awaited = tuple(uuid for uuid in dict.fromkeys(local_devices) if is_gpu(uuid) and uuid not in self._cards)
        self._allow()

    def update_snapshot(self, snapshot: Snapshot) -> None:
        """Show a snapshot that the history already contains."""
        gpus = sorted(snapshot.gpus, key=card_order)
        known = snapshot.nvml.status != "not_answering"  # else a restarted sampler has found none yet
        if gpus or known:
            self._arrange(gpus)
        for gpu in gpus:
            self._cards[gpu.uuid].update_gpu(gpu, self._history, snapshot.time)
        self._cpu.update_cpu(snapshot.cpu, self._history)
        self._cpu.show()
        message = snapshot.nvml.message
        if not message and not gpus:
            message = _NO_GPU.format(where=self.host or "this machine")
        self._message.setText(message)
        self._message.setVisible(bool(message))
        if known:
            self._awaited = ()
        self._error = ""
        self._allow()

    def show_error(self, message: str) -> None:
        """Show why no snapshots come, "" once they come again."""
        self._error = message
        if message:
            self._message.setText(message)
            self._message.show()
        self._allow()

    def _arrange(self, gpus: list[Gpu]) -> None:
        """Create and remove cards to match `gpus`, in their order, above the CPU's."""
        uuids = tuple(gpu.uuid for gpu in gpus)
        if uuids == self.gpus:
            return
        self.gpus = uuids
        theme.register_devices(device_key(self.host, uuid) for uuid in uuids)
        for uuid in [uuid for uuid in self._cards if uuid not in uuids]:
            self._cards.pop(uuid).deleteLater()
        for gpu in gpus:
            if gpu.uuid not in self._cards:
                card = GpuCard(gpu, self.host)
                card.check.setChecked(gpu.uuid in self._awaited)
                card.toggled.connect(self._toggled)
                self._cards[gpu.uuid] = card
        self._cards = {uuid: self._cards[uuid] for uuid in uuids}
        first = self._list.indexOf(self._message) + 1
        previous = None
        for index, card in enumerate(self._cards.values()):
            self._list.removeWidget(card)
            self._list.insertWidget(first + index, card)
            if previous is not None:
                QWidget.setTabOrder(previous, card.check)
            previous = card.check
        if previous is not None:
            QWidget.setTabOrder(previous, self._cpu.check)
        self._awaited = tuple(uuid for uuid in self._awaited if uuid not in self._cards)

    def _toggled(self) -> None:
        self._allow()
        self.toggled.emit()

    def _allow(self) -> None:
        """Enable the check boxes while the machine is reachable."""
        away = bool(self.host and self._error)
        for check in (self._cpu.check, *(card.check for card in self._cards.values())):
            check.setEnabled(not away or check.isChecked())
        if self._cpu.check.isChecked():
            self._cpu.show()
