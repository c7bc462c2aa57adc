"""Which part of each picture the light augmentation takes, and whether it is mirrored. Torch-free."""

from __future__ import annotations

import numpy as np

from engine.contract.dataset import Crop
from engine.data.found import Labels
from engine.data.randomness import Purpose, RandomStreams


def draw_crops(margin: int, streams: RandomStreams, epoch: int, samples: Labels, *, mirror: bool) -> Labels:
    """int64 [n, 3], every sample by its own draw: the crop's top and left, each up to `margin`,
    and 1 where it is mirrored."""
    drawn = streams.draw(Purpose.CROP, epoch, samples, 3).T
    crops = (drawn * (margin + 1)).astype(np.int64)
    crops[:, 2] = drawn[:, 2] < 0.5 if mirror else 0
    return crops


def first_crops(epochs: int, streams: RandomStreams, sample: int, *, mirror: bool) -> tuple[Crop, ...]:
    """What `draw_crops` draws for one sample in the first epochs."""
    drawn = (streams.draw(Purpose.CROP, epoch, np.array([sample]), 3)[:, 0].tolist() for epoch in range(1, epochs + 1))
    return tuple(Crop(top, left, mirror and side < 0.5) for top, left, side in drawn)
