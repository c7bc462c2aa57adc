"""Left side of the window: live cards with check boxes for the devices of all machines."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QWidget

from engine.contract.devices import CPU, Gpu, Snapshot
from gui.devices.machine import MachineDevices
from gui.sources.devices.device_format import card_order
from gui.sources.devices.history import DeviceHistory
from gui.translation import tr
from gui.widgets.labels import heading_label
from gui.widgets.layouts import vbox
from gui.widgets.scroll_panel import scroll_panel

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
