"""Classes of masks whose values no table explains."""

from __future__ import annotations

import numpy as np
import pytest

from engine.data.decoding.mask_survey import MANY, Levels
from engine.data.decoding.unnamed_values import _make_class_per_value


@pytest.mark.parametrize(
    ("values", "ignored", "has_note"),
    [
        (list(range(0, 5 * MANY, 5)), (), False),
        ([3, 9], (), False),
        ([3, 255], (), True),
        ([3, 33, 255], (255,), False),
        ([3, 34, 255], (), True),
        ([3, 300, 700], (), False),
    ],
)
def test_each_value_is_a_class(values: list[int], ignored: tuple[int, ...], has_note: bool) -> None:
    found = _make_class_per_value(values, levels(values))
    classes = [value for value in values if value not in ignored]
    assert found.code is not None
    assert (found.code.values, found.code.ignored, bool(found.code.notes)) == (tuple(classes), ignored, has_note)
    assert found.classes == tuple(f"value {value}" for value in classes)


@pytest.mark.parametrize(
    ("values", "failure"),
    [
        (list(range(0, 5 * MANY + 1, 5)), "no class numbers"),
        ([7], "All pixels of the masks have the value 7."),
        ([254, 255, 256, 300], "contain value 300; class numbers go up to 254"),
    ],
)
def test_values_that_are_no_classes_have_a_reason(values: list[int], failure: str) -> None:
    found = _make_class_per_value(values, levels(values))
    assert (found.classes, found.code) == ((), None)
    assert failure in found.failure


def levels(values: list[int]) -> Levels:
    return Levels(np.array(values), np.full(len(values), 10), np.ones(len(values), int))
