"""The transforms of a batch of images on the device: the light augmentation's crops, other augmentations' maps, and
the normalisation.

On a GPU they take a few kernels a batch: `torchvision.transforms.v2` draws once for a batch, has nothing that moves
each image elsewhere, and its `normalize` brings mean and deviation to the device anew for every batch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional
from torchvision.transforms.v2 import functional as vision

from engine.data.splits import Labels
from engine.data.transforms.augmentation import AFFINE, BLURRED, COLOUR, ERASED, OPERATIONS, SIGMA, Augmentation, Drawn

Statistics = tuple[tuple[float, ...], tuple[float, ...]]
"""Mean and standard deviation per channel, of images scaled to 0..1."""


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
    images = torch.arange(len(pixels), device=pixels.device)[:, None, None, None]
    bands = torch.arange(pixels.shape[1], device=pixels.device)[:, None, None]
    return pixels[images, bands, rows[:, None, :, None], columns[:, None, None, :]]


class Normalisation:
    """uint8 [n, C, H, W] to float32 less `mean` over `std`, both per channel of images scaled to 0..1."""

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


class Placement(Protocol):
    """Where what was in a loaded square lies in what the model is given."""

    @property
    def size(self) -> int:
        """The side of what the model is given, in pixels."""

    @property
    def tiles(self) -> int:
        """Loaded squares that each sample is made of."""

    def maps(self) -> tuple[Tensor, Tensor]:
        """From shares of the loaded squares' sides, x and y, to pixels of what the model is given: matrices [n *
        tiles, 2, 2], and offsets [n * tiles, 2] to be added.
        """


class Cropped(NamedTuple):
    """By the light augmentation's `crops`, int64 [n, 3], out of squares of `loaded` pixels."""

    crops: Tensor
    loaded: int
    size: int
    tiles: int = 1

    def maps(self) -> tuple[Tensor, Tensor]:
        top, left, mirrored = self.crops.unbind(1)
        turned = mirrored.bool()
        across = torch.where(turned, -self.loaded, self.loaded)
        scales = torch.stack((across, torch.full_like(across, self.loaded)), 1).float()
        offsets = torch.stack((torch.where(turned, self.size + left, -left), -top), 1).float()
        return scales.diag_embed(), offsets


class Moved(NamedTuple):
    """By affine maps, float32 [n * tiles, 6], from coordinates of -1 to 1 to such coordinates."""

    affine: Tensor
    size: int
    tiles: int

    def maps(self) -> tuple[Tensor, Tensor]:
        affine = self.affine.view(-1, 2, 3)
        linear, shift = affine[:, :, :2], affine[:, :, 2]
        return linear * self.size, (shift + 1 - linear.sum(2)) * (self.size / 2)


class Resized(NamedTuple):
    """As `before`, and then made `size` pixels large."""

    before: Placement
    size: int

    @property
    def tiles(self) -> int:
        return self.before.tiles

    def maps(self) -> tuple[Tensor, Tensor]:
        linear, offset = self.before.maps()
        return linear * (self.size / self.before.size), offset * (self.size / self.before.size)


class Transforms:
    """Does on the device what an `Augmentation` has drawn."""

    def __init__(
        self,
        augmentation: Augmentation,
        mean: Sequence[float],
        std: Sequence[float],
        device: torch.device,
        *,
        outside: Sequence[int],
        continued: bool,
    ) -> None:
        """`outside` is what each plane has around an image, whose channels are black there, or its outermost pixels
        `continued`.
        """
        self._augmentation = augmentation
        self._mean, self._std = torch.tensor(mean).to(device), torch.tensor(std).to(device)
        self._outside = torch.tensor(outside, dtype=torch.float32).view(-1, 1, 1).to(device)
        self._around = "border" if continued else "zeros"

    def move(self, pixels: Tensor, numbers: Tensor, drawn: Drawn) -> tuple[Tensor, Tensor | None]:
        """uint8 [n * tiles, C + planes, s, s] to float32 [n, C, size, size], of 0 to 255, and uint8 [n, planes, size,
        size]. Channels are interpolated, planes taken from the nearest pixel.
        """
        size, channels = self._augmentation.size, self._augmentation.channels
        grid = _grid(numbers[:, AFFINE], size)
        images = pixels[:, :channels].float()
        moved = functional.grid_sample(images, grid, padding_mode=self._around, align_corners=False)
        if drawn.tiles > 1:  # no pixel is in two of them
            moved = moved.unflatten(0, (-1, drawn.tiles)).sum(1)
        if not len(self._outside):
            return moved, None
        # What lies outside is 0 to grid_sample.
        planes = pixels[:, channels:] - self._outside
        planes = functional.grid_sample(planes, grid, mode="nearest", align_corners=False)
        return moved, (planes + self._outside).to(torch.uint8)

    def paint(
        self,
        pixels: Tensor,
        numbers: Tensor,
        drawn: Drawn,
        normalise: Normalisation,
        memory_format: torch.memory_format,
    ) -> Tensor:
        """Float32 [n, C, size, size] of 0 to 255, as `move` gives them, to what the model is given; may write over
        them.
        """
        numbers = numbers[:: drawn.tiles]
        if drawn.rounds or drawn.chains:
            pixels = _by_policies(pixels, numbers, drawn)
        if self._augmentation.colours:
            channels = self._augmentation.channels
            colour = numbers[:, COLOUR : self._augmentation.policies_from].view(-1, channels, channels + 1)
            matrix = colour[:, :, :channels] / (255 * self._std[:, None])
            offset = (colour[:, :, channels:] - self._mean[:, None]) / self._std[:, None]
            inputs = torch.baddbmm(offset, matrix, pixels.flatten(2)).view_as(pixels)
            inputs = inputs.contiguous(memory_format=memory_format)
        else:
            inputs = normalise(pixels, memory_format)
        if drawn.blurred:
            _blur(inputs, numbers[:, BLURRED], drawn.blurred)
        if self._augmentation.erases:
            inputs.masked_fill_(_windows(numbers[:, ERASED], self._augmentation.size), 0)  # the mean colour
        return inputs


def _grid(affine: Tensor, size: int) -> Tensor:
    """As torch's affine_grid, [n, size, size, 2], in a third of its time: what a row and what a column adds."""
    along = (torch.arange(size, device=affine.device) * 2 + 1) / size - 1
    maps = affine.view(-1, 2, 3)
    across = along[:, None] * maps[:, None, :, 0] + maps[:, None, :, 2]
    down = along[:, None] * maps[:, None, :, 1]
    return across[:, None] + down[:, :, None]


def _windows(windows: Tensor, size: int) -> Tensor:
    """Which pixels lie within windows [n, 4] of top, left, bottom and right, as shares of the side: bool [n, 1, size,
    size].
    """
    along = (torch.arange(size, device=windows.device) + 0.5) / size
    top, left, bottom, right = (windows[:, column, None] for column in range(4))
    rows, columns = (along >= top) & (along < bottom), (along >= left) & (along < right)
    return (rows[:, :, None] & columns[:, None])[:, None]


def _blur(inputs: Tensor, sigmas: Tensor, rows: Sequence[int]) -> None:
    """Blurs some of [n, C, h, w] by Gaussians of `sigmas` [n] pixels, in place."""
    chosen = torch.stack([inputs[row] for row in rows])
    sigma = torch.stack([sigmas[row] for row in rows])[:, None]
    reach = math.ceil(3 * SIGMA[1])
    weights = torch.exp(-((torch.arange(-reach, reach + 1, device=inputs.device) / sigma) ** 2) / 2)
    weights = (weights / weights.sum(1, keepdim=True)).repeat_interleave(inputs.shape[1], 0)[:, None]
    padded = functional.pad(chosen, (reach,) * 4, mode="replicate").flatten(0, 1)[None]
    blurred = functional.conv2d(padded, weights[:, :, None], groups=len(weights))
    blurred = functional.conv2d(blurred, weights[:, :, :, None], groups=len(weights))
    for row, made in zip(rows, blurred.view_as(chosen), strict=True):
        inputs[row] = made


def _by_policies(pixels: Tensor, numbers: Tensor, drawn: Drawn) -> Tensor:
    """The operations of TrivialAugment, RandAugment and AugMix, after those that move pixels: float32 [n, C, h, w] of
    0 to 255.
    """
    whole = pixels.round().to(torch.uint8)
    for each in drawn.rounds:
        whole = operate(whole, each.operations, numbers[:, each.column])
    if not drawn.chains:
        return whole.float()
    mixed, left = torch.zeros_like(pixels), torch.ones_like(numbers[:, 0, None, None, None])
    for chain in drawn.chains:
        grid = _grid(numbers[:, chain.column : chain.column + 6], pixels.shape[-1])
        made = functional.grid_sample(whole.float(), grid, align_corners=False).round().to(torch.uint8)
        for each in chain.rounds:
            made = operate(made, each.operations, numbers[:, each.column])
        weight = numbers[:, chain.column + 6, None, None, None]
        mixed, left = mixed + weight * made, left - weight
    return mixed + left * whole


def operate(pixels: Tensor, operations: Labels, magnitudes: Tensor) -> Tensor:
    """uint8 [n, C, h, w], each by its operation of `OPERATIONS`, int64 [n], with its magnitude [n]; those that move
    pixels do nothing here. By as many kernels as there are kinds of operations, since a GPU waits for each.
    """
    made = list(pixels.unbind())
    for number, name in enumerate(OPERATIONS):
        rows = np.flatnonzero(operations == number).tolist()
        if name in _PIXELWISE and rows:
            chosen = torch.stack([pixels[row] for row in rows])
            how = torch.stack([magnitudes[row] for row in rows]).view(-1, 1, 1, 1)
            for row, image in zip(rows, _PIXELWISE[name](chosen, how), strict=True):
                made[row] = image
    return torch.stack(made) if made else pixels


def _blended(towards: Callable[[Tensor], Tensor]) -> Callable[[Tensor, Tensor], Tensor]:
    """Away from, or with negative magnitudes towards, an image without what is enhanced, as Pillow's ImageEnhance
    does.
    """

    def enhance(pixels: Tensor, magnitudes: Tensor) -> Tensor:
        without = towards(pixels).float()
        return (without + (pixels - without) * (1 + magnitudes)).clamp_(0, 255).to(torch.uint8)

    return enhance


def _each_channel(operation: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    """torchvision's operations take one channel or three."""

    def operate(pixels: Tensor) -> Tensor:
        if pixels.shape[1] in (1, 3):
            return operation(pixels)
        return operation(pixels.flatten(0, 1)[:, None]).view_as(pixels)

    return operate


def _smoothed(pixels: Tensor) -> Tensor:
    """By Pillow's ImageFilter.SMOOTH, a mean in which the middle counts five times, but for the outermost pixels.
    torchvision's brings its kernel to the device anew each time.
    """
    smooth = pixels.float()
    inside = smooth[..., 1:-1, 1:-1]
    inside.copy_((functional.avg_pool2d(smooth, 3, 1) * 9 + inside * 4) / 13)
    return smooth.round_()


def _posterize(pixels: Tensor, bits: Tensor) -> Tensor:
    return pixels & (256 - 2 ** (8 - bits)).to(torch.uint8)


def _solarize(pixels: Tensor, threshold: Tensor) -> Tensor:
    return torch.where(pixels >= threshold * 255, 255 - pixels, pixels)


_PIXELWISE: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "brightness": _blended(torch.zeros_like),
    "colour": _blended(lambda pixels: vision.rgb_to_grayscale(pixels) if pixels.shape[1] == 3 else pixels),
    "contrast": _blended(_each_channel(lambda pixels: vision.adjust_contrast(pixels, 0))),
    "sharpness": _blended(_smoothed),
    "posterize": _posterize,
    "solarize": _solarize,
    "autocontrast": lambda pixels, _: _each_channel(vision.autocontrast)(pixels),
    "equalize": lambda pixels, _: _each_channel(vision.equalize)(pixels),
}
"""What becomes of uint8 [n, C, h, w] with magnitudes [n, 1, 1, 1], after torchvision.transforms.v2.functional."""
