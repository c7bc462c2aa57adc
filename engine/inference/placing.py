"""Project a model's outputs from its square input to the original image."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torchvision.models.detection.roi_heads import paste_masks_in_image

from engine.data.decoding.idx import Bytes
from engine.data.decoding.outlines import Window
from engine.data.decoding.view import View
from engine.tasks.predictions import (
    MASK_THRESHOLD,
    Labels,
    LabelScores,
    Lines,
    LineScores,
    Mask,
    Objects,
    ObjectScores,
    PixelScores,
    Prediction,
    Scores,
)

BAND_VALUES = 1 << 24
"""Maximum number of values in a band of rows that is projected to an image at once."""


def to_prediction(
    scores: Scores, view: View, sides: tuple[int, int], classes: tuple[str, ...], threshold: float
) -> Prediction:
    """Convert `scores` in the model's square input to a prediction for an image of `sides` (height, width).

    `view` is the position of the image in the input. `threshold` is the minimum probability or score of predicted
    labels, lines and objects. Raises TypeError if the scores aren't for images.
    """
    if isinstance(scores, LabelScores):
        probabilities = scores.probabilities.numpy()
        return Labels(
            classes=classes, probabilities=probabilities, is_multilabel=scores.is_multilabel, threshold=threshold
        )
    if isinstance(scores, ObjectScores):
        return to_objects(scores, view, sides, classes, threshold)
    if isinstance(scores, PixelScores | LineScores):
        maps = project_in_bands(scores.probabilities, view, *sides)
        return combine_bands(maps, is_lines=isinstance(scores, LineScores), classes=classes, threshold=threshold)
    raise TypeError(f"{type(scores).__name__} are not of an image")


def combine_bands(
    maps: Iterable[Tensor], *, is_lines: bool, classes: tuple[str, ...], threshold: float
) -> Mask | Lines:
    """Join probability maps, which arrive in bands from top to bottom, to a prediction for the entire image.

    If `is_lines` is True, bands are [1, rows, width], and the result is a `Lines` with this `threshold`. Otherwise,
    bands are [C, rows, width], and the result is a `Mask` with the most likely class of each pixel.
    """
    if is_lines:
        likelihood = np.concatenate([band[0].numpy() for band in maps])
        return Lines(classes=classes, likelihood=likelihood, threshold=threshold)
    planes = [find_likely_classes(band) for band in maps]
    plane, probability = (np.concatenate(each) for each in zip(*planes, strict=True))
    return Mask(classes=classes, plane=plane, probability=probability)


def project_in_bands(values: Tensor, view: View, height: int, width: int) -> Iterator[Tensor]:
    """Project maps [k, s, s] of the model's square input to an image of the given height and width.

    Yields bands float32 [k, rows, width] from top to bottom, which limit the memory needed for large images. Values are
    interpolated linearly between pixel centers and constant beyond them.
    """
    count, side = values.shape[0], values.shape[-1]
    if (view, height, width) == (View(1.0, 1.0, 0, 0), side, side):  # the image is the input
        yield values
        return
    band_height = max(1, BAND_VALUES // max(1, count * width))
    # Columns around each column of the image, and the fraction of the way between them. The same follows for rows.
    left, right, x_fractions = _compute_interpolation(view.map_columns(width), side)
    for first in range(0, height, band_height):
        upper, lower, y_fractions = _compute_interpolation(view.map_rows(first, min(first + band_height, height)), side)
        first_row, last_row = int(upper.min()), int(lower.max()) + 1
        rows = values[:, first_row:last_row]
        stretched = torch.lerp(rows[:, :, left], rows[:, :, right], x_fractions)
        yield torch.lerp(stretched[:, upper - first_row], stretched[:, lower - first_row], y_fractions[:, None])


def _compute_interpolation(positions: npt.NDArray[np.floating], side: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return the pixel indices before and after each position, and the fraction of the way between them.

    Positions are clipped to 0 .. `side` - 1.
    """
    clipped = torch.from_numpy(np.clip(positions, 0, side - 1))
    before = clipped.floor().long()
    return before, (before + 1).clamp(max=side - 1), (clipped - before).float()


def find_likely_classes(band: Tensor) -> tuple[Bytes, npt.NDArray[np.float32]]:
    """Return the most likely class of each pixel, uint8, and its probability, float32.

    `band` contains the probabilities of the classes, [C, rows, width].
    """
    most_likely = band.max(0)
    return most_likely.indices.to(torch.uint8).numpy(), most_likely.values.numpy()


def to_objects(
    scores: ObjectScores, view: View, sides: tuple[int, int], classes: tuple[str, ...], threshold: float
) -> Objects:
    """Convert scores to objects in an image.

    Only objects that have a score of at least `threshold` and are at least partly inside the image are included. See
    `to_prediction` for the arguments.
    """
    height, width = sides
    boxes = view.convert_boxes(scores.boxes, height, width)
    is_selected = (scores.scores >= threshold) & (boxes[:, 2:] > boxes[:, :2]).all(1)
    boxes = boxes[is_selected]
    windows = None
    if scores.masks is not None:
        unclipped = _convert_boxes(scores.boxes[is_selected], view)
        windows = tuple(
            _paste_mask(mask, box, height, width)
            for mask, box in zip(scores.masks[is_selected], unclipped, strict=True)
        )
    return Objects(
        classes=classes,
        size=sides,
        boxes=boxes.astype(np.float32),
        scores=scores.scores[is_selected].astype(np.float32),
        numbers=scores.classes[is_selected],
        windows=windows,
    )


def _convert_boxes(boxes: npt.NDArray[np.float64], view: View) -> npt.NDArray[np.float64]:
    """Convert boxes in the model's input to pixels of the image without clipping them to it."""
    return (boxes - np.array([view.left, view.top] * 2)) / np.array([view.scale_x, view.scale_y] * 2)


def _paste_mask(mask: npt.NDArray[np.float64], box: npt.NDArray[np.float64], height: int, width: int) -> Window:
    """Return the pixels of an object in the image, computed like in torchvision.

    `mask` holds probabilities [p, p] over `box`, which may extend beyond the image.
    """
    margin = np.ceil((box[2:] - box[:2]) / len(mask)) + 1  # pixels of the mask at its sides extend beyond the box
    left, top = (int(max(0, math.floor(edge))) for edge in box[:2] - margin)
    right, bottom = (
        int(min(limit, math.ceil(edge))) for edge, limit in zip(box[2:] + margin, (width, height), strict=True)
    )
    rows, columns = max(0, bottom - top), max(0, right - left)
    if not rows or not columns:
        return Window(top, left, np.zeros((rows, columns), bool))
    box_in_window = torch.from_numpy(box - np.array([left, top] * 2)).float()[None]
    pasted = paste_masks_in_image(torch.from_numpy(mask).float()[None, None], box_in_window, (rows, columns))
    return Window(top, left, (pasted[0, 0] >= MASK_THRESHOLD).numpy())
