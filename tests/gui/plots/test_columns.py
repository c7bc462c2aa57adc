"""The arrays behind the plots."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gui.plots.columns import Column, Ring, peaks


def test_that_a_column_keeps_every_value_while_it_grows() -> None:
    column = Column(reserve=2)
    for value in range(100):
        column.append(value)
    column.extend([100.0, 101.0])
    assert column.values.tolist() == list(range(102))
    assert column.last == 101


def test_that_a_missing_value_is_nan_and_never_zero() -> None:
    column = Column()
    assert np.isnan(column.last)
    column.append(None)
    assert np.isnan(column.values).tolist() == [True]


@given(st.integers(1, 50), st.integers(0, 200))
def test_that_a_ring_holds_exactly_the_newest_rows_in_one_piece(capacity: int, appended: int) -> None:
    ring = Ring(2, capacity)
    for number in range(appended):
        ring.append((number, None if number % 3 == 0 else -number))
    kept = list(range(max(0, appended - capacity), appended))
    assert ring.column(0).tolist() == kept
    assert ring.column(0).flags.c_contiguous
    assert np.isnan(ring.column(1)).tolist() == [number % 3 == 0 for number in kept]
    assert len(ring) == len(kept)


def test_that_thinning_keeps_the_highest_and_lowest_of_every_part() -> None:
    random = np.random.default_rng(1)
    y = random.normal(size=100_000)
    y[51_234] = 40.0
    x = np.arange(100_000.0)
    thin_x, thin_y = peaks(x, y, 500)
    assert len(thin_y) < 1500
    assert thin_y.max() == 40.0
    assert thin_y.min() == y.min()
    assert abs(thin_x[thin_y.argmax()] - 51_234) <= 200
    assert (np.diff(thin_x) >= 0).all()
    assert thin_x[-1] == x[-1]


def test_that_thinning_leaves_a_wide_gap_open() -> None:
    x = np.arange(10_000.0)
    y = np.ones(10_000)
    y[4000:6000] = np.nan
    thin_x, thin_y = peaks(x, y, 100)
    assert np.isnan(thin_y[(thin_x > 4100) & (thin_x < 5900)]).all()
    assert np.isfinite(thin_y[(thin_x < 3900) | (thin_x > 6100)]).all()


@pytest.mark.parametrize("buckets", [0, 100])
def test_that_few_points_are_left_as_they_are(buckets: int) -> None:
    x, y = np.arange(150.0), np.ones(150)
    assert peaks(x, y, buckets)[1] is y
