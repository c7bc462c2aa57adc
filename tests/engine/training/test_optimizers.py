"""Optimizers, schedules and their state by names."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import nn

from engine.contract.job import Job
from engine.training.optimizers import Updater

CPU = torch.device("cpu")


def _model() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 4), nn.Linear(4, 3))


def _updater(model: nn.Module, **fields: Any) -> Updater:
    return Updater(list(model.named_parameters()), Job(**fields), 4, CPU)


def _step(model: nn.Module, updater: Updater) -> None:
    updater.zero_grad()
    updater.backward(model(torch.ones(2, 5)).square().sum())
    updater.step()


def _rates(schedule: str, epochs: int) -> list[float]:
    model = _model()
    updater = _updater(model, schedule=schedule, epochs=epochs, learning_rate=0.1, optimizer="adam")
    rates = []
    for _ in range(epochs):
        for _ in range(4):
            rates.append(updater.learning_rate)
            _step(model, updater)
        updater.epoch_ended()
    return rates


def test_that_each_schedule_moves_as_it_should() -> None:
    assert _rates("none", 3) == [0.1] * 12
    assert _rates("step", 6) == pytest.approx([0.1] * 8 + [0.01] * 8 + [0.001] * 8)
    expected = [0.05 * (1 + math.cos(math.pi * step / 12)) for step in range(12)]
    assert _rates("cosine", 3) == pytest.approx(expected)
    onecycle = _rates("onecycle", 25)
    assert max(onecycle) == pytest.approx(0.1, rel=1e-3)
    assert onecycle[0] == pytest.approx(0.1 / 25)
    assert onecycle.index(max(onecycle)) == pytest.approx(30, abs=1)
    assert onecycle[-1] < 1e-3


@pytest.mark.parametrize("optimizer", ["sgd", "adam", "adamw"])
def test_that_a_state_taken_over_goes_on_bit_for_bit(optimizer: str) -> None:
    fields = {"optimizer": optimizer, "schedule": "cosine", "epochs": 3}
    first = _model()
    one = _updater(first, **fields)
    for _ in range(3):
        _step(first, one)
    second = _model()
    second.load_state_dict(first.state_dict())
    two = _updater(second, **fields)
    two.load_state_dict(one.state_dict())
    for _ in range(3):
        _step(first, one)
        _step(second, two)
    assert two.learning_rate == one.learning_rate
    for ours, theirs in zip(first.parameters(), second.parameters(), strict=True):
        assert torch.equal(ours, theirs)


def test_that_a_stage_with_nothing_to_train_has_an_updater_all_the_same() -> None:
    updater = Updater([], Job(schedule="onecycle"), 4, CPU)
    before = updater.learning_rate
    updater.zero_grad()
    updater.step()
    assert updater.learning_rate != before
    assert updater.state_dict()["state"] == {}
