"""Child process that renders training images as the first epochs augment them (``python -m engine.training.preview``)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from PySide6.QtCore import QObject

from engine.contract.job import Job
from engine.contract.preview import PREVIEW, PreviewDone, PreviewFailed, PreviewOrder
from gui.sources.json_lines import Answer, JsonLinesProcess
from gui.translation import tr

_LINE_LIMIT_BYTES = 8 << 20


class Renderer(JsonLinesProcess):
    """Rendering of one job's images at a time.

    Its progress is a PreviewImage, its result tells if images may be mirrored, and its refusal is a Problem.
    """

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(
            "engine.training.preview",
            tr("Rendering the images"),
            PREVIEW.decode,
            _answer_in,
            parent,
            line_limit_bytes=_LINE_LIMIT_BYTES,
        )

    def start(self, job: Job, samples: Sequence[int]) -> None:
        """Render the given samples of the training split."""
        self.run(stdin=msgspec.json.encode(PreviewOrder(job, tuple(samples))))


def _answer_in(message: Any) -> Answer | None:
    match message:
        case PreviewDone(mirrored=mirrored):
            return Answer(mirrored)
        case PreviewFailed(problem=problem):
            return Answer(problem, refused=True)
    return None
