"""Model parallelism against a single device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from engine.contract.events import ScheduleTraced, Validation
from engine.contract.job import Job

Make = Callable[..., Job]
Start = Callable[..., Any]


@pytest.mark.long
def test_model_parallel_is_exact(job: Make, start: Start) -> None:
    fields = {"model": "resnet18", "image_size": 32, "batch_size": 24, "epochs": 2}
    single = start(job(**fields), every_step=True).completed()
    group = start(job(cpus=3, strategy="model_parallel", **fields), every_step=True).completed()
    assert group.losses == single.losses
    actual, expected = (
        torch.load(each.folder / "checkpoints/last.pt", weights_only=True)["model"] for each in (group, single)
    )
    assert list(actual) == list(expected)
    assert not [name for name, tensor in actual.items() if not torch.equal(tensor, expected[name])]
    for one, another in zip(group.of(Validation), single.of(Validation), strict=True):
        np.testing.assert_allclose(list(one.measures.values()), list(another.measures.values()), rtol=1e-6)


def test_model_parallel_uses_one_device_at_a_time(job: Make, start: Start) -> None:
    group = start(job(cpus=2, strategy="model_parallel", epochs=3, accumulation=2)).completed()
    event, *_ = group.of(ScheduleTraced, 0)
    assert event.theory == 0.5
    assert event.bubble >= 0.5
    assert [[action.kind for action in actions] for actions in event.ranks] == [["F", "B"], ["F", "B"]]
