"""Calculation of smoothed curves."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gui.plots.line import Smoother


def smooth_one_by_one(values: list[float], weight: float) -> list[float]:
    """Smooth values one by one, like TensorBoard's `resmoothDataset` (vz_line_chart)."""
    last, count, result = 0.0, 0, []
    for value in values:
        if np.isnan(value):
            result.append(value)
            continue
        last = last * weight + (1 - weight) * value
        count += 1
        result.append(last / (1 - weight**count))
    return result


_VALUES = st.lists(st.floats(-1e3, 1e3) | st.just(float("nan")), max_size=300)


@given(_VALUES, st.sampled_from([0.01, 0.3, 0.6, 0.9, 0.99]))
def test_smoother_equals_tensorboard(values: list[float], weight: float) -> None:
    smoothed = Smoother(weight).update(np.array(values))
    np.testing.assert_allclose(smoothed, smooth_one_by_one(values, weight), rtol=1e-9, atol=1e-9)


@given(_VALUES, st.integers(0, 300))
def test_smoother_grows_incrementally(values: list[float], cut: int) -> None:
    array = np.array(values)
    smoother = Smoother(0.9)
    smoother.update(array[:cut])
    np.testing.assert_allclose(smoother.update(array), Smoother(0.9).update(array), rtol=1e-12, atol=1e-12)


def test_smoother_keeps_constant_series() -> None:
    smoothed = Smoother(0.99).update(np.full(50_000, 7.0))
    np.testing.assert_allclose(smoothed, 7.0, rtol=1e-9)


def test_smoother_weight_zero() -> None:
    assert Smoother(0.0).update(np.array([3.0, 1.0])).tolist() == [3.0, 1.0]


@pytest.mark.parametrize("weight", [1.0, -0.1, float("nan")])
def test_smoother_rejects_invalid_weight(weight: float) -> None:
    with pytest.raises(ValueError, match="smoothing weight"):
        Smoother(weight)
