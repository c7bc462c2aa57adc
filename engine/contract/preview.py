"""What ``python -m engine.training.preview`` is asked for and answers: training images as the first epochs are given
them.

It reads one order as JSON from its standard input, which it reads to the end, and prints a message a line.
"""

from __future__ import annotations

import msgspec

from engine.contract.job import Job
from engine.contract.problems import Problem

EPOCHS = 3
"""Epochs of which images are shown."""
MOST_SIDE = 384
"""Pixels of the longest side of an image that is sent."""


class PreviewOrder(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The images to show, by their places in the training split."""

    job: Job
    samples: tuple[int, ...]


class PreviewImage(msgspec.Struct, tag="image", tag_field="type", frozen=True, forbid_unknown_fields=True):
    """One image as `epoch`, from 1 on, is given it at `size` pixels, with its mask or boxes drawn in, as a PNG."""

    sample: int
    epoch: int
    size: int
    png: bytes


class PreviewDone(msgspec.Struct, tag="done", tag_field="type", frozen=True, forbid_unknown_fields=True):
    """The last line where all went well; `mirrored` is whether the job may mirror images."""

    mirrored: bool


class PreviewFailed(msgspec.Struct, tag="failed", tag_field="type", frozen=True, forbid_unknown_fields=True):
    """The last line where there is nothing to show: why, and what to do."""

    problem: Problem


PreviewMessage = PreviewImage | PreviewDone | PreviewFailed
"""One line of the answer."""

PREVIEW = msgspec.json.Decoder(PreviewMessage)
