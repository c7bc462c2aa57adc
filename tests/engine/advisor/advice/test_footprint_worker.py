"""Memory that a forward pass saves, computed without allocating it."""

from __future__ import annotations

import pytest
from torch import nn

from engine.advisor.advice.footprint_worker import _measure_saved_bytes
from engine.contract.job import Job


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        (nn.Linear(4, 3), (0, 0)),  # saves only the images and its weights
        (nn.Sequential(nn.Linear(4, 3), nn.Sigmoid(), nn.Linear(3, 5)), (2 * 3 * 4, 2 * 3 * 4)),
        (nn.Sequential(nn.Linear(4, 3), nn.Sigmoid(), nn.Linear(3, 5), nn.Tanh()), (2 * (3 + 5) * 4, 2 * 5 * 4)),
    ],
)
def test_saved_bytes_are_those_of_new_tensors(model: nn.Module, expected: tuple[int, int]) -> None:
    assert _measure_saved_bytes(model, Job.from_fields(precision="fp32"), (2, 4)) == expected
