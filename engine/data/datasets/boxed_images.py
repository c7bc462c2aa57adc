"""Images with boxes or outlined objects, and their training targets as tensors."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from engine.data.datasets.images import LetterboxedImages
from engine.data.decoding.idx import Bytes
from engine.data.decoding.mask_values import NO_CLASS
from engine.data.decoding.reading import Unfit
from engine.data.decoding.view import letterbox_plane
from engine.data.formats.shared.boxes import BoxSplit
from engine.data.formats.shared.instances import MAX_INSTANCES, InstanceSplit, paint
from engine.data.splits import Labels
from engine.data.transforms.device_transforms import Placement

PADDING = -1
"""Class number in the rows that pad targets to the same number of boxes for each image."""
MIN_VISIBLE = 0.25
"""Smallest fraction of a box's area that must remain visible after an augmentation. Other boxes are dropped.

For comparison, Ultralytics (`box_candidates`) drops boxes only below a tenth, since its mosaics cut most boxes.
"""


class BoxedImages(LetterboxedImages):
    """Split of images with boxes.

    `targets_of` returns float32 [n, m, 6] for n images with at most m boxes each. The columns are x1, y1, x2 and y2 as
    fractions of the square input, the class, and 1 if the box is ignored or 0 if it is not. Images with fewer boxes are
    padded with rows that have the class PADDING.
    """

    cache_key = "whole"

    def __init__(self, split: BoxSplit, folder: str) -> None:
        self.folder, self.files = folder, split.files
        self._sizes = split.sizes
        self._counted_labels = torch.from_numpy(split.labels[~split.ignored])  # classes of the boxes to learn
        # The boxes of image i are in the rows from bounds[i] to bounds[i + 1] - 1.
        self._rows, self._bounds = _make_target_rows(split), split.bounds

    def __len__(self) -> int:
        return len(self.files)

    def targets_of(self, samples: Labels) -> Tensor:
        """Return the boxes of the images `samples` [n] as float32 [n, m, 6] (see the class)."""
        first_rows = self._bounds[samples]
        counts = self._bounds[samples + 1] - first_rows
        padded = np.zeros((len(samples), int(counts.max(initial=0)), 6), np.float32)
        padded[..., 4] = PADDING
        # For each box: the position of its image in `samples`, and its position among the boxes of this image.
        positions = np.repeat(np.arange(len(samples)), counts)
        box_numbers = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
        padded[positions, box_numbers] = self._rows[first_rows[positions] + box_numbers]
        return torch.from_numpy(padded)

    def _target_arrays(self) -> Iterable[npt.NDArray[Any]]:
        return self._rows, self._bounds, self._sizes

    def batch_targets(self, rows: Tensor, planes: Tensor | None, placement: Placement | None, size: int) -> Tensor:
        """Return the boxes after the augmentation, in pixels of the square input with side `size`.

        The result is float32 [n, tiles * m, 6], where `tiles` is the number of loaded images in each input (more than 1
        for a mosaic). The columns are those of `rows` (see the class), which are overwritten. Boxes are clipped to the
        input. A box becomes padding if less than the fraction MIN_VISIBLE of its area remains.
        """
        if placement is None:
            rows[..., :4] *= size
            return rows
        linear, offset = placement.maps()
        x1, y1, x2, y2 = rows[..., :4].unbind(-1)
        # [n * tiles, m, 4 corners, x and y]
        corners = torch.stack((torch.stack((x1, x2, x1, x2), -1), torch.stack((y1, y1, y2, y2), -1)), -1)
        moved_corners = (corners.unsqueeze(-2) * linear[:, None, None]).sum(-1) + offset[:, None, None]
        # The smallest upright box around the corners, which may be rotated.
        edges = torch.cat((moved_corners.amin(-2), moved_corners.amax(-2)), -1)
        clipped = edges.clamp(0, size)
        rows[..., :4] = clipped
        is_lost = (rows[..., 4] == PADDING) | (_compute_areas(clipped) < MIN_VISIBLE * _compute_areas(edges))
        rows.masked_fill_(is_lost[..., None], 0)
        rows[..., 4].masked_fill_(is_lost, PADDING)
        return rows.unflatten(0, (-1, placement.tiles)).flatten(1, 2)

    def class_counts(self, classes: int) -> Sequence[float]:
        """Return the number of boxes of each class. Ignored boxes are not counted."""
        return torch.bincount(self._counted_labels, minlength=classes).tolist()

    def _add_planes(self, index: int, image: Bytes, sides: tuple[int, int]) -> Bytes:
        """Return `image` unchanged, since boxes need no planes.

        Raises Unfit if its original height and width, `sides`, differ from the image size in the annotations.
        """
        height, width = self._sizes[index].tolist()
        if sides != (height, width):
            raise Unfit(
                f"it has {sides[1]} x {sides[0]} pixels, but its boxes belong to an image of {width} x {height}"
            )
        return image


class InstanceImages(LetterboxedImages):
    """Split of images with outlined objects.

    Two planes follow the color channels. The first holds the number of the object at each pixel, or 0 for background.
    The second holds the class of that object, or NO_CLASS for background and ignored objects. The targets of a batch
    are these two planes, int64 [n, 2, size, size]. Object numbers can have gaps, since a crop may remove objects.
    """

    planes = 2
    outside = (0, NO_CLASS)

    def __init__(self, split: InstanceSplit, folder: str) -> None:
        self.folder, self.files = folder, split.files
        self.targets = torch.zeros(len(split.files), dtype=torch.int64)  # unused, since the planes hold the targets
        self.cache_key = split.state()
        self._sources = split.sources

    def drop_remnants(self, planes: Tensor, before: Tensor, placement: Placement) -> Tensor:
        """Return `planes` without the objects that have too few pixels left after an augmentation.

        At least the fraction MIN_VISIBLE of an object's area must remain. `before` are the planes before the
        augmentation, and `placement` is the position of the loaded images in the model's input.
        """
        linear, _ = placement.maps()
        # Factor on areas in pixels. `linear` maps fractions of the loaded image's side to pixels.
        magnification = torch.linalg.det(linear).abs() / before[0, 0].numel()
        numbers, classes = planes.unbind(1)
        pixels_before, pixels_after = _count_pixels(before[:, 0]), _count_pixels(numbers)
        is_lost = pixels_after < MIN_VISIBLE * magnification[:, None] * pixels_before
        is_lost_pixel = is_lost.gather(1, numbers.flatten(1).long()).view_as(numbers) & (numbers > 0)
        return torch.stack((numbers.masked_fill(is_lost_pixel, 0), classes.masked_fill(is_lost_pixel, NO_CLASS)), 1)

    def class_counts(self, classes: int) -> Sequence[float]:
        """Return the number of objects of each class. Ignored and unreadable objects are not counted."""
        counts = np.zeros(classes, np.int64)
        for source in self._sources:
            counts += np.bincount(source.labels(), minlength=classes)
        return counts.tolist()

    def _add_planes(self, index: int, image: Bytes, sides: tuple[int, int]) -> Bytes:
        """Return a letterboxed image followed by its planes of object numbers and classes.

        `sides` are the height and width of the original image.
        """
        numbers, classes = paint(self._sources[index].instances(*sides), *sides)
        size = image.shape[-1]
        return np.concatenate(
            [image, letterbox_plane(numbers, size, 0)[None], letterbox_plane(classes, size, NO_CLASS)[None]]
        )


def _compute_areas(edges: Tensor) -> Tensor:
    """Return the areas of boxes, float [..., 4] with left, top, right and bottom edges."""
    return (edges[..., 2] - edges[..., 0]) * (edges[..., 3] - edges[..., 1])


def _count_pixels(numbers: Tensor) -> Tensor:
    """Count the pixels of each object number in `numbers`, uint8 [n, h, w]. Returns float32 [n, 256]."""
    indices = numbers.flatten(1).long()
    counts = torch.zeros((len(numbers), MAX_INSTANCES + 1), device=numbers.device)
    return counts.scatter_add_(1, indices, torch.ones_like(indices, dtype=torch.float32))


def _make_target_rows(split: BoxSplit) -> npt.NDArray[np.float32]:
    """Return the target rows for all boxes in a split, float32 [k, 6]. See `BoxedImages` for the columns."""
    images = np.repeat(np.arange(len(split.files)), np.diff(split.bounds))
    height, width = split.sizes[images].T.astype(np.float64)
    longer_sides = np.maximum(height, width)
    # The image's long side fills the square, and the image is centered.
    offsets = np.stack([(longer_sides - width) / 2, (longer_sides - height) / 2] * 2, 1)
    boxes = (split.boxes + offsets) / longer_sides[:, None]
    return np.column_stack([boxes, split.labels, split.ignored]).astype(np.float32)
