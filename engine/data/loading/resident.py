"""A split that lies on the GPU whole, so that a batch needs no copying but of its numbers."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from engine.data.loading.decode_pool import ImageSource
from engine.data.loading.staging import SAMPLE, Slot

SHARE_OF_FREE = 8
"""The part of a GPU's free memory that a split may take: an eighth, as of main memory."""


def room(device: torch.device) -> int:
    """How many bytes of `device` images may take all the time; none of the CPU, which has them at hand."""
    if device.type != "cuda":
        return 0
    free, _ = torch.cuda.mem_get_info(device)
    return free // SHARE_OF_FREE


def bring(source: ImageSource, count: int, slot: Slot, device: torch.device) -> Tensor:
    """All images as uint8 [count, C, H, W] on `device`, those that cannot be read left blank; by way of `slot`."""
    capacity, *shape = slot.pixels.shape
    whole = torch.zeros((count, *shape), dtype=torch.uint8, device=device)
    for start in range(0, count, capacity):
        samples = source.take(np.arange(start, min(start + capacity, count)), replace=False)
        slot.begin()
        source.pixels(samples, slot.pixels[: len(samples)])
        slot.numbers[: len(samples), SAMPLE] = samples
        slot.send(len(samples), len(samples), torch.empty(0))
        pixels, numbers, *_ = slot.receive(len(samples), len(samples))
        whole[numbers[:, SAMPLE]] = pixels
        slot.leave()
    return whole
