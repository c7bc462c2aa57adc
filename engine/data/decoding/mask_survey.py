"""Survey of a sample of masks: their image types, and the values that occur with their frequencies. Torch-free."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from engine.data.decoding.mask_values import (
    GRAY,
    JPEG_SPREAD,
    MaskValues,
    Mode,
    Values,
    are_gray,
    count_values,
    merge_counts,
    read_values,
)
from engine.data.decoding.reading import describe_failure, read_image
from engine.data.splits import printable, sample_evenly

SAMPLED_MASKS = 400
"""Number of evenly spaced masks that are opened to find out which values occur.

Values that occur only in other masks are reported during training.
"""
MAX_VALUES = 4096
"""Maximum number of distinct values that are counted in one mask. The rarest ones are ignored."""
ENOUGH_PHOTOS = 16
"""Number of masks after which the survey stops if most of them look like photos."""
MAX_MASK_VALUES = 50
"""Number of distinct values above which a file that should be a mask may be a photo or a depth image."""
_ODD_PALETTES = 0.1
"""Maximum fraction of masks whose palette differs from that of the majority.

Above it, masks are read by their colors instead of their palette indices.
"""
_SMOOTH = 0.85
"""Minimum fraction of pixels that equal their neighbor in a file that is a mask and not a photo."""


class SurveyedMask(NamedTuple):
    """Values in one of the surveyed masks, and in `pixels` the number of pixels with each value.

    `distinct` is the number of distinct values. `flat` is False if neighboring pixels mostly differ, as in photos. See
    `MaskValues` for the other attributes.
    """

    mode: Mode
    values: Values
    pixels: Values
    distinct: int
    flat: bool
    palette: Values | None
    no_data: int | None
    lossy: bool
    transparent: bool


class Levels(NamedTuple):
    """Values that occur in masks, the number of pixels for each value, and the number of masks that contain it."""

    values: Values
    pixels: Values
    masks: Values

    def without(self, *dropped: int) -> Levels:
        """Return the levels except those with one of the values `dropped`."""
        is_left = ~np.isin(self.values, dropped)
        return Levels(self.values[is_left], self.pixels[is_left], self.masks[is_left])


@dataclass
class Survey:
    """Values in a sample of a dataset's masks.

    `failure` names the first mask that can't be read and the reason, or is empty.
    """

    masks: list[SurveyedMask] = field(default_factory=list)
    failure: str = ""

    def select_mode(self, mode: Mode) -> list[SurveyedMask]:
        """Return the masks that are images of the type `mode`."""
        return [mask for mask in self.masks if mask.mode == mode]

    @property
    def lossy(self) -> bool:
        """True if the compression of any mask changes its values, as JPEG does."""
        return any(mask.lossy for mask in self.masks)

    @property
    def colors(self) -> Values:
        """Distinct colors 0xRRGGBB in masks that are color images."""
        return merge_counts([(mask.values, mask.pixels) for mask in self.select_mode("color")])[0]

    def is_colored(self) -> bool:
        """Return True if any color mask contains a color that is not gray."""
        return not are_gray(self.colors, JPEG_SPREAD if self.lossy else 0)

    def find_common_palette(self) -> dict[int, int] | None:
        """Return the color 0xRRGGBB that most masks have for each used palette index.

        Returns None if too many masks have a palette that differs from it.
        """
        palettes = [_find_used_colors(mask) for mask in self.select_mode("palette")]
        counts: dict[int, Counter[int]] = {}  # number of masks with each color, by index
        for palette in palettes:
            for index, color in palette.items():
                counts.setdefault(index, Counter())[color] += 1
        common = {index: of_index.most_common(1)[0][0] for index, of_index in counts.items()}
        differing = [palette for palette in palettes if not palette.items() <= common.items()]
        return common if len(differing) <= _ODD_PALETTES * len(palettes) else None

    def count_levels(self) -> Levels:
        """Count the values of all masks as gray levels or palette indices.

        Color images are read as gray levels, since gray masks may be stored in color.
        """
        return Levels(*merge_counts([(_to_levels(mask), mask.pixels) for mask in self.masks]))

    def count_colors(self) -> Levels:
        """Count the values of all masks as colors 0xRRGGBB, after converting gray levels and palette indices."""
        return Levels(*merge_counts([(_to_colors(mask), mask.pixels) for mask in self.masks]))

    def has_smooth_values(self) -> bool:
        """Return True if most masks have many values that vary from pixel to pixel, as in photos."""
        with_many_values = [mask for mask in self.masks if mask.distinct > MAX_MASK_VALUES and not mask.flat]
        return 2 * len(with_many_values) > len(self.masks)

    def find_missing_data_levels(self) -> tuple[int, ...]:
        """Return the levels that mean missing data.

        These are the levels that a mask declares as missing data, unless another mask contains them without this
        declaration.
        """
        declared = sorted({mask.no_data for mask in self.masks if mask.no_data is not None})
        undeclared = {
            level for level in declared for mask in self.masks if level in mask.values and mask.no_data != level
        }
        return tuple(level for level in declared if level not in undeclared)


def survey_masks(paths: Sequence[str]) -> Survey:
    """Read a sample of the masks at `paths`. Unreadable masks are skipped."""
    survey = Survey()
    for path in sample_evenly(paths, SAMPLED_MASKS):
        if len(survey.masks) == ENOUGH_PHOTOS and survey.has_smooth_values():
            break  # counting the colors of photos takes seconds each
        try:
            survey.masks.append(_survey_mask(read_values(read_image(path))))
        except Exception as error:  # a decoder may raise nearly anything; loading the image reports it
            if not survey.failure:
                survey.failure = f"{printable(os.path.basename(path))}: {describe_failure(error)}"
    return survey


def _survey_mask(mask: MaskValues) -> SurveyedMask:
    """Count the values in a mask. Of very many values, only the most frequent ones are returned."""
    values, pixels = count_values(mask.values)
    distinct = len(values)
    flat = distinct <= MAX_MASK_VALUES or _measure_flatness(mask.values) >= _SMOOTH
    if distinct > MAX_VALUES:
        frequent = np.sort(np.argsort(-pixels, kind="stable")[:MAX_VALUES])
        values, pixels = values[frequent], pixels[frequent]
    return SurveyedMask(
        mask.mode, values, pixels, distinct, flat, mask.palette, mask.no_data, mask.lossy, mask.transparent
    )


def _measure_flatness(values: Values) -> float:
    """Return the fraction of pixels in `values` [h, w] that equal their neighbor.

    It is measured for horizontal and for vertical neighbors, and the smaller fraction is returned.
    """
    fractions = []
    for axis in (0, 1):
        is_equal = np.diff(values, axis=axis) == 0
        if is_equal.size:  # an image of one row or column has no neighbors along the other axis
            fractions.append(float(is_equal.mean()))
    return min(fractions, default=1.0)


def _find_used_colors(mask: SurveyedMask) -> dict[int, int]:
    """Return the color of each index that occurs in a mask with a palette.

    Indices that are not in the palette are left out.
    """
    assert mask.palette is not None
    used = mask.values[mask.values < len(mask.palette)]
    return dict(zip(used.tolist(), mask.palette[used].tolist(), strict=True))


def _to_levels(mask: SurveyedMask) -> Values:
    """Convert the values of a mask to gray levels or palette indices, taking the green channel of colors."""
    return mask.values >> 8 & 0xFF if mask.mode == "color" else mask.values


def _to_colors(mask: SurveyedMask) -> Values:
    """Convert the values of a mask to colors 0xRRGGBB. Indices beyond the end of a palette get its last color."""
    if mask.mode == "color":
        return mask.values
    if mask.mode == "gray":
        return mask.values.astype(np.int64) * GRAY
    assert mask.palette is not None
    return mask.palette[np.minimum(mask.values, len(mask.palette) - 1)]
