"""The curves of a plot as they are painted."""

from __future__ import annotations

import numpy as np
import pytest
from PySide6.QtGui import QColor, QImage, QPainter
from PySide6.QtWidgets import QApplication

from gui.plots.view import Curve
from gui.sources.columns import Floats

RED = QColor("#ff0000")
SIZE = 100


def painted(x: Floats, y: Floats, dots: bool = False, **edges: float) -> QImage:
    """Draw a curve over 0 to 100 in both directions, one pixel per unit."""
    image = QImage(SIZE, SIZE, QImage.Format.Format_RGB32)
    image.fill(QColor("white"))
    curve = Curve(dots=dots)
    curve.set_color(RED)
    curve.set_data(x, y)
    painter = QPainter(image)
    curve.paint(painter, (edges.get("left", 0.0), edges.get("right", 100.0), 0.0, 100.0, SIZE, SIZE))
    painter.end()
    return image


def red_columns(image: QImage) -> set[int]:
    """Return the pixel columns that aren't white."""
    white = QColor("white").rgb()
    return {x for x in range(SIZE) if any(image.pixel(x, y) != white for y in range(SIZE))}


def test_curve_spans_all_points(qapp: QApplication) -> None:
    assert set(range(21, 60)) <= red_columns(painted(np.array([20.0, 60.0]), np.array([10.0, 90.0])))


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_curve_keeps_gap_and_single_point(qapp: QApplication, kind: type[np.floating]) -> None:  # type: ignore[type-arg]
    x = np.arange(100.0)
    y = np.full(100, 50, kind)
    y[20:40] = np.nan
    y[30] = 50
    columns = red_columns(painted(x, y))
    assert columns & set(range(22, 28)) == set()
    assert columns & {29, 30, 31}
    assert columns & set(range(33, 38)) == set()
    assert set(range(42, 98)) <= columns


def test_curve_dots(qapp: QApplication) -> None:
    columns = red_columns(painted(np.array([20.0, 60.0]), np.array([50.0, 50.0]), dots=True))
    assert columns & set(range(26, 54)) == set()
    assert {20, 60} <= columns


def test_curve_clips_distant_points(qapp: QApplication) -> None:
    x = np.array([-1e12, 40.0, 50.0, 1e12])
    image = painted(x, np.full(4, 50.0), left=40.0, right=40.001)
    assert red_columns(image) == set(range(SIZE))
    assert red_columns(painted(np.array([20.0, 60.0]), np.array([-1e30, 1e30]))) <= {39, 40, 41}


@pytest.mark.parametrize("values", [[], [np.nan, np.nan]])
def test_curve_without_points(qapp: QApplication, values: list[float]) -> None:
    assert red_columns(painted(np.arange(float(len(values))), np.array(values))) == set()


def test_curve_extremes() -> None:
    curve = Curve()
    assert curve.set_data(np.arange(3.0), np.array([3.0, np.nan, -1.0])) == (-1.0, 3.0)
    assert curve.set_data(np.arange(1.0), np.array([np.nan])) is None
