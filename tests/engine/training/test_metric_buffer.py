"""Sums of step results, and detection of numbers that are not finite."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from engine.strategies.base import StepResult
from engine.training.finite import first_nonfinite, is_finite, nonfinite_buffers
from engine.training.metric_buffer import MetricBuffer, NotFinite, StepTotals


def result(loss: float, images: int = 4) -> StepResult:
    parts = torch.tensor([loss / 4, 3 * loss / 4])
    return StepResult(torch.tensor(loss), torch.tensor(images - 1), images, parts)


def test_totals_are_sums_until_they_are_taken() -> None:
    buffer = MetricBuffer()
    for each, wait_s in ((result(1.0), 0.5), (StepResult(None, None, None), 0.25), (result(2.0, images=6), 0.0)):
        buffer.add(each, wait_s)
    totals = buffer.take(9).read()
    assert totals == StepTotals(3, 3.0, (0.75, 2.25), 8.0, True, 10.0, 0.75, totals.seconds, None)
    assert totals.seconds > 0
    empty = buffer.take(9).read()
    assert empty == StepTotals(0, 0.0, (), 0.0, False, 0.0, 0.0, empty.seconds, None)


def test_first_bad_step_is_named() -> None:
    buffer = MetricBuffer()
    for loss in (1.0, math.inf, 1.0, math.nan):
        buffer.add(result(loss), 0.0)
    totals = buffer.take(9).read()
    assert (totals.first_bad, math.isnan(totals.loss)) == (7, True)
    errors = [NotFinite(7, "The loss", has_checkpoint) for has_checkpoint in (True, False)]
    assert [(error.step, "is kept" in str(error)) for error in errors] == [(7, True), (7, False)]


@pytest.mark.parametrize(
    ("tensor", "expected"),
    [
        (torch.tensor([3e38, 3e38]), True),
        (torch.tensor([1.7e308, 1.7e308], dtype=torch.float64), True),  # their sum overflows
        (torch.tensor([math.inf, -math.inf], dtype=torch.bfloat16), False),
        (torch.tensor([[0.0, math.nan]], dtype=torch.float16), False),
        (torch.tensor([1 << 62, 1 << 62]), True),
        (torch.tensor([0.0, math.nan]).to_sparse(), True),
        (torch.empty(0), True),
    ],
)
def test_is_finite(tensor: Tensor, expected: bool) -> None:
    assert is_finite(tensor) == expected


def test_nonfinite_tensors_are_named_unless_expected() -> None:
    bad = torch.tensor([1.0, math.nan])
    state = {"step": 3, "model": {"good": torch.ones(2), "mean": bad}, "optimizer": {"momentum": bad}}
    assert first_nonfinite(state) == "model.mean"
    assert first_nonfinite(state, {"mean"}) == "optimizer.momentum"
    assert first_nonfinite(state, {"mean", "momentum"}) == ""
    norm = nn.Sequential(nn.BatchNorm1d(2))
    norm[0].weight.data.fill_(math.nan)
    assert nonfinite_buffers(norm) == []
    norm[0].running_mean.fill_(math.inf)  # type: ignore[union-attr]
    assert nonfinite_buffers(norm) == ["0.running_mean"]
