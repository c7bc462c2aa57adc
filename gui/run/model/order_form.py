"""What is to be evaluated: which checkpoint, on which folder and split, on which devices."""

from __future__ import annotations

from pathlib import Path

from PySide6.QtCore import Signal
from PySide6.QtGui import QDragEnterEvent, QDropEvent
from PySide6.QtWidgets import QHBoxLayout, QLabel, QPushButton, QVBoxLayout, QWidget

from engine.contract.inference.evaluation import EvaluateOrder, EvaluationSplit
from engine.runs.folder import RunFolder
from gui.actions import Action, bind
from gui.run.model.plot import caption
from gui.run.model_choice import CheckpointEditor, DevicesEditor, form_grid
from gui.widgets.editors import ChoiceEditor, PathEditor
from gui.widgets.tab_order import order_tabs

AUTOMATIC = "auto"
SPLITS: tuple[tuple[str, str, str], ...] = (
    (
        AUTOMATIC,
        "automatic",
        "Validation for the run's own dataset; for another folder its test split where it has one",
    ),
    ("val", "validation", ""),
    ("test", "test", ""),
    ("train", "training", "Says how well the model has learnt its training data by heart"),
    ("all", "all samples", ""),
)
INTRODUCTION = (
    "What is this model worth? An evaluation measures it on a split of its own dataset or of any other folder, with 95 % "
    "intervals, and shows where it is wrong."
)


class EvaluateForm(QWidget):
    """Signals: wanted(object) - this EvaluateOrder is to be done; closed() - nothing is to be evaluated after all."""

    wanted = Signal(object)
    closed = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setAcceptDrops(True)
        self._run: RunFolder | None = None
        self.heading = QLabel("Evaluate the model")
        self.heading.setObjectName("heading")
        self.checkpoint = CheckpointEditor()
        self.folder = PathEditor("dataset folder", folder=True, placeholder="the run's own dataset")
        self.folder.line.setToolTip("Leave empty for the run's own dataset; a folder can be dropped here")
        self.split = ChoiceEditor(list(SPLITS))
        self.devices = DevicesEditor("Evaluate")
        self.act = Action(self, "evaluate", "Evaluate", "Measures the model")
        self.start = bind(QPushButton(), self.act)
        self.start.setObjectName("primary")
        self.cancel = QPushButton("Back to the results")
        self._lay_out()
        self.act.on_trigger(self._order)
        self.cancel.clicked.connect(self.closed)
        self.checkpoint.looked.connect(self._allow)
        self.devices.edited.connect(self._allow)
        self.devices.remade.connect(self._order_tabs)

    def show_run(self, run: RunFolder, devices: tuple[str, ...], own: str) -> None:
        """Asks for an evaluation of `run`, whose job has these devices and the dataset `own`."""
        self._run = run
        self.folder.set_value("")
        self.folder.line.setPlaceholderText(f"the run's own: {own}")
        self.split.set_value(AUTOMATIC)
        self.devices.show_own(devices)
        self.checkpoint.show_run(run)

    def offer_back(self, there: bool) -> None:
        """Whether there are results to go back to."""
        self.cancel.setVisible(there)

    def order(self) -> EvaluateOrder | None:
        """What is asked for; None without a run or devices."""
        if self._run is None or not self.devices.value():
            return None
        value = self.split.value()
        split: EvaluationSplit | None = next((each for each in ("val", "test", "train", "all") if each == value), None)
        folder = self.folder.value()
        return EvaluateOrder(
            run=str(self._run.path.absolute()),
            checkpoint=self.checkpoint.value(),
            devices=self.devices.value(),
            dataset=str(Path(folder).expanduser()) if folder else "",
            split=split,
        )

    def dragEnterEvent(self, event: QDragEnterEvent) -> None:
        if any(url.isLocalFile() for url in event.mimeData().urls()):
            event.acceptProposedAction()

    def dropEvent(self, event: QDropEvent) -> None:
        path = next((url.toLocalFile() for url in event.mimeData().urls() if url.isLocalFile()), "")
        if path:
            event.acceptProposedAction()
            self.folder.set_value(path)

    def _order(self) -> None:
        order = self.order()
        if order is not None:
            self.wanted.emit(order)

    def _allow(self) -> None:
        why = "" if self.checkpoint.found else "The run has no checkpoint yet"
        self.act.allow(why or ("" if self.devices.value() else "Choose a device"))

    def _order_tabs(self) -> None:
        order_tabs(self, (self.checkpoint, self.folder, self.split, self.devices, self.start, self.cancel))

    def _lay_out(self) -> None:
        form = form_grid(
            ("Checkpoint", "Checkpoint to evaluate", self.checkpoint),
            ("Dataset", "Dataset to evaluate on", self.folder),
            ("Split", "Split to evaluate on", self.split),
            (
                "",
                "",
                caption("Automatic: validation of the run's own dataset; of another folder test where it has one."),
            ),
            ("Devices", "", self.devices),
        )
        buttons = QHBoxLayout()
        buttons.addWidget(self.start)
        buttons.addWidget(self.cancel)
        buttons.addStretch(1)
        inside = QWidget()
        inside.setMaximumWidth(560)
        column = QVBoxLayout(inside)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(12)
        column.addWidget(self.heading)
        column.addWidget(caption(INTRODUCTION))
        column.addLayout(form)
        column.addLayout(buttons)
        middle = QHBoxLayout()
        middle.addStretch(1)
        middle.addWidget(inside, 100)
        middle.addStretch(1)
        layout = QVBoxLayout(self)
        layout.addStretch(1)
        layout.addLayout(middle)
        layout.addStretch(2)
