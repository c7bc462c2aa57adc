"""Left side of the window: live cards with check boxes for the devices of all machines."""

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
from gui.widgets.layouts import scroll_panel, vbox

_WIDEST = 390
"""Largest width that the cards claim; beyond, as with texts of twice the size, they scroll sideways."""


class DevicesPanel(QWidget):
    """Cards of the devices by machine: this one first, then the hosts.

    Until the user chooses, the first idle GPU of this machine is checked, or its CPU without one.

    Signals:
        selection_changed(): `selection()` has changed.
    """

    selection_changed = Signal()

    def __init__(self, history: DeviceHistory | None = None, parent: QWidget | None = None) -> None:
        """Create a panel whose small graphs show the readings in `history`."""
        super().__init__(parent)
        self.history = history or DeviceHistory()
        self._chosen = self._all = False
        heading = heading_label(tr("Devices"))
        inside = QWidget()
        self._list = vbox(heading, 1, margins=(10, 10, 10, 10))
        inside.setLayout(self._list)
        self._machines: dict[str, MachineDevices] = {}
        self._here = self._add("")
        self._here.choose((CPU,))
        self._list.addStrut(260)
        scroll = scroll_panel(inside, min_content_width=_WIDEST)
        self.setLayout(vbox(scroll))
        self._announced = self.selection()

    def set_hosts(self, names: Sequence[str]) -> None:
        """Set the other machines in order; devices of removed ones are unchecked."""
        for name in [name for name in self._machines if name and name not in names]:
            removed = self._machines.pop(name)
            self._list.removeWidget(removed)
            removed.deleteLater()
        for name in names:
            if name not in self._machines:
                self._add(name)
        self._announce()

    def selection(self) -> tuple[str, ...]:
        """Return the checked devices by machine: GPUs in the order of the cards, then "cpu" once per worker.

        Devices of other machines have the machine's name in front.
        """
        return tuple(device for machine in self._machines.values() for device in machine.selection())

    def set_selection(self, devices: tuple[str, ...]) -> None:
        """Check `devices` only; unknown GPUs once they appear."""
        self._chosen, self._all = True, False
        self._apply(devices)

    def choose_all(self) -> None:
        """Check all GPUs of this machine once they are known, its CPU without one."""
        self._all = True
        if self._here.gpus:
            self._choose_all()

    def update_snapshot(self, snapshot: Snapshot, host: str = "") -> None:
        """Show a snapshot of `host` ("" for this machine) that the history already contains."""
        if host in self._machines:
            self._machines[host].update_snapshot(snapshot)
        if not host and snapshot.nvml.status != "not_answering":
            self._settle(sorted(snapshot.gpus, key=card_order))
        self._announce()

    def show_error(self, message: str, host: str = "") -> None:
        """Show why a machine sends no snapshots, "" once they come again."""
        if host in self._machines:
            self._machines[host].show_error(message)

    def _add(self, host: str) -> MachineDevices:
        machine = MachineDevices(self.history, host)
        machine.toggled.connect(self._chosen_by_user)
        self._list.insertWidget(self._list.count() - 1, machine)
        self._machines[host] = machine
        return machine

    def _settle(self, gpus: list[Gpu]) -> None:
        """Check the default devices once this machine's GPUs are known, unless the user has chosen."""
        if self._all and gpus:
            self._choose_all()
        if not self._chosen and gpus:
            usable = [gpu for gpu in gpus if not gpu.lost and (gpu.cuda_index is not None or gpu.mig)] or gpus
            idle = next((gpu for gpu in usable if not gpu.processes), usable[0])
            self._apply((idle.uuid,))
            self._chosen = True

    def _choose_all(self) -> None:
        self._all, self._chosen = False, True
        self._apply(self._here.gpus)

    def _apply(self, devices: tuple[str, ...]) -> None:
        for machine in self._machines.values():
            machine.choose(devices)
        self._announce()

    def _chosen_by_user(self) -> None:
        self._chosen = True
        self._announce()

    def _announce(self) -> None:
        selection = self.selection()
        if selection != self._announced:
            self._announced = selection
            self.selection_changed.emit()


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
        self._message.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        self._cpu = CpuCard(host)
        if host:
            self._cpu.hide()
        self._cpu.toggled.connect(self._toggled)
        self._list = vbox()
        self.setLayout(self._list)
        if host:
            heading = heading_label(host)
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
