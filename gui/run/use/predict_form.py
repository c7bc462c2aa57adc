"""What is to be predicted: for which files, with which checkpoint, on which devices, written where and how."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import get_args

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QHBoxLayout, QListWidget, QPushButton, QVBoxLayout, QWidget

from engine.contract.catalogue import predictions_of
from engine.contract.inference.prediction import TILED, Format, PredictOrder, formats_of
from engine.contract.job import Job
from engine.runs.folder import RunFolder
from gui.actions import WITHIN, Action, bind
from gui.run.model.plot import caption
from gui.run.model_choice import CheckpointEditor, DevicesEditor, form_grid
from gui.widgets import file_dialogs
from gui.widgets.editors import BoolEditor, ChoiceEditor, FloatEditor, PathEditor
from gui.widgets.scroll_panel import scroll_column
from gui.widgets.tab_order import order_tabs

INTRODUCTION = (
    "Add images, videos, point clouds or folders of them, or drop them anywhere on this page. The results are written into a "
    "new folder, in the formats of the task."
)
_USUAL = "usual"
_WITH_THRESHOLD = ("labels", "objects", "lines")
"""Kinds of predictions that need a score above a threshold; in others the best class is predicted."""
_TITLES: dict[Format, str] = {
    "csv": "CSV",
    "coco": "COCO JSON",
    "yolo": "YOLO text files",
    "png": "PNG masks",
    "geotiff": "GeoTIFF",
    "cloud": "point clouds with classes",
    "json": "JSON lines",
    "npy": "NumPy arrays",
}
_TILES = (
    ("", "whole images", "As in training"),
    ("auto", "in tiles", "Large images, a part at a time, in their own resolution"),
)
_ROWS = 5
"""Lines of the list of files that are in sight."""


class PredictForm(QWidget):
    """Signals: wanted(object) - this PredictOrder is to be done."""

    wanted = Signal(object)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._run: RunFolder | None = None
        self.files = QListWidget()
        self.files.setAccessibleName("Files and folders to predict for")
        self.files.setSelectionMode(QListWidget.SelectionMode.ExtendedSelection)
        self.files.setTextElideMode(Qt.TextElideMode.ElideMiddle)
        self.files.setSpacing(2)
        self.files.setFixedHeight(_ROWS * (self.fontMetrics().height() + 10))
        self.add_files = Action(self, "add_prediction_files", "Add files …", "Adds images, videos or point clouds")
        self.add_folder = Action(self, "add_prediction_folder", "Add a folder …", "Adds all that is in a folder")
        self.remove = Action(
            self.files,
            "remove_prediction_files",
            "Remove",
            "Takes the selected lines off the list",
            "Del",
            context=WITHIN,
        )
        self.checkpoint = CheckpointEditor()
        self.devices = DevicesEditor("Predict")
        self.format = ChoiceEditor([(_USUAL, "the task's usual one", "")])
        self.tile = ChoiceEditor(list(_TILES))
        self.threshold = FloatEditor()
        self.threshold.set_value(0.5)
        self.overlays = BoolEditor()
        self.overlays.box.setText("also draw each result on its image")
        self.overlays.set_value(True)
        self.out = PathEditor("a folder for the results", folder=True)
        self.act = Action(self, "predict", "Predict", "Predicts for all files of the list")
        self.start = bind(QPushButton(), self.act)
        self.start.setObjectName("primary")
        self._lay_out()
        self._connect()
        self._allow()

    def show_run(self, run: RunFolder, job: Job | None) -> None:
        """Asks for predictions of `run`, which trained `job`."""
        self._run = run
        self.files.clear()
        self.checkpoint.show_run(run)
        if job is not None:
            self.devices.show_own(job.parallel.devices)
            choices = [(name, _TITLES[name], "") for name in formats_of(job.task)]
            self.format.set_choices([(_USUAL, f"{choices[0][1]} (usual)", ""), *choices[1:]])
            self.format.set_value(_USUAL)
            predicts = predictions_of(job.task)
            self.tile.setEnabled(predicts in TILED)
            self.threshold.setEnabled(predicts in _WITH_THRESHOLD)
        self.out.set_value("")
        self.out.line.setPlaceholderText(str(self._default_out()))
        self._allow()

    def add(self, paths: Sequence[str]) -> None:
        """Adds files and folders to the list, each once."""
        there = set(self.paths())
        self.files.addItems([path for path in dict.fromkeys(paths) if path and path not in there])
        self._allow()

    def paths(self) -> list[str]:
        return [self.files.item(row).text() for row in range(self.files.count())]

    def order(self) -> PredictOrder | None:
        """What is asked for; None where something is missing."""
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
        self.act.on_trigger(self._order)
        self.add_files.on_trigger(lambda: file_dialogs.choose_files(self, "Predict for files", self.add))
        self.add_folder.on_trigger(
            lambda: file_dialogs.choose(
                self, "Predict for a folder", "", folder=True, chosen=lambda path: self.add([path])
            )
        )
        self.remove.on_trigger(self._remove)
        self.files.itemSelectionChanged.connect(self._allow)
        self.checkpoint.looked.connect(self._allow)
        self.devices.edited.connect(self._allow)
        self.devices.remade.connect(self._order_tabs)
        self.threshold.edited.connect(self._allow)

    def _order_tabs(self) -> None:
        editors = (self.checkpoint, self.devices, self.tile, self.format, self.threshold, self.overlays, self.out)
        order_tabs(self, (self.files, self._buttons, *editors, self.start))

    def _remove(self) -> None:
        for item in self.files.selectedItems():
            self.files.takeItem(self.files.row(item))
        self._allow()

    def _allow(self) -> None:
        threshold = self.threshold.value()
        whys = (
            "" if self.checkpoint.found else "The run has no checkpoint yet",
            "" if self.files.count() else "Add files first",
            "" if self.devices.value() else "Choose a device",
            "" if isinstance(threshold, float) and 0 <= threshold <= 1 else "Set a threshold from 0 to 1",
        )
        self.act.allow(next(filter(None, whys), ""))
        self.remove.allow("" if self.files.selectedItems() else "Select lines of the list first")

    def _order(self) -> None:
        order = self.order()
        if order is not None:
            self.wanted.emit(order)

    def _lay_out(self) -> None:
        self._buttons = QWidget()
        buttons = QHBoxLayout(self._buttons)
        buttons.setContentsMargins(0, 0, 0, 0)
        for action in (self.add_files, self.add_folder, self.remove):
            buttons.addWidget(bind(QPushButton(), action))
        buttons.addStretch(1)
        start = QHBoxLayout()
        start.addWidget(self.start)
        start.addStretch(1)
        inside = QWidget()
        inside.setMaximumWidth(680)
        column = QVBoxLayout(inside)
        column.setContentsMargins(0, 0, 4, 0)
        column.setSpacing(10)
        column.addWidget(caption(INTRODUCTION))
        column.addWidget(self.files)
        column.addWidget(self._buttons)
        column.addLayout(
            form_grid(
                ("Checkpoint", "Checkpoint to predict with", self.checkpoint),
                ("Devices", "", self.devices),
                ("Large images", "How large images are predicted", self.tile),
                ("Format", "Format of the results", self.format),
                ("Threshold", "Score from which something counts as predicted", self.threshold),
                ("Overlays", "Draw each result on its image", self.overlays),
                ("Write to", "Folder for the results", self.out),
            )
        )
        column.addLayout(start)
        column.addStretch(1)
        outer = QVBoxLayout(self)
        outer.setContentsMargins(0, 0, 0, 0)
        outer.addWidget(scroll_column(inside))
