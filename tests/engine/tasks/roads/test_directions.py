"""Center lines of masks, and the directions that are computed from them."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import ndimage

from engine.data.decoding.mask_values import NO_CLASS
from engine.tasks.roads.directions import BACKGROUND, DIRECTIONS, STEP, compute_orientation_plane, find_center_lines

SIDE = 96


def draw_band(degrees: float, width: float = 5, side: int = SIDE, rough: float = 0) -> np.ndarray:
    """Return a straight band through the center, bool [side, side].

    `degrees` are counterclockwise from the horizontal. `rough` is the roughness of the borders in pixels.
    """
    rows, columns = np.mgrid[:side, :side] - side / 2 + 0.3
    angle = np.radians(degrees)
    noise = ndimage.gaussian_filter(np.random.default_rng(0).normal(size=(side, side)), 2)
    away = np.abs(columns * np.sin(angle) + rows * np.cos(angle) + rough * noise / noise.std())
    return away < width / 2


def measure_angle_difference(classes: np.ndarray, degrees: np.ndarray | float) -> np.ndarray:
    """Return the absolute difference between direction classes and angles in degrees, modulo 180."""
    return np.abs((classes * STEP - degrees + 90) % 180 - 90)


def blobs(seed: int) -> np.ndarray:
    random = np.random.default_rng(seed)
    return ndimage.gaussian_filter(random.normal(size=(40, 40)), 1.5) > random.normal() * 0.1


def test_center_lines_are_thin_and_connected() -> None:
    touching = np.ones((3, 3))
    for seed in range(12):
        mask = blobs(seed)
        middle = find_center_lines(mask)
        assert not (middle & ~mask).any()
        assert ndimage.label(middle, touching)[1] == ndimage.label(mask, touching)[1]
        assert ndimage.label(~np.pad(middle, 1))[1] == ndimage.label(~np.pad(mask, 1))[1]
        for row, column in np.argwhere(middle):
            neighborhood = np.pad(middle, 1)[row : row + 3, column : column + 3].copy()
            neighborhood[1, 1] = False
            outside = ~neighborhood & np.array([[0, 1, 0], [1, 0, 1], [0, 1, 0]], bool)
            holds_together = ndimage.label(neighborhood, touching)[1] != 1
            assert holds_together or neighborhood.sum() == 1 or not outside.any()


def test_band_becomes_its_center_line() -> None:
    mask = np.zeros((20, 40), bool)
    mask[7:12, 5:35] = True
    middle = find_center_lines(mask)
    assert set(np.nonzero(middle)[0]) == {9}
    assert middle.sum() >= 24
    assert not find_center_lines(np.zeros((5, 5), bool)).any()


@pytest.mark.parametrize("degrees", range(0, 180, 13))
def test_straight_line_has_one_direction(degrees: int) -> None:
    mask = draw_band(degrees)
    found = compute_orientation_plane(mask.astype(np.uint8))
    assert (found[~mask] == BACKGROUND).all()
    inside = mask & (np.hypot(*(np.mgrid[:SIDE, :SIDE] - SIDE / 2)) < SIDE / 2 - 8)
    assert (found[inside] < DIRECTIONS).all()
    off = measure_angle_difference(found[inside], degrees)
    assert off.max() <= 2 * STEP
    assert (off <= STEP).mean() > 0.95


@pytest.mark.parametrize("degrees", range(0, 180, 13))
def test_rough_line_keeps_its_direction(degrees: int) -> None:
    mask = draw_band(degrees, width=24, side=192, rough=1)
    inside = mask & (np.hypot(*(np.mgrid[:192, :192] - 96)) < 96 - 30)
    off = measure_angle_difference(compute_orientation_plane(mask.astype(np.uint8))[inside], degrees)
    assert (off <= 10).mean() > 0.97


def test_narrow_line_keeps_its_direction() -> None:
    plane = np.zeros((SIDE, SIDE), np.uint8)
    plane[10:34, 8:88] = 1
    plane[50:90, 71:73] = 1
    found = compute_orientation_plane(plane)
    assert (measure_angle_difference(found[12:32, 24:72], 0) <= STEP).all()
    assert (measure_angle_difference(found[56:84, 71:73], 90) <= STEP).all()


def test_filled_plane_follows_its_longer_side() -> None:
    found = compute_orientation_plane(np.ones((24, 200), np.uint8))
    assert (measure_angle_difference(found[:, 40:-40], 0) <= STEP).all()


def test_bend_has_local_directions() -> None:
    rows, columns = np.mgrid[:SIDE, :SIDE] - SIDE / 2
    ring = np.abs(np.hypot(rows, columns) - 30) < 3
    found = compute_orientation_plane(ring.astype(np.uint8))
    along = np.degrees(np.arctan2(-rows, columns)) + 90
    assert (measure_angle_difference(found, along)[ring] <= 10).mean() > 0.97


def test_dot_has_no_direction() -> None:
    plane = np.zeros((40, 40), np.uint8)
    plane[5, 5] = 1
    plane[20:23, 10:35] = 1
    plane[30:] = NO_CLASS
    found = compute_orientation_plane(plane)
    assert found[5, 5] == NO_CLASS
    assert set(np.unique(found[20:23, 12:33])) == {0}
    assert (found[30:] == NO_CLASS).all()
    assert (found[0] == BACKGROUND).all()
