"""Results of a step whose batch is processed in chunks."""

from __future__ import annotations

import torch

from engine.strategies.base import StepResult
from engine.strategies.single import sum_results


def test_sum_results_merges_results() -> None:
    parts = [StepResult(torch.tensor(0.5 * n), torch.tensor(n), n + 1) for n in (1, 2, 3)]
    result = sum_results(parts)
    assert (float(result.loss), int(result.correct), result.images) == (3.0, 6, 9)  # type: ignore[arg-type]


def test_sum_results_of_empty_results() -> None:
    assert sum_results([StepResult(None, None, None)] * 2) == StepResult(None, None, None)
