"""Options of the advisor: time for trials, number of machines, and network."""

from __future__ import annotations

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QComboBox, QDoubleSpinBox, QLabel, QPushButton, QSpinBox, QWidget

from engine.contract.advice import BUDGET_S, AdviceOrder, Network
from engine.contract.job import Job
from gui.format import locale
from gui.translation import tr
from gui.widgets.flow_layout import FlowLayout
from gui.widgets.layouts import hbox

TIMES = {30: "30 seconds", 60: "1 minute", 120: "2 minutes", 300: "5 minutes", 900: "15 minutes"}
GIGABIT = 1e9


class AdviceOptions(QWidget):
    """Line of fields with a button that asks again with them.

    Signals:
        changed(): A field changed.
    """

    changed = Signal()

    def __init__(self) -> None:
        super().__init__()
        self.time = QComboBox()
        for seconds, title in TIMES.items():
            self.time.addItem(title, seconds)
        self.time.setCurrentIndex(self.time.findData(int(BUDGET_S)))
        self.time.setToolTip(tr("Time for all trials. Longer trials give more reliable results."))
        self.machines = QSpinBox(minimum=1, maximum=1024)
        self.machines.setToolTip(
            tr("With more than one, the answer also predicts the speed on several machines like this one")
        )
        self.network = QDoubleSpinBox(minimum=0.1, maximum=3200, value=10, decimals=1, suffix=" Gbit/s")
        self.network.setLocale(locale())
        self.network.setToolTip(tr("Network speed between the machines, in each direction"))
        self.ask = QPushButton(tr("Ask again"))
        self.ask.setToolTip(tr("Asks with these settings"))
        layout = FlowLayout(self, spacing=14, line_spacing=6)
        layout.addWidget(_labelled(tr("&Time for trials"), self.time))
        layout.addWidget(_labelled("&Machines", self.machines))
        self._network = _labelled("&Network", self.network)
        layout.addWidget(self._network)
        layout.addWidget(self.ask)
        self._network.hide()
        self.time.currentIndexChanged.connect(lambda _index: self.changed.emit())
        self.network.valueChanged.connect(lambda _value: self.changed.emit())
        self.machines.valueChanged.connect(self._on_machines_changed)

    def order(self, job: Job, *, again: bool = False) -> AdviceOrder:
        """Return the order for `job`; `again` ignores saved measurements."""
        machines = self.machines.value()
        network = Network(self.network.value() * GIGABIT) if machines > 1 else None
        return AdviceOrder(
            job=job, seconds=float(self.time.currentData()), remeasure=again, machines=machines, network=network
        )

    def differs(self, order: AdviceOrder) -> bool:
        """Return True if the options differ from those of `order`."""
        now = self.order(order.job)
        return (now.seconds, now.machines, now.network) != (order.seconds, order.machines, order.network)

    def _on_machines_changed(self, machines: int) -> None:
        self._network.setVisible(machines > 1)
        self.changed.emit()


def _labelled(title: str, field: QWidget) -> QWidget:
    pair = QWidget()
    label = QLabel(title)
    label.setBuddy(field)
    field.setAccessibleName(title.replace("&", ""))
    pair.setLayout(hbox(label, field, spacing=6))
    return pair
