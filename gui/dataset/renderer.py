"""Having training images shown as the first epochs are given them, in a process of its own."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from PySide6.QtCore import QObject, Signal

from engine.contract.job import Job
from engine.contract.preview import PREVIEW, PreviewDone, PreviewFailed, PreviewImage, PreviewOrder
from gui.sources.child import ChildModule

LINE_LIMIT_BYTES = 8 << 20


class Renderer(ChildModule):
    """Renders the images of one job at a time; a new one ends the last.

    Signals: rendered(object) - a PreviewImage; done(bool) - all are there, and whether images may be mirrored;
    refused(object) - the Problem for which there is nothing to show.
    """

    rendered = Signal(object)
    done = Signal(bool)
    refused = Signal(object)

    def __init__(self, parent: QObject | None = None, module: str = "engine.training.preview") -> None:
        super().__init__(module, "Rendering the images", LINE_LIMIT_BYTES, parent)
        self._last: PreviewDone | PreviewFailed | None = None

    def start(self, job: Job, samples: Sequence[int]) -> None:
        """Begins to render those samples of the training split; the answers come as signals."""
        self._last = None
        self._start([], msgspec.json.encode(PreviewOrder(job, tuple(samples))))

    def _take(self, line: bytes) -> None:
        message = PREVIEW.decode(line)
        if isinstance(message, PreviewImage):
            self.rendered.emit(message)
        else:
            self._last = message

    def _answer(self) -> bool:
        if isinstance(self._last, PreviewDone):
            self.done.emit(self._last.mirrored)
        elif self._last is not None:
            self.refused.emit(self._last.problem)
        return self._last is not None
