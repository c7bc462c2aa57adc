"""Steps that are skipped for lack of memory, and the limit at which training is given up."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from engine.contract.events import Event
from engine.contract.job import Job
from engine.data.loading.base_loader import Batch
from engine.optim.optimizer_step import OptimizerStep
from engine.strategies.base import ResolvedJob
from engine.strategies.single import SingleDevice
from engine.training.metric_buffer import NotFinite
from engine.training.oom_retry import SKIPS, ResilientStep
from tests.support.dataset_infos import class_of_image
from tests.support.specs import spec_of


def test_step_raises_after_too_many_skips_in_a_row() -> None:
    job = Job.from_fields(on_not_finite="skip", batch_size=4)
    spec = spec_of(job)
    strategy = SingleDevice(spec)
    strategy.wrap(nn.Sequential(nn.Flatten(), nn.Linear(12, 2)), class_of_image(), (3, 2, 2), ResolvedJob(job))
    events: list[Event] = []
    optimizer_step = OptimizerStep(strategy.parameters(), job, 100, strategy.device)
    stepper = ResilientStep(strategy, optimizer_step, events.append, lambda: False)
    good, bad = (
        Batch(torch.full((4, 3, 2, 2), value), torch.zeros(4, dtype=torch.int64), 4, 0.0)
        for value in (1.0, float("nan"))
    )
    batches = [*[bad] * SKIPS, good, *[bad] * SKIPS]
    results = [stepper.step(batch, number) for number, batch in enumerate(batches, 1)]
    assert [result is None for result in results] == [batch is bad for batch in batches]
    assert len(events) == 2 * SKIPS
    with pytest.raises(NotFinite, match=f"After {SKIPS} skipped steps in a row"):
        stepper.step(bad, len(batches) + 1)
