"""Transforms for a batch of images on the device: crops, affine maps, colors and normalization.

On a GPU they need only a few kernels per batch. `torchvision.transforms.v2` generates random numbers once per batch, so
it can't move each image differently, and its `normalize` copies the mean and deviation to the device for every batch.
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
from engine.data.transforms.augmentation import AFFINE, BLURRED, COLOR, ERASED, OPERATIONS, SIGMA, Augmentation, Draws

Statistics = tuple[tuple[float, ...], tuple[float, ...]]
"""Mean and standard deviation of each channel, for images scaled to 0..1."""


def fit_statistics(statistics: Statistics, channels: int) -> Statistics:
    """Return the mean and standard deviation of each of `channels` channels.

    `statistics` are returned if they have this number of channels. Otherwise, every channel gets their averages.
    """
    mean, std = statistics
    if len(mean) == channels:
        return statistics
    return (sum(mean) / len(mean),) * channels, (sum(std) / len(std),) * channels


def crop(pixels: Tensor, crops: Tensor, size: int) -> Tensor:
    """Crop images, uint8 [n, C, s, s], to [n, C, size, size].

    `crops`, int64 [n, 3], are the top and left in pixels, and 1 if the crop is mirrored.
    """
    if pixels.is_cuda:
        return gather_crops(pixels, crops, size)
    # Copying windows one by one is several times as fast as indexing all of them at once.
    images = pixels.numpy()
    out = np.empty((*images.shape[:2], size, size), np.uint8)
    for number, (top, left, mirrored) in enumerate(crops.numpy().tolist()):
        window = images[number, :, top : top + size, left : left + size]
        out[number] = window[..., ::-1] if mirrored else window
    return torch.from_numpy(out)


def gather_crops(pixels: Tensor, crops: Tensor, size: int) -> Tensor:
    """Crop images like `crop`, but with a single gather operation for all pixels."""
    offsets = torch.arange(size, device=pixels.device)
    top, left, mirrored = (crops[:, column, None] for column in range(3))
    rows = top + offsets
    columns = left + torch.where(mirrored.bool(), size - 1 - offsets, offsets)
    image_indices = torch.arange(len(pixels), device=pixels.device)[:, None, None, None]
    channels = torch.arange(pixels.shape[1], device=pixels.device)[:, None, None]
    return pixels[image_indices, channels, rows[:, None, :, None], columns[:, None, None, :]]


class Normalization:
    """Normalization of images, uint8 [n, C, H, W], to float32.

    `mean` and `std` [C] are those of images scaled to 0..1.
    """

    def __init__(self, mean: Tensor, std: Tensor, device: torch.device) -> None:
        # `mean` and `std` are for images in 0..1, but pixels are in 0..255.
        self._mean = (mean * 255).reshape(1, -1, 1, 1).to(device)
        self._scale = (1 / (std * 255)).reshape(1, -1, 1, 1).to(device)

    def __call__(self, pixels: Tensor, memory_format: torch.memory_format) -> Tensor:
        """Return the normalized pixels in new memory."""
        if pixels.is_cuda:  # GPU kernels convert types on the fly and write in any memory format
            out = torch.empty(pixels.shape, device=pixels.device, memory_format=memory_format)
            return torch.sub(pixels, self._mean, out=out).mul_(self._scale)
        # CPU kernels are fast only along rows, so the memory format is changed last.
        return pixels.to(torch.float32).sub_(self._mean).mul_(self._scale).contiguous(memory_format=memory_format)


class Placement(Protocol):
    """Interface for the position of the loaded square images in the model's input images."""

    @property
    def size(self) -> int:
        """Side length of the model's image, in pixels."""

    @property
    def tiles(self) -> int:
        """Number of loaded images in each of the model's images."""

    def maps(self) -> tuple[Tensor, Tensor]:
        """Return the maps from positions in the loaded images to pixels in the model's images.

        Positions (x, y) are fractions of the side of a loaded image. Each map consists of a matrix and an offset that
        is added afterwards. They are returned as [n * tiles, 2, 2] and [n * tiles, 2].
        """


class CropPlacement(NamedTuple):
    """Placement after cropping from loaded images with a side of `loaded` pixels.

    `crops`, int64 [n, 3], are the top and left in pixels, and 1 if the crop is mirrored.
    """

    crops: Tensor
    loaded: int
    size: int
    tiles: int = 1

    def maps(self) -> tuple[Tensor, Tensor]:
        """Return the matrix and the offset from positions in the loaded images to pixels (see `Placement.maps`)."""
        top, left, mirrored = self.crops.unbind(1)
        is_mirrored = mirrored.bool()
        x_scales = torch.where(is_mirrored, -self.loaded, self.loaded)
        scales = torch.stack((x_scales, torch.full_like(x_scales, self.loaded)), 1).float()
        offsets = torch.stack((torch.where(is_mirrored, self.size + left, -left), -top), 1).float()
        return scales.diag_embed(), offsets


class AffinePlacement(NamedTuple):
    """Placement after affine maps, float32 [n * tiles, 6].

    The maps lead from the loaded images to the model's images. In both, coordinates range from -1 to 1.
    """

    affine: Tensor
    size: int
    tiles: int

    def maps(self) -> tuple[Tensor, Tensor]:
        """Return the matrix and the offset from positions in the loaded images to pixels (see `Placement.maps`)."""
        affine = self.affine.view(-1, 2, 3)
        linear, shift = affine[:, :, :2], affine[:, :, 2]
        return linear * self.size, (shift + 1 - linear.sum(2)) * (self.size / 2)


class ResizePlacement(NamedTuple):
    """Placement of the model's images after they were resized.

    `before` is their placement before this, and `size` is their new side in pixels.
    """

    before: Placement
    size: int

    @property
    def tiles(self) -> int:
        return self.before.tiles

    def maps(self) -> tuple[Tensor, Tensor]:
        linear, offset = self.before.maps()
        return linear * (self.size / self.before.size), offset * (self.size / self.before.size)


class Transforms:
    """Transforms of batches on the device, using the random numbers from an `Augmentation`.

    `outside` holds the value of each plane (target for each pixel) for the area around an image. The channels of this
    area are black, or repeat the image's outermost pixels if `extends_edges` is True.
    """

    def __init__(
        self,
        augmentation: Augmentation,
        mean: Sequence[float],
        std: Sequence[float],
        device: torch.device,
        *,
        outside: Sequence[int],
        extends_edges: bool,
    ) -> None:
        self._augmentation = augmentation
        self._mean, self._std = torch.tensor(mean).to(device), torch.tensor(std).to(device)
        self._outside = torch.tensor(outside, dtype=torch.float32).view(-1, 1, 1).to(device)
        self._padding_mode = "border" if extends_edges else "zeros"

    def move(self, pixels: Tensor, numbers: Tensor, draws: Draws) -> tuple[Tensor, Tensor | None]:
        """Move the pixels of a batch according to the affine maps in `numbers`.

        `pixels` are uint8 [n * tiles, C + planes, s, s]. Returns the images, float32 [n, C, size, size] in 0..255, and
        the planes, uint8 [n, planes, size, size], or None if there are none. Images are interpolated, whereas planes
        take the value of the nearest pixel.
        """
        size, channels = self._augmentation.size, self._augmentation.channels
        grid = _make_grid(numbers[:, AFFINE], size)
        images = pixels[:, :channels].float()
        moved = functional.grid_sample(images, grid, padding_mode=self._padding_mode, align_corners=False)
        if draws.tiles > 1:  # the tiles do not overlap
            moved = moved.unflatten(0, (-1, draws.tiles)).sum(1)
        if not len(self._outside):
            return moved, None
        # Shift the values so that `outside` becomes 0, with which grid_sample fills the surroundings.
        planes = pixels[:, channels:] - self._outside
        planes = functional.grid_sample(planes, grid, mode="nearest", align_corners=False)
        return moved, (planes + self._outside).to(torch.uint8)

    def paint(
        self,
        pixels: Tensor,
        numbers: Tensor,
        draws: Draws,
        normalize: Normalization,
        memory_format: torch.memory_format,
    ) -> Tensor:
        """Apply the steps of the augmentation after `move`, and return the model's inputs.

        These are TrivialAugment, RandAugment or AugMix, then other changes of the colors, normalization, blur, and
        erasing. `pixels`, float32 [n, C, size, size] in 0..255, are returned by `move` and may be overwritten. `draws`
        are the random numbers for the batch, and `numbers` is `draws.numbers` on the device of `pixels`.
        """
        numbers = numbers[:: draws.tiles]  # the row of each sample's first tile
        if draws.rounds or draws.chains:
            pixels = _apply_policies(pixels, numbers, draws)
        if self._augmentation.has_colors:
            channels = self._augmentation.channels
            # One affine map changes the colors and normalizes them.
            color = numbers[:, COLOR : self._augmentation.policies_from].view(-1, channels, channels + 1)
            matrix = color[:, :, :channels] / (255 * self._std[:, None])
            offset = (color[:, :, channels:] - self._mean[:, None]) / self._std[:, None]
            inputs = torch.baddbmm(offset, matrix, pixels.flatten(2)).view_as(pixels)
            inputs = inputs.contiguous(memory_format=memory_format)
        else:
            inputs = normalize(pixels, memory_format)
        if draws.blurred:
            _blur(inputs, numbers[:, BLURRED], draws.blurred)
        if self._augmentation.erases:
            inputs.masked_fill_(_make_window_mask(numbers[:, ERASED], self._augmentation.size), 0)  # the mean color
        return inputs


def _make_grid(affine: Tensor, size: int) -> Tensor:
    """Return the grid for `grid_sample`, [n, size, size, 2], from affine maps [n, 6].

    The grid is the sum of a term for each row and a term for each column. Computing it takes a third of the time of
    torch's `affine_grid`.
    """
    centers = (torch.arange(size, device=affine.device) * 2 + 1) / size - 1  # of pixels, from -1 to 1
    maps = affine.view(-1, 2, 3)
    from_columns = centers[:, None] * maps[:, None, :, 0] + maps[:, None, :, 2]
    from_rows = centers[:, None] * maps[:, None, :, 1]
    return from_columns[:, None] + from_rows[:, :, None]


def _make_window_mask(windows: Tensor, size: int) -> Tensor:
    """Return a mask of the pixels inside rectangles [n, 4], as bool [n, 1, size, size].

    The columns are top, left, bottom and right as fractions of the side.
    """
    centers = (torch.arange(size, device=windows.device) + 0.5) / size
    top, left, bottom, right = (windows[:, column, None] for column in range(4))
    rows, columns = (centers >= top) & (centers < bottom), (centers >= left) & (centers < right)
    return (rows[:, :, None] & columns[:, None])[:, None]


def _blur(inputs: Tensor, sigmas: Tensor, rows: Sequence[int]) -> None:
    """Blur the images with the indices `rows` of [n, C, h, w] in place, with Gaussians of `sigmas` [n], in pixels."""
    images = torch.stack([inputs[row] for row in rows])
    sigma = torch.stack([sigmas[row] for row in rows])[:, None]
    radius = math.ceil(3 * SIGMA[1])  # three times the largest sigma
    weights = torch.exp(-((torch.arange(-radius, radius + 1, device=inputs.device) / sigma) ** 2) / 2)
    weights = (weights / weights.sum(1, keepdim=True)).repeat_interleave(inputs.shape[1], 0)[:, None]
    padded = functional.pad(images, (radius,) * 4, mode="replicate").flatten(0, 1)[None]
    # A Gaussian is separable: blur horizontally, then vertically. Each channel has its own weights.
    blurred = functional.conv2d(padded, weights[:, :, None], groups=len(weights))
    blurred = functional.conv2d(blurred, weights[:, :, :, None], groups=len(weights))
    for row, image in zip(rows, blurred.view_as(images), strict=True):
        inputs[row] = image


def _apply_policies(pixels: Tensor, numbers: Tensor, draws: Draws) -> Tensor:
    """Apply the pixelwise operations of TrivialAugment, RandAugment and AugMix to float32 [n, C, h, w] in 0..255."""
    images = pixels.round().to(torch.uint8)
    for each in draws.rounds:
        images = apply_operations(images, each.operations, numbers[:, each.column])
    if not draws.chains:  # only AugMix mixes several versions of an image
        return images.float()
    mixed, weight_of_original = torch.zeros_like(pixels), torch.ones_like(numbers[:, 0, None, None, None])
    for chain in draws.chains:
        # The columns from `chain.column` on hold an affine map (6) and the weight of the chain.
        grid = _make_grid(numbers[:, chain.column : chain.column + 6], pixels.shape[-1])
        results = functional.grid_sample(images.float(), grid, align_corners=False).round().to(torch.uint8)
        for each in chain.rounds:
            results = apply_operations(results, each.operations, numbers[:, each.column])
        weight = numbers[:, chain.column + 6, None, None, None]
        mixed, weight_of_original = mixed + weight * results, weight_of_original - weight
    return mixed + weight_of_original * images


def apply_operations(pixels: Tensor, operations: Labels, magnitudes: Tensor) -> Tensor:
    """Apply one operation to each image.

    `pixels` are uint8 [n, C, h, w], `operations`, int64 [n], are indices in `OPERATIONS`, and `magnitudes` are [n].
    Geometric operations do nothing here, as they are part of the affine maps. Images with the same operation are
    processed together to save GPU kernels.
    """
    results = list(pixels.unbind())
    for number, name in enumerate(OPERATIONS):
        rows = np.flatnonzero(operations == number).tolist()
        if name in _PIXELWISE and rows:
            images = torch.stack([pixels[row] for row in rows])
            image_magnitudes = torch.stack([magnitudes[row] for row in rows]).view(-1, 1, 1, 1)
            for row, image in zip(rows, _PIXELWISE[name](images, image_magnitudes), strict=True):
                results[row] = image
    return torch.stack(results) if results else pixels


def _blend_with(remove_property: Callable[[Tensor], Tensor]) -> Callable[[Tensor, Tensor], Tensor]:
    """Return an operation that enhances or weakens a property of images, like Pillow's ImageEnhance.

    `remove_property` converts images to images without the property, such as gray images. Positive magnitudes enhance
    the property, and negative magnitudes weaken it.
    """

    def enhance(pixels: Tensor, magnitudes: Tensor) -> Tensor:
        neutral = remove_property(pixels).float()
        return (neutral + (pixels - neutral) * (1 + magnitudes)).clamp_(0, 255).to(torch.uint8)

    return enhance


def _each_channel(operation: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    """Extend an operation for images with one or three channels to any number of channels."""

    def operate(pixels: Tensor) -> Tensor:
        if pixels.shape[1] in (1, 3):
            return operation(pixels)
        return operation(pixels.flatten(0, 1)[:, None]).view_as(pixels)  # each channel as a gray image

    return operate


def _smooth(pixels: Tensor) -> Tensor:
    """Smooth images like Pillow's ImageFilter.SMOOTH, with a weight of five for the center pixel.

    `pixels` are uint8 [n, C, h, w]. The result is float32 with whole numbers. The outermost pixels are unchanged.
    torchvision's version is not used because it copies its kernel to the device in every call.
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
    "brightness": _blend_with(torch.zeros_like),
    "color": _blend_with(lambda pixels: vision.rgb_to_grayscale(pixels) if pixels.shape[1] == 3 else pixels),
    "contrast": _blend_with(_each_channel(lambda pixels: vision.adjust_contrast(pixels, 0))),
    "sharpness": _blend_with(_smooth),
    "posterize": _posterize,
    "solarize": _solarize,
    "autocontrast": lambda pixels, _: _each_channel(vision.autocontrast)(pixels),
    "equalize": lambda pixels, _: _each_channel(vision.equalize)(pixels),
}
"""Functions for the operations in `PIXELWISE`, which follow those of torchvision.

They take images, uint8 [n, C, h, w], and magnitudes [n, 1, 1, 1].
"""
