"""Lines in YOLO's text files: separators, and meaning of the columns."""

from __future__ import annotations

import numpy as np
import pytest

from engine.data.decoding.reading import Unfit
from engine.data.formats.yolo.labels import Columns, Row, infer_columns, split_line

BOX = (0.5, 0.5, 0.2, 0.2)

POSES = [
    (x, y, 0.1, 0.1, x - 0.02, y, x + 0.02, y, x, y + 0.02, x, y - 0.02, x, y)
    for x in (0.12, 0.4, 0.8)
    for y in (0.3, 0.7)
]


def rows(*values: tuple[float, ...]) -> list[Row]:
    return [Row(number, 0, each) for number, each in enumerate(values, 1)]


def parse_shape(columns: Columns, row: Row) -> object:
    """Return the box that a line describes or, if it is not a box, the points of its outline."""
    box = columns.box(row)
    return columns.outline(row) if box is None else box


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("0 0.5 0.5", ["0", "0.5", "0.5"]),
        ("0,0.5,0.5,1,1", ["0", "0.5", "0.5", "1", "1"]),
        ("0, 0.5, 0.5, 1, 1", ["0", "0.5", "0.5", "1", "1"]),
        ("0;0,5;0,25;1;0,1", ["0", "0.5", "0.25", "1", "0.1"]),
        ("0 0,5 0,25 1 0,1", ["0", "0.5", "0.25", "1", "0.1"]),
        ("0,1,0,1,0", ["0", "1", "0", "1", "0"]),
        ("  \t ", []),
    ],
)
def test_split_line_reads_separators(line: str, expected: list[str]) -> None:
    assert split_line(line) == expected


@pytest.mark.parametrize(
    ("values", "shape", "expected"),
    [
        ([BOX, BOX], None, [Columns()]),
        ([(*BOX, 0.9)], None, [Columns()]),
        ([BOX, (*BOX, 0.4, 0.5, 2.0)], (1, 3), [Columns(keypoint_values=3)]),
        ([(*BOX, 0.4, 0.5, 2.0, 0.9)], (1, 3), [Columns(keypoint_values=3)]),
        ([(0.1, 0.1, 0.2, 0.1, 0.2, 0.3)] * 3, (17, 3), [Columns()]),
        ([BOX, BOX], (17, 3), [Columns(keypoint_values=51)]),
        ([(0.1, 0.1, 0.2, 0.1, 0.2, 0.3), (0.1, 0.1, 0.2, 0.1, 0.2, 0.3, 0.9)], None, [Columns()]),
        ([BOX, *[(0.1, 0.1, 0.2, 0.1, 0.2, 0.3, 0.9)] * 6], None, [Columns()]),
        ([(0.1, 0.1, 0.2, 0.1, 0.2, 0.3), (0.1, 0.1, 0.2, 0.1, 0.2, 0.2, 0.1, 0.2)], None, [Columns()]),
        (
            [(0.1, 0.1, 0.2, 0.1, 0.2, 0.3, 0.9), (*[0.1, 0.1, 0.2, 0.1, 0.2, 0.2, 0.1, 0.2], 0.8)],
            None,
            [Columns(0, True)],
        ),
        ([(0.1, 0.1, 0.9, 0.1, 0.9, 0.9, 0.1, 0.9)] * 9, None, [Columns()]),
        ([(0.7, 0.7, 0.1, 0.1, 0.7, 0.72, 0.0, 0.71, 0.68, 2.0)] * 9, None, [Columns(keypoint_values=6)]),
        ([(0.7, 0.7, 0.1, 0.1, 0.7, 0.72, 0.0, 0.71, 0.68, 2.0)] * 3, None, [Columns(keypoint_values=6)]),
        ([(0.7, 0.7, 0.1, 0.1, 0.0, 0.71, 0.68, 0.72, 0.7, 0.7)] * 9, None, [Columns()]),
        # One point is a little beyond the box, or hidden.
        ([(0.7, 0.7, 0.1, 0.1, 0.765, 0.7, 0.7, 0.7, 0.7, 0.72, 0.68, 0.7)] * 9, None, [Columns(keypoint_values=8)]),
        (
            [(0.7, 0.7, 0.1, 0.1, 0.0, 0.0, 0.7, 0.7, 0.7, 0.72, 0.68, 0.7)] * 9,
            None,
            [Columns(), Columns(keypoint_values=8)],
        ),
        ([(0.1, 0.1, 0.3, 0.2, 0.5, 0.1)] * 9, None, [Columns()]),
        ([(0.4, 0.4, 0.5, 0.4, 0.5, 0.5, 0.4, 0.5)] * 20, None, [Columns()]),
        (POSES, None, [Columns(keypoint_values=10)]),
        ([(*each, 0.9) for each in POSES], None, [Columns(keypoint_values=10)]),
        (POSES[:4], None, [Columns(keypoint_values=10), Columns()]),
        ([BOX] * 20 + [(*BOX, 0.4, 0.5, 2.0)] * 4, None, [Columns()]),
        ([BOX] * 20 + [(*BOX, 0.4, 0.5, 2.0)] * 5, None, [Columns(keypoint_values=3)]),
        ([BOX] * 20 + [(0.4, 0.4, 0.4, 0.4, 0.5, 0.4, 0.5, 0.5, 0.4, 0.5)], None, [Columns()]),
    ],
)
def test_meanings_of_columns(
    values: list[tuple[float, ...]], shape: tuple[int, int] | None, expected: list[Columns]
) -> None:
    assert infer_columns(rows(*values), shape) == expected


def test_meanings_are_both_if_lines_are_ambiguous() -> None:
    found = infer_columns(rows(*[(0.4, 0.4, 0.4, 0.4, 0.5, 0.4, 0.5, 0.5, 0.4, 0.5)] * 20), None)
    assert found == [Columns(), Columns(keypoint_values=6)]


def test_columns_give_boxes_and_outlines() -> None:
    triangle = (0.1, 0.1, 0.2, 0.1, 0.2, 0.3)
    assert Columns().box(Row(1, 0, (*BOX, 0.9))) == BOX
    assert Columns(keypoint_values=3).box(Row(1, 0, (*BOX, 0.4, 0.5, 2))) == BOX
    assert Columns(keypoint_values=3).box(Row(1, 0, (*BOX, 0.4, 0.5, 2, 0.9))) == BOX
    assert Columns().box(Row(1, 0, (-1.0, 2.0, 0.2, 0.2))) == (-1.0, 2.0, 0.2, 0.2)
    assert Columns().box(Row(1, 0, triangle)) is None
    assert np.array_equal(Columns().outline(Row(1, 0, triangle)), np.array(triangle).reshape(3, 2))
    for values in ((*triangle, 0.9), triangle):
        assert len(Columns(scored=True).outline(Row(1, 0, values))) == 3


@pytest.mark.parametrize(
    ("columns", "values", "reason"),
    [
        (Columns(keypoint_values=6), (*BOX, 0.5, 0.5), "needs 5 or 11"),
        (Columns(), (*BOX, 0.1, 0.2, 0.3), "has 8 numbers"),
        (Columns(keypoint_values=3), (*BOX, 0.5, 0.5, 2, 0.9, 0.1), "has 10 numbers"),
        (Columns(), (0.5, 0.5, 7.0, 0.2), "contains 7"),
        (Columns(), (2.01, 0.5, 0.2, 0.2), "contains 2.01"),
        (Columns(), (0.5, -1.01, 0.2, 0.2), "contains -1.01"),
        (Columns(), (0.1, 0.1, 0.2, 0.1, 0.2, -3.0), "contains -3"),
    ],
)
def test_columns_name_lines_that_do_not_fit(columns: Columns, values: tuple[float, ...], reason: str) -> None:
    row = Row(4, 0, values)
    with pytest.raises(Unfit, match=f"line 4 .*{reason}"):
        parse_shape(columns, row)
