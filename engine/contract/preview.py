"""Request and answers of the preview of augmented training images.

``python -m engine.training.preview`` reads one `PreviewOrder` as JSON from its standard input, to the end of the stream,
and prints one message per line.
"""

from __future__ import annotations

import msgspec

from engine.contract.job import Job
from engine.contract.problems import Problem

EPOCHS = 3
"""Number of previewed epochs."""
MAX_SIDE = 384
"""Longest side of a sent image in pixels."""


class PreviewOrder(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Request for images by their indices in the training split."""

    job: Job
    samples: tuple[int, ...]


class PreviewImage(msgspec.Struct, tag="image", tag_field="type", frozen=True, forbid_unknown_fields=True):
    """Image as trained on in `epoch` (from 1) at `size` pixels, a PNG with its mask or boxes drawn in."""

    sample: int
    epoch: int
    size: int
    png: bytes


class PreviewDone(msgspec.Struct, tag="done", tag_field="type", frozen=True, forbid_unknown_fields=True):
    """Last message after success; `mirrored` is True if the job may mirror images."""

    mirrored: bool


class PreviewFailed(msgspec.Struct, tag="failed", tag_field="type", frozen=True, forbid_unknown_fields=True):
    """Last message if no image can be shown."""

    problem: Problem


PreviewMessage = PreviewImage | PreviewDone | PreviewFailed
"""Message of the preview."""

PREVIEW = msgspec.json.Decoder(PreviewMessage)
