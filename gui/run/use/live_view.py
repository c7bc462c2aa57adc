"""Live predictions for a camera or a video."""

from __future__ import annotations

import tempfile
from functools import partial
from pathlib import Path

from PySide6.QtCore import Qt, QTimer, Signal
from PySide6.QtGui import QImage
from PySide6.QtWidgets import QLabel, QPushButton, QWidget

from engine.contract.inference.messages import FRAME_FILE, LiveFrame, LiveRequest, decode_frame
from engine.contract.inference.prediction import CAMERA
from engine.contract.job import Job
from engine.contract.messages import Progress
from engine.contract.problems import Problem
from engine.runs.folder import RunFolder
from engine.system.decode_errors import NOT_DECODED
from engine.system.files import MAX_RESULT_BYTES, read_file
from engine.system.plain_text import shorten
from gui.actions import Action, bind
from gui.format import speed
from gui.run.model_choice import CheckpointEditor, DevicesEditor, FormGrid
from gui.run.predictions.image_pane import ImagePane, Zoom
from gui.run.request_pages import InferenceChild, describe_progress
from gui.sources.background import in_background
from gui.translation import tr
from gui.widgets.buttons import styled
from gui.widgets.editors import PathEditor
from gui.widgets.labels import ProblemLabel
from gui.widgets.layouts import hbox, vbox
from gui.widgets.tab_order import order_tabs

_POLL_MS = 40
"""Milliseconds between polls of the newest frame, for 25 frames per second."""
_FIRST_CAMERA = f"{CAMERA}0"


class LiveView(QWidget):
    """View of live predictions for a camera or a video, until they are stopped or another run is opened.

    Signals:
        message(str, str): a message about the source, with the severity "info" or "warning".
    """

    message = Signal(str, str)

    def __init__(self) -> None:
        super().__init__()
        self._run: RunFolder | None = None
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._frame_number = 0
        self._is_reading = False  # True while a frame is being read in the background
        self.child = InferenceChild(tr("Watching"), self)
        self.source = PathEditor(tr("a video"), placeholder=tr("a video file, or a camera such as camera:0"))
        self.source.set_value(_FIRST_CAMERA)
        self.checkpoint = CheckpointEditor()
        self.devices = DevicesEditor(tr("Watch"))
        self.start = Action(self, "start_live", tr("Watch"), tr("Predict for each frame"))
        self.stop = Action(self, "stop_live", tr("Stop"), tr("Stop watching"))
        self.zoom = Zoom(self)
        self.image = ImagePane(tr("Newest frame"), self.zoom)
        self.caption = QLabel(wordWrap=True, alignment=Qt.AlignmentFlag.AlignHCenter)
        self.failure = ProblemLabel()
        self._timer = QTimer(self, interval=_POLL_MS)
        self._timer.timeout.connect(self._poll)
        self._lay_out()
        self._connect()
        self._update_actions()

    def show_run(self, run: RunFolder, job: Job | None) -> None:
        """Offer the model of `run` for live predictions, and stop those of the previous run's model.

        `job` is the job of the run, or None if it can't be read.
        """
        self._stop()
        self._run = run
        self.image.show_image("", "")
        self.caption.clear()
        self.failure.show_problems(())
        self.checkpoint.show_run(run)
        if job is not None:
            self.devices.show_devices(job.parallel.devices)
        self._update_actions()

    def close_work(self) -> None:
        """Stop the predictions when the window closes."""
        self._stop()
        self.child.close()

    def _start(self) -> None:
        """Start predicting for the frames of the chosen source, and poll for results. End a previous prediction."""
        if self._run is None:
            return
        self._stop()
        self._folder = tempfile.TemporaryDirectory(prefix="footplate-live-", ignore_cleanup_errors=True)
        self._frame_number = 0
        self.failure.show_problems(())
        self.zoom.reset()
        source = self.source.value()
        self.child.start(
            LiveRequest(
                run=str(self._run.path.absolute()),
                checkpoint=self.checkpoint.value(),
                devices=self.devices.value(),
                source=source if source.startswith(CAMERA) else str(Path(source).expanduser()),
                out=self._folder.name,
            )
        )
        self._timer.start()
        self._update_actions()

    def _stop(self) -> None:
        self.child.cancel()
        self._on_ended()

    def _on_ended(self) -> None:
        """Stop polling and delete the folder that contains the newest frame. The process has ended or been cancelled."""
        self._timer.stop()
        folder, self._folder = self._folder, None
        if folder is not None:
            folder.cleanup()
        self._update_actions()

    def _poll(self) -> None:
        """Read the newest frame. Only one read runs at a time."""
        if self._folder is not None and not self._is_reading:
            self._is_reading = True
            file = Path(self._folder.name, FRAME_FILE)
            in_background(
                partial(_read_frame, file), self, partial(self._show_frame, self._folder), self._on_unreadable
            )

    def _show_frame(self, folder: tempfile.TemporaryDirectory[str], newest: tuple[LiveFrame, QImage] | None) -> None:
        """Show the frame that was read from `folder`, with its caption.

        Do nothing if there is no frame (None), if the frame is already visible, or if its prediction has been stopped.
        """
        self._is_reading = False
        if newest is None or folder is not self._folder:
            return
        frame, image = newest
        if frame.number == self._frame_number:
            return
        self._frame_number = frame.number
        caption = speed(frame.images_per_second) + (f": {frame.text}" if frame.text else "")
        self.caption.setText(shorten(caption))
        self.image.show_image(image, caption)

    def _on_unreadable(self, _error: Exception) -> None:
        self._is_reading = False

    def _show_progress(self, progress: Progress) -> None:
        """Show the progress until the first frame has been shown, and emit each warning as a message."""
        if not self._frame_number:
            self.caption.setText(describe_progress(progress))
        for warning in progress.warnings:
            self.message.emit(warning, "warning")

    def _on_refused(self, problems: tuple[Problem, ...]) -> None:
        """Show why the camera or video can't be used for predictions."""
        self.caption.clear()
        self.failure.show_problems(problems)
        self._on_ended()

    def _update_actions(self) -> None:
        """Enable the Start and Stop buttons, or name in their tips why they are disabled."""
        is_watching = self.child.running
        problems = (
            "" if self.checkpoint.has_checkpoint else tr("The run has no checkpoint yet"),
            "" if self.source.value() else tr("Choose a video, or a camera such as camera:0"),
            "" if self.devices.value() else tr("Choose a device"),
            tr("Already watching") if is_watching else "",
        )
        self.start.set_disabled_reason(next(filter(None, problems), ""))  # "" allows it
        self.stop.set_disabled_reason("" if is_watching else tr("Not watching"))

    def _connect(self) -> None:
        self.start.on_trigger(self._start)
        self.stop.on_trigger(self._stop)
        for changed in (self.source.edited, self.devices.edited, self.checkpoint.refreshed):
            changed.connect(self._update_actions)
        self.devices.rebuilt.connect(self._order_tabs)
        self.child.progress.connect(self._show_progress)
        self.child.done.connect(lambda _path: self._on_ended())
        self.child.refused.connect(self._on_refused)
        self.child.failed.connect(lambda text: self._on_refused((Problem("", text, tr("Try again.")),)))

    def _order_tabs(self) -> None:
        order_tabs(self, (self.source, self.checkpoint, self.devices, self._buttons, self.image))

    def _lay_out(self) -> None:
        self._buttons = QWidget()
        start = styled(bind(QPushButton(), self.start), "primary")
        self._buttons.setLayout(hbox(start, bind(QPushButton(), self.stop, tr("Stop watching")), 1))
        form = FormGrid(
            (tr("Source"), tr("Video or camera to watch"), self.source),
            (tr("Checkpoint"), tr("Checkpoint to watch with"), self.checkpoint),
            (tr("Device"), "", self.devices),
        )
        self.setLayout(vbox(form, self._buttons, self.failure, (self.image, 1), self.caption))


def _read_frame(file: Path) -> tuple[LiveFrame, QImage] | None:
    """Read the newest frame, and decode its image. Return None if there is no frame."""
    try:
        frame = decode_frame(read_file(file, MAX_RESULT_BYTES))
    except (OSError, *NOT_DECODED):
        return None
    return frame, QImage.fromData(frame.jpeg)
