"""Polygons and run lengths, compared with COCO's reference implementation."""

from __future__ import annotations

import json

import numpy as np
import pytest
from pycocotools import mask as reference

from engine.data.decoding.outlines import Outline, OutlineError, Window, fill_polygon, read_outline


def full_mask(window: Window | None, height: int, width: int) -> np.ndarray:
    pixels = np.zeros((height, width), bool)
    if window is not None:
        rows, columns = window.pixels.shape
        pixels[window.top : window.top + rows, window.left : window.left + columns] = window.pixels
    return pixels


def outline(content: object) -> Outline:
    return read_outline(json.dumps(content).encode())


def test_packed_and_plain_runs_match_coco() -> None:
    generator = np.random.default_rng(0)
    for _ in range(40):
        height, width = generator.integers(1, 50, 2).tolist()
        pixels = generator.random((height, width)) < generator.random()
        packed = reference.encode(np.asfortranarray(pixels.astype(np.uint8)))
        found = outline({"size": [height, width], "counts": packed["counts"].decode()})
        assert (full_mask(found.window(height, width), height, width) == pixels).all()
        assert found.runs is not None
        plain = outline({"size": [height, width], "counts": found.runs.tolist()})
        assert (full_mask(plain.window(height, width), height, width) == pixels).all()


def test_long_runs_are_unpacked() -> None:
    packed = reference.encode(np.asfortranarray(np.pad(np.ones((3, 700), np.uint8), ((1500, 200), (90, 10)))))
    found = outline({"size": [1703, 800], "counts": packed["counts"].decode()})
    assert found.edges() == (90, 1500, 790, 1503)


def test_polygons_contain_pixel_centers() -> None:
    triangle = np.array([[1.0, 1.0], [9.0, 1.0], [1.0, 9.0]])
    y, x = np.mgrid[:10, :10] + 0.5
    assert (full_mask(fill_polygon(triangle, 10, 10), 10, 10) == ((x > 1) & (y > 1) & (x + y < 10))).all()
    star = np.array([[5, 0], [8, 10], [0, 4], [10, 4], [2, 10]], np.float64)
    assert not full_mask(fill_polygon(star, 10, 10), 10, 10)[5, 5], "its middle is out of it by the even-odd rule"


def test_polygons_match_coco_except_at_edges() -> None:
    generator = np.random.default_rng(1)
    for _ in range(40):
        angles = np.sort(generator.random(9)) * 2 * np.pi
        points = np.stack([np.cos(angles), np.sin(angles)], 1) * generator.uniform(8, 40, (9, 1)) + 32
        filled = full_mask(fill_polygon(points, 64, 72), 64, 72)
        (packed,) = reference.frPyObjects([points.ravel().tolist()], 64, 72)
        theirs = full_mask(outline({"size": [64, 72], "counts": packed["counts"].decode()}).window(64, 72), 64, 72)
        border = np.abs(np.diff(filled.astype(int), axis=0, prepend=0)) + np.abs(np.diff(filled.astype(int), prepend=0))
        assert (filled ^ theirs).sum() <= border.sum() / 4


def test_outline_of_several_polygons_is_their_union() -> None:
    empty = [1.6, 1.6, 2.4, 1.6, 2.4, 2.4]  # without the center of a pixel
    some = outline([[6, 5, 8, 5, 8, 9, 6, 9], [5, 4, 8.2, 4, 5, 7.2], empty, [2, 1, 4, 1, 4, 3, 1, 3, 7]])
    window = some.window(10, 12)
    assert window is not None
    assert (window.top, window.left, window.pixels.shape, int(window.pixels.sum())) == (1, 1, (8, 7), 5 + 8 + 5)
    assert some.edges() == (1, 1, 8.2, 9)


def test_outline_between_pixel_centers_is_empty() -> None:
    assert outline([[20, 20, 30, 20, 30, 30]]).window(10, 10) is None
    assert outline([[1.6, 1.6, 2.4, 1.6, 2.4, 2.4]]).window(10, 10) is None
    assert full_mask(outline([[-5, -5, 3, -5, 3, 2, -5, 2]]).window(10, 10), 10, 10).sum() == 6
    filled = full_mask(outline([[1.6, 1.6, 5, 1.6, 5, 4.4, 1.6, 4.4]]).window(10, 10), 10, 10)
    assert [edge.tolist() for edge in np.nonzero(filled)] == [[2] * 3 + [3] * 3, [2, 3, 4] * 2]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ([[1, 2, 3, 4]], "fewer than three points"),
        ({"size": [4, 4], "counts": [3, 4]}, "do not fill"),
        ({"size": [4, 4], "counts": [20, -4]}, "do not fill"),
        ({"size": [99999, 99999], "counts": [99999 * 99999]}, "too many"),
        ({"size": [4, 4], "counts": "oooooooooo0"}, "longer than any image"),
        ({"size": [4, 4], "counts": "\u007f\u007f"}, "not a run-length encoding"),
        ({"counts": [16]}, "not in COCO's format"),
        ("circle", "not in COCO's format"),
    ],
)
def test_invalid_outline_has_reason(content: object, reason: str) -> None:
    with pytest.raises(OutlineError, match=reason):
        outline(content)


def test_runs_of_another_size_are_refused() -> None:
    with pytest.raises(OutlineError, match="4 x 2 pixels, the image has 2 x 4"):
        outline({"size": [2, 4], "counts": [3, 5]}).window(4, 2)
    assert np.isnan(outline({"size": [2, 4], "counts": [8]}).edges()).all()


def test_zigzags_with_millions_of_crossings_are_refused() -> None:
    with pytest.raises(OutlineError, match="crosses the rows"):
        outline([[0, 0, 1, 9999] * 999]).window(9999, 2)
