"""Measurement of a rank's speed before training."""

from __future__ import annotations

import copy
import re
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from engine.contract.events import Warned
from engine.contract.job import Job
from engine.strategies import speed
from engine.strategies.base import ResolvedJob
from engine.strategies.collectives import Collectives
from engine.strategies.ddp import DataParallelProcesses
from engine.strategies.single import SingleDevice
from engine.strategies.speed import balance, measure_images_per_second
from tests.support.dataset_infos import make_classification_objective
from tests.support.specs import make_worker_spec


def _strategy(job: Job) -> SingleDevice:
    spec = make_worker_spec(job)
    strategy = SingleDevice(spec)
    strategy.resolved_job = ResolvedJob(job)
    return strategy


def _model() -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Dropout(0.5), nn.Flatten(), nn.Linear(4 * 14 * 14, 5)
    )


def test_speed_measurement_has_no_side_effects() -> None:
    model = _model()
    model[0].weight.requires_grad_(False)
    before = copy.deepcopy(model.state_dict())
    random = torch.get_rng_state()
    strategy = _strategy(Job.from_fields(batch_size=16, accumulation=2))
    assert measure_images_per_second(strategy, model, make_classification_objective(), (3, 16, 16)) > 0
    assert torch.equal(torch.get_rng_state(), random)
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    assert all(parameter.grad is None for parameter in model.parameters())
    assert model.training


def test_speed_covers_forward_and_backward() -> None:
    """Check that a model with more work is slower, even if the machine is busy."""
    strategy = _strategy(Job.from_fields(batch_size=16))
    narrow, wide = (
        nn.Sequential(nn.Flatten(), nn.Linear(768, width), nn.ReLU(), nn.Linear(width, width), nn.Linear(width, 5))
        for width in (8, 2048)
    )
    speeds = [
        measure_images_per_second(strategy, model, make_classification_objective(), (3, 16, 16))
        for model in (narrow, wide)
    ]
    assert speeds[1] < speeds[0]


def test_speed_is_the_median_after_the_warm_up(monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = iter((9.0, 9.0, 1.0, 2.0, 3.0, 4.0, 5.0))
    monkeypatch.setattr(speed.Rehearsal, "time_pass", lambda _: next(seconds))
    strategy = _strategy(Job.from_fields(batch_size=1))
    measured = measure_images_per_second(strategy, _model(), make_classification_objective(), (3, 16, 16))
    assert measured == 2 / 3.0, "BatchNorm needs two images"


def test_single_rank_gets_the_batch() -> None:
    strategy = _strategy(Job.from_fields(batch_size=4))
    balance(strategy, _model(), make_classification_objective(), (3, 16, 16))
    assert strategy.shares == ()
    assert strategy.remarks == []


class _CollectivesWithSlowerRanks(Collectives):
    """Collectives with two other ranks, which train `speeds` images per second."""

    def __init__(self, *speeds: float) -> None:
        self.speeds = speeds

    def all_reduce_sum(self, values: Tensor) -> Tensor:
        return values + torch.tensor([0.0, *self.speeds], dtype=torch.float64)

    def gather_objects(self, value: Any) -> list[Any]:
        return [value] * 3


def test_shares_follow_the_speeds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(speed, "measure_images_per_second", lambda *_: 30.0)
    strategy = DataParallelProcesses(make_worker_spec(Job.from_fields(strategy="ddp", devices=("cpu",) * 3)))
    strategy.resolved_job, strategy.collectives = (
        ResolvedJob(strategy.spec.job),
        _CollectivesWithSlowerRanks(10.0, 20.0),
    )
    balance(strategy, _model(), make_classification_objective(), (3, 16, 16))
    assert strategy.shares == strategy.resolved_job.shares == (30 / 60, 10 / 60, 20 / 60)
    (remark,) = strategy.remarks
    assert isinstance(remark, Warned)
    assert (remark.rank, re.findall(r"\d+(?:\.\d+)?", remark.message)) == (1, ["1", "2.5", "17"])
    strategy.resolved_job, strategy.remarks = ResolvedJob(strategy.spec.job), []
    strategy.collectives = _CollectivesWithSlowerRanks(28.0, 30.0)
    balance(strategy, _model(), make_classification_objective(), (3, 16, 16))
    assert (strategy.shares, strategy.remarks) == ((30 / 88, 28 / 88, 30 / 88), []), "no rank is much slower"
    resumed = (0.2, 0.3, 0.5)
    strategy.resolved_job = ResolvedJob(strategy.spec.job, shares=resumed)
    balance(strategy, _model(), make_classification_objective(), (3, 16, 16))
    assert strategy.shares == resumed


def test_stop_ends_the_measurement_and_leaves_the_shares_open() -> None:
    strategy, model = _strategy(Job.from_fields(batch_size=13, accumulation=2, precision="bf16")), _model()
    passes: list[Tensor] = []
    model.register_forward_hook(lambda _module, _inputs, outputs: passes.append(outputs))
    strategy.is_stopped = lambda: len(passes) >= 3
    balance(strategy, model, make_classification_objective(), (3, 16, 16))
    assert [(len(outputs), outputs.dtype) for outputs in passes] == [(7, torch.bfloat16)] * 3
    assert strategy.resolved_job.shares is None
    strategy.is_stopped = lambda: False
    balance(strategy, model, make_classification_objective(), (3, 16, 16))
    assert strategy.resolved_job.shares == ()
