"""Run models on large images in overlapping tiles.

Maps of neighboring tiles are blended, and objects that appear in several tiles are merged.
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
from engine.inference.placing import project_in_bands, to_objects
from engine.tasks.base import Objective
from engine.tasks.predictions import LineScores, Objects, ObjectScores, PixelScores, Scores

SAME_IOU = 0.5
"""IoU above which boxes count as the same object ("box_nms_thresh" in torchvision's detectors)."""
MIN_INSIDE = 0.5
"""Minimum fraction of a clipped box that must be inside the box of a complete object for both to be the same object."""
MIN_WEIGHT = 1e-3
"""Minimum weight of the outermost pixels of a tile, relative to the weight of its center."""
EDGE_PX = 1.5
"""Maximum distance in pixels between a box and the edge of its tile for which the box counts as clipped."""


class ImageModel(Protocol):
    """Interface for image models such as `engine.inference.trained_model.TrainedModel`."""

    objective: Objective
    classes: tuple[str, ...]
    size: int

    def view(self, height: int, width: int) -> View:
        """Return the position of an image of the given size in the model's square input."""

    def inputs(self, images: Sequence[Bytes]) -> Tensor:
        """Convert images, uint8 [h, w, channels], to model inputs."""

    def outputs(self, inputs: Tensor) -> Tensor:
        """Run the model on inputs, and return the outputs on the model's device."""


class RowReader(Protocol):
    """Interface for images that are read row by row."""

    @property
    def sides(self) -> tuple[int, int]:
        """Height and width of the image in pixels."""

    def rows(self, first: int, last: int) -> Bytes:
        """Return the rows from `first` up to, but not including, `last`, uint8 [rows, width, channels]."""


class ImageInMemory:
    """Image in memory, uint8 [h, w, c], that can be used as a `RowReader`."""

    def __init__(self, pixels: Bytes) -> None:
        self._pixels = pixels

    @property
    def sides(self) -> tuple[int, int]:
        height, width = self._pixels.shape[:2]
        return height, width

    def rows(self, first: int, last: int) -> Bytes:
        return self._pixels[first:last]


class _Tile(NamedTuple):
    """Tile of an image, with the model's scores for it.

    Attributes:
        top: Row of its upper left corner in the image.
        left: Column of its upper left corner in the image.
        sides: Height and width in pixels.
        view: Position of the tile in the model's square input.
        scores: Scores in the coordinates of the model's input.
    """

    top: int
    left: int
    sides: tuple[int, int]
    view: View
    scores: Scores


class Tiling(NamedTuple):
    """Division of an image into overlapping squares of `side` pixels, which are processed in batches.

    `overlap` is the minimum overlap of neighboring tiles as a fraction of the side.
    """

    side: int
    overlap: float = 0.2
    batch_size: int = 8


def place_tiles(length: int, side: int, overlap: float) -> list[int]:
    """Return evenly spaced start positions of tiles with `side` pixels along an axis of `length` pixels.

    The first tile starts at 0, and the last one ends at `length`. Neighboring tiles overlap by at least the fraction
    `overlap` of their side. If `length` is at most `side`, there is a single tile.
    """
    if length <= side:
        return [0]
    step = max(1, int(side * (1 - overlap)))
    count = -(-(length - side) // step) + 1
    return [round(number * (length - side) / (count - 1)) for number in range(count)]


def iterate_tiled_maps(model: ImageModel, picture: RowReader, tiling: Tiling) -> Iterator[Tensor]:
    """Run a model that predicts pixels or lines on a large image, and yield probabilities in bands from top to bottom.

    Bands are float32 [k, rows, width], for the k maps that the model predicts. A probability is the mean over all tiles
    that contain the pixel, with weights that decrease smoothly from the center of a tile.
    """
    height, width = picture.sides
    tops = place_tiles(height, tiling.side, tiling.overlap)
    sums = weights = torch.empty(0)  # allocated with the first tile, which gives the number of maps
    tile_rows = _predict_tile_rows(model, picture, tiling)
    for (top, next_top), tiles in zip(pairwise((*tops, height)), tile_rows, strict=True):
        for tile in tiles:
            assert isinstance(tile.scores, PixelScores | LineScores)
            values = torch.cat(list(project_in_bands(tile.scores.probabilities, tile.view, *tile.sides)), 1)
            tile_height, tile_width = tile.sides
            if not len(sums):
                sums = values.new_zeros((len(values), tile_height, width))
                weights = values.new_zeros((tile_height, width))
            weight = _create_blending_weights(tile_height)[:, None] * _create_blending_weights(tile_width)
            sums[:, :, tile.left : tile.left + tile_width] += values * weight
            weights[:, tile.left : tile.left + tile_width] += weight
        finished_rows = next_top - top
        yield sums[:, :finished_rows] / weights[:finished_rows]
        # The other rows, which the next tiles overlap, move to the top.
        remaining_rows = len(weights) - finished_rows
        for rows in (*sums, weights):  # views, so this changes the sums and weights
            rows[:remaining_rows] = rows[finished_rows:].clone()
            rows[remaining_rows:] = 0


def detect_in_tiles(model: ImageModel, picture: RowReader, tiling: Tiling, threshold: float) -> Objects:
    """Run a detector on a large image, and return the objects from all tiles without duplicates.

    Objects with a score below `threshold` are left out. Of overlapping boxes with the same class, the one with the
    highest score is kept (non-maximum suppression). Boxes that a tile's edge clips are dropped if the complete object
    was found.
    """
    height, width = picture.sides
    tile_objects: list[tuple[_Tile, Objects]] = []
    for tiles in _predict_tile_rows(model, picture, tiling):
        for tile in tiles:
            assert isinstance(tile.scores, ObjectScores)
            tile_objects.append((tile, to_objects(tile.scores, tile.view, tile.sides, model.classes, threshold)))
    moved = [detected.boxes + np.array([tile.left, tile.top] * 2, np.float32) for tile, detected in tile_objects]
    boxes = np.concatenate(moved)
    scores = np.concatenate([detected.scores for _, detected in tile_objects])
    numbers = np.concatenate([detected.numbers for _, detected in tile_objects])
    is_clipped = np.concatenate([_is_clipped(tile, detected, height, width) for tile, detected in tile_objects])
    retained = _drop_duplicates(*map(torch.from_numpy, (boxes, scores, numbers, is_clipped)))
    windows = None
    if all(detected.windows is not None for _, detected in tile_objects):  # the detector has masks
        all_windows = [
            Window(window.top + tile.top, window.left + tile.left, window.pixels)
            for tile, detected in tile_objects
            for window in detected.windows or ()
        ]
        windows = tuple(all_windows[index] for index in retained)
    return Objects(
        classes=model.classes,
        size=(height, width),
        boxes=boxes[retained],
        scores=scores[retained],
        numbers=numbers[retained],
        windows=windows,
    )


def _predict_tile_rows(model: ImageModel, picture: RowReader, tiling: Tiling) -> Iterator[Iterator[_Tile]]:
    """Yield an iterator over the tiles of each row of tiles.

    While the tiles of a row are processed, the pixels of the next row are read.
    """
    height, width = picture.sides
    tops = place_tiles(height, tiling.side, tiling.overlap)
    lefts = place_tiles(width, tiling.side, tiling.overlap)
    tile_height, tile_width = min(height, tiling.side), min(width, tiling.side)
    view = model.view(tile_height, tile_width)

    def predict(top: int, pixels: Bytes) -> Iterator[_Tile]:
        """Run the model on a row of tiles, and yield the tiles with their scores.

        `pixels` are the rows of the image that the tiles cover, and `top` is the first of these rows.
        """
        for first in range(0, len(lefts), tiling.batch_size):
            batch = lefts[first : first + tiling.batch_size]
            outputs = model.outputs(model.inputs([pixels[:, left : left + tile_width] for left in batch])).cpu()
            for left, output in zip(batch, outputs, strict=True):
                yield _Tile(
                    top, left, (tile_height, tile_width), view, model.objective.compute_scores(output, model.size)
                )

    with ThreadPoolExecutor(1, "tiles") as reader:
        prefetched = reader.submit(picture.rows, tops[0], tops[0] + tile_height)
        for top, next_top in pairwise((*tops, None)):
            assert top is not None
            pixels = prefetched.result()
            if next_top is not None:
                prefetched = reader.submit(picture.rows, next_top, next_top + tile_height)
            yield predict(top, pixels)


def _create_blending_weights(length: int) -> Tensor:
    """Return blending weights along the side of a tile, [length]: a squared sine with a lower bound."""
    positions = (torch.arange(length) + 0.5) / length
    return torch.sin(torch.pi * positions).square().clamp(min=MIN_WEIGHT)


def _is_clipped(tile: _Tile, detected: Objects, height: int, width: int) -> np.ndarray:
    """Return True for each detected box that an edge of its tile clips, bool [n].

    Edges of the tile at the border of the image, whose size is `height` and `width`, don't count.
    """
    tile_height, tile_width = tile.sides
    low = np.where([tile.left > 0, tile.top > 0], EDGE_PX, -1.0)
    is_inner_edge = np.array([tile.left + tile_width < width, tile.top + tile_height < height])
    high = np.where(is_inner_edge, np.array([tile_width, tile_height]) - EDGE_PX, np.inf)
    return np.asarray((detected.boxes[:, :2] < low).any(1) | (detected.boxes[:, 2:] > high).any(1))


def _drop_duplicates(boxes: Tensor, scores: Tensor, numbers: Tensor, is_clipped: Tensor) -> np.ndarray:
    """Return the indices of detected objects without duplicates from neighboring tiles, best scores first.

    Overlapping boxes of one class are duplicates. A box that is clipped by the edge of its tile is also a duplicate if
    it is mostly inside a larger box of its class. `numbers` are the classes, and `is_clipped` is True for each clipped
    box.
    """
    retained = batched_nms(boxes, scores, numbers, SAME_IOU)
    is_retained = torch.ones(len(retained), dtype=torch.bool)
    areas = box_area(boxes[retained])
    for index in torch.flatten(is_clipped[retained].nonzero()).tolist():
        clipped_box = boxes[retained[index]]
        retained_boxes = boxes[retained]
        sides = torch.minimum(clipped_box[2:], retained_boxes[:, 2:]) - torch.maximum(
            clipped_box[:2], retained_boxes[:, :2]
        )
        is_inside = sides.clamp(min=0).prod(1) >= MIN_INSIDE * areas[index]
        is_larger_same_class = (areas > areas[index]) & (numbers[retained] == numbers[retained[index]]) & is_retained
        is_retained[index] = not bool((is_inside & is_larger_same_class).any())
    indices: np.ndarray = retained[is_retained].numpy()
    return indices
