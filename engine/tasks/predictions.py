"""Predictions for one sample.

`Scores` are in the coordinates of the model's input, and a `Prediction` is in those of the file.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from torch import Tensor

from engine.data.decoding.idx import Bytes
from engine.data.decoding.mask_values import NO_CLASS, class_colors
from engine.data.decoding.outlines import Window
from engine.data.drawing import draw_boxes, overlay_mask

Floats = npt.NDArray[np.float32]
Numbers = npt.NDArray[np.int64]

LINE_COLOR = 1
"""Number of the class in whose color edges and roads are drawn."""


MASK_THRESHOLD = 0.5
"""Minimum probability of the pixels that belong to an object: He et al. 2017, section 3.1, "Inference"."""


class LabelScores(NamedTuple):
    """Probability of each class, [C]. `is_multilabel` is True if an image may have several classes."""

    probabilities: Tensor
    is_multilabel: bool = False


class PixelScores(NamedTuple):
    """Probability of each class at each pixel of the model's square input, [C, s, s]."""

    probabilities: Tensor


class LineScores(NamedTuple):
    """Likelihood of a line at each pixel of the model's square input, [1, s, s]."""

    probabilities: Tensor


class ObjectScores(NamedTuple):
    """Detections in the model's square input, sorted by descending score.

    Attributes:
        boxes: x1, y1, x2, y2 in pixels, float64 [d, 4].
        scores: Scores in 0..1, [d].
        classes: Class numbers, int64 [d].
        masks: Likelihood of the object at each point of a grid over its box, [d, p, p], or None for boxes only.
    """

    boxes: npt.NDArray[np.float64]
    scores: npt.NDArray[np.float64]
    classes: Numbers
    masks: npt.NDArray[np.float64] | None = None


class PointScores(NamedTuple):
    """Probability of each class for each point that the model received, [C, n]."""

    probabilities: Tensor


class RawScores(NamedTuple):
    """Output of a model whose task is user-defined, so that its meaning is unknown."""

    output: Tensor


Scores = LabelScores | PixelScores | LineScores | ObjectScores | PointScores | RawScores


@dataclass(frozen=True, eq=False, kw_only=True)
class Prediction(ABC):
    """Prediction for one sample. `classes` are the names of all classes, numbered from 0."""

    classes: tuple[str, ...]

    @property
    @abstractmethod
    def text(self) -> str:
        """Short description of the prediction for display."""

    @property
    def ranked_classes(self) -> tuple[tuple[int, ...], tuple[float, ...]]:
        """Numbers of the predicted classes, highest value first, and their values.

        The values are probabilities, or for pixels and points the fractions that the classes cover.
        """
        return (), ()

    def draw(self, image: Bytes) -> Bytes | None:
        """Draw the prediction on its image, uint8 [h, w, 3]. Returns None if there is nothing to draw."""
        return None


@dataclass(frozen=True, eq=False, kw_only=True)
class Labels(Prediction):
    """Predicted class or labels of an image.

    `probabilities` are float32 [C]. If `is_multilabel` is True, all labels with a probability of at least `threshold`
    are predicted, otherwise the most likely one.
    """

    probabilities: Floats
    is_multilabel: bool = False
    threshold: float = 0.5

    @property
    def ranked_classes(self) -> tuple[tuple[int, ...], tuple[float, ...]]:
        descending = np.argsort(-self.probabilities, kind="stable")
        chosen = descending[self.probabilities[descending] >= self.threshold] if self.is_multilabel else descending[:1]
        return tuple(chosen.tolist()), tuple(self.probabilities[chosen].tolist())

    @property
    def text(self) -> str:
        texts = [
            f"{self.classes[number]} ({100 * score:.0f}%)" for number, score in zip(*self.ranked_classes, strict=True)
        ]
        return ", ".join(texts) or "no label"


@dataclass(frozen=True, eq=False, kw_only=True)
class Mask(Prediction):
    """Class of each pixel in an image, `plane` uint8 [h, w], and its `probability`, float32 [h, w]."""

    plane: Bytes
    probability: Floats

    @property
    def ranked_classes(self) -> tuple[tuple[int, ...], tuple[float, ...]]:
        return compute_class_fractions(np.bincount(self.plane.ravel(), minlength=NO_CLASS + 1))

    @property
    def text(self) -> str:
        return format_fractions(self.classes, *self.ranked_classes)

    def draw(self, image: Bytes) -> Bytes | None:
        return overlay_mask(image, self.plane)


@dataclass(frozen=True, eq=False, kw_only=True)
class Lines(Prediction):
    """Edges, roads or other lines in an image.

    `likelihood` is the probability of a line at each pixel, float32 [h, w]. Pixels with at least `threshold` are lines.
    """

    likelihood: Floats
    threshold: float = 0.5

    @property
    def mask(self) -> npt.NDArray[np.bool_]:
        """Mask of the pixels that are lines, bool [h, w]."""
        mask: npt.NDArray[np.bool_] = self.likelihood >= self.threshold
        return mask

    @property
    def text(self) -> str:
        return format_line_fraction(float(self.mask.mean()))

    def draw(self, image: Bytes) -> Bytes | None:
        return overlay_mask(image, self.mask.astype(np.uint8) * np.uint8(LINE_COLOR))


@dataclass(frozen=True, eq=False, kw_only=True)
class Objects(Prediction):
    """Objects in an image, sorted by descending score.

    Attributes:
        size: Height and width of the image in pixels.
        boxes: x1, y1, x2, y2 in pixels of the image, float32 [n, 4].
        scores: Scores in 0..1, float32 [n].
        numbers: Class numbers, int64 [n].
        windows: Mask of each object in the part of the image that contains it, or None if there are only boxes.
    """

    size: tuple[int, int]
    boxes: Floats
    scores: Floats
    numbers: Numbers
    windows: tuple[Window, ...] | None = None

    def __len__(self) -> int:
        return len(self.boxes)

    @property
    def masks(self) -> npt.NDArray[np.bool_]:
        """Masks of all objects in the full image, bool [n, h, w]. Raises ValueError if there are only boxes."""
        if self.windows is None:
            raise ValueError("These objects have boxes but no masks.")
        masks = np.zeros((len(self.windows), *self.size), bool)
        for mask, window in zip(masks, self.windows, strict=True):
            mask[window.slices] = window.pixels
        return masks

    @property
    def ranked_classes(self) -> tuple[tuple[int, ...], tuple[float, ...]]:
        return tuple(self.numbers.tolist()), tuple(self.scores.tolist())

    @property
    def text(self) -> str:
        return format_counts(self.classes, self.numbers.tolist())

    def draw(self, image: Bytes) -> Bytes | None:
        """Draw the masks of the objects in different colors, if they have masks, and their boxes with labels."""
        if self.windows is not None:
            plane = np.zeros(self.size, np.uint8)
            for number, window in reversed(list(enumerate(self.windows))):  # the best object is drawn last, on top
                plane[window.slices][window.pixels] = 1 + number % (NO_CLASS - 1)  # another color for each object
            image = overlay_mask(image, plane)
        labels: list[int] = self.numbers.tolist()
        return draw_boxes(
            image, self.boxes.astype(np.float64), labels, format_percentages(self.classes, *self.ranked_classes)
        )


@dataclass(frozen=True, eq=False, kw_only=True)
class PointClasses(Prediction):
    """Classes of the points in a cloud, in the order of its file.

    `numbers` are the class numbers, uint8 [n], or 255 for a point without a position. `probability` [n], float32, is
    the probability of each point's class.
    """

    numbers: Bytes
    probability: Floats

    @property
    def ranked_classes(self) -> tuple[tuple[int, ...], tuple[float, ...]]:
        return compute_class_fractions(np.bincount(self.numbers, minlength=NO_CLASS + 1))

    @property
    def text(self) -> str:
        return format_fractions(self.classes, *self.ranked_classes)


@dataclass(frozen=True, eq=False, kw_only=True)
class Raw(Prediction):
    """Output of a user-defined task for one sample, float32 of any shape, whose meaning is unknown.

    `drawing` is a drawing of the output, uint8 [h, w, 3], and `drawing_text` is the text for the drawing.
    """

    output: Floats
    drawing: Bytes
    drawing_text: str = ""

    @property
    def text(self) -> str:
        return self.drawing_text

    def draw(self, image: Bytes) -> Bytes | None:
        return self.drawing


def compute_class_fractions(counts: npt.NDArray[np.int64]) -> tuple[tuple[int, ...], tuple[float, ...]]:
    """Return the numbers of the classes that occur, most frequent first, and their fractions.

    `counts` [256] hold the number of pixels or points of each class. The last entry is for those without a class.
    """
    counts = counts[:NO_CLASS]
    order = np.argsort(-counts, kind="stable")
    present = order[counts[order] > 0]
    return tuple(present.tolist()), tuple((counts[present] / max(1, counts.sum())).tolist())


def format_fractions(classes: Sequence[str], numbers: Sequence[int], fractions: Sequence[float]) -> str:
    """Format the fraction of each class as text, e.g. "road 60%, car 5%". `numbers` are the class numbers."""
    return ", ".join(format_percentages(classes, numbers, fractions))


def format_percentages(classes: Sequence[str], numbers: Sequence[int], values: Sequence[float]) -> list[str]:
    """Return the name of each class in `numbers` with its value in percent, e.g. "car 95%"."""
    return [f"{classes[number]} {100 * value:.0f}%" for number, value in zip(numbers, values, strict=True)]


def format_counts(classes: Sequence[str], numbers: Iterable[int]) -> str:
    """Format the number of objects of each class, e.g. "2 car, 1 dog", given the class number of each object."""
    return ", ".join(f"{count} {classes[number]}" for number, count in sorted(Counter(numbers).items())) or "nothing"


def format_line_fraction(fraction: float) -> str:
    """Format the fraction of an image that lines cover as text, e.g. "Lines on 4.2% of it"."""
    return f"Lines on {100 * fraction:.1f}% of it"


def create_palette(classes: int) -> Bytes:
    """Return the colors for the values 0 to 255 in a mask of `classes` classes, uint8 [256, 3].

    The first `classes` colors are those that the legend assigns to the classes, and the last one, for pixels without a
    class, is white. All others are black.
    """
    colors = np.zeros((NO_CLASS + 1, 3), np.uint8)
    colors[:classes] = class_colors(classes)
    colors[NO_CLASS] = 255
    return colors
