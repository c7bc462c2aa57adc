"""Child process that renders training images as the first epochs augment them (``python -m engine.training.preview``)."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from PySide6.QtCore import QObject

from engine.contract.job import Job
from engine.contract.preview import PREVIEW, PreviewOrder
from gui.sources.json_lines import JsonLinesProcess
from gui.translation import tr

_LINE_LIMIT_BYTES = 8 << 20


class Renderer(JsonLinesProcess):
    """Rendering of one job's images at a time.

    Its progress is a PreviewImage and its result tells if images may be mirrored.
    """

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(
            "engine.training.preview",
            tr("Rendering the images"),
            PREVIEW.decode,
            parent,
            line_limit_bytes=_LINE_LIMIT_BYTES,
        )

    def start(self, job: Job, samples: Sequence[int]) -> None:
        """Render the given samples of the training split."""
        self.run(stdin=msgspec.json.encode(PreviewOrder(job, tuple(samples))))
