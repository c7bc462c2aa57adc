"""Derive the classes of masks from their values if no table names the classes. Torch-free."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from engine.contract.problems import Problem
from engine.data.decoding.mask_survey import MAX_MASK_VALUES, Levels, Survey
from engine.data.decoding.mask_values import NO_CLASS
from engine.data.splits import MaskCode, dataset_warning

MAX_CLASSES = NO_CLASS
_MAX_NUMBERS_PER_VALUE = 5
"""Maximum ratio of the possible class numbers, from 0 to the largest value of a mask, to the values that occur.

Above it, values are not read as class numbers.
"""
_MAX_SPARSE_NUMBER = 12
"""Masks with no larger value are read as class numbers, even if most numbers don't occur."""
_MAX_NUMBER_NEXT_TO_VOID = 33
"""Masks with no larger value except 255 are read as class numbers and "no class", even if most numbers don't occur.

It is the largest class number in Cityscapes.
"""
_MAX_LOSSY_COLORS = 8
"""Masks with no more colors are read even if they were saved as JPEG."""
_MAX_DISTANCE = 32
"""Maximum distance of values from the nearer of two original levels, in masks that were smoothed or saved as JPEG."""
_MIN_MIDDLE_LEVELS = 5
"""Minimum number of values far from both of a mask's two levels if it was smoothed."""


@dataclass(frozen=True)
class Meaning:
    """Meaning of mask values: the class names, and the value of each class in `code`.

    If it could not be determined, `failure` gives the reason, and `code` is None.
    """

    classes: tuple[str, ...] = ()
    code: MaskCode | None = None
    failure: str = ""


def learn_from_levels(present: Levels, survey: Survey) -> Meaning:
    """Return the meaning of masks with gray levels or palette indices, given the values `present` in them.

    Two values are background and foreground, even if smoothing or JPEG has spread them. More values are class numbers,
    with 255 for pixels without a class. If most numbers up to the largest one are missing, each value that occurs is a
    class instead.
    """
    values: list[int] = present.values.tolist()
    # 0 and another value, such as 255, or only 0. The values 0 and 1 are class numbers instead.
    if len(values) <= 2 and values[0] == 0 and values[-1] != 1:
        foreground = values[1] if len(values) == 2 else 255
        return Meaning(("background", "foreground"), MaskCode((0, foreground)))
    ends = _find_two_levels(present, lossy=survey.lossy)
    if ends is not None:
        note = dataset_warning(
            f"The masks have {len(values):,} gray levels, as if saved as JPEG or smoothed. Each pixel is taken for "
            f"{ends[0]} or {ends[1]}, whichever is nearer.",
            "Save masks as PNG with two values.",
        )
        return Meaning(("background", "foreground"), MaskCode(ends, nearest=True, notes=(note,)))
    if survey.lossy:
        return Meaning(failure=f"JPEG has changed the masks' values: they have {len(values):,} different ones.")
    if survey.has_smooth_values():
        return Meaning(failure=f"These seem to be photos or depth images, not masks: {_describe_range(present)}.")
    numbers = [value for value in values if value != NO_CLASS]
    has_void = NO_CLASS in values
    are_enough = len(numbers) > 1 or not has_void  # one number and 255 may also be two classes
    if are_enough and numbers[-1] <= max(_MAX_SPARSE_NUMBER, _MAX_NUMBERS_PER_VALUE * len(numbers) - 1):
        return _make_class_per_number(numbers, survey, has_void=has_void)
    return _make_class_per_value(values, present)


def _make_class_per_number(values: list[int], survey: Survey, *, has_void: bool) -> Meaning:
    """Return a meaning with one class for each number from 0 to the largest of `values`. 255 marks no class.

    `values` are the sorted values in the masks except 255, and `has_void` is True if 255 occurs. The meaning has a
    `failure` instead if it is unclear what 255 stands for, or if the largest value is too large for a class.
    """
    if values[-1] >= MAX_CLASSES:
        return Meaning(failure=f"The masks contain value {values[-1]:,}; class numbers go up to {MAX_CLASSES - 1}.")
    if has_void and values == [0, 1] and _differ_in_white(survey):
        return Meaning(
            failure="Some masks hold 0 and 1, others 0 and 255, and none holds both 1 and 255, so 255 may mean the same "
            "as 1 or no class. Give both the same value, or set Ignored mask value to 255."
        )
    numbers = range(values[-1] + 1)
    return Meaning(tuple(f"class {number}" for number in numbers), MaskCode(tuple(numbers), ignored=(NO_CLASS,)))


def _differ_in_white(survey: Survey) -> bool:
    """Return True if some masks use 1 for the foreground and others use 255, and no mask has both values."""
    masks = [set(mask.values.tolist()) for mask in survey.masks if mask.mode != "color"]
    if any({1, 255} <= values for values in masks):
        return False
    binary = [values for values in masks if len(values) == 2]
    return any(1 in values for values in binary) and any(255 in values for values in binary)


def _make_class_per_value(values: list[int], present: Levels) -> Meaning:
    """Return a meaning with one class for each of the sorted `values`, or with a `failure` if they are not classes.

    They are not classes if there are too many or only one, or if they seem to number objects.
    """
    # Large values without gaps number objects, possibly combined with a class.
    if values[-1] > NO_CLASS and np.median(np.diff(values)) == 1:
        return Meaning(failure=f"The masks contain value {values[-1]:,}; class numbers go up to {MAX_CLASSES - 1}.")
    if len(values) > MAX_MASK_VALUES:
        return Meaning(failure=f"The masks' values are no class numbers: {_describe_range(present)}.")
    if len(values) < 2:
        return Meaning(failure=f"All pixels of the masks have the value {values[0]:,}.")
    notes: tuple[Problem, ...] = ()
    ignored: tuple[int, ...] = ()
    # Next to small values only, 255 marks pixels without a class. Next to larger ones, it may be a class.
    if NO_CLASS in values and len(values) > 2 and values[-2] <= _MAX_NUMBER_NEXT_TO_VOID:
        values, ignored = values[:-1], (NO_CLASS,)
    elif NO_CLASS in values:
        text = ", ".join(map(str, values))
        notes = (
            dataset_warning(
                f"The masks hold the values {text}; each is taken for a class, 255 too.",
                "If 255 marks pixels of no class, set Ignored mask value to 255.",
            ),
        )
    return Meaning(tuple(f"value {value}" for value in values), MaskCode(tuple(values), ignored=ignored, notes=notes))


def _describe_range(present: Levels) -> str:
    """Describe the values of masks for users: "they have 97 different ones, from 0 to 250"."""
    return f"they have {len(present.values):,} different ones, from {present.values[0]:,} to {present.values[-1]:,}"


def _find_two_levels(present: Levels, *, lossy: bool) -> tuple[int, int] | None:
    """Return the two original levels of masks whose values noise or smoothing has spread, one below and one above 128.

    Returns None for other masks. `lossy` is True if the masks are saved as JPEG.
    """
    if len(present.values) <= 2 or present.values[0] < 0 or present.values[-1] > 255:
        return None
    counts = np.bincount(present.values, present.pixels, minlength=256)  # pixels of each level
    low, high = int(counts[:128].argmax()), 128 + int(counts[128:].argmax())
    total = counts.sum()
    levels = np.arange(256)
    is_near = (abs(levels - low) <= _MAX_DISTANCE) | (abs(levels - high) <= _MAX_DISTANCE)
    # The two levels must be frequent, and nearly all other values close to them.
    if high - low < 2 * _MAX_DISTANCE or counts[[low, high]].sum() < 0.6 * total or counts[is_near].sum() < 0.9 * total:
        return None
    # No other value may be as frequent, and none between them may be frequent.
    if set(np.argsort(-counts, kind="stable")[:2].tolist()) != {low, high} or (counts[~is_near] > 0.01 * total).any():
        return None
    # Most of the bright pixels must have exactly the high level.
    if 2 * counts[high] < counts[128:].sum():
        return None
    is_noisy = lossy or (len(present.values) >= 20 and int((counts[~is_near] > 0).sum()) >= _MIN_MIDDLE_LEVELS)
    return (low, high) if is_noisy else None


def learn_from_colors(present: Levels, survey: Survey) -> Meaning:
    """Return the meaning of color masks: one class for each color in `present`, or a `failure` if they are not classes.

    They are not classes if there are too many, or if they vary smoothly as in photos.
    """
    count = len(present.values)
    is_spoiled = survey.lossy and count > _MAX_LOSSY_COLORS
    if is_spoiled or count > MAX_CLASSES or survey.has_smooth_values():
        return Meaning(failure=f"The masks have {count:,} colors, as if they had been saved as JPEG or smoothed.")
    names = tuple(f"#{color:06x}" for color in present.values.tolist())
    return Meaning(names, MaskCode(tuple(present.values.tolist()), colors=True))
