"""Arrays of a split's boxes: numbers in the wrong unit, unusable and clipped boxes, and the sizes of the images."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import numpy as np
import pytest

from engine.contract.problems import Problem
from engine.data.formats.shared.box_units import check_units
from engine.data.formats.shared.boxes import ANY_CLASS, Box, BoxedImage, BoxFaults, find_image_sizes, gather
from engine.data.formats.shared.shapes import Edges, ShapedImage, make_box_shape
from tests.support.images import write_image

BEYOND, INSIDE = (60, 60, 150, 150), (10, 10, 30, 30)
"""Boxes whose edges were read as a corner and a size. The first one then extends beyond an image of 100 x 100 pixels."""


@pytest.mark.parametrize(
    ("boxes", "anchor", "severities"),
    [
        ([(0.1, 0.1, 0.3, 0.3), (0.2, 0.2, 1.01, 1.0)], "center", ["warning"]),
        ([(0.4, 0.4, 0.6, 0.6)], "center", ["warning"]),
        ([(-50, -50, 0.5, 0.5)], "center", []),
        ([(-30, 30, 30, 70)] * 4, "center", ["error"]),  # a corner (0, 50) and a size (60, 40), read as a center
        ([(0.4, 0.4, 0.6, 0.6), (0.5, 0.5, 0.6, 0.6)], "corner", ["error"]),
        ([(0.4, 0.4, 0.6, 0.6), (0.09, 0.4, 0.28, 0.6)], "corner", ["error"]),  # a center with a rounding error
        ([(0.4, 0.4, 0.6, 0.6), (0.0, 0.4, 0.9, 0.6)], "corner", ["warning"]),
        ([(0.4, 0.4, 0.6, 0.6), (0.4, 0.0, 0.6, 0.9)], "corner", ["warning"]),
        ([(0.4, 0.4, 0.6, 0.6), (0.5, 0.5, 1.5, 1.5)], "corner", []),
        ([BEYOND] * 3, "corner", []),
        ([BEYOND] * 4, "corner", ["error"]),
        ([BEYOND, *[INSIDE] * 3], "corner", []),
        ([*[BEYOND] * 2, *[INSIDE] * 3], "corner", ["error"]),
    ],
)
def test_check_units_reports_numbers_of_another_meaning(
    boxes: list[Edges], anchor: Literal["corner", "center"], severities: list[str]
) -> None:
    images = [
        ShapedImage(f"{number}.png", [make_box_shape("cat", *box)], (100, 100)) for number, box in enumerate(boxes)
    ]
    problems: list[Problem] = []
    check_units({"train": images[:1], "val": images[1:]}, problems, anchor)
    assert [problem.severity for problem in problems] == severities
    assert {each.fractions for each in images} == {severities == ["warning"]}


def test_gather_leaves_out_and_clips_boxes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.data.formats.shared.boxes.MAX_BOXES", 2)
    sizes = [Box(0, 0, side, side, side, side == 4) for side in (1, 3, 2, 4)]
    images = [
        BoxedImage("large.png", [Box(5, 5, 15, 15, 9), Box(1, 1, 1.0005, 9, 8), Box(20, 2, 30, 9, 7)], (10, 12)),
        BoxedImage("many.png", sizes, (20, 30)),
        BoxedImage("none.png", [], (5, 5)),
        BoxedImage("from_one.png", [Box(0, 0, 13, 11, 6)], (10, 12)),  # the full image, for tools that count from 1
        BoxedImage("share.png", [Box(0.5, 0.25, 1, 0.5, ANY_CLASS, True)], (20, 40), fractions=True),
        BoxedImage("left.png", [Box(-1.5, 0, 4, 4, 5)], (10, 12)),
        BoxedImage("gone.png", [Box(1, 1, 2, 2, 0)]),
    ]
    faults = BoxFaults()
    split = gather(images, 2, faults)
    assert split.bounds.tolist() == [0, 1, 3, 3, 4, 6, 7, 7]
    edges = [[5, 5, 12, 10], [0, 0, 3, 3], [0, 0, 4, 4], [0, 0, 12, 10], [20, 5, 40, 10], [20, 5, 40, 10], [0, 0, 4, 4]]
    assert split.boxes.tolist() == edges
    assert split.labels.tolist() == [9, 3, 4, 6, 0, 1, 5]
    assert split.ignored.tolist() == [False, False, True, False, True, True, False]
    assert (faults.empty, faults.outside) == (["large.png"] * 2, ["large.png", "left.png"])
    assert faults.crowded == ["many.png"]
    assert [problem.message for problem in faults.problems()] == [
        "There are 2 boxes without area, in large.png.",
        "There are 2 boxes extending beyond the image, in large.png, left.png.",
        "There is 1 image with more than 2 boxes: many.png.",
    ]
    chosen = split.select(np.array([True, False, True, False, True, False, False]), is_drawn=True)
    assert (chosen.files, chosen.bounds.tolist()) == (["large.png", "none.png", "share.png"], [0, 1, 1, 3])
    assert (chosen.labels.tolist(), chosen.ignored.tolist()) == ([9, 0, 1], [False, True, True])
    assert (chosen.sizes.tolist(), chosen.is_drawn) == ([[10, 12], [5, 5], [20, 40]], True)


@pytest.mark.parametrize("size", [None, (0, 5), (5, -1), (1 << 40, 5)])
def test_image_sizes_are_read_unless_annotated(tmp_path: Path, size: tuple[int, int] | None) -> None:
    path = str(write_image(tmp_path / "a.png", size=(20, 16)))
    sizes = find_image_sizes([BoxedImage(path, size=size), BoxedImage(path, size=(7, 9)), BoxedImage("gone.png")])
    assert sizes.tolist() == [[16, 20], [7, 9], [0, 0]]
