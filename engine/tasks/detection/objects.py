"""Detections and annotated objects in an image."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from torch import Tensor

from engine.metrics.average_precision import Bools, Floats, Ints
from engine.models.tensor_detector import DETECTION_VALUES

SCORE_THRESHOLD = 0.5
"""Minimum score of the detections that are shown to the user."""


class Detections(NamedTuple):
    """Detections in one image, sorted by descending score.

    Attributes:
        boxes: x1, y1, x2 and y2 in pixels, [d, 4].
        scores: Scores in 0..1, [d].
        classes: Class numbers, [d].
        extra_outputs: Additional outputs of the detector, such as mask likelihoods, [d, w].
    """

    boxes: Floats
    scores: Floats
    classes: Ints
    extra_outputs: Floats


class Objects(NamedTuple):
    """Annotated objects in one image.

    Attributes:
        boxes: x1, y1, x2 and y2 in pixels, [g, 4].
        classes: Class numbers, [g].
        ignored: True for each object that metrics count neither as found nor as missed, such as a crowd, [g].
    """

    boxes: Floats
    classes: Ints
    ignored: Bools


def read_detections(output: Tensor, min_score: float = 0.0) -> Detections:
    """Return the detections for one image that have a score of at least `min_score`.

    Each row of `output` [k, 6 or more] holds x1, y1, x2, y2, the score, the class, and any additional outputs.
    """
    rows = output.detach().cpu().double().numpy()
    rows = rows[rows[:, 4] >= min_score]
    rows = rows[np.argsort(-rows[:, 4], kind="stable")]
    return Detections(rows[:, :4], rows[:, 4], rows[:, 5].astype(np.int64), rows[:, DETECTION_VALUES:])


def read_objects(target: Tensor) -> Objects:
    """Return the annotated objects of one image, without padding.

    Each row of `target` [m, 6] holds x1, y1, x2, y2, the class (-1 for padding), and 1 if metrics ignore the
    object.
    """
    rows = target.detach().cpu().double().numpy()
    rows = rows[rows[:, 4] >= 0]
    return Objects(rows[:, :4], rows[:, 4].astype(np.int64), rows[:, 5] > 0)
