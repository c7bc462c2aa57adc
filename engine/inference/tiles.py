"""Large images looked at in overlapping tiles, of which one result is made: maps are blended, objects that were found
twice are joined.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor
from torchvision.ops import batched_nms, box_area

from engine.data.decoding.idx import Bytes
from engine.data.decoding.outlines import Window
from engine.data.decoding.view import View
from engine.inference.placing import bands, objects
from engine.tasks.base import Objective
from engine.tasks.predictions import LineScores, Objects, ObjectScores, PixelScores, Scores

SAME = 0.5
"""Two boxes of a class with at least this IoU are of one object: torchvision's threshold for its detectors,
"box_nms_thresh"."""
PART = 0.5
"""A box that an edge of its tile cuts is a part of an object found whole, if so much of it lies within that one's
box."""
LEAST_WEIGHT = 1e-3
"""The weight of a tile's outermost pixels, as a share of that of its middle, before all weights are made to sum up to
1."""
EDGE_PX = 1.5
"""A box that comes so near to its tile's edge is cut by it."""


class ImageModel(Protocol):
    """A model of images, as `engine.inference.trained_model.TrainedModel` is one."""

    objective: Objective
    classes: tuple[str, ...]
    size: int

    def view(self, height: int, width: int) -> View:
        """How an image of that size lies in the square that the model is given."""

    def inputs(self, images: Sequence[Bytes]) -> Tensor:
        """What the model is given for images uint8 [h, w, channels]."""

    def outputs(self, inputs: Tensor) -> Tensor:
        """The model's outputs, on its device."""


class Picture(Protocol):
    """An image that is read in parts."""

    @property
    def sides(self) -> tuple[int, int]:
        """Height and width."""

    def rows(self, first: int, last: int) -> Bytes:
        """Its rows from `first` to `last`, uint8 [rows, width, channels]."""


class InMemory:
    """An image that is in memory, uint8 [h, w, c]."""

    def __init__(self, pixels: Bytes) -> None:
        self._pixels = pixels

    @property
    def sides(self) -> tuple[int, int]:
        height, width = self._pixels.shape[:2]
        return height, width

    def rows(self, first: int, last: int) -> Bytes:
        return self._pixels[first:last]


class _Tile(NamedTuple):
    """A tile with its upper left corner in the image, its own height and width, and what the model says of it."""

    top: int
    left: int
    sides: tuple[int, int]
    view: View
    scores: Scores


class Tiling(NamedTuple):
    """How an image is looked at: in squares of `side` of its pixels, neighbours of which overlap by the share
    `overlap` of it, `batch_size` at once.
    """

    side: int
    overlap: float = 0.2
    batch_size: int = 8


def corners(length: int, side: int, overlap: float) -> list[int]:
    """Where the tiles begin along an axis of `length`: evenly spread from its beginning to its end."""
    if length <= side:
        return [0]
    step = max(1, int(side * (1 - overlap)))
    count = -(-(length - side) // step) + 1
    return [round(number * (length - side) / (count - 1)) for number in range(count)]


def tiled_maps(model: ImageModel, picture: Picture, tiling: Tiling) -> Iterator[Tensor]:
    """The probabilities of a model of pixels, float32 [k, rows, width] from the top of the image to its bottom: the
    weighted mean of all tiles that see a pixel, by weights that fall smoothly from a tile's middle to its edges.
    """
    height, width = picture.sides
    tops = corners(height, tiling.side, tiling.overlap)
    sums = weights = torch.empty(0)
    for (top, following), tiles in zip(pairwise((*tops, height)), _rows_of_tiles(model, picture, tiling), strict=True):
        for tile in tiles:
            assert isinstance(tile.scores, PixelScores | LineScores)
            values = torch.cat(list(bands(tile.scores.probabilities, tile.view, *tile.sides)), 1)
            tall, wide = tile.sides
            if not len(sums):
                sums, weights = values.new_zeros((len(values), tall, width)), values.new_zeros((tall, width))
            weight = _window(tall)[:, None] * _window(wide)
            sums[:, :, tile.left : tile.left + wide] += values * weight
            weights[:, tile.left : tile.left + wide] += weight
        done = following - top
        yield sums[:, :done] / weights[:done]
        kept = len(weights) - done
        sums[:, :kept], weights[:kept] = sums[:, done:].clone(), weights[done:].clone()
        sums[:, kept:], weights[kept:] = 0, 0


def tiled_objects(model: ImageModel, picture: Picture, tiling: Tiling, threshold: float) -> Objects:
    """The objects in all tiles, each once: of those of one class with much the same box the one with the highest
    score stays (NMS), and what an edge of a tile cut off gives way to the whole object.
    """
    height, width = picture.sides
    found: list[tuple[_Tile, Objects]] = []
    for tiles in _rows_of_tiles(model, picture, tiling):
        for tile in tiles:
            assert isinstance(tile.scores, ObjectScores)
            found.append((tile, objects(tile.scores, tile.view, tile.sides, model.classes, threshold)))
    moved = [each.boxes + np.array([tile.left, tile.top] * 2, np.float32) for tile, each in found]
    boxes = np.concatenate(moved)
    scores = np.concatenate([each.scores for _, each in found])
    numbers = np.concatenate([each.numbers for _, each in found])
    cut = np.concatenate([_cut(tile, each, height, width) for tile, each in found])
    kept = _once(*map(torch.from_numpy, (boxes, scores, numbers, cut)))
    windows = None
    if found[0][1].windows is not None:
        every = [
            Window(window.top + tile.top, window.left + tile.left, window.pixels)
            for tile, each in found
            for window in each.windows or ()
        ]
        windows = tuple(every[index] for index in kept)
    return Objects(
        classes=model.classes,
        size=(height, width),
        boxes=boxes[kept],
        scores=scores[kept],
        numbers=numbers[kept],
        windows=windows,
    )


def _rows_of_tiles(model: ImageModel, picture: Picture, tiling: Tiling) -> Iterator[Iterator[_Tile]]:
    """The tiles of each row of them. The next row is read meanwhile."""
    height, width = picture.sides
    tops = corners(height, tiling.side, tiling.overlap)
    lefts = corners(width, tiling.side, tiling.overlap)
    tall, wide = min(height, tiling.side), min(width, tiling.side)
    view = model.view(tall, wide)

    def seen(top: int, pixels: Bytes) -> Iterator[_Tile]:
        for first in range(0, len(lefts), tiling.batch_size):
            some = lefts[first : first + tiling.batch_size]
            outputs = model.outputs(model.inputs([pixels[:, left : left + wide] for left in some])).cpu()
            for left, output in zip(some, outputs, strict=True):
                yield _Tile(top, left, (tall, wide), view, model.objective.scores(output, model.size))

    with ThreadPoolExecutor(1, "tiles") as reader:
        ahead = reader.submit(picture.rows, tops[0], tops[0] + tall)
        for top, following in pairwise((*tops, None)):
            assert top is not None
            pixels = ahead.result()
            if following is not None:
                ahead = reader.submit(picture.rows, following, following + tall)
            yield seen(top, pixels)


def _window(length: int) -> Tensor:
    """The weights along a side of a tile: a sine's square, but never nothing."""
    places = (torch.arange(length) + 0.5) / length
    return torch.sin(torch.pi * places).square().clamp(min=LEAST_WEIGHT)


def _cut(tile: _Tile, found: Objects, height: int, width: int) -> np.ndarray:
    """Whether an edge of the tile that is no edge of the image cuts each of its boxes, bool [n]."""
    tall, wide = tile.sides
    low = np.where([tile.left > 0, tile.top > 0], EDGE_PX, -1.0)
    inner = np.array([tile.left + wide < width, tile.top + tall < height])
    high = np.where(inner, np.array([wide, tall]) - EDGE_PX, np.inf)
    return np.asarray((found.boxes[:, :2] < low).any(1) | (found.boxes[:, 2:] > high).any(1))


def _once(boxes: Tensor, scores: Tensor, numbers: Tensor, cut: Tensor) -> np.ndarray:
    """The indices of the objects that stay, those with the highest scores first."""
    kept = batched_nms(boxes, scores, numbers, SAME)
    stays = torch.ones(len(kept), dtype=torch.bool)
    areas = box_area(boxes[kept])
    for index in torch.flatten(cut[kept].nonzero()).tolist():
        one = boxes[kept[index]]
        others = boxes[kept]
        sides = (torch.minimum(one[2:], others[:, 2:]) - torch.maximum(one[:2], others[:, :2])).clamp(min=0)
        within = sides.prod(1) >= PART * areas[index]
        larger = (areas > areas[index]) & (numbers[kept] == numbers[kept[index]]) & stays
        stays[index] = not bool((within & larger).any())
    indices: np.ndarray = kept[stays].numpy()
    return indices
