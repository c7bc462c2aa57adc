"""The values of a sample of masks: how often each occurs, and the kinds of images that hold them. Torch-free."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from engine.data.decoding.mask_values import (
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
from engine.data.splits import printable, spread_evenly

SAMPLED_MASKS = 400
"""Masks that are opened to learn their values, evenly spread. Training names a value that only other masks hold."""
MAX_VALUES = 4096
"""Values of one mask that are counted, its most frequent ones."""
ENOUGH_PHOTOS = 16
"""Images that are read before a folder of photos is given up."""
MANY = 50
"""With more values in most of the masks, these may be photos or depth images."""
_ODD_PALETTES = 0.1
"""If more than this share of the masks have another palette, the colors count."""
_SMOOTH = 0.85
"""Least share of neighboring pixels that are equal in a mask."""


class MaskSample(NamedTuple):
    """One mask of the sample; `distinct` is its number of values, and `flat` is False if its values vary smoothly."""

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
    """The values of several masks in one space of numbers: pixels of each, and the masks that hold it."""

    values: Values
    pixels: Values
    masks: Values

    def without(self, *dropped: int) -> Levels:
        others = ~np.isin(self.values, dropped)
        return Levels(self.values[others], self.pixels[others], self.masks[others])


@dataclass
class Survey:
    """A sample of masks. `failure` is the first one that cannot be read, with the reason."""

    masks: list[MaskSample] = field(default_factory=list)
    failure: str = ""

    def of(self, mode: Mode) -> list[MaskSample]:
        return [mask for mask in self.masks if mask.mode == mode]

    @property
    def lossy(self) -> bool:
        return any(mask.lossy for mask in self.masks)

    @property
    def colors(self) -> Values:
        """The colors of the masks in color."""
        return merge_counts([(mask.values, mask.pixels) for mask in self.of("color")])[0]

    def is_colored(self) -> bool:
        """Return True if any mask in color holds more than gray levels."""
        return not are_gray(self.colors, JPEG_SPREAD if self.lossy else 0)

    def palette(self) -> dict[int, int] | None:
        """Return the color of each used index, None if that differs in more than a few masks."""
        of_masks = [_used_colors(mask) for mask in self.of("palette")]
        colors: dict[int, Counter[int]] = {}
        for used in of_masks:
            for index, color in used.items():
                colors.setdefault(index, Counter())[color] += 1
        found = {index: of_index.most_common(1)[0][0] for index, of_index in colors.items()}
        odd = sum(any(found[index] != color for index, color in used.items()) for used in of_masks)
        return found if odd <= _ODD_PALETTES * len(of_masks) else None

    def levels(self) -> Levels:
        """Return gray levels, those of gray masks in color, and indices of palettes."""
        return Levels(
            *merge_counts(
                [(mask.values >> 8 & 0xFF if mask.mode == "color" else mask.values, mask.pixels) for mask in self.masks]
            )
        )

    def as_colors(self) -> Levels:
        """Return the values of all masks as colors."""
        return Levels(*merge_counts([(_as_colors(mask), mask.pixels) for mask in self.masks]))

    def has_smooth_values(self) -> bool:
        """Return True if most masks hold many values that vary from pixel to pixel, as photos do."""
        many = [mask for mask in self.masks if mask.distinct > MANY and not mask.flat]
        return 2 * len(many) > len(self.masks)

    def no_data(self) -> tuple[int, ...]:
        """Return the levels that all masks holding them declare as missing."""
        declared = {mask.no_data for mask in self.masks if mask.no_data is not None}
        return tuple(
            sorted(
                level for level in declared if all(mask.no_data == level for mask in self.masks if level in mask.values)
            )
        )


def survey_masks(paths: Sequence[str]) -> Survey:
    """Read a sample of the masks at `paths`; those that cannot be read are passed over."""
    survey = Survey()
    for index in spread_evenly(len(paths), SAMPLED_MASKS):
        if len(survey.masks) == ENOUGH_PHOTOS and survey.has_smooth_values():
            break  # counting the colors of photos takes seconds each
        try:
            survey.masks.append(_sample(read_values(read_image(paths[index]))))
        except Exception as error:  # a decoder may raise nearly anything; loading the image reports it
            if not survey.failure:
                survey.failure = f"{printable(os.path.basename(paths[index]))}: {describe_failure(error)}"
    return survey


def _sample(mask: MaskValues) -> MaskSample:
    values, pixels = count_values(mask.values)
    distinct = len(values)
    flat = distinct <= MANY or _flatness(mask.values) >= _SMOOTH
    if distinct > MAX_VALUES:
        frequent = np.sort(np.argsort(-pixels, kind="stable")[:MAX_VALUES])
        values, pixels = values[frequent], pixels[frequent]
    return MaskSample(
        mask.mode, values, pixels, distinct, flat, mask.palette, mask.no_data, mask.lossy, mask.transparent
    )


def _flatness(values: Values) -> float:
    """Return the share of equal neighboring pixels, horizontally or vertically, whichever is smaller."""
    shares = [float((after == before).mean()) for after, before in
              ((values[1:], values[:-1]), (values[:, 1:], values[:, :-1])) if after.size]  # fmt: skip
    return min(shares, default=1.0)


def _used_colors(mask: MaskSample) -> dict[int, int]:
    """Return the color of each index in a mask with a palette, of those that its palette has."""
    assert mask.palette is not None
    used = mask.values[mask.values < len(mask.palette)]
    return dict(zip(used.tolist(), mask.palette[used].tolist(), strict=True))


def _as_colors(mask: MaskSample) -> Values:
    if mask.mode == "color":
        return mask.values
    if mask.mode == "gray":
        return mask.values.astype(np.int64) * 0x010101
    assert mask.palette is not None
    known = np.minimum(mask.values, len(mask.palette) - 1)
    return mask.palette[known]
