"""Truth and prediction of samples as their task draws them, made by the engine some samples ahead and kept for the
while.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from PySide6.QtCore import QObject, QTimer, Signal
from PySide6.QtGui import QImage

from engine.contract.catalogue import predictions_of
from engine.contract.inference.showing import Shown, ShownSample, ShowOrder, decode_shown
from engine.contract.legend import LegendEntry
from engine.contract.problems import Problem
from engine.system.decode_errors import NOT_DECODED
from gui.sources.background import describe_error, in_background
from gui.sources.dataset_images import read_image
from gui.sources.evaluations import OpenedEvaluation
from gui.sources.inference_child import InferenceChild

IN_WORDS = ("class", "labels")
"""Kinds of predictions that are words, not images."""
AHEAD = 12
"""Samples that are drawn at once: most of the time goes into loading the model."""
_SOON_MS = 300


class Drawing(NamedTuple):
    """A sample's truth and prediction, or why one can't be shown."""

    truth: QImage | str
    prediction: QImage | str
    told: ShownSample


class Drawings(QObject):
    """Signals: drawn(object) - the Drawing of the sample that was asked for last; failed(object) - the Problems for
    which there is none, a tuple. Attributes: child - what draws; legend - what the colours stand for.
    """

    drawn = Signal(object)
    failed = Signal(object)

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self.legend: tuple[LegendEntry, ...] = ()
        self._opened: OpenedEvaluation | None = None
        self._devices: tuple[str, ...] = ()
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._made: dict[int, tuple[Path, ShownSample]] = {}
        self._orders = 0
        self._wanted: tuple[int, ...] = ()
        self.child = InferenceChild("Drawing the samples", self)
        self._soon = QTimer(self, interval=_SOON_MS, singleShot=True)
        self._soon.timeout.connect(self._order)
        self.child.done.connect(self._done)
        self.child.refused.connect(self.failed)
        self.child.failed.connect(lambda text: self.failed.emit((Problem("", text),)))

    def show_evaluation(self, opened: OpenedEvaluation, devices: tuple[str, ...]) -> None:
        """From now on samples are of this evaluation; `devices` are where its model is to be run."""
        self.stop()
        self._opened, self._devices, self._made = opened, devices, {}

    @property
    def offered(self) -> bool:
        """Whether the samples of the evaluation are drawn at all."""
        return self._opened is not None and predictions_of(self._opened.evaluation.task) not in IN_WORDS

    def want(self, rows: Sequence[int]) -> None:
        """Asks for the drawing of the first of `rows`; the others are likely to be asked for next."""
        self._wanted = tuple(rows[:AHEAD])
        if not self.offered or not self._wanted:
            return
        if self._wanted[0] in self._made:
            self._soon.stop()
            self._read(self._wanted[0])
        elif not self._underway(self._wanted[0]):
            self._soon.start()

    def stop(self) -> None:
        """Nobody waits for a drawing any more."""
        self._soon.stop()
        self._wanted = ()
        self.child.cancel()

    def close_work(self) -> None:
        """Ends what is being drawn, for the end of the window."""
        self.stop()
        self.child.close()
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None

    def _underway(self, row: int) -> bool:
        order = self.child.order
        return self.child.running and isinstance(order, ShowOrder) and row in order.samples

    def _order(self) -> None:
        opened = self._opened
        if opened is None or not self._wanted:
            return
        self._folder = self._folder or tempfile.TemporaryDirectory(prefix="footplate-")
        self._orders += 1
        self.child.start(
            ShowOrder(
                run=str(opened.kept.folder.parents[1].absolute()),
                checkpoint=opened.evaluation.checkpoint,
                devices=self._devices[:1],
                evaluation=str(opened.kept.folder.absolute()),
                samples=tuple(row for row in self._wanted if row not in self._made),
                out=str(Path(self._folder.name, str(self._orders))),
            )
        )

    def _done(self, path: str) -> None:
        in_background(partial(_shown, Path(path)), self, partial(self._take, Path(path).parent), self._unread)

    def _take(self, folder: Path, shown: Shown) -> None:
        self.legend = shown.legend
        self._made |= {each.number: (folder, each) for each in shown.samples}
        if self._wanted and self._wanted[0] in self._made:
            self._read(self._wanted[0])
        elif self._wanted:
            self.failed.emit((Problem("", "The sample can't be read any more."),))

    def _read(self, row: int) -> None:
        folder, told = self._made[row]
        in_background(partial(_images, folder, told), self, self._show, self._unread)

    def _show(self, drawing: Drawing) -> None:
        if self._wanted and drawing.told.number == self._wanted[0]:
            self.drawn.emit(drawing)

    def _unread(self, error: Exception) -> None:
        self.failed.emit((Problem("", f"What was drawn can't be read: {describe_error(error)}."),))


def _shown(path: Path) -> Shown:
    try:
        return decode_shown(path.read_bytes())
    except NOT_DECODED as error:
        raise OSError(f"{path.name} can't be understood: {error}") from error


def _images(folder: Path, told: ShownSample) -> Drawing:
    return Drawing(read_image(folder / told.truth_png), read_image(folder / told.prediction_png), told)
