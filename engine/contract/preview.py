"""Order and messages of the preview of augmented training images (``python -m engine.training.preview``).

It sends any number of `PreviewImage`; its answer is True if the job may mirror images.
"""

from __future__ import annotations

import msgspec

from engine.contract.job import Job
from engine.contract.messages import Done, Refused

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


PREVIEW = msgspec.json.Decoder(PreviewImage | Refused | Done[bool])
