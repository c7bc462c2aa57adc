"""Confidence intervals, compared with a bootstrap in plain NumPy.

Tested with metrics that store counters, rows, or other states.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from engine.contract.inference.evaluation import Interval
from engine.inference.evaluation import bootstrap
from engine.inference.evaluation.bootstrap import draw_resample_weights, find_interval, find_intervals, resample
from engine.inference.evaluation.sample_states import SampleStates, StateRecorder
from engine.metrics.base import Metric
from engine.tasks.analysis import MetricValues


class Mean(Metric):
    """Metric that stores outputs in three ways: counters, rows, and a list. `compute` returns the mean from each."""

    def __init__(self) -> None:
        self.counters = torch.zeros(2, dtype=torch.float64)
        self.values: list[float] = []
        self.count = 0

    def update(self, outputs: Tensor, targets: Tensor) -> None:
        self.counters = self.counters + torch.tensor([outputs.sum(), len(outputs)], dtype=torch.float64)
        self.add_rows(outputs[:, None].double())
        self.values += outputs.tolist()

    def sync(self, all_gather: Callable[[Any], list[Any]]) -> None:
        self.count = sum(all_gather(len(self.values)))
        self.values = [value for values in all_gather(self.values) for value in values]

    def compute(self) -> dict[str, float]:
        total, count = self.counters.tolist()
        return {"counters": total / count, "rows": float(self.rows.mean()), "other": sum(self.values) / self.count}


def test_intervals_match_a_plain_bootstrap(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bootstrap, "MAX_RESAMPLES", 200)
    values = torch.from_numpy(np.random.default_rng(0).normal(3, 2, 40))
    order = np.random.default_rng(1).permutation(40)
    parts = []
    for chunk in (order[:15], order[15:]):
        recorder = StateRecorder()
        for index in chunk:
            metric = Mean()
            metric.update(values[index : index + 1], values[index : index + 1])
            recorder.add(metric)
        parts.append(recorder.pack())
    states = SampleStates(parts, np.argsort(order))

    def of(weights: np.ndarray) -> MetricValues:
        computed = states.fill(Mean(), weights).compute()
        return MetricValues(computed, {"sums": (40 * computed["rows"], None, -computed["rows"], 0.0)})

    draws = resample(40, of, lambda share: None)
    found, per_class = find_intervals(of(np.ones(40, np.int64)), draws)
    plain = values.numpy()
    means = [np.repeat(plain, draw_resample_weights(number, 40)).mean() for number in range(200)]
    low, high = np.percentile(means, [2.5, 97.5])
    for each in found.values():
        assert (each.value, each.low, each.high) == pytest.approx((plain.mean(), low, high), abs=1e-9)
    of_classes = [None if each is None else (each.value, each.low, each.high) for each in per_class["sums"]]
    assert of_classes[0] == pytest.approx((40 * plain.mean(), 40 * low, 40 * high), abs=1e-9)
    assert of_classes[1] is None
    assert of_classes[2] == pytest.approx((-plain.mean(), -high, -low), abs=1e-9)
    assert of_classes[3] == (0, 0, 0)
    deviation = plain.std() / np.sqrt(40)
    assert high - low == pytest.approx(2 * 1.96 * deviation, rel=0.2)


@pytest.mark.parametrize(("max_s", "resamples"), [(1e9, 80), (1e-9, 50)])
def test_resamples_contain_all_samples_in_the_time(
    monkeypatch: pytest.MonkeyPatch, max_s: float, resamples: int
) -> None:
    monkeypatch.setattr(bootstrap, "MAX_RESAMPLES", 80)
    monkeypatch.setattr(bootstrap, "MAX_RESAMPLING_S", max_s)
    drawn: list[np.ndarray] = []

    def compute_values(weights: np.ndarray) -> MetricValues:
        drawn.append(weights)
        known = {"known": 5.0} if weights[0] else {}
        return MetricValues(
            known | {"finite": 3.0 if weights[1] else float("nan")}, {"class": (7.0 if weights[2] else None,)}
        )

    fractions: list[float] = []
    draws = resample(3, compute_values, fractions.append)
    assert draws.resamples == resamples
    assert fractions == pytest.approx(np.arange(resamples) / resamples)
    assert (np.sum(drawn, 0) > resamples / 2).all()
    assert {int(weights.sum()) for weights in drawn} == {3}
    values = MetricValues({"known": 5.0, "finite": 3.0, "infinite": float("inf")}, {"class": (7.0,)})
    found = ({"known": Interval(5, 5, 5), "finite": Interval(3, 3, 3)}, {"class": (Interval(7, 7, 7),)})
    assert find_intervals(values, draws) == found
    assert resample(2, lambda weights: MetricValues({}, {}), fractions.append).resamples == resamples
    half = np.full(50, np.nan)
    half[::2] = np.arange(25)
    assert find_interval(1.0, half) == Interval(1.0, pytest.approx(0.6), pytest.approx(23.4))
    assert find_interval(1.0, half[1:]) == Interval(1.0)
    single = MetricValues({"x": 1.0}, {"y": (None, 0.5)})
    of_single = find_intervals(single, resample(1, lambda weights: single, fractions.append))
    assert of_single == ({"x": Interval(1.0)}, {"y": (None, Interval(0.5))})
