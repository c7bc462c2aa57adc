"""Panel with live rows for the devices of all machines, which have check boxes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

from PySide6.QtCore import QSignalBlocker, Qt, QTimer, Signal
from PySide6.QtGui import QShowEvent
from PySide6.QtWidgets import QToolButton, QWidget

from engine.contract.devices import CPU, Gpu, Snapshot, device_key, host_of, is_gpu, local_device
from gui.devices.rows import CpuRow, DeviceRow, GpuRow
from gui.sources.devices.device_format import gpu_sort_key
from gui.sources.devices.history import DeviceHistory
from gui.style import theme
from gui.translation import tr
from gui.widgets.buttons import tool_button
from gui.widgets.labels import heading_label, muted_label
from gui.widgets.layouts import FlowLayout, hbox, scroll_panel, vbox, with_layout

_WIDEST = 390
"""Maximum width in pixels that the rows may require."""


class DevicesPanel(QWidget):
    """Panel with the rows of the devices by machine: this machine first, then the hosts.

    Until the user chooses, the first idle GPU of this machine is checked, or its CPU if there is none.

    Signals:
        selection_changed(): `selection()` has changed.
    """

    selection_changed = Signal()

    def __init__(self, history: DeviceHistory) -> None:
        """Create a panel whose small graphs show the readings in `history`."""
        super().__init__()
        self.history = history
        self._is_choice_made = False
        """True once the user, or this panel as a default, has selected devices. No default is selected anymore."""
        self._should_check_all_gpus = False  # True until the GPUs that `choose_all_gpus` requested are known
        self._list = vbox(1, margins=(10, 10, 10, 10))
        inside = with_layout(self._list)
        self._machines: dict[str, MachineDevices] = {}
        self._local_machine = self._add_machine("")
        self._local_machine.choose((CPU,))
        self._list.addStrut(260)
        self._scroll = scroll_panel(inside, min_content_width=_WIDEST)
        self.setLayout(vbox(self._scroll))
        self._reported_selection = self.selection()  # selection at the last `selection_changed`

    def set_hosts(self, names: Sequence[str]) -> None:
        """Set the other machines. New ones are added at the end, and devices of removed ones are unchecked."""
        for name in [name for name in self._machines if name and name not in names]:
            removed = self._machines.pop(name)
            self._list.removeWidget(removed)
            removed.deleteLater()
        for name in names:
            if name not in self._machines:
                self._add_machine(name)
        self._report_selection()

    def selection(self) -> tuple[str, ...]:
        """Return the checked devices by machine: GPUs in row order, then "cpu" once per worker.

        Devices of other machines have the machine's name as a prefix.
        """
        return tuple(device for machine in self._machines.values() for device in machine.selection())

    def set_selection(self, devices: tuple[str, ...]) -> None:
        """Check only `devices`. Unknown GPUs are checked when they appear."""
        self._is_choice_made, self._should_check_all_gpus = True, False
        self._check_devices(devices)

    def choose_all_gpus(self) -> None:
        """Check all usable GPUs of this machine, as soon as they are known. Without GPUs, nothing changes."""
        self._should_check_all_gpus = True
        if self._local_machine.gpu_uuids:
            self._check_all_gpus()

    def update_snapshot(self, snapshot: Snapshot, host: str = "") -> None:
        """Show a snapshot of `host` ("" for this machine), which must already be in the history."""
        if host in self._machines:
            self._machines[host].update_snapshot(snapshot)
        if not host and snapshot.nvml.status != "not_answering" and snapshot.gpus:
            self._choose_default()
        self._report_selection()

    def show_error(self, message: str, host: str = "") -> None:
        """Show the reason why a machine sends no snapshots. A `message` of "" means that they arrive again."""
        if host in self._machines:
            self._machines[host].show_error(message)

    def _add_machine(self, host: str) -> MachineDevices:
        """Create the rows for a machine below those of the others."""
        machine = MachineDevices(self.history, host)
        machine.toggled.connect(self._on_toggled_by_user)
        self._list.insertWidget(self._list.count() - 1, machine)
        self._machines[host] = machine
        return machine

    def _choose_default(self) -> None:
        """Check all usable GPUs of this machine if they were requested by `choose_all_gpus` before they were known.

        Otherwise, check the first idle GPU, unless devices were selected before. Called with each snapshot.
        """
        if self._should_check_all_gpus:
            self._check_all_gpus()
        elif not self._is_choice_made:
            self._check_devices((self._local_machine.list_unused() or self._local_machine.list_usable())[:1])
            self._is_choice_made = True

    def _check_all_gpus(self) -> None:
        """Check all usable GPUs of this machine, and mark the request of `choose_all_gpus` as done."""
        self._should_check_all_gpus, self._is_choice_made = False, True
        self._check_devices(self._local_machine.list_usable())

    def _check_devices(self, devices: tuple[str, ...]) -> None:
        """Check only `devices`, report the selection if it has changed, and scroll to it."""
        for machine in self._machines.values():
            machine.choose(devices)
        self._report_selection()
        QTimer.singleShot(0, self, self._scroll_to_checked)

    def _scroll_to_checked(self) -> None:
        """Scroll to the row of the first checked device."""
        for machine in self._machines.values():
            row = machine.find_first_checked()
            if row is not None:
                self._scroll.ensureWidgetVisible(row)
                return

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        QTimer.singleShot(0, self, self._scroll_to_checked)

    def _on_toggled_by_user(self) -> None:
        self._is_choice_made = True
        self._report_selection()

    def _report_selection(self) -> None:
        """Emit `selection_changed` if the selection differs from the one that was reported last."""
        selection = self.selection()
        if selection != self._reported_selection:
            self._reported_selection = selection
            self.selection_changed.emit()


_NO_GPU = tr("No NVIDIA GPU is installed in {where}; training runs on the CPU.")


class MachineDevices(QWidget):
    """Rows for a machine's GPUs and CPU, with the number of checked GPUs and a message about problems.

    `host` is "" for this machine. While another machine sends no snapshots, its devices can only be unchecked.

    Signals:
        toggled(): the user has checked or unchecked a device.
    """

    toggled = Signal()

    def __init__(self, history: DeviceHistory, host: str = "") -> None:
        super().__init__()
        self.host = host
        self.gpu_uuids: tuple[str, ...] = ()
        """UUIDs of the GPUs, in row order."""
        self._history = history
        self._rows: dict[str, GpuRow] = {}  # by UUID
        self._gpus: list[Gpu] = []  # GPUs in the last snapshot, in row order
        self._awaited_gpus: tuple[str, ...] = ()  # selected GPUs without a row until a snapshot lists them
        self._error = ""  # reason why no snapshots arrive
        self._message = muted_label(
            tr("Connecting to {host}…").format(host=host) if host else tr("Looking for devices…"), word_wrap=True
        )
        self._message.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        self._cpu = CpuRow(host)
        if host:
            self._cpu.hide()
        self._cpu.toggled.connect(self._on_toggled_by_user)
        self._count = muted_label()
        self._count.setContentsMargins(5, 0, 3, 0)
        self._buttons = [
            self._create_choice_button(tr("All"), tr("Select all GPUs that can be used"), self.list_usable),
            self._create_choice_button(tr("Free"), tr("Select the GPUs that no program uses"), self.list_unused),
            self._create_choice_button(tr("None"), tr("Select no device"), tuple),  # returns ()
        ]
        head, buttons = QWidget(), with_layout(hbox(*self._buttons, spacing=0))
        flow = FlowLayout(head, spacing=0, line_spacing=0)
        for widget in (heading_label(host or tr("Devices")), self._count, buttons):
            flow.addWidget(widget)
        self._list = vbox(head, self._message, self._cpu, spacing=4)
        self.setLayout(self._list)
        self._show_count()

    def selection(self) -> tuple[str, ...]:
        """Return the checked devices: GPUs in row order, then the CPU once per worker."""
        gpus = tuple(uuid for uuid, row in self._rows.items() if row.check.isChecked())
        workers = self._cpu.workers.value() if self._cpu.check.isChecked() else 0
        return tuple(device_key(self.host, device) for device in gpus + self._awaited_gpus + (CPU,) * workers)

    def list_usable(self) -> tuple[str, ...]:
        """Return the GPUs that can train. If this isn't known for any GPU, return all."""
        gpus = [gpu for gpu in self._gpus if not gpu.lost and (gpu.cuda_index is not None or gpu.mig)]
        return tuple(gpu.uuid for gpu in gpus or self._gpus)

    def list_unused(self) -> tuple[str, ...]:
        """Return the usable GPUs that no program uses."""
        used = {gpu.uuid for gpu in self._gpus if gpu.processes}
        return tuple(uuid for uuid in self.list_usable() if uuid not in used)

    def find_first_checked(self) -> DeviceRow | None:
        """Return the row of the first checked device, or None if no device is checked."""
        return next((row for row in (*self._rows.values(), self._cpu) if row.check.isChecked()), None)

    def choose(self, devices: Sequence[str]) -> None:
        """Check the `devices` that belong to this machine, and uncheck all others.

        Unknown GPUs are checked when they appear.
        """
        local_devices = [local_device(device) for device in devices if host_of(device) == self.host]
        workers = local_devices.count(CPU)
        if workers:
            with QSignalBlocker(self._cpu.workers):
                self._cpu.workers.setMaximum(max(workers, self._cpu.workers.maximum()))
                self._cpu.workers.setValue(workers)
        self._cpu.set_checked(workers > 0)
        for uuid, row in self._rows.items():
            row.set_checked(uuid in local_devices)
        gpu_uuids = dict.fromkeys(filter(is_gpu, local_devices))
        self._awaited_gpus = tuple(uuid for uuid in gpu_uuids if uuid not in self._rows)
        self._update_check_boxes()

    def update_snapshot(self, snapshot: Snapshot) -> None:
        """Show a snapshot, which must already be in the history, and clear the error of `show_error`.

        Selected GPUs without a row are no longer awaited, unless NVML isn't answering.
        """
        gpus = sorted(snapshot.gpus, key=gpu_sort_key)
        # While NVML isn't answering, a restarted sampler lists no GPUs, which doesn't mean that there are none.
        are_gpus_known = snapshot.nvml.status != "not_answering"
        if gpus or are_gpus_known:
            self._arrange(gpus)
        for gpu in gpus:
            self._rows[gpu.uuid].update_gpu(gpu, self._history, snapshot.time)
        self._cpu.update_cpu(snapshot.cpu, self._history)
        self._cpu.show()
        message = snapshot.nvml.message
        if not message and not gpus:
            message = _NO_GPU.format(where=self.host or tr("this machine"))
        self._message.setText(message)
        self._message.setVisible(bool(message))
        if are_gpus_known:
            self._awaited_gpus = ()
        self._error = ""
        self._update_check_boxes()

    def show_error(self, message: str) -> None:
        """Show the reason why no snapshots arrive. A `message` of "" means that they arrive again."""
        self._error = message
        if message:
            self._message.setText(message)
            self._message.show()
        self._update_check_boxes()

    def _arrange(self, gpus: list[Gpu]) -> None:
        """Create and remove rows so that they match `gpus` in their order, above the CPU's row.

        New GPUs get colors, and are checked if they were selected before they had a row.
        """
        self._gpus = gpus
        uuids = tuple(gpu.uuid for gpu in gpus)
        if uuids == self.gpu_uuids:
            return
        self.gpu_uuids = uuids
        theme.register_devices(device_key(self.host, uuid) for uuid in uuids)
        for uuid in [uuid for uuid in self._rows if uuid not in uuids]:
            self._rows.pop(uuid).deleteLater()
        for gpu in gpus:
            if gpu.uuid not in self._rows:
                row = GpuRow(gpu, self.host)
                row.set_checked(gpu.uuid in self._awaited_gpus)
                row.toggled.connect(self._on_toggled_by_user)
                self._rows[gpu.uuid] = row
        self._rows = {uuid: self._rows[uuid] for uuid in uuids}
        first_index = self._list.indexOf(self._message) + 1
        for index, row in enumerate(self._rows.values(), first_index):
            self._list.removeWidget(row)
            self._list.insertWidget(index, row)
        checks = [row.check for row in self._rows.values()]
        for before, after in pairwise([*checks, self._cpu.check, self._cpu.workers]):
            QWidget.setTabOrder(before, after)
        self._awaited_gpus = tuple(uuid for uuid in self._awaited_gpus if uuid not in self._rows)

    def _on_toggled_by_user(self) -> None:
        self._update_check_boxes()
        self.toggled.emit()

    def _update_check_boxes(self) -> None:
        """Enable the check boxes if the machine is reachable, otherwise only those that can be unchecked.

        A checked CPU is also visible before the first snapshot.
        """
        is_unreachable = bool(self.host and self._error)
        for check in (self._cpu.check, *(row.check for row in self._rows.values())):
            check.setEnabled(not is_unreachable or check.isChecked())
        if self._cpu.check.isChecked():
            self._cpu.show()
        self._show_count()

    def _show_count(self) -> None:
        """Show the number of checked GPUs. Hide it on a machine without GPUs."""
        checked = sum(row.check.isChecked() for row in self._rows.values())
        self._count.setText(tr("{checked} of {total} selected").format(checked=checked, total=len(self._rows)))
        for widget in (self._count, *self._buttons):
            widget.setVisible(bool(self._rows))
        for button in self._buttons:
            button.setEnabled(not (self.host and self._error))

    def _create_choice_button(self, text: str, tip: str, devices: Callable[[], tuple[str, ...]]) -> QToolButton:
        """Create a button that checks only those devices of the machine that `devices` returns."""

        def choose() -> None:
            self.choose([device_key(self.host, device) for device in devices()])
            self.toggled.emit()

        name = tr("{text} devices of {machine}").format(text=text, machine=self.host or tr("this machine"))
        return tool_button(choose, text=text, style="link", name=name, tip=tip)
