"""Form for predictions, and their result."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import get_args

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QImage
from PySide6.QtWidgets import QLabel, QListWidget, QPushButton, QSplitter, QWidget

from engine.contract.catalogue import predictions_of
from engine.contract.inference.prediction import (
    PREDICTED,
    TILED,
    Format,
    Predicted,
    PredictedRow,
    PredictRequest,
    formats_of,
)
from engine.contract.job import Job
from engine.contract.problems import Problem
from engine.runs.folder import RunFolder
from engine.system.decode_errors import NOT_DECODED
from engine.system.files import MAX_RESULT_BYTES, read_file
from engine.system.format import duration
from engine.system.plain_text import shorten
from gui.actions import WITHIN, Action, bind
from gui.format import counted, speed
from gui.run.model.widgets import describe_skipped
from gui.run.model_choice import CheckpointEditor, DevicesEditor, FormGrid
from gui.run.predictions.image_pane import ImagePane, Zoom
from gui.sources.background import describe_error, in_background
from gui.sources.inspector import read_image
from gui.style import theme
from gui.translation import tr
from gui.widgets import file_dialogs
from gui.widgets.buttons import styled
from gui.widgets.editors import BoolEditor, ChoiceEditor, FloatEditor, PathEditor
from gui.widgets.file_dialogs import reveal
from gui.widgets.labels import ProblemLabel, caption
from gui.widgets.layouts import hbox, scroll_column, vbox
from gui.widgets.tab_order import order_tabs

INTRODUCTION = tr(
    "Add images, videos, point clouds or folders, or drop them anywhere on this page. The results are saved in a new folder, in "
    "the formats of the task."
)
_DEFAULT = "default"
_WITH_THRESHOLD = ("labels", "objects", "lines")
"""Kinds of predictions that need a score threshold. Others predict the best class."""
_TITLES: dict[Format, str] = {
    "csv": "CSV",
    "coco": tr("COCO JSON"),
    "yolo": tr("YOLO text files"),
    "png": tr("PNG masks"),
    "geotiff": "GeoTIFF",
    "cloud": tr("point clouds with classes"),
    "json": tr("JSON lines"),
    "npy": tr("NumPy arrays"),
}
_TILES = (
    ("", tr("whole images"), tr("As in training")),
    ("auto", tr("in tiles"), tr("Large images, tile by tile at full resolution")),
)
_VISIBLE_ROWS = 5
"""Number of visible rows in the list of files."""


class PredictForm(QWidget):
    """Form for predictions.

    Signals:
        submitted(object): the user wants to execute this PredictRequest.
    """

    submitted = Signal(object)

    def __init__(self) -> None:
        super().__init__()
        self._run: RunFolder | None = None
        self.files = styled(QListWidget(), name=tr("Files and folders to predict for"))
        self.files.setSelectionMode(QListWidget.SelectionMode.ExtendedSelection)
        self.files.setTextElideMode(Qt.TextElideMode.ElideMiddle)
        self.files.setSpacing(2)
        self.files.setFixedHeight(_VISIBLE_ROWS * (self.fontMetrics().height() + 10))
        self.add_files = Action(
            self, "add_prediction_files", tr("Add files…"), tr("Add images, videos or point clouds")
        )
        self.add_folder = Action(self, "add_prediction_folder", tr("Add a folder…"), tr("Add all files in a folder"))
        self.remove = Action(
            self.files,
            "remove_prediction_files",
            tr("Remove"),
            tr("Remove the selected lines from the list"),
            "Del",
            context=WITHIN,
        )
        self.checkpoint = CheckpointEditor()
        self.devices = DevicesEditor(tr("Predict"))
        self.format = ChoiceEditor([(_DEFAULT, tr("the task's default"), "")])
        self.tile = ChoiceEditor(list(_TILES))
        self.threshold = FloatEditor()
        self.threshold.set_value(0.5)
        self.overlays = BoolEditor()
        self.overlays.box.setText(tr("draw each result on its image"))
        self.overlays.set_value(True)
        self.out = PathEditor(tr("a folder for the results"), folder=True)
        self.submit_action = Action(self, "predict", tr("Predict"), tr("Predict for all listed files"))
        self.start = styled(bind(QPushButton(), self.submit_action), "primary")
        self._lay_out()
        self._connect()
        self._update_actions()

    def show_run(self, run: RunFolder, job: Job | None) -> None:
        """Fill in the form for `run`, whose job is `job`, or None if it can't be read. Empties the list of files."""
        self._run = run
        self.files.clear()
        self.checkpoint.show_run(run)
        if job is not None:
            self.devices.show_devices(job.parallel.devices)
            default, *others = formats_of(job.task)
            choices = [
                (_DEFAULT, tr("{format} (default)").format(format=_TITLES[default]), ""),
                *((name, _TITLES[name], "") for name in others),
            ]
            self.format.set_choices(choices)
            self.format.set_value(_DEFAULT)
            predicts = predictions_of(job.task)
            self._form.show_row(self.tile, predicts in TILED)
            self._form.show_row(self.threshold, predicts in _WITH_THRESHOLD)
        self.out.set_value("")
        self._choose_default_out()
        self._update_actions()

    def add(self, paths: Sequence[str]) -> None:
        """Add those files and folders that the list does not contain."""
        listed = set(self.paths())
        self.files.addItems([path for path in dict.fromkeys(paths) if path and path not in listed])
        self._update_actions()

    def paths(self) -> list[str]:
        return [self.files.item(row).text() for row in range(self.files.count())]

    def build_request(self) -> PredictRequest | None:
        """Return the requested prediction, or None if the run, files, devices or a valid threshold are missing.

        Without a folder for the results, the default folder is used, which is the placeholder of its editor.
        """
        threshold = self.threshold.value()
        if self._run is None or not self.paths() or not self.devices.value() or not isinstance(threshold, float):
            return None
        chosen_format = self.format.value()
        return PredictRequest(
            run=str(self._run.path.absolute()),
            checkpoint=self.checkpoint.value(),
            devices=self.devices.value(),
            paths=tuple(self.paths()),
            out=str(Path(self.out.value()).expanduser()) if self.out.value() else self.out.line.placeholderText(),
            formats=tuple(name for name in get_args(Format) if name == chosen_format),  # () for the task's default
            overlays=self.overlays.value(),
            tile="auto" if not self.tile.isHidden() and self.tile.value() == "auto" else None,
            threshold=threshold,
        )

    def _choose_default_out(self) -> None:
        """Suggest a new folder in the home folder for the results, named after the run and the current time."""
        assert self._run is not None
        folder = Path.home() / f"predictions-{self._run.run_id}-{time.strftime('%H%M%S')}"
        self.out.line.setPlaceholderText(str(folder))

    def _connect(self) -> None:
        self.submit_action.on_trigger(self._submit)
        self.add_files.on_trigger(lambda: file_dialogs.choose_files(self, tr("Predict for files"), self.add))
        self.add_folder.on_trigger(
            lambda: file_dialogs.choose_path(
                self, tr("Predict for a folder"), lambda path: self.add([path]), folder=True
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
        """Enable the buttons that predict and remove files, or name in their tips what is missing."""
        threshold = self.threshold.value()
        problems = (
            "" if self.checkpoint.has_checkpoint else tr("The run has no checkpoint yet"),
            "" if self.files.count() else tr("Add files first"),
            "" if self.devices.value() else tr("Choose a device"),
            "" if isinstance(threshold, float) and 0 <= threshold <= 1 else tr("Set a threshold from 0 to 1"),
        )
        self.submit_action.set_disabled_reason(next(filter(None, problems), ""))
        self.remove.set_disabled_reason("" if self.files.selectedItems() else tr("Select lines of the list first"))

    def _submit(self) -> None:
        """Emit `submitted` with the requested prediction, and choose a new folder for the next one."""
        request = self.build_request()
        if request is not None:
            self.submitted.emit(request)
            self._choose_default_out()

    def _lay_out(self) -> None:
        self._buttons = QWidget()
        actions = (self.add_files, self.add_folder, self.remove)
        self._buttons.setLayout(hbox(*(bind(QPushButton(), action) for action in actions), 1))
        inside = QWidget()
        theme.scale_with_text(inside.setMaximumWidth, 680)
        self._form = FormGrid(
            (tr("Checkpoint"), tr("Checkpoint to predict with"), self.checkpoint),
            (tr("Devices"), "", self.devices),
            (tr("Large images"), tr("Handling of large images"), self.tile),
            (tr("Format"), tr("Format of the results"), self.format),
            (tr("Threshold"), tr("Minimum score of a prediction"), self.threshold),
            (tr("Overlays"), tr("Draw each result on its image"), self.overlays),
            (tr("Write to"), tr("Folder for the results"), self.out),
        )
        inside.setLayout(vbox(caption(INTRODUCTION), self.files, self._buttons, self._form, 1, spacing=10))
        self.setLayout(vbox((scroll_column(inside, centered=False), 1), hbox(self.start, 1)))


_MAX_SIDE = 2048
"""Maximum side length of a decoded image in pixels."""


class PredictResult(QWidget):
    """View of the results of a prediction.

    Signals:
        more_requested(): the user wants to predict other files.
    """

    more_requested = Signal()

    def __init__(self) -> None:
        super().__init__()
        self._predicted: Predicted | None = None
        self._current_row: PredictedRow | None = None
        self.heading = styled(QLabel(wordWrap=True), "heading")
        self.files = caption()
        self.skipped = ProblemLabel()
        self.list = styled(QListWidget(), name=tr("Results"))
        self.list.setTextElideMode(Qt.TextElideMode.ElideRight)
        self.list.setSpacing(2)
        self.list.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.zoom = Zoom(self)
        self.image = ImagePane(tr("Result"), self.zoom)
        self.caption = QLabel(wordWrap=True, alignment=Qt.AlignmentFlag.AlignHCenter)
        self.open = Action(
            self, "open_predictions", tr("Open folder"), tr("Open the results' folder in the file manager")
        )
        self.more = Action(self, "predict_more", tr("Predict more…"), tr("Predict for other files"))
        self._lay_out()
        self.open.on_trigger(self._reveal)
        self.more.on_trigger(self.more_requested.emit)
        self.list.currentRowChanged.connect(self._on_row_chosen)

    def show_file(self, path: str) -> None:
        """Read the results of a prediction from the file `path` on a worker thread and show them."""
        in_background(partial(read_predicted, Path(path)), self, self._show_result, self._show_error)

    def _show_result(self, predicted: Predicted) -> None:
        """Show the summary of the predictions, and list their results. The first one is selected."""
        self._predicted = predicted
        rate = predicted.images_per_second
        self.heading.setText(
            tr("Predicted for {predicted} in {seconds}{rate}").format(
                predicted=counted(predicted.predicted, "sample"),
                seconds=duration(predicted.seconds),
                rate=f" ({speed(rate)})" if rate is not None else "",
            )
        )
        names = ", ".join(f"{each.path} ({counted(each.count, 'file')})" for each in predicted.files)
        self.files.setText(shorten(f"{predicted.request.out}: {names}"))
        self.skipped.show_problems(tuple(_describe_skipped_files(predicted)))
        self.list.clear()
        self.list.addItems([shorten(f"{Path(row.path).name}: {row.text}") for row in predicted.rows])
        for number, row in enumerate(predicted.rows):
            self.list.item(number).setToolTip(shorten(row.path))
        self.list.setCurrentRow(0)
        self.list.setFocus()

    def _show_error(self, error: Exception) -> None:
        self.heading.setText(tr("Couldn't read the results"))
        self.skipped.show_problems((Problem("", f"{describe_error(error)}.", tr("Predict again.")),))

    def _on_row_chosen(self, number: int) -> None:
        """Show the caption of the file at index `number` and, once it has been read, its result or image."""
        predicted = self._predicted
        if predicted is None or not 0 <= number < len(predicted.rows):
            self._current_row = None
            self.caption.clear()
            return
        self._current_row = row = predicted.rows[number]
        self.caption.setText(shorten(row.text))
        self.zoom.reset()
        drawing = row.overlay or row.mask
        file = Path(predicted.request.out, drawing) if drawing else Path(row.path)
        in_background(partial(read_image, file, _MAX_SIDE), self, partial(self._show_image, row), lambda error: None)

    def _show_image(self, row: PredictedRow, image: QImage | str) -> None:
        """Show the image of `row`, unless another one has been selected in the meantime."""
        if row is self._current_row:
            self.image.show_image(image, row.text)

    def _reveal(self) -> None:
        if self._predicted is not None:
            reveal(Path(self._predicted.request.out))

    def _lay_out(self) -> None:
        top = hbox((self.heading, 1), *(bind(QPushButton(), action) for action in (self.more, self.open)))
        image_column = QWidget()
        image_column.setLayout(vbox((self.image, 1), self.caption))
        splitter = QSplitter()
        splitter.setChildrenCollapsible(False)
        splitter.addWidget(self.list)
        splitter.addWidget(image_column)
        splitter.setStretchFactor(0, 1)
        splitter.setStretchFactor(1, 2)
        self.setLayout(vbox(top, self.files, self.skipped, (splitter, 1)))


def read_predicted(file: Path) -> Predicted:
    """Read the result file of a prediction. Raises OSError."""
    try:
        return PREDICTED.decode(read_file(file, MAX_RESULT_BYTES))
    except NOT_DECODED as error:
        raise OSError(tr("{file} is damaged: {error}").format(file=file, error=error)) from error


def _describe_skipped_files(predicted: Predicted) -> list[Problem]:
    """Return a warning that names the first skipped files, or an empty list if none were skipped."""
    if not predicted.skipped_count:
        return []
    text = describe_skipped(predicted.skipped, predicted.skipped_count, "file")
    return [Problem("", text, severity="warning")]
