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
"""Maximum number of output values per band of an image."""


def place(scores: Scores, view: View, sides: tuple[int, int], classes: tuple[str, ...], threshold: float) -> Prediction:
    """Convert `scores` to a prediction for an image.

    Raises TypeError if the scores aren't for images.

    Args:
        scores: Scores in the coordinates of the model's square input.
        view: Position of the image in the input.
        sides: Height and width of the image in pixels.
        classes: Names of the classes.
        threshold: Minimum probability or score of predicted labels, lines and objects.
    """
    if isinstance(scores, LabelScores):
        return labels(scores, classes, threshold)
    if isinstance(scores, ObjectScores):
        return objects(scores, view, sides, classes, threshold)
    if isinstance(scores, PixelScores | LineScores):
        maps = bands(scores.probabilities, view, *sides)
        return of_bands(maps, lines=isinstance(scores, LineScores), classes=classes, threshold=threshold)
    raise TypeError(f"{type(scores).__name__} are not of an image")


def of_bands(maps: Iterable[Tensor], *, lines: bool, classes: tuple[str, ...], threshold: float) -> Mask | Lines:
    """Combine maps that arrive in bands from top to bottom to a prediction.

    Bands are [1, rows, width] if `lines` is True, otherwise [C, rows, width].
    """
    if lines:
        likelihood = np.concatenate([band[0].numpy() for band in maps])
        return Lines(classes=classes, likelihood=likelihood, threshold=threshold)
    planes = [of_band(band) for band in maps]
    plane, probability = (np.concatenate(each) for each in zip(*planes, strict=True))
    return Mask(classes=classes, plane=plane, probability=probability)


def labels(scores: LabelScores, classes: tuple[str, ...], threshold: float) -> Labels:
    """Convert the label scores of an image to a prediction."""
    return Labels(
        classes=classes,
        probabilities=scores.probabilities.numpy(),
        several=scores.several,
        threshold=threshold,
    )


def bands(values: Tensor, view: View, height: int, width: int) -> Iterator[Tensor]:
    """Project maps [k, s, s] of the model's square input to an image of the given height and width.

    Yields bands float32 [k, rows, width] from top to bottom, which limit the memory needed for large images. Values are
    interpolated linearly between pixel centers and constant beyond them.
    """
    count, side = values.shape[0], values.shape[-1]
    if (view, height, width) == (View(1.0, 1.0, 0, 0), side, side):
        yield values
        return
    at_once = max(1, BAND_VALUES // max(1, count * width))
    left, right, along = _between(view.columns(0, width), side)
    for first in range(0, height, at_once):
        upper, lower, down = _between(view.rows(first, min(first + at_once, height)), side)
        low, high = int(upper.min()), int(lower.max()) + 1
        rows = values[:, low:high]
        wide = torch.lerp(rows[:, :, left], rows[:, :, right], along)
        yield torch.lerp(wide[:, upper - low], wide[:, lower - low], down[:, None])


def _between(where: npt.NDArray[np.floating], side: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return the pixel indices before and after each position, and the fraction of the way between them.

    Positions are clipped to 0 .. `side` - 1.
    """
    inside = torch.from_numpy(np.clip(where, 0, side - 1))
    first = inside.floor().long()
    return first, (first + 1).clamp(max=side - 1), (inside - first).float()


def of_band(band: Tensor) -> tuple[Bytes, npt.NDArray[np.float32]]:
    """Return the most likely class of each pixel, uint8, and its probability, float32.

    `band` contains the probabilities of the classes, [C, rows, width].
    """
    best = band.max(0)
    return best.indices.to(torch.uint8).numpy(), best.values.numpy()


def objects(
    scores: ObjectScores, view: View, sides: tuple[int, int], classes: tuple[str, ...], threshold: float
) -> Objects:
    """Convert scores to objects in an image.

    Only objects that have a score of at least `threshold` and are at least partly inside the image are included. See
    `place` for the arguments.
    """
    height, width = sides
    boxes = view.boxes(scores.boxes, height, width)
    is_selected = (scores.scores >= threshold) & (boxes[:, 2:] > boxes[:, :2]).all(1)
    boxes = boxes[is_selected]
    windows = None
    if scores.masks is not None:
        windows = tuple(
            _paste(mask, box, height, width)
            for mask, box in zip(scores.masks[is_selected], _unclipped(scores.boxes[is_selected], view), strict=True)
        )
    return Objects(
        classes=classes,
        size=sides,
        boxes=boxes.astype(np.float32),
        scores=scores.scores[is_selected].astype(np.float32),
        numbers=scores.classes[is_selected],
        windows=windows,
    )


def _unclipped(boxes: npt.NDArray[np.float64], view: View) -> npt.NDArray[np.float64]:
    return (boxes - np.array([view.left, view.top] * 2)) / np.array([view.scale_x, view.scale_y] * 2)


def _paste(mask: npt.NDArray[np.float64], box: npt.NDArray[np.float64], height: int, width: int) -> Window:
    """Return the pixels of an object in the image, computed like in torchvision.

    `mask` holds probabilities [p, p] over `box`, which may extend beyond the image.
    """
    margin = np.ceil((box[2:] - box[:2]) / len(mask)) + 1  # its outermost pixels extend beyond the box
    left, top = (int(max(0, math.floor(edge))) for edge in box[:2] - margin)
    right, bottom = (
        int(min(limit, math.ceil(edge))) for edge, limit in zip(box[2:] + margin, (width, height), strict=True)
    )
    tall, wide = max(0, bottom - top), max(0, right - left)
    if not tall or not wide:
        return Window(top, left, np.zeros((tall, wide), bool))
    moved = torch.from_numpy(box - np.array([left, top] * 2)).float()[None]
    pasted = paste_masks_in_image(torch.from_numpy(mask).float()[None, None], moved, (tall, wide))
    return Window(top, left, (pasted[0, 0] >= MASK_THRESHOLD).numpy())
