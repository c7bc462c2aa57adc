"""Drawings of ground truth and prediction, which a child process creates in advance, and captions."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from PySide6.QtCore import QObject, QTimer, Signal
from PySide6.QtGui import QImage

from engine.contract.catalogue import predictions_of
from engine.contract.images import LegendEntry
from engine.contract.inference.messages import SampleDrawing, SampleDrawings, ShowRequest, decode_drawings
from engine.contract.problems import Problem
from engine.system.decode_errors import NOT_DECODED
from engine.system.files import MAX_RESULT_BYTES, read_file
from gui.format import localized
from gui.run.model.widgets import format_classes
from gui.run.request_pages import InferenceChild
from gui.sources.background import describe_error, in_background, reraise
from gui.sources.evaluations import OpenedEvaluation
from gui.sources.inspector import read_image
from gui.translation import tr

NOT_DRAWN = ("class", "labels")
"""Kinds of predictions that are shown as text instead of images."""
BATCH = 12
"""Maximum number of samples that a process draws. It draws several, because loading the model takes most of its time."""
_DELAY_MS = 300


class Drawing(NamedTuple):
    """Images of a sample's ground truth and prediction.

    An image that can't be shown is replaced by a text with the reason. `sample` contains the captions.
    """

    truth: QImage | str
    prediction: QImage | str
    sample: SampleDrawing


class Drawings(QObject):
    """Cache of drawings, which a child process creates for the samples of one evaluation.

    Signals:
        drawn(object): the Drawing of the sample that was requested last.
        failed(object): the Problems (a tuple) that prevented a drawing.

    Attributes:
        child: Process that creates the drawings.
        legend: Meaning of the colors.
    """

    drawn = Signal(object)
    failed = Signal(object)

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self.legend: tuple[LegendEntry, ...] = ()
        self._opened: OpenedEvaluation | None = None
        self._devices: tuple[str, ...] = ()
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._drawn: dict[int, tuple[Path, SampleDrawing]] = {}  # folder and drawing by row
        self._request_count = 0  # numbers the folders of the requests
        self._requested: tuple[int, ...] = ()  # rows: first the visible one, then those to prefetch
        self.child = InferenceChild(tr("Drawing the samples"), self)
        self._delay = QTimer(self, interval=_DELAY_MS, singleShot=True)
        self._delay.timeout.connect(self._request_drawings)
        self.child.done.connect(self._on_done)
        self.child.refused.connect(self.failed)
        self.child.failed.connect(lambda text: self.failed.emit((Problem("", text),)))

    def show_evaluation(self, opened: OpenedEvaluation, devices: tuple[str, ...]) -> None:
        """Draw samples of this evaluation from now on, on the first of `devices`. Earlier drawings are discarded."""
        self.stop()
        self._opened, self._devices, self._drawn = opened, devices, {}

    @property
    def is_offered(self) -> bool:
        """True if predictions of the task can be drawn."""
        return self._opened is not None and predictions_of(self._opened.evaluation.task) not in NOT_DRAWN

    @property
    def _visible_row(self) -> int | None:
        """Row of the visible sample, or None while no drawing is requested."""
        return self._requested[0] if self._requested else None

    def request(self, rows: Sequence[int]) -> None:
        """Request a drawing of the visible sample, the first of `rows`, and prefetch drawings of the others.

        If the drawing of the first sample is cached, `drawn` is emitted once its images have been read. If the process
        is already drawing it, no other process is started. In both cases nothing is prefetched. If the task's
        predictions can't be drawn, nothing happens.
        """
        self._requested = tuple(rows[:BATCH])
        visible_row = self._visible_row
        if not self.is_offered or visible_row is None:
            return
        self._delay.stop()  # it would start a process for the rows of an earlier call
        if visible_row in self._drawn:
            self._read_cached(visible_row)
        elif not self._is_underway(visible_row):
            self._delay.start()

    def stop(self) -> None:
        """Discard the requested samples, and cancel the process that draws them."""
        self._delay.stop()
        self._requested = ()
        self.child.cancel()

    def close_work(self) -> None:
        """Stop the process, and remove the images, when the window closes."""
        self.stop()
        self.child.close()
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None

    def _is_underway(self, row: int) -> bool:
        """Return True if the process is drawing the sample at `row`."""
        request = self.child.request
        return self.child.running and isinstance(request, ShowRequest) and row in request.samples

    def _request_drawings(self) -> None:
        """Start a process that draws the requested samples that have no drawing yet. It writes to a new folder."""
        opened = self._opened
        if opened is None or not self._requested:
            return
        self._folder = self._folder or tempfile.TemporaryDirectory(prefix="footplate-")
        self._request_count += 1
        self.child.start(
            ShowRequest(
                run=str(opened.run_folder),
                checkpoint=opened.evaluation.checkpoint,
                devices=self._devices[:1],  # one is enough for a few samples
                evaluation=str(opened.saved.folder.absolute()),
                samples=tuple(row for row in self._requested if row not in self._drawn),
                out=str(Path(self._folder.name, str(self._request_count))),
            )
        )

    def _on_done(self, path: str) -> None:
        """Read the file `path`, which lists the new drawings, on a worker thread, and cache them."""
        opened = self._opened
        in_background(
            partial(_read_drawings, Path(path)),
            self,
            partial(self._cache_drawings, opened, Path(path).parent),
            partial(self._on_unreadable, opened),
        )

    def _cache_drawings(self, opened: OpenedEvaluation | None, folder: Path, drawings: SampleDrawings) -> None:
        """Cache the new drawings in `folder`. Emit the drawing of the visible sample, or `failed` without one.

        Drawings of an evaluation (`opened`) that is no longer the current one are discarded.
        """
        if opened is not self._opened:
            return
        self.legend = drawings.legend
        self._drawn |= {each.number: (folder, each) for each in drawings.samples}
        visible_row = self._visible_row
        if visible_row in self._drawn:
            self._read_cached(visible_row)
        elif visible_row is not None:
            self.failed.emit((Problem("", tr("The sample can no longer be read.")),))

    def _read_cached(self, row: int) -> None:
        """Read the images of a cached drawing on a worker thread, then emit it."""
        opened = self._opened
        folder, sample = self._drawn[row]
        in_background(
            partial(_read_images, folder, sample),
            self,
            partial(self._emit_if_requested, opened),
            reraise,
        )

    def _emit_if_requested(self, opened: OpenedEvaluation | None, drawing: Drawing) -> None:
        """Emit a drawing unless another sample or evaluation has been requested in the meantime."""
        if opened is self._opened and drawing.sample.number == self._visible_row:
            self.drawn.emit(drawing)

    def _on_unreadable(self, opened: OpenedEvaluation | None, error: Exception) -> None:
        """Report that the drawings can't be read, unless another evaluation has been opened in the meantime."""
        if opened is self._opened:
            text = tr("Couldn't read the drawing: {error}.").format(error=describe_error(error))
            self.failed.emit((Problem("", text),))


def _read_drawings(path: Path) -> SampleDrawings:
    """Read the file that lists drawings with their captions. Raises OSError."""
    try:
        return decode_drawings(read_file(path, MAX_RESULT_BYTES))
    except NOT_DECODED as error:
        raise OSError(tr("{file} is damaged: {error}").format(file=path.name, error=error)) from error


def _read_images(folder: Path, sample: SampleDrawing) -> Drawing:
    return Drawing(read_image(folder / sample.truth_png), read_image(folder / sample.prediction_png), sample)


def make_short_caption(opened: OpenedEvaluation, row: int) -> tuple[str, str]:
    """Return two lines about a sample, as in "rose → tulip" and "loss 2.31 · 83% sure"."""
    samples, classes = opened.samples, opened.evaluation.classes
    first = samples.paths[row]
    if samples.true is not None and samples.predicted is not None:
        true, predicted = format_classes(classes, samples.true[row]), format_classes(classes, samples.predicted[row])
        first = true if true == predicted else f"{true} → {predicted}"
    return first, " · ".join(_describe_figures(opened, row))


def make_full_caption(opened: OpenedEvaluation, row: int, truth: str = "", prediction: str = "") -> str:
    """Describe a sample in one line, as in "Truth: rose · Prediction: tulip · Loss 2.31 · Confidence 83.1%".

    `truth` and `prediction` are texts that the task has written. If they are "", the names of the classes are shown.
    """
    samples, classes = opened.samples, opened.evaluation.classes
    parts = []
    for title, text, column in ((tr("Truth"), truth, samples.true), (tr("Prediction"), prediction, samples.predicted)):
        if text:
            parts.append(f"{title}: {text}")
        elif column is not None:
            parts.append(f"{title}: {format_classes(classes, column[row])}")
    parts += [f"{number[:1].upper()}{number[1:]}" for number in _describe_figures(opened, row, short=False)]
    return " · ".join(parts)


def _describe_figures(opened: OpenedEvaluation, row: int, *, short: bool = True) -> list[str]:
    """Describe the loss, confidence and correct fraction of a sample, each in a text. Unknown values are left out.

    If `short`, the numbers have fewer digits.
    """
    samples = opened.samples
    loss, confidence, correct = (
        None if column is None or math.isnan(column[row]) else float(column[row])
        for column in (samples.losses, samples.confidence, samples.correct)
    )
    parts = []
    if loss is not None:
        parts.append(tr("loss {loss}").format(loss=localized(loss, 2 if short else 4)))
    if confidence is not None:
        parts.append(
            tr("{percent:.0f}% sure").format(percent=100 * confidence)
            if short
            else tr("confidence {percent}%").format(percent=localized(100 * confidence, 1))
        )
    # With one class per sample, the names of the classes already show whether the prediction is correct.
    if correct is not None and samples.true_class is None:
        parts.append(
            tr("{percent:.0f}% correct").format(percent=100 * correct)
            if short
            else tr("{percent}% correct").format(percent=localized(100 * correct, 1))
        )
    return parts


def get_predicted_class(opened: OpenedEvaluation, row: int) -> str:
    """Return the name of the predicted class, or "" if there is none or several."""
    indices, classes = opened.samples.predicted_class, opened.evaluation.classes
    return classes[indices[row]] if indices is not None and 0 <= indices[row] < len(classes) else ""
