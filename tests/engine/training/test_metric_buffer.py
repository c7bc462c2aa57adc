"""Sums of step results."""

from __future__ import annotations

import math

import torch

from engine.strategies.base import StepResult
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
