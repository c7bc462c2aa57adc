"""Which part of each image the light augmentation takes, and whether it is mirrored. Torch-free."""

from __future__ import annotations

import numpy as np

from engine.data.randomness import Purpose, RandomStreams
from engine.data.splits import Labels


def draw_crops(margin: int, streams: RandomStreams, epoch: int, samples: Labels, *, mirror: bool) -> Labels:
    """int64 [n, 3], every sample by its own draw: the crop's top and left, each up to `margin`,
    and 1 where it is mirrored.
    """
    drawn = streams.draw(Purpose.CROP, epoch, samples, 3).T
    crops = (drawn * (margin + 1)).astype(np.int64)
    crops[:, 2] = drawn[:, 2] < 0.5 if mirror else 0
    return crops
