"""Examine a sample of a dataset's masks: do they look like label images, and are their values object numbers?

This module does not import torch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from engine.data.decoding.mask_values import GRAY, NO_CLASS, MaskValues, Values, read_values
from engine.data.decoding.numbered_masks import MANY, count_numbered_objects
from engine.data.decoding.reading import decode_header, describe_failure, open_image, read_image
from engine.data.formats.format import Confidence, Detection
from engine.data.splits import first_names, sample_evenly

SAMPLE = 12
"""Maximum number of masks that are opened to find out if they are label images."""
_FEW_VALUES = 64
"""Maximum number of distinct values or colors in a label image."""
_FREQUENT_VALUES = 16  # values that cover most pixels of a mask
_MIN_SHARE = 0.75
"""Minimum fraction of pixels that have a frequent value, or the value of their left neighbor.

This applies to masks with many values.
"""
_MIN_FLAT = 0.7
"""Minimum fraction of pixels in a label image that have the value of their left neighbor (see `are_label_images`)."""
_MAX_PIXELS = 1 << 21
"""Maximum number of pixels that are examined in a mask."""


@dataclass
class MaskSample:
    """Properties of a sample of masks.

    Attributes:
        readable: Number of masks that could be opened.
        label_like: Number of masks with few values or flat areas, like label images.
        fitting: Number of masks that have the same size as their image.
        colored: Number of masks that contain colors other than gray.
        numbers: Distinct values except 0 in each readable mask.
        number_objects: True if the values number the objects in each mask.
        has_zero: True if any mask contains 0.
        lossy: Number of masks whose compression changes values, as JPEG does.
        failure: Name of a mask that can't be opened and the reason, or "" if all can be opened.
    """

    readable: int = 0
    label_like: int = 0
    fitting: int = 0
    colored: int = 0
    numbers: list[list[int]] = field(default_factory=list)
    number_objects: bool = False
    has_zero: bool = False
    lossy: int = 0
    failure: str = ""

    @property
    def are_labels(self) -> bool:
        """True if most masks look like label images."""
        return 2 * self.label_like > self.readable

    @property
    def fit(self) -> bool:
        """True if most masks have the same size as their images."""
        return 2 * self.fitting > self.readable

    @property
    def values(self) -> set[int]:
        """Distinct values in all masks except 0."""
        return {value for values in self.numbers for value in values}

    @property
    def max_numbers(self) -> int:
        """Largest number of distinct values in any mask, not counting 0."""
        return max(map(len, self.numbers), default=0)

    @property
    def are_classes(self) -> bool:
        """True if the values must be classes, since object numbers would look different.

        The values of most masks have gaps, and some values occur in several masks.
        """
        with_gaps = sum(values != list(range(1, len(values) + 1)) for values in self.numbers)
        have_most_gaps = 2 * with_gaps > len(self.numbers)
        is_any_repeated = len(self.values) < sum(map(len, self.numbers))
        return len(self.values) > 1 and have_most_gaps and is_any_repeated


def detect_masks(
    sample: MaskSample, kinds: tuple[str, ...], *evidence: str, against: str = "", variant: str = "", source: Any = None
) -> Detection:
    """Create the detection of a format with masks that is already recognized by its unique folder layout.

    Its confidence is CERTAIN, or WEAK if most masks in the `sample` have other sizes than their images or there is
    evidence `against` the format. See `Detection` for the other arguments.
    """
    other_sizes = "" if sample.fit else "masks of other sizes than their images"
    doubts = tuple(filter(None, (against, other_sizes)))
    confidence = Confidence.WEAK if doubts else Confidence.CERTAIN
    return Detection(kinds, confidence, evidence, doubts, variant, source=source)


def sample_masks(pairs: Sequence[tuple[str, str]]) -> MaskSample:
    """Return the properties of an evenly spaced sample of masks. `pairs` are the paths of images and their masks."""
    sample = MaskSample()
    for image, path in sample_evenly(pairs, SAMPLE):
        try:
            mask = read_values(read_image(path))
        except Exception as error:  # a broken file may raise nearly anything in a decoder
            sample.failure = sample.failure or f"{first_names([path])}: {describe_failure(error)}"
            continue
        levels, has_colors = _to_gray_levels(mask)
        sample.readable += 1
        sample.fitting += _has_size(image, levels.shape)
        sample.lossy += mask.lossy
        sample.colored += has_colors
        sample.label_like += _is_label_like(levels)
        examined_rows = max(1, _MAX_PIXELS // max(levels.shape[1], 1))
        values = np.unique(levels[:examined_rows])
        sample.has_zero |= bool((values == 0).any())
        sample.numbers.append([int(value) for value in values[:NO_CLASS] if value > 0])
    if sample.max_numbers >= MANY and not sample.are_classes:
        sample.number_objects = count_numbered_objects([mask for _, mask in pairs]) > 0
    return sample


def _to_gray_levels(mask: MaskValues) -> tuple[Values, bool]:
    """Return the values [h, w] of a mask, and True if they are colors. Colors that are all gray become gray levels."""
    if mask.mode != "color":
        return mask.values, False
    levels = mask.values & 0xFF
    is_gray = bool((mask.values == levels * GRAY).all())
    return (levels, False) if is_gray else (mask.values, True)


def _is_label_like(values: Values) -> bool:
    """Return True if a mask has few distinct values or large areas of one value, as label images do."""
    values = values[: max(1, _MAX_PIXELS // max(values.shape[1], 1))]
    _, counts = np.unique(values, return_counts=True)
    if len(counts) <= _FEW_VALUES:
        return True
    frequent = np.sort(counts)[-_FREQUENT_VALUES:].sum() / values.size
    return bool(max(frequent, _measure_flatness(values)) >= _MIN_SHARE)


def _measure_flatness(values: npt.NDArray[Any]) -> float:
    """Return the fraction of pixels in `values` [h, w] that have the value of their left neighbor."""
    return float((values[:, 1:] == values[:, :-1]).mean()) if values.shape[1] > 1 else 0.0


def _has_size(path: str, shape: tuple[int, ...]) -> bool:
    """Return True if the image at `path` has the given height and width, before or after its EXIF rotation."""
    try:
        with open_image(path) as image:
            return shape in ((image.height, image.width), (image.width, image.height))
    except Exception:  # a broken file may raise nearly anything in a decoder; loading it reports the error
        return False


def are_label_images(paths: Sequence[str]) -> bool | None:
    """Return True if most readable files look like label images, with few values or colors in flat areas.

    Returns None if no file can be read.
    """
    answers = [answer for path in paths if (answer := _is_label_image(path)) is not None]
    return 2 * sum(answers) > len(answers) if answers else None


def _is_label_image(path: str) -> bool | None:
    """Return True if an image has few values in large areas, as masks do.

    Returns None if it can't be read, or if it has a single color other than gray and may be anything.
    """
    try:
        with decode_header(read_image(path)) as image:
            if image.mode == "P":
                return True
            if image.mode not in ("1", "L", "I", "I;16", "RGB"):
                return False
            pixels = np.asarray(image if image.mode != "1" else image.convert("L"))
    except Exception:  # a broken file may raise nearly anything in a decoder
        return None
    if pixels.ndim == 3:  # convert each color to one number
        has_single_value = bool((pixels == pixels[:1, :1]).all())
        if has_single_value and len(set(pixels[0, 0])) > 1:
            return None
        pixels = pixels.astype(np.int32) @ np.array([1 << 16, 1 << 8, 1], np.int32)
    return len(np.unique(pixels)) <= _FEW_VALUES and _measure_flatness(pixels) >= _MIN_FLAT
