"""Form for a prediction: files, checkpoint, devices and output."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import get_args

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QListWidget, QPushButton, QWidget

from engine.contract.catalogue import predictions_of
from engine.contract.inference.prediction import TILED, Format, PredictOrder, formats_of
from engine.contract.job import Job
from engine.runs.folder import RunFolder
from gui.actions import WITHIN, Action, bind
from gui.run.model_choice import CheckpointEditor, DevicesEditor, form_grid
from gui.translation import tr
from gui.widgets import file_dialogs
from gui.widgets.buttons import styled
from gui.widgets.editors import BoolEditor, ChoiceEditor, FloatEditor, PathEditor
from gui.widgets.labels import caption
from gui.widgets.layouts import hbox, vbox
from gui.widgets.scroll_panel import scroll_column
from gui.widgets.tab_order import order_tabs

INTRODUCTION = tr(
    "Add images, videos, point clouds or folders, or drop them anywhere on this page. The results are saved in a new folder, in "
    "the formats of the task."
)
_DEFAULT = "default"
_WITH_THRESHOLD = ("labels", "objects", "lines")
"""Kinds of predictions that need a score above a threshold; others predict the best class."""
_TITLES: dict[Format, str] = {
    "csv": "CSV",
    "coco": tr("COCO JSON"),
    "yolo": tr("YOLO text files"),
    "png": tr("PNG masks"),
    "geotiff": "GeoTIFF",
    "cloud": "point clouds with classes",
    "json": tr("JSON lines"),
    "npy": tr("NumPy arrays"),
}
_TILES = (
    ("", "whole images", tr("As in training")),
    ("auto", "in tiles", tr("Large images, tile by tile at full resolution")),
)
_VISIBLE_ROWS = 5
"""Visible rows of the list of files."""


class PredictForm(QWidget):
    """Form for a prediction.

    Signals:
        submitted(object): the PredictOrder to execute.
    """

    submitted = Signal(object)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._run: RunFolder | None = None
        self.files = styled(QListWidget(), name=tr("Files and folders to predict for"))
        self.files.setSelectionMode(QListWidget.SelectionMode.ExtendedSelection)
        self.files.setTextElideMode(Qt.TextElideMode.ElideMiddle)
        self.files.setSpacing(2)
        self.files.setFixedHeight(_VISIBLE_ROWS * (self.fontMetrics().height() + 10))
        self.add_files = Action(
            self, "add_prediction_files", tr("Add files …"), tr("Adds images, videos or point clouds")
        )
        self.add_folder = Action(self, "add_prediction_folder", tr("Add a folder …"), tr("Adds all files in a folder"))
        self.remove = Action(
            self.files,
            "remove_prediction_files",
            tr("Remove"),
            tr("Removes the selected lines from the list"),
            "Del",
            context=WITHIN,
        )
        self.checkpoint = CheckpointEditor()
        self.devices = DevicesEditor(tr("Predict"))
        self.format = ChoiceEditor([(_DEFAULT, "the task's default", "")])
        self.tile = ChoiceEditor(list(_TILES))
        self.threshold = FloatEditor()
        self.threshold.set_value(0.5)
        self.overlays = BoolEditor()
        self.overlays.box.setText("draw each result on its image")
        self.overlays.set_value(True)
        self.out = PathEditor("a folder for the results", folder=True)
        self.act = Action(self, "predict", tr("Predict"), tr("Predicts for all listed files"))
        self.start = bind(QPushButton(), self.act)
        self.start.setObjectName("primary")
        self._lay_out()
        self._connect()
        self._update_actions()

    def show_run(self, run: RunFolder, job: Job | None) -> None:
        """Fill the form for `run`, which trained `job`."""
        self._run = run
        self.files.clear()
        self.checkpoint.show_run(run)
        if job is not None:
            self.devices.show_devices(job.parallel.devices)
            choices = [(name, _TITLES[name], "") for name in formats_of(job.task)]
            self.format.set_choices([(_DEFAULT, f"{choices[0][1]} (default)", ""), *choices[1:]])
            self.format.set_value(_DEFAULT)
            predicts = predictions_of(job.task)
            self.tile.setEnabled(predicts in TILED)
            self.threshold.setEnabled(predicts in _WITH_THRESHOLD)
        self.out.set_value("")
        self.out.line.setPlaceholderText(str(self._default_out()))
        self._update_actions()

    def add(self, paths: Sequence[str]) -> None:
        """Add files and folders that are not in the list."""
        listed = set(self.paths())
        self.files.addItems([path for path in dict.fromkeys(paths) if path and path not in listed])
        self._update_actions()

    def paths(self) -> list[str]:
        return [self.files.item(row).text() for row in range(self.files.count())]

    def order(self) -> PredictOrder | None:
        """Return the order, None while it is incomplete."""
        threshold = self.threshold.value()
        if self._run is None or not self.paths() or not self.devices.value() or not isinstance(threshold, float):
            return None
        chosen = self.format.value()
        return PredictOrder(
            run=str(self._run.path.absolute()),
            checkpoint=self.checkpoint.value(),
            devices=self.devices.value(),
            paths=tuple(self.paths()),
            out=str(Path(self.out.value()).expanduser()) if self.out.value() else str(self._default_out()),
            formats=tuple(name for name in get_args(Format) if name == chosen),
            overlays=self.overlays.value(),
            tile="auto" if self.tile.isEnabled() and self.tile.value() == "auto" else None,
            threshold=threshold,
        )

    def _default_out(self) -> Path:
        assert self._run is not None
        return Path.home() / f"predictions-{self._run.run_id}-{time.strftime('%H%M%S')}"

    def _connect(self) -> None:
        self.act.on_trigger(self._submit)
        self.add_files.on_trigger(lambda: file_dialogs.choose_files(self, tr("Predict for files"), self.add))
        self.add_folder.on_trigger(
            lambda: file_dialogs.choose(
                self, tr("Predict for a folder"), "", folder=True, chosen=lambda path: self.add([path])
            )
        )
        self.remove.on_trigger(self._remove_selected)
        self.files.itemSelectionChanged.connect(self._update_actions)
        self.checkpoint.refreshed.connect(self._update_actions)
        self.devices.edited.connect(self._update_actions)
        self.devices.rebuilt.connect(self._order_tabs)
        self.threshold.edited.connect(self._update_actions)

    def _order_tabs(self) -> None:
        editors = (self.checkpoint, self.devices, self.tile, self.format, self.threshold, self.overlays, self.out)
        order_tabs(self, (self.files, self._buttons, *editors, self.start))

    def _remove_selected(self) -> None:
        for item in self.files.selectedItems():
            self.files.takeItem(self.files.row(item))
        self._update_actions()

    def _update_actions(self) -> None:
        threshold = self.threshold.value()
        problems = (
            "" if self.checkpoint.found else tr("The run has no checkpoint yet"),
            "" if self.files.count() else tr("Add files first"),
            "" if self.devices.value() else tr("Choose a device"),
            "" if isinstance(threshold, float) and 0 <= threshold <= 1 else tr("Set a threshold from 0 to 1"),
        )
        self.act.allow(next(filter(None, problems), ""))
        self.remove.allow("" if self.files.selectedItems() else tr("Select lines of the list first"))

    def _submit(self) -> None:
        order = self.order()
        if order is not None:
            self.submitted.emit(order)

    def _lay_out(self) -> None:
        self._buttons = QWidget()
        actions = (self.add_files, self.add_folder, self.remove)
        self._buttons.setLayout(hbox(*(bind(QPushButton(), action) for action in actions), 1))
        inside = QWidget()
        inside.setMaximumWidth(680)
        form = form_grid(
            (tr("Checkpoint"), tr("Checkpoint to predict with"), self.checkpoint),
            (tr("Devices"), "", self.devices),
            (tr("Large images"), tr("Handling of large images"), self.tile),
            (tr("Format"), tr("Format of the results"), self.format),
            (tr("Threshold"), tr("Minimum score of a prediction"), self.threshold),
            (tr("Overlays"), tr("Draw each result on its image"), self.overlays),
            (tr("Write to"), tr("Folder for the results"), self.out),
        )
        start = hbox(self.start, 1)
        inside.setLayout(vbox(caption(INTRODUCTION), self.files, self._buttons, form, start, 1, spacing=10))
        self.setLayout(vbox(scroll_column(inside)))
