"""The model at work on a camera or a video, frame by frame."""

from __future__ import annotations

import tempfile
from functools import partial
from pathlib import Path

from PySide6.QtCore import Qt, QTimer, Signal
from PySide6.QtGui import QImage
from PySide6.QtWidgets import QHBoxLayout, QLabel, QPushButton, QVBoxLayout, QWidget

from engine.contract.inference.live import FRAME_FILE, LiveFrame, LiveOrder, decode_frame
from engine.contract.inference.messages import Progress
from engine.contract.inference.prediction import CAMERA
from engine.contract.job import Job
from engine.contract.problems import Problem
from engine.runs.folder import RunFolder
from engine.system.decode_errors import NOT_DECODED
from engine.system.plain_text import shortened
from gui.actions import Action, bind
from gui.format import localised
from gui.run.model_choice import CheckpointEditor, DevicesEditor, form_grid
from gui.run.predictions.image_pane import ImagePane, Zoom
from gui.sources.background import in_background
from gui.sources.inference_child import InferenceChild, progress_words
from gui.widgets.editors import PathEditor
from gui.widgets.problem_label import ProblemLabel
from gui.widgets.tab_order import order_tabs

_LOOK_MS = 40
"""Between looks at the newest frame: what a monitor of 25 frames per second would show."""
_FIRST_CAMERA = f"{CAMERA}0"


class LiveView(QWidget):
    """Watches a camera or a video with the run's model, until it is stopped or the view is left for another run.

    Signals: message(str, str) - in plain words, what the user should know; "info" or "warning".
    """

    message = Signal(str, str)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._run: RunFolder | None = None
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._shown = 0
        self._reading = False
        self.child = InferenceChild("Watching", self)
        self.source = PathEditor("a video", folder=False, placeholder="a video file, or a camera such as camera:0")
        self.source.set_value(_FIRST_CAMERA)
        self.checkpoint = CheckpointEditor()
        self.devices = DevicesEditor("Watch")
        self.start = Action(self, "start_live", "Watch", "Predicts for each frame")
        self.stop = Action(self, "stop_live", "Stop", "Stops watching")
        self.zoom = Zoom(self)
        self.image = ImagePane("Newest frame", self.zoom)
        self.words = QLabel(wordWrap=True, alignment=Qt.AlignmentFlag.AlignHCenter)
        self.fault = ProblemLabel()
        self._timer = QTimer(self, interval=_LOOK_MS)
        self._timer.timeout.connect(self._look)
        self._lay_out()
        self._connect()
        self._allow()

    def show_run(self, run: RunFolder, job: Job | None) -> None:
        """Watches with the model of `run`, which trained `job`; what was watched with another's is stopped."""
        self._stop()
        self._run = run
        self.checkpoint.show_run(run)
        if job is not None:
            self.devices.show_own(job.parallel.devices)
        self._allow()

    def close_work(self) -> None:
        """Ends what goes on, for the end of the window."""
        self._stop()
        self.child.close()

    def _begin(self) -> None:
        if self._run is None:
            return
        self._stop()
        self._folder = tempfile.TemporaryDirectory(prefix="footplate-live-", ignore_cleanup_errors=True)
        self._shown = 0
        self.fault.show_problems(())
        self.zoom.reset()
        source = self.source.value()
        self.child.start(
            LiveOrder(
                run=str(self._run.path.absolute()),
                checkpoint=self.checkpoint.value(),
                devices=self.devices.value(),
                source=source if source.startswith(CAMERA) else str(Path(source).expanduser()),
                out=self._folder.name,
            )
        )
        self._timer.start()
        self._allow()

    def _stop(self) -> None:
        self.child.cancel()
        self._ended()

    def _ended(self) -> None:
        self._timer.stop()
        folder, self._folder = self._folder, None
        if folder is not None:
            folder.cleanup()
        self._allow()

    def _look(self) -> None:
        """Looks for a newer frame, one look at a time."""
        if self._folder is not None and not self._reading:
            self._reading = True
            in_background(partial(_read, Path(self._folder.name, FRAME_FILE)), self, self._show, self._unread)

    def _show(self, found: tuple[LiveFrame, QImage] | None) -> None:
        self._reading = False
        if found is None or self._folder is None or found[0].number == self._shown:
            return
        frame, image = found
        self._shown = frame.number
        words = f"{localised(frame.images_per_second, 1)} images/s" + (f": {frame.words}" if frame.words else "")
        self.words.setText(shortened(words))
        self.image.show_image(image, words)

    def _unread(self, _error: Exception) -> None:
        self._reading = False

    def _tell(self, progress: Progress) -> None:
        if not self._shown:
            self.words.setText(progress_words(progress))
        for warning in progress.warnings:
            self.message.emit(warning, "warning")

    def _refused(self, problems: tuple[Problem, ...]) -> None:
        self.words.clear()
        self.fault.show_problems(problems)
        self._ended()

    def _allow(self) -> None:
        watching = self.child.running
        whys = (
            "" if self.checkpoint.found else "The run has no checkpoint yet",
            "" if self.source.value() else "Choose a video, or a camera such as camera:0",
            "" if self.devices.value() else "Choose a device",
            "The model is watching already" if watching else "",
        )
        self.start.allow(next(filter(None, whys), ""))
        self.stop.allow("" if watching else "Nothing is being watched")

    def _connect(self) -> None:
        self.start.on_trigger(self._begin)
        self.stop.on_trigger(self._stop)
        for changed in (self.source.edited, self.devices.edited, self.checkpoint.looked):
            changed.connect(self._allow)
        self.devices.remade.connect(self._order_tabs)
        self.child.progress.connect(self._tell)
        self.child.done.connect(lambda _path: self._ended())
        self.child.refused.connect(self._refused)
        self.child.failed.connect(lambda text: self._refused((Problem("", text, "Try again."),)))

    def _order_tabs(self) -> None:
        order_tabs(self, (self.source, self.checkpoint, self.devices, self._buttons, self.image))

    def _lay_out(self) -> None:
        self._buttons = QWidget()
        buttons = QHBoxLayout(self._buttons)
        buttons.setContentsMargins(0, 0, 0, 0)
        start = bind(QPushButton(), self.start)
        start.setObjectName("primary")
        buttons.addWidget(start)
        buttons.addWidget(bind(QPushButton(), self.stop, "Stop watching"))
        buttons.addStretch(1)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(8)
        layout.addLayout(
            form_grid(
                ("Source", "Video or camera to watch", self.source),
                ("Checkpoint", "Checkpoint to watch with", self.checkpoint),
                ("Device", "", self.devices),
            )
        )
        layout.addWidget(self._buttons)
        layout.addWidget(self.fault)
        layout.addWidget(self.image, 1)
        layout.addWidget(self.words)


def _read(file: Path) -> tuple[LiveFrame, QImage] | None:
    """The newest frame; None while there is none."""
    try:
        frame = decode_frame(file.read_bytes())
    except (OSError, *NOT_DECODED):
        return None
    return frame, QImage.fromData(frame.jpeg)
