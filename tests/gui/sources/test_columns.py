"""Growing arrays for plots."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gui.sources.columns import Column, Floats, reduce_to_extremes


def test_column_keeps_values_while_growing() -> None:
    column = Column(reserve=2)
    for value in range(100):
        column.append(value)
    column.extend([100.0, 101.0])
    assert column.values.tolist() == list(range(102))
    assert column.last == 101


def test_column_shorten_keeps_earlier_views() -> None:
    column = Column(1)
    column.extend(range(10))
    before = column.values
    column.shorten(20)
    assert len(column) == 10
    column.shorten(4)
    assert (column.values.tolist(), column.last) == ([0, 1, 2, 3], 3)
    column.extend([7, 8, 9])
    assert column.values.tolist() == [0, 1, 2, 3, 7, 8, 9]
    assert before.tolist() == list(range(10))
    column.shorten(0)
    assert len(column) == 0
    column.append(5)
    assert column.values.tolist() == [5]


def test_column_missing_value_is_nan() -> None:
    column = Column()
    assert np.isnan(column.last)
    column.append(None)
    assert np.isnan(column.values).tolist() == [True]


def thin(x: Floats, y: Floats, buckets: int) -> tuple[Floats, Floats]:
    return reduce_to_extremes(x, y, float(x[0]), float(x[-1]), buckets)


@pytest.mark.parametrize("kind", [np.float64, np.float32])
def test_peaks_keep_extremes_of_buckets(kind: type[np.floating[Any]]) -> None:
    random = np.random.default_rng(1)
    y = random.normal(size=100_000).astype(kind)
    y[51_234], y[60_000] = 40.0, np.nan
    x = np.arange(100_000.0)
    thin_x, thin_y = thin(x, y, 500)
    assert len(thin_y) < 1500
    assert thin_y.max() == 40.0
    assert thin_y.min() == np.nanmin(y)
    assert abs(thin_x[thin_y.argmax()] - 51_234) <= 200
    assert (np.diff(thin_x) >= 0).all()
    assert thin_x[-1] == x[-1]


@given(st.integers(1, 40), st.lists(st.floats(0, 1000), min_size=1, max_size=400, unique=True), st.floats(0, 1000))
def test_peaks_keep_extremes_of_uneven_points(buckets: int, places: list[float], low: float) -> None:
    x = np.array(sorted(places))
    y = np.sin(x) * x
    thin_x, thin_y = reduce_to_extremes(x, y, low, 1001.0, buckets)
    assert thin_y.max() == y.max()
    assert thin_y.min() == y.min()
    assert (np.diff(thin_x) >= 0).all()
    assert set(thin_x) <= set(x)


def test_peaks_keep_wide_gap() -> None:
    x = np.arange(10_000.0)
    y = np.ones(10_000)
    y[4000:6000] = np.nan
    thin_x, thin_y = thin(x, y, 100)
    assert np.isnan(thin_y[(thin_x > 4100) & (thin_x < 5900)]).all()
    assert np.isfinite(thin_y[(thin_x < 3900) | (thin_x > 6100)]).all()


def test_peaks_keep_single_missing_row() -> None:
    x = np.concatenate((np.arange(5000.0), [7500.0], np.arange(10_000.0, 15_000.0)))
    y = np.where(x == 7500, np.nan, 1.0)
    thin_x, thin_y = thin(x, y, 100)
    between = np.flatnonzero(np.isnan(thin_y))
    assert thin_x[between].tolist() == [7500.0, 7500.0]
    assert np.isfinite(np.delete(thin_y, between)).all()


def test_peaks_are_stable_while_moving() -> None:
    random = np.random.default_rng(3)
    x = np.arange(20_000.0)
    y = random.normal(size=20_000)
    first_x, first_y = reduce_to_extremes(x[:10_001], y[:10_001], 0.0, 10_000.0, 100)
    later_x, later_y = reduce_to_extremes(x[30:10_031], y[30:10_031], 30.0, 10_030.0, 100)
    inner = (later_x >= 200) & (later_x < 9900)
    assert set(zip(later_x[inner], later_y[inner], strict=True)) <= set(zip(first_x, first_y, strict=True))


def test_peaks_drop_points_outside() -> None:
    x = np.concatenate(([-1e9], np.arange(1000.0), [1e9]))
    thin_x, _ = reduce_to_extremes(x, np.ones(1002), 0.0, 999.0, 50)
    assert len(thin_x) <= 2 * 53


def test_peaks_are_at_the_ends_of_their_buckets() -> None:
    x, y = np.arange(8.0), np.array([3.0, 1, 2, 0, 7, 5, 9, 6])
    thin_x, thin_y = reduce_to_extremes(x, y, 0.0, 8.0, 2)
    assert (thin_x.tolist(), thin_y.tolist()) == ([0, 3, 4, 7], [0, 3, 5, 9])


@pytest.mark.parametrize("buckets", [0, 100])
def test_peaks_leave_few_points(buckets: int) -> None:
    x, y = np.arange(150.0), np.ones(150)
    assert thin(x, y, buckets)[1] is y
    assert reduce_to_extremes(x, y, 5.0, 5.0, 10)[1] is y
