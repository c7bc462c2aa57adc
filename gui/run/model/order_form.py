"""What is to be evaluated: which checkpoint, on which folder and split, on which devices."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QDragEnterEvent, QDropEvent
from PySide6.QtWidgets import QCheckBox, QGridLayout, QHBoxLayout, QLabel, QPushButton, QVBoxLayout, QWidget

from engine.contract.devices import CPU
from engine.contract.inference.evaluation import EvaluateOrder, EvaluationSplit
from engine.runs.folder import OLDER_CHECKPOINT, RunFolder
from gui.actions import Action, bind
from gui.run.model.plot import caption
from gui.sources.background import expected_of_a_disk, in_background
from gui.sources.checkpoints import Checkpoint, checkpoints_of
from gui.widgets.editors import ChoiceEditor, Editor, PathEditor
from gui.widgets.flow_layout import FlowLayout
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
        self._boxes: dict[str, QCheckBox] = {}
        self._names: dict[str, str] = {}
        self._own: tuple[str, ...] = (CPU,)
        self.heading = QLabel("Evaluate the model")
        self.heading.setObjectName("heading")
        self.checkpoint = ChoiceEditor([("best", "best", "")])
        self.folder = PathEditor("dataset folder", folder=True, placeholder="the run's own dataset")
        self.folder.line.setToolTip("Leave empty for the run's own dataset; a folder can be dropped here")
        self.split = ChoiceEditor(list(SPLITS))
        self.devices = QWidget()
        self._flow = FlowLayout(self.devices, spacing=14)
        self.act = Action(self, "evaluate", "Evaluate", "Measures the model")
        self.start = bind(QPushButton(), self.act)
        self.start.setObjectName("primary")
        self.cancel = QPushButton("Back to the results")
        self._lay_out()
        self.act.on_trigger(self._order)
        self.cancel.clicked.connect(self.closed)

    def show_run(self, run: RunFolder, devices: tuple[str, ...], own: str) -> None:
        """Asks for an evaluation of `run`, whose job has these devices and the dataset `own`."""
        self._run = run
        self._own = devices or (CPU,)
        self.folder.set_value("")
        self.folder.line.setPlaceholderText(f"the run's own: {own}")
        self.split.set_value(AUTOMATIC)
        self._show_devices()
        self.look()

    def set_gpus(self, names: dict[str, str]) -> None:
        """What this machine's GPUs are called, by their UUIDs."""
        if names != self._names:
            self._names = dict(names)
            self._show_devices()

    def look(self) -> None:
        """Looks which checkpoints there are."""
        if self._run is not None:
            in_background(partial(checkpoints_of, self._run), self, partial(self._offer, self._run), expected_of_a_disk)

    def offer_back(self, there: bool) -> None:
        """Whether there are results to go back to."""
        self.cancel.setVisible(there)

    def chosen_devices(self) -> tuple[str, ...]:
        """Those that are checked; those of the run where none is known yet."""
        chosen = tuple(device for device, box in self._boxes.items() if box.isChecked())
        # As many workers on the CPU as the run had.
        return tuple(
            each for device in chosen for each in [device] * (self._own.count(CPU) or 1 if device == CPU else 1)
        )

    def order(self) -> EvaluateOrder | None:
        """What is asked for; None without a run or devices."""
        if self._run is None or not self.chosen_devices():
            return None
        value = self.split.value()
        split: EvaluationSplit | None = next((each for each in ("val", "test", "train", "all") if each == value), None)
        folder = self.folder.value()
        return EvaluateOrder(
            run=str(self._run.path.absolute()),
            checkpoint=self.checkpoint.value(),
            devices=self.chosen_devices(),
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

    def _offer(self, run: RunFolder, found: tuple[Checkpoint, ...]) -> None:
        if run is not self._run:
            return
        choices = []
        for each in found:
            older = OLDER_CHECKPOINT.fullmatch(each.name)
            title = f"epoch {older['epoch']}" if older is not None else each.name.removesuffix(".pt")
            choices.append((each.name, " · ".join(filter(None, (title, each.words))), ""))
        choices.sort(key=lambda choice: choice[0] != "best.pt")
        self.checkpoint.box.clear()
        self.checkpoint.set_choices(choices or [("best", "best", "")])
        self.checkpoint.box.setCurrentIndex(0)
        self._allow(bool(choices))

    def _allow(self, there: bool = True) -> None:
        why = "" if there else "The run has no checkpoint yet"
        self.act.allow(why or ("" if self.chosen_devices() else "Choose a device"))

    def _show_devices(self) -> None:
        """One box for each GPU and the CPU; those of the run are checked."""
        known = [*self._names, CPU]
        own = [device for device in dict.fromkeys(self._own) if device in known] or [CPU]
        for box in self._boxes.values():
            self._flow.removeWidget(box)
            box.deleteLater()
        self._boxes = {}
        for device in known:
            title = "CPU" if device == CPU else self._names[device]
            self._boxes[device] = box = QCheckBox(title)
            box.setAccessibleName(f"Evaluate on {title}")
            box.setChecked(device in own)
            box.toggled.connect(partial(self._chose, device))
            self._flow.addWidget(box)
        self.devices.updateGeometry()
        order_tabs(self, (self.checkpoint, self.folder, self.split, *self._boxes.values(), self.start, self.cancel))

    def _chose(self, device: str, on: bool) -> None:
        """The CPU works alone."""
        if on:
            for other, box in self._boxes.items():
                if CPU in (device, other) and other != device:
                    box.setChecked(False)
        self._allow(self.checkpoint.box.count() > 0)

    def _lay_out(self) -> None:
        form = QGridLayout()
        form.setHorizontalSpacing(12)
        form.setVerticalSpacing(8)
        form.setColumnStretch(1, 1)
        for row, (title, name, editor) in enumerate(
            (
                ("Checkpoint", "Checkpoint to evaluate", self.checkpoint),
                ("Dataset", "Dataset to evaluate on", self.folder),
                ("Split", "Split to evaluate on", self.split),
            )
        ):
            form.addWidget(_label(title, name, editor), row, 0)
            form.addWidget(editor, row, 1)
        form.addWidget(
            caption("Automatic: validation of the run's own dataset; of another folder test where it has one."), 3, 1
        )
        devices = QLabel("Devices")
        devices.setFixedHeight(self.checkpoint.sizeHint().height() - 4)
        form.addWidget(devices, 4, 0, Qt.AlignmentFlag.AlignTop)
        form.addWidget(self.devices, 4, 1)
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


def _label(title: str, name: str, editor: Editor) -> QLabel:
    label = QLabel(title)
    label.setBuddy(editor.control)
    editor.control.setAccessibleName(name)
    return label
