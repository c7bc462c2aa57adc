"""The light augmentation: a random crop and, where it keeps the meaning, a mirror image; for whole batches."""

from __future__ import annotations

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from engine.data.found import Labels
from engine.data.idx import Bytes
from engine.data.randomness import draw


def crop_margin(size: int) -> int:
    """How many pixels larger than `size` pictures are loaded to leave room for the crop: 1/8, as 256 is to 224."""
    return max(1, round(size / 8))


def crop_randomly(pixels: Bytes, size: int, seed: int, epoch: int, samples: Labels, *, mirror: bool) -> Bytes:
    """uint8 [n, C, s, s] to [n, C, size, size], every sample by its own draw for (seed, epoch, sample)."""
    room = pixels.shape[-1] - size + 1
    top = (draw(seed, epoch, samples, 0) * room).astype(np.intp)
    left = (draw(seed, epoch, samples, 1) * room).astype(np.intp)
    windows = sliding_window_view(pixels, (size, size), axis=(2, 3)).transpose(0, 2, 3, 1, 4, 5)
    out = windows[np.arange(len(pixels)), top, left]
    if mirror:
        flipped = draw(seed, epoch, samples, 2) < 0.5
        out[flipped] = out[flipped][..., ::-1]
    return out
