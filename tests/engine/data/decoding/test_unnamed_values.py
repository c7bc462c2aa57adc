"""Classes of masks whose values no table explains."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from engine.data.decoding.mask_survey import MAX_MASK_VALUES, Levels, Survey, SurveyedMask
from engine.data.decoding.unnamed_values import Meaning, _make_class_per_value, learn_from_colors, learn_from_levels


@pytest.mark.parametrize(
    ("values", "ignored", "has_note"),
    [
        (list(range(0, 5 * MAX_MASK_VALUES, 5)), (), False),
        ([3, 9], (), False),
        ([3, 255], (), True),
        ([3, 33, 255], (255,), False),
        ([3, 34, 255], (), True),
        ([3, 4, 300, 700], (), False),
        ([200, 201, 202], (), False),
    ],
)
def test_each_value_is_a_class(values: list[int], ignored: tuple[int, ...], has_note: bool) -> None:
    found = _make_class_per_value(values, make_levels(values))
    classes = [value for value in values if value not in ignored]
    assert found.code is not None
    assert (found.code.values, found.code.ignored, bool(found.code.notes)) == (tuple(classes), ignored, has_note)
    assert found.classes == tuple(f"value {value}" for value in classes)


@pytest.mark.parametrize(
    ("values", "failure"),
    [
        (list(range(0, 5 * MAX_MASK_VALUES + 1, 5)), "no class numbers"),
        ([7], "All pixels of the masks have the value 7."),
        ([254, 255, 256, 300], "contain value 300; class numbers go up to 254"),
    ],
)
def test_values_that_are_no_classes_have_a_reason(values: list[int], failure: str) -> None:
    found = _make_class_per_value(values, make_levels(values))
    assert (found.classes, found.code) == ((), None)
    assert failure in found.failure


def make_levels(values: list[int]) -> Levels:
    return Levels(np.array(values), np.full(len(values), 10), np.ones(len(values), int))


def make_survey(*masks: list[int], lossy: bool = False, smooth: bool = False) -> Survey:
    """Create a survey of gray masks with the given values. Without `masks`, it is of one empty mask.

    `lossy` is True for masks from files with lossy compression, and `smooth` for masks with as many values as a photo.
    """
    samples = []
    for values in masks or ([],):
        found = np.array(values, int)
        distinct = MAX_MASK_VALUES + 1 if smooth else len(values)
        samples.append(SurveyedMask("gray", found, np.ones_like(found), distinct, not smooth, None, None, lossy, False))
    return Survey(samples)


def summarize(meaning: Meaning) -> Any:
    """Return the values of the classes, the ignored values, and the number of notes, or the reason of a failure."""
    code = meaning.code
    return meaning.failure if code is None else (code.values, code.ignored, len(code.notes))


@pytest.mark.parametrize(
    ("values", "masks", "expected"),
    [
        ([0], [], ((0, 255), (), 0)),
        ([0, 9], [], ((0, 9), (), 0)),
        ([0, 1], [], ((0, 1), (255,), 0)),
        ([1], [], ((0, 1), (255,), 0)),
        ([1, 255], [], ((1, 255), (), 1)),
        ([0, 1, 255], [[0, 1], [0, 255]], "Some masks hold 0 and 1, others 0 and 255"),
        ([0, 1, 255], [[0, 1], [0, 255], [0, 1, 255]], ((0, 1), (255,), 0)),
        ([0, 1], [[0, 1], [0, 255]], ((0, 1), (255,), 0)),  # 255 is ignored
        ([0, 1, 255], [[0, 1], [255]], ((0, 1), (255,), 0)),
        ([2, 12], [], (tuple(range(13)), (255,), 0)),
        ([0, 5, 14], [], (tuple(range(15)), (255,), 0)),
        ([0, 5, 15], [], ((0, 5, 15), (), 0)),
        ([*range(200), 300], [], "contain value 300; class numbers go up to 254"),
    ],
)
def test_learn_from_levels_reads_numbers_or_values(values: list[int], masks: list[list[int]], expected: Any) -> None:
    found = summarize(learn_from_levels(make_levels(values), make_survey(*masks)))
    assert found.startswith(expected) or expected in found if isinstance(expected, str) else found == expected
    assert "photos or depth" in learn_from_levels(make_levels([3, 90, 200]), make_survey(smooth=True)).failure


NOISE = dict.fromkeys([*range(1, 12), *range(190, 200)], 2)


@pytest.mark.parametrize(
    ("pixels", "lossy", "ends"),
    [
        ({3: 5}, True, (0, 200)),
        (NOISE | dict.fromkeys(range(100, 105), 1), False, (0, 200)),
        (NOISE | dict.fromkeys(range(100, 104), 1), False, None),
        (dict.fromkeys(range(100, 105), 1), False, None),
        (dict.fromkeys([*range(1, 14), *range(100, 105)], 1), False, (0, 200)),  # 20 values
        (dict.fromkeys(range(60, 100), 15), True, None),
        ({0: 1, 120: 1000, 135: 900, 200: 1}, True, None),
        ({-1: 1, 3: 5}, True, None),
        (dict.fromkeys(range(1, 31), 30) | dict.fromkeys(range(170, 200), 20), True, None),
        ({100: 50}, True, None),
        ({199: 450, 201: 450}, True, None),
        ({256: 5}, True, None),
    ],
)
def test_learn_from_levels_finds_two_levels_behind_noise(
    pixels: dict[int, int], lossy: bool, ends: tuple[int, int]
) -> None:
    pixels = dict(sorted(({0: 1000, 200: 800} | pixels).items()))
    present = Levels(np.array(list(pixels)), np.array(list(pixels.values())), np.ones(len(pixels), int))
    code = learn_from_levels(present, make_survey(lossy=lossy)).code
    found = code.values if code is not None and code.nearest else None
    assert (found, code is not None and len(code.notes)) == (ends, 1) if ends else found is None


@pytest.mark.parametrize(
    ("count", "lossy", "is_read"), [(8, True, True), (9, True, False), (255, False, True), (256, False, False)]
)
def test_learn_from_colors_limits_the_number_of_colors(count: int, lossy: bool, is_read: bool) -> None:
    meaning = learn_from_colors(make_levels(list(range(count))), make_survey(lossy=lossy))
    assert (meaning.code is not None, len(meaning.classes)) == (is_read, count * is_read)
    assert learn_from_colors(make_levels(list(range(count))), make_survey(smooth=True)).code is None
