"""Prediction for an image with the newest checkpoint of an active run, repeated for each new checkpoint."""

from __future__ import annotations

import tempfile
from functools import partial
from pathlib import Path

from PySide6.QtCore import Qt
from PySide6.QtGui import QImage
from PySide6.QtWidgets import QFrame, QListWidget, QSizePolicy

from engine.contract.devices import CPU
from engine.contract.events import CheckpointSaved
from engine.contract.inference.prediction import Predicted, PredictRequest
from engine.contract.problems import Problem
from engine.runs.folder import RunFolder
from engine.system.plain_text import shorten
from gui.run.predictions.image_pane import ImagePane, Zoom
from gui.run.request_pages import InferenceChild, describe_progress
from gui.run.use.predict import read_predicted
from gui.sources.background import describe_error, in_background
from gui.sources.inspector import read_image
from gui.sources.run_data import RunData
from gui.style import icons, theme
from gui.translation import tr
from gui.widgets.buttons import styled, tool_button
from gui.widgets.labels import ElidedLabel, ProblemLabel, heading_label
from gui.widgets.layouts import hbox, vbox

_MAX_SIDE = 1024
"""Maximum side length of a decoded image in pixels."""
_WIDTH = 260
_LIST_HEIGHT = 110


class LivePrediction(QFrame):
    """Card with an image and its predictions by the newest and earlier checkpoints. It is hidden if it has no image.

    The prediction runs on the CPU during the training.
    """

    def __init__(self) -> None:
        super().__init__()
        self.setObjectName("card")
        theme.scale_with_text(self.setFixedWidth, _WIDTH)
        self.setSizePolicy(QSizePolicy.Policy.Fixed, QSizePolicy.Policy.Expanding)
        self._run: RunFolder | None = None
        self._image = ""  # path
        self._newest_checkpoint: CheckpointSaved | None = None
        self._used_checkpoint: CheckpointSaved | None = None  # checkpoint of the last prediction
        self._folder: tempfile.TemporaryDirectory[str] | None = None  # results of the last prediction
        self.child = InferenceChild(tr("The live prediction"), self)
        self.zoom = Zoom(self)
        self.image = ImagePane(tr("Live prediction"), self.zoom)
        self.state = styled(ElidedLabel(), "muted", name=tr("State of the live prediction"))
        self.failure = ProblemLabel()
        self.history = styled(QListWidget(), name=tr("Predictions by checkpoint, the newest first"))
        self.history.setFixedHeight(_LIST_HEIGHT)
        self.stop = tool_button(
            self.close_image,
            icon=icons.icon("close", "muted"),
            style="flat",
            name=tr("Close the live prediction"),
            tip=tr("End the live prediction"),
        )
        self.stop.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        top = hbox(heading_label(tr("Live prediction")), 1, self.stop)
        layout = vbox(top, (self.image, 1), self.state, self.failure, self.history, spacing=4, margins=(10, 6, 10, 8))
        self.setLayout(layout)
        self.child.progress.connect(lambda progress: self.state.setText(describe_progress(progress)))
        self.child.done.connect(self._on_done)
        self.child.refused.connect(self._show_problems)
        self.child.failed.connect(lambda text: self._show_problems((Problem("", text, tr("Drop the image again.")),)))
        self.hide()

    def show_image(self, run: RunFolder, path: str, data: RunData) -> None:
        """Run the newest checkpoint of `run` on the image at `path`, and do so again for each later checkpoint."""
        self.close_image()
        self._run, self._image = run, path
        self.show()
        self.state.setText(tr("Waiting for the first checkpoint…"))
        self._show_file(path, "")
        self.show_data(run, data)

    def show_data(self, run: RunFolder | None, data: RunData) -> None:
        """Predict again if `data` contains a new checkpoint. End the prediction if `run` is another run."""
        if self._run is None:
            return
        if run is None or run.path != self._run.path:
            self.close_image()
            return
        # Events are numbered, so the checkpoint with the highest number was saved last.
        saved = max(data.checkpoints.values(), key=lambda each: each.n, default=None)
        if saved is not None and saved != self._newest_checkpoint:
            self._newest_checkpoint = saved
            if not self.child.running:
                self._predict()

    def close_image(self) -> None:
        """End the live prediction and hide the card."""
        self.child.cancel()
        self._run, self._image = None, ""
        self._newest_checkpoint = self._used_checkpoint = None
        self._remove_folder()
        self.history.clear()
        self.failure.show_problems(())
        self.hide()

    def close_work(self) -> None:
        """Stop background work when the window closes."""
        self.child.close()
        self._remove_folder()

    def _predict(self) -> None:
        """Start a prediction with the newest checkpoint."""
        if self._run is None or self._newest_checkpoint is None:
            return
        self._remove_folder()
        self._folder = tempfile.TemporaryDirectory(prefix="footplate-drop-", ignore_cleanup_errors=True)
        self._used_checkpoint = self._newest_checkpoint
        self.failure.show_problems(())
        self.child.start(
            PredictRequest(
                run=str(self._run.path.absolute()),
                checkpoint=self._newest_checkpoint.kind,
                devices=(CPU,),
                at_once=True,
                paths=(self._image,),
                out=str(Path(self._folder.name, "out")),
                overlays=True,
            )
        )

    def _on_done(self, path: str) -> None:
        """Read the results of the last prediction on a worker thread, then show them."""
        in_background(
            partial(read_predicted, Path(path)),
            self,
            partial(self._show_prediction, self._folder, self._used_checkpoint),
            partial(self._show_error, self._folder),
        )

    def _show_prediction(
        self,
        folder: tempfile.TemporaryDirectory[str] | None,
        checkpoint: CheckpointSaved | None,
        predicted: Predicted,
    ) -> None:
        """Show the prediction of `checkpoint`, or why there is none. Predict again if there is a newer checkpoint.

        Do nothing if the image has been closed or replaced in the meantime, so that `folder`, the folder of the
        prediction, is no longer the current one.
        """
        if folder is not self._folder or checkpoint is None:
            return
        if predicted.rows:
            row = predicted.rows[0]
            text = tr("Step {step}: {text}").format(step=checkpoint.step, text=row.text)
            self.history.insertItem(0, shorten(text))
            self.history.setCurrentRow(0)
            self.state.setText(tr("Predicted by the newest checkpoint"))
            drawing = row.overlay or row.mask
            if drawing:
                self._show_file(str(Path(predicted.request.out, drawing)), row.text)
        elif predicted.skipped:
            skipped = predicted.skipped[0]
            self._show_problems((Problem("", f"{Path(skipped.path).name}: {skipped.reason}."),))
            return  # `_show_problems` has started the next prediction
        self._predict_if_newer()

    def _show_error(self, folder: tempfile.TemporaryDirectory[str] | None, error: Exception) -> None:
        """Show why the result in `folder` can't be read, unless the image has been closed or replaced."""
        if folder is self._folder:
            self._show_problems((Problem("", f"{describe_error(error)}.", tr("Drop the image again.")),))

    def _show_problems(self, problems: tuple[Problem, ...]) -> None:
        """Show why the last prediction failed. Predict with a newer checkpoint if there is one."""
        self.state.setText("")
        self.failure.show_problems(problems)
        self._predict_if_newer()

    def _predict_if_newer(self) -> None:
        """Predict again if a newer checkpoint was saved while the last prediction was running."""
        if self._newest_checkpoint is not self._used_checkpoint:
            self._predict()

    def _show_file(self, path: str, text: str) -> None:
        """Read an image on a worker thread and show it. `text` describes it for screen readers."""
        in_background(
            partial(read_image, Path(path), _MAX_SIDE), self, partial(self._show_read_image, text), lambda error: None
        )

    def _show_read_image(self, text: str, image: QImage | str) -> None:
        """Show an image that was read, or the reason why it can't be read, unless the live prediction has ended."""
        if self._run is not None:
            self.image.show_image(image, text)

    def _remove_folder(self) -> None:
        """Delete the folder with the results of the last prediction."""
        folder, self._folder = self._folder, None
        if folder is not None:
            folder.cleanup()
