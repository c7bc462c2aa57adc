"""Form for an evaluation: checkpoint, dataset, split and devices."""

from __future__ import annotations

from pathlib import Path

from PySide6.QtCore import Signal
from PySide6.QtGui import QDragEnterEvent, QDropEvent
from PySide6.QtWidgets import QPushButton, QWidget

from engine.contract.inference.evaluation import EvaluateOrder, EvaluationSplit
from engine.runs.folder import RunFolder
from gui.actions import Action, bind
from gui.run.model_choice import CheckpointEditor, DevicesEditor, form_grid
from gui.translation import tr
from gui.widgets.buttons import push_button
from gui.widgets.editors import ChoiceEditor, PathEditor
from gui.widgets.labels import caption, heading_label
from gui.widgets.layouts import hbox, vbox
from gui.widgets.tab_order import order_tabs

AUTOMATIC = "auto"
SPLITS: tuple[tuple[str, str, str], ...] = (
    (
        AUTOMATIC,
        "automatic",
        tr("Validation split of the run's dataset; test split of another folder if it has one"),
    ),
    ("val", "validation", ""),
    ("test", "test", ""),
    ("train", "training", tr("Shows how far the model memorized its training data")),
    ("all", "all samples", ""),
)
INTRODUCTION = tr(
    "Measures the model on a split of its dataset or of another folder, with 95 % intervals, and shows its errors."
)


class EvaluateForm(QWidget):
    """Form for an evaluation.

    Signals:
        submitted(object): the EvaluateOrder to execute.
        closed(): back to the results.
    """

    submitted = Signal(object)
    closed = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setAcceptDrops(True)
        self._run: RunFolder | None = None
        self.heading = heading_label(tr("Evaluate the model"))
        self.checkpoint = CheckpointEditor()
        self.folder = PathEditor("dataset folder", folder=True, placeholder="the run's dataset")
        self.folder.line.setToolTip(tr("Leave empty for the run's dataset, or drop a folder here"))
        self.split = ChoiceEditor(list(SPLITS))
        self.devices = DevicesEditor(tr("Evaluate"))
        self.act = Action(self, "evaluate", tr("Evaluate"), tr("Measures the model"))
        self.start = bind(QPushButton(), self.act)
        self.start.setObjectName("primary")
        self.cancel = push_button(tr("Back to the results"), self.closed)
        self._lay_out()
        self.act.on_trigger(self._submit)
        self.checkpoint.refreshed.connect(self._update_action)
        self.devices.edited.connect(self._update_action)
        self.devices.rebuilt.connect(self._order_tabs)

    def show_run(self, run: RunFolder, devices: tuple[str, ...], dataset: str) -> None:
        """Fill the form for `run`, whose job has these devices and a dataset named `dataset`."""
        self._run = run
        self.folder.set_value("")
        self.folder.line.setPlaceholderText(f"the run's: {dataset}")
        self.split.set_value(AUTOMATIC)
        self.devices.show_devices(devices)
        self.checkpoint.show_run(run)

    def set_has_results(self, has_results: bool) -> None:
        """Show the button back to the results if there are any."""
        self.cancel.setVisible(has_results)

    def order(self) -> EvaluateOrder | None:
        """Return the order, None without a run or devices."""
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

    def _submit(self) -> None:
        order = self.order()
        if order is not None:
            self.submitted.emit(order)

    def _update_action(self) -> None:
        problem = "" if self.checkpoint.found else tr("The run has no checkpoint yet")
        self.act.allow(problem or ("" if self.devices.value() else tr("Choose a device")))

    def _order_tabs(self) -> None:
        order_tabs(self, (self.checkpoint, self.folder, self.split, self.devices, self.start, self.cancel))

    def _lay_out(self) -> None:
        form = form_grid(
            (tr("Checkpoint"), tr("Checkpoint to evaluate"), self.checkpoint),
            (tr("Dataset"), tr("Dataset to evaluate on"), self.folder),
            (tr("Split"), tr("Split to evaluate on"), self.split),
            (
                "",
                "",
                caption(
                    tr("Automatic: validation split of the run's dataset; test split of another folder if it has one.")
                ),
            ),
            (tr("Devices"), "", self.devices),
        )
        inside = QWidget()
        inside.setMaximumWidth(560)
        buttons = hbox(self.start, self.cancel, 1)
        inside.setLayout(vbox(self.heading, caption(INTRODUCTION), form, buttons, spacing=12))
        self.setLayout(vbox(1, hbox(1, (inside, 100), 1), 2))
