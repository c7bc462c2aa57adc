"""Classes of masks whose values a table names."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from engine.data.decoding.class_tables import ClassTable
from engine.data.decoding.mask_survey import Levels
from engine.data.decoding.mask_values import NOT_A_NUMBER
from engine.data.decoding.named_values import match_colors, match_numbers, name_two_classes
from engine.data.decoding.unnamed_values import Meaning
from engine.data.splits import MaskCode

RED, GREEN, BLUE = 0xFF0000, 0x00FF00, 0x0000FF


def table(*values: int, **facts: Any) -> ClassTable:
    return ClassTable("/set/classes.csv", tuple(f"name {number}" for number in range(len(values))), values, **facts)


def parse_levels(text: str) -> Levels:
    """Create levels from words such as "255:30/2": the value 255 in 30 pixels and 2 masks.

    A word with only a value means 10 pixels and 4 masks.
    """
    found = []
    for token in text.split():
        value, _, counts = token.partition(":")
        pixels, _, masks = (counts or "10/4").partition("/")
        found.append((int(value, 0), int(pixels), int(masks)))
    return Levels(*np.array(found).T)


def summarize(meaning: Meaning | None) -> Any:
    """Return the values of the classes and the ignored values, or the reason of a failure."""
    if meaning is None or meaning.code is None:
        return None if meaning is None else meaning.failure
    assert len(meaning.classes) == len(meaning.code.values)
    return meaning.code.values, meaning.code.ignored


@pytest.mark.parametrize(
    ("found", "present", "expected"),
    [
        (table(0, 1), "0 255", ((0, 255), ())),
        (table(1, 0), "0 255", ((255, 0), ())),
        (table(0, 1), "255", ((0, 255), ())),
        (table(0, 1, 2), "0 1 2 255", ((0, 1, 2), (255,))),
        (table(0, 3, 255), "0 3 255", ((0, 3, 255), ())),
        (table(0, 1, listed=True), "0 1", ((0, 1), (255,))),
        (table(0, 1, listed=True), "0 1 2:1/1", ((0, 1), (255,))),
        (table(0, 1, listed=True), "0 1 2:1/2", "numbered from 0 to 1, but masks also hold 2."),
        (table(0, 1, listed=True), "0 1 7", "numbered from 0 to 1, but masks also hold 7."),
        (table(0, 1), "0 1 2:1/2", ((0, 1), (255,))),
        (table(0, 1), "0 1 2:5/3 7:8/3", "such as the value 7."),
        (table(5, 6), "0 1", None),
        (table(0, 1), "0 1 " + " ".join(f"{value}:1/1" for value in range(10, 18)), ((0, 1), (255,))),
        (table(0, 1), "0 1 " + " ".join(f"{value}:1/1" for value in range(10, 19)), "such as the value 10."),
        (table(0, 9), "0:100/4 1", None),
        (table(0, 5), "0 255 7", "such as the value 7."),
        (table(0, 1), "0:1/4 1:1/4 7:100/4", None),
        (table(*range(20)), "0 1 2 " + " ".join(f"{value}:1/1" for value in range(100, 115)), (tuple(range(20)), (255,))),
        (table(0, 0x050505, colors=True), "0 5", ((0, 5), (255,))),
        (table(0, RED, colors=True), "0 5", None),
    ],
)  # fmt: skip
def test_match_numbers_fits_tables_to_values(found: ClassTable, present: str, expected: Any) -> None:
    meaning = summarize(match_numbers(found, parse_levels(present), {}))
    assert expected in meaning if isinstance(expected, str) else meaning == expected


def test_match_numbers_finds_colors_in_the_palette() -> None:
    colors = table(RED, 0x123456, GREEN, BLUE, colors=True)
    meaning = match_numbers(colors, parse_levels("0 3"), {0: RED, 3: GREEN})
    assert summarize(meaning) == ((0, NOT_A_NUMBER - 2, 3, NOT_A_NUMBER - 4), (255,))


@pytest.mark.parametrize(
    ("present", "lossy", "expected"),
    [
        (f"{RED} {GREEN}", False, ((RED, GREEN), ())),
        (f"{RED} {GREEN} {BLUE}:5/4 7:2/4", False, "such as the color #0000ff."),
        (f"{RED} {GREEN} {BLUE}:5/4", True, None),
        (f"{BLUE}", False, None),
    ],
)
def test_match_colors_fits_tables_to_colors(present: str, lossy: bool, expected: Any) -> None:
    meaning = summarize(match_colors(table(RED, GREEN, colors=True), parse_levels(present), lossy=lossy))
    assert expected in meaning if isinstance(expected, str) else meaning == expected
    assert match_colors(table(RED, GREEN), parse_levels(present), lossy=lossy) is None


@pytest.mark.parametrize(
    ("found", "names"),
    [
        (table(0, 1), ("name 0", "name 1")),
        (table(255, 0), ("name 1", "name 0")),
        (table(0, 9), ("background", "foreground")),
        (table(0, 1, 2), ("background", "foreground")),
    ],
)
def test_name_two_classes_sorts_names_by_value(found: ClassTable, names: tuple[str, ...]) -> None:
    meaning = Meaning(("background", "foreground"), MaskCode((0, 255)))
    assert name_two_classes(meaning, [found]).classes == names
