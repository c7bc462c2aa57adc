"""The devices of this machine, live, with a check box each: the left side of the window."""

from __future__ import annotations

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QLabel, QVBoxLayout, QWidget

from engine.contract.devices import CPU, Gpu, Snapshot, is_gpu
from gui.devices.cards import CpuCard, GpuCard
from gui.sources.devices.device_format import card_order
from gui.sources.devices.history import DeviceHistory
from gui.style import theme
from gui.widgets.scroll_panel import scroll_panel


class DevicesPanel(QWidget):
    """A card for each GPU and for the CPU.

    Until somebody chooses, the first idle GPU is checked, or the CPU where there is none.

    Signals:
        selection_changed(): `selection()` answers something else than before.
    """

    selection_changed = Signal()

    def __init__(self, history: DeviceHistory | None = None, parent: QWidget | None = None) -> None:
        """`history` is fed by `update_snapshot`; give one to share it with a `MonitorPage`."""
        super().__init__(parent)
        self.history = history or DeviceHistory()
        self._cards: dict[str, GpuCard] = {}
        self._awaited: tuple[str, ...] = ()
        self._chosen = self._all = False
        self._announced: tuple[str, ...] = ()
        heading = QLabel("Devices")
        heading.setObjectName("heading")
        self._message = QLabel("Looking for devices …", wordWrap=True)
        self._message.setObjectName("muted")
        self._message.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        self._cpu = CpuCard()
        self._cpu.check.setChecked(True)
        self._cpu.toggled.connect(self._chosen_by_user)
        inside = QWidget()
        self._list = QVBoxLayout(inside)
        self._list.setContentsMargins(10, 10, 10, 10)
        self._list.setSpacing(8)
        for widget in (heading, self._message, self._cpu):
            self._list.addWidget(widget)
        self._list.addStretch(1)
        inside.setMinimumWidth(280)
        scroll = scroll_panel(inside, whole_width=True)
        outer = QVBoxLayout(self)
        outer.setContentsMargins(0, 0, 0, 0)
        outer.addWidget(scroll)
        self._announced = self.selection()

    def selection(self) -> tuple[str, ...]:
        """The chosen devices: UUIDs in the order of the cards, and "cpu" once for each CPU worker."""
        gpus = tuple(uuid for uuid, card in self._cards.items() if card.check.isChecked())
        return gpus + self._awaited + (CPU,) * (self._cpu.workers.value() if self._cpu.check.isChecked() else 0)

    def set_selection(self, devices: tuple[str, ...]) -> None:
        """Chooses `devices`. GPUs that have not been seen yet are chosen when they first appear."""
        self._chosen, self._all = True, False
        self._apply(devices)

    def choose_all(self) -> None:
        """Chooses all GPUs, as soon as it is known which there are; the CPU where there is none."""
        self._all = True
        if self._cards:
            self._choose_all()

    def update_snapshot(self, snapshot: Snapshot) -> None:
        """Shows what a sampler saw."""
        self.history.add(snapshot)
        gpus = sorted(snapshot.gpus, key=card_order)
        if gpus or snapshot.nvml.status != "not_answering":  # else a sampler that was started anew is still looking
            self._arrange(gpus)
        for gpu in gpus:
            self._cards[gpu.uuid].update_gpu(gpu, self.history, snapshot.time)
        self._cpu.update_cpu(snapshot.cpu, self.history)
        self._show_message(snapshot)
        if snapshot.nvml.status != "not_answering":
            self._settle(gpus)
        self._announce()

    def show_trouble(self, message: str) -> None:
        """Says why no snapshots come; "" once they come again."""
        if message:
            self._message.setText(message)
            self._message.show()

    def _show_message(self, snapshot: Snapshot) -> None:
        message = snapshot.nvml.message
        if not message and not snapshot.gpus:
            message = "No NVIDIA GPU is installed in this machine; training runs on the CPU."
        self._message.setText(message)
        self._message.setVisible(bool(message))

    def _arrange(self, gpus: list[Gpu]) -> None:
        """Makes and removes cards so that they stand in the order of `gpus`, above the CPU's."""
        wanted = [gpu.uuid for gpu in gpus]
        if wanted == list(self._cards):
            return
        theme.register_devices(wanted)
        for uuid in [uuid for uuid in self._cards if uuid not in wanted]:
            self._cards.pop(uuid).deleteLater()
        for gpu in gpus:
            if gpu.uuid not in self._cards:
                card = GpuCard(gpu)
                card.check.setChecked(gpu.uuid in self._awaited)
                card.toggled.connect(self._chosen_by_user)
                self._cards[gpu.uuid] = card
        self._cards = {uuid: self._cards[uuid] for uuid in wanted}
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

    def _settle(self, gpus: list[Gpu]) -> None:
        """Once it is known which GPUs there are: forgets those awaited in vain, and chooses where nobody has."""
        self._awaited = ()
        if self._all and gpus:
            self._choose_all()
        if not self._chosen and gpus:
            usable = [gpu for gpu in gpus if not gpu.lost and (gpu.cuda_index is not None or gpu.mig)] or gpus
            idle = next((gpu for gpu in usable if not gpu.processes), usable[0])
            self._apply((idle.uuid,))
            self._chosen = True

    def _choose_all(self) -> None:
        self._all, self._chosen = False, True
        self._apply(tuple(self._cards))

    def _apply(self, devices: tuple[str, ...]) -> None:
        workers = devices.count(CPU)
        changed = [self._cpu.check, self._cpu.workers, *(card.check for card in self._cards.values())]
        for widget in changed:
            widget.blockSignals(True)
        self._cpu.check.setChecked(workers > 0)
        if workers:
            self._cpu.workers.setMaximum(max(workers, self._cpu.workers.maximum()))
            self._cpu.workers.setValue(workers)
        self._cpu.workers.setEnabled(workers > 0)
        for uuid, card in self._cards.items():
            card.check.setChecked(uuid in devices)
        for widget in changed:
            widget.blockSignals(False)
        self._awaited = tuple(
            device for device in dict.fromkeys(devices) if is_gpu(device) and device not in self._cards
        )
        self._announce()

    def _chosen_by_user(self) -> None:
        self._chosen = True
        self._announce()

    def _announce(self) -> None:
        selection = self.selection()
        if selection != self._announced:
            self._announced = selection
            self.selection_changed.emit()
