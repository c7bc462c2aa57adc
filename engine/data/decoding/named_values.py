"""Derive the classes of masks from a table with class names. Torch-free."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from engine.data.decoding.class_tables import ClassTable
from engine.data.decoding.mask_survey import Levels
from engine.data.decoding.mask_values import GRAY, NO_CLASS, NOT_A_NUMBER
from engine.data.decoding.unnamed_values import MAX_CLASSES, Meaning
from engine.data.splits import MaskCode
from engine.system.format import counted

_STRAY_MASKS = 0.5
"""Maximum fraction of masks with values that a class table lacks. Above it, the table is considered wrong."""
_MAX_UNLISTED = 8
"""Maximum number of values that occur in masks but not in a class table that fits them.

Tables with more classes than this may lack as many values as they have classes.
"""


def match_numbers(table: ClassTable, present: Levels, palette: dict[int, int]) -> Meaning | None:
    """Return the classes that a class table gives to masks with gray levels or indices of `palette`.

    `present` are the values that occur. Returns None if the table doesn't fit these values, or a meaning with a
    `failure` if it nearly fits but lacks some of them.
    """
    values = _convert_values(table, palette)
    if values is None:
        return None
    # Masks of two classes may have 255 in place of the value 1 of the table.
    if set(values) == {0, 1} and set(present.values.tolist()) in ({0, 255}, {255}):
        return Meaning(table.names, MaskCode(tuple(255 * value for value in values)))
    void = find_void_values(values)
    unlisted = present.without(*values, *void)
    is_covered = _fits_masks((*values, *void), present)
    # A list of n names numbers them from 0 to n - 1. If more than one mask contains n, they may be numbered from 1.
    has_next_number = bool((unlisted.masks[unlisted.values == len(values)] > 1).any())
    if table.listed and (not is_covered or has_next_number):
        others = ", ".join(map(str, unlisted.values[:5].tolist()))
        return Meaning(
            failure=f"{table.file} names {counted(len(values), 'class')}, numbered from 0 to {len(values) - 1}, but "
            f"masks also hold {others}. Write a table with the columns value and name instead, such as classes.csv."
        )
    if is_covered:
        return Meaning(table.names, MaskCode(values, ignored=void))
    if not _names_most_pixels((*values, NO_CLASS), present):
        return None
    return _explain_missing_values(table, unlisted, "value {}")


def match_colors(table: ClassTable, present: Levels, *, lossy: bool) -> Meaning | None:
    """Return the classes that a class table gives to masks with colors.

    `present` are the colors that occur. `lossy` is True if compression has changed them. Returns None if the table
    doesn't fit these colors, or a meaning with a `failure` if it nearly fits but lacks some of them.
    """
    if not table.colors:
        return None
    if _fits_masks(table.values, present):
        return Meaning(table.names, MaskCode(table.values, colors=True))
    if lossy or not _names_most_pixels(table.values, present):
        return None
    return _explain_missing_values(table, present.without(*table.values), "color #{:06x}")


def fits_colors(table: ClassTable, present: Levels) -> bool:
    """Return True if a class table lists colors, and these fit the colors `present` in the masks."""
    return table.colors and _fits_masks(table.values, present)


def name_two_classes(meaning: Meaning, tables: Sequence[ClassTable]) -> Meaning:
    """Return a copy of `meaning`, which has two classes, with the class names from one of `tables`.

    The table must contain exactly two names, whose values are 0 and 1 or those of the two classes. If there is no such
    table, `meaning` is returned unchanged.
    """
    assert meaning.code is not None
    for table in tables:
        values = _convert_values(table, {})
        if values is not None and len(values) == 2 and set(values) in ({0, 1}, set(meaning.code.values)):
            names = tuple(name for _, name in sorted(zip(values, table.names, strict=True)))
            return replace(meaning, classes=names)
    return meaning


def report_too_many_classes(table: ClassTable) -> Meaning:
    """Return a meaning with the `failure` that a class table names more classes than masks can have."""
    message = f"{table.file} names {len(table.names):,} classes; masks and clouds support at most {MAX_CLASSES}."
    return Meaning(failure=message)


def find_void_values(values: Sequence[int]) -> tuple[int, ...]:
    """Return the values that mark pixels without a class: 255, unless it is one of `values`, which mark classes."""
    return () if NO_CLASS in values else (NO_CLASS,)


def _convert_values(table: ClassTable, palette: dict[int, int]) -> tuple[int, ...] | None:
    """Return the value of each class in a table, after converting colors to indices of `palette` or to gray levels.

    Returns None if the palette is empty and a color is not gray.
    """
    if not table.colors:
        return table.values
    if palette:
        by_color = {color: index for index, color in palette.items()}
        # A color without an index gets a unique number below all mask values.
        return tuple(by_color.get(color, NOT_A_NUMBER - 1 - row) for row, color in enumerate(table.values))
    if any(color != (color & 0xFF) * GRAY for color in table.values):
        return None
    return tuple(color & 0xFF for color in table.values)


def _fits_masks(values: Sequence[int], present: Levels) -> bool:
    """Return True if a class table with these `values` fits the masks.

    Most masks must contain no other values, and there must be few others.
    """
    unlisted = present.without(*values)
    most_masks, most_stray_masks = int(present.masks.max(initial=0)), int(unlisted.masks.max(initial=0))
    return most_stray_masks <= _STRAY_MASKS * most_masks and len(unlisted.values) <= max(len(values), _MAX_UNLISTED)


def _names_most_pixels(values: Sequence[int], present: Levels) -> bool:
    """Return True if a class table seems to belong to the masks, even if it lacks some of their values.

    At least two of the table's `values` must occur, and most pixels must have one of them.
    """
    named = np.isin(present.values, values)
    return int(named.sum()) >= 2 and 2 * int(present.pixels[named].sum()) > int(present.pixels.sum())


def _explain_missing_values(table: ClassTable, missing: Levels, value_format: str) -> Meaning:
    """Return a meaning with the `failure` that most masks contain values that are missing from a table.

    The message gives the most frequent of the `missing` values, formatted with `value_format`, such as "value {}".
    """
    example = value_format.format(int(missing.values[missing.pixels.argmax()]))
    return Meaning(
        failure=f"{table.file} names {counted(len(table.names), 'class')}, but most masks also hold others, such "
        f"as the {example}. Add these to the table."
    )
