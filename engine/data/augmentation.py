"""The light augmentation, a random crop and a mirror image where that keeps the meaning, and the normalisation; in batches.

On a GPU they take a few kernels a batch; `torchvision.transforms.v2` has none that crops every picture elsewhere, and its
`normalize` brings mean and deviation to the device anew for every batch.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor


def crop(pixels: Tensor, crops: Tensor, size: int) -> Tensor:
    """uint8 [n, C, s, s] to [n, C, size, size], by the rows of `crops`, on the device where both are."""
    if pixels.is_cuda:
        return gather_crops(pixels, crops, size)
    # Copying windows one by one is several times as fast as any way of indexing them all.
    whole = pixels.numpy()
    out = np.empty((*whole.shape[:2], size, size), np.uint8)
    for number, (top, left, mirrored) in enumerate(crops.numpy().tolist()):
        window = whole[number, :, top : top + size, left : left + size]
        out[number] = window[..., ::-1] if mirrored else window
    return torch.from_numpy(out)


def gather_crops(pixels: Tensor, crops: Tensor, size: int) -> Tensor:
    """As `crop`, by one gathering of all pixels."""
    along = torch.arange(size, device=pixels.device)
    top, left, mirrored = (crops[:, column, None] for column in range(3))
    rows = top + along
    columns = left + torch.where(mirrored.bool(), size - 1 - along, along)
    pictures = torch.arange(len(pixels), device=pixels.device)[:, None, None, None]
    bands = torch.arange(pixels.shape[1], device=pixels.device)[:, None, None]
    return pixels[pictures, bands, rows[:, None, :, None], columns[:, None, None, :]]


class Normalisation:
    """uint8 [n, C, H, W] to float32 less `mean` over `std`, both per channel of pictures scaled to 0..1."""

    def __init__(self, mean: Tensor, std: Tensor, device: torch.device) -> None:
        self._mean = (mean * 255).reshape(1, -1, 1, 1).to(device)
        self._scale = (1 / (std * 255)).reshape(1, -1, 1, 1).to(device)

    def __call__(self, pixels: Tensor, memory_format: torch.memory_format) -> Tensor:
        """The result has memory of its own, which is the step's for as long as it wants it."""
        if pixels.is_cuda:  # whose kernels convert as they go, and write in any order
            out = torch.empty(pixels.shape, device=pixels.device, memory_format=memory_format)
            return torch.sub(pixels, self._mean, out=out).mul_(self._scale)
        # A CPU's are only fast along rows, so that the order is changed last.
        return pixels.to(torch.float32).sub_(self._mean).mul_(self._scale).contiguous(memory_format=memory_format)
