"""Images with masks of lines and a second plane with the directions of the lines."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from engine.contract.images import Framing
from engine.data.datasets.images import ImageSet
from engine.data.decoding.mask_values import NO_CLASS
from engine.data.transforms.device_transforms import Placement
from engine.tasks.roads.directions import DIRECTIONS, STEP, VERSION, compute_orientation_plane


class OrientedImages(ImageSet):
    """Split of images with masks that adds a plane with the directions of lines to each mask.

    The plane is computed from the mask at the requested size (see `compute_orientation_plane`) and cached with the
    image. Targets are int64 [n, 2, size, size].
    """

    framing: Framing = "whole"
    planes = 2
    outside = (NO_CLASS, NO_CLASS)

    def __init__(self, images: ImageSet) -> None:
        self.targets = images.targets
        self.mirror = images.mirror
        self.folder, self.files, self.companions = images.folder, images.files, images.companions
        self.cache_key = f"{images.cache_key} orientation {VERSION}"
        self.bands = images.bands
        self._images = images

    def load(self, index: int, size: int, channels: int) -> Tensor:
        """Return an image, its plane of classes and its plane of directions, uint8 [channels + 2, size, size]."""
        pixels = self._images.load(index, size, channels)
        directions = compute_orientation_plane(pixels[-1].numpy())
        return torch.cat([pixels, torch.from_numpy(directions)[None]])

    def batch_targets(self, rows: Tensor, planes: Tensor | None, placement: Placement | None, size: int) -> Tensor:
        """Return the targets of a batch, int64 [n, 2, size, size], with directions adapted to the images' augmentation.

        For example, mirroring changes the direction of a line. `planes` are the augmented planes of the masks, and
        `placement` is the transform that was applied to the images, or None. `rows` and `size` are not used.
        """
        assert planes is not None
        targets = planes.long()
        if placement is not None:
            moved_classes = _transform_classes(placement.maps()[0])
            targets[:, 1] = moved_classes.gather(1, targets[:, 1].flatten(1)).view_as(targets[:, 1])
        return targets

    def class_counts(self, classes: int) -> Sequence[float]:
        return self._images.class_counts(classes)


def _transform_classes(linear: Tensor) -> Tensor:
    """Return lookup tables for the direction classes in transformed images, int64 [n, 256].

    `linear` [n, 2, 2] are the matrices that transform (x, y) in the images. The entry at the index of a direction class
    is its class in the transformed image. All other entries equal their indices.
    """
    angles = torch.arange(DIRECTIONS, device=linear.device) * (STEP * torch.pi / 180)
    x, y = (linear @ torch.stack((angles.cos(), -angles.sin()))).unbind(1)  # rows run downwards
    moved = torch.round(torch.atan2(-y, x) * (180 / torch.pi / STEP)).long() % DIRECTIONS
    classes = torch.arange(NO_CLASS + 1, device=linear.device).repeat(len(linear), 1)
    classes[:, :DIRECTIONS] = moved
    return classes
