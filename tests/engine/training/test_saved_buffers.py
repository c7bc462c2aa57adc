"""Restoration of buffers and random states after trial steps."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from engine.training.finite import find_first_nonfinite, find_nonfinite_buffers
from engine.training.randomness import SavedStreams, get_random_state, set_random_state
from engine.training.saved_buffers import SavedBuffers
from tests.support.same_states import find_differences

INF = float("inf")
RUNNING = "norm.running_mean"


class Counting(nn.Module):
    """Module that counts its forward passes in a buffer.

    Each pass assigns a new tensor to the buffer `count`. The buffer `late` is None until the first pass.
    """

    count: Tensor
    late: Tensor | None

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(3)
        self.frozen = nn.BatchNorm1d(3)
        self.frozen.train(False)
        self.register_buffer("count", torch.zeros(1))
        self.register_buffer("late", None)

    def forward(self, x: Tensor) -> Tensor:
        self.count = self.count + 1
        self.late = x.mean().detach() if self.late is None else self.late + 1
        output: Tensor = self.norm(self.frozen(x))
        return output


def _buffers(model: nn.Module) -> dict[str, Any]:
    return {name: buffer.clone() for name, buffer in model.named_buffers()}


def test_saved_buffers_restore_changed_and_replaced_buffers() -> None:
    model = Counting()
    saved = SavedBuffers(model)
    for _ in range(3):
        saved.save()
        before = _buffers(model)
        model(torch.randn(4, 3))
        model(torch.randn(4, 3))
        moved = _buffers(model)
        saved.restore()
        assert _buffers(model).keys() == before.keys()
        assert not find_differences(_buffers(model), before)
        assert not any(torch.equal(moved[name], before[name]) for name in ("count", RUNNING))
        model(torch.randn(4, 3))  # the step that counts
    assert int(model.count) == 3
    assert int(model.norm.num_batches_tracked) == 3  # type: ignore[arg-type]


def _draw() -> tuple[float, ...]:
    return torch.rand(()).item(), float(np.random.standard_normal()), random.gauss(0.0, 1.0)


@pytest.mark.parametrize("untrusted_model", [True, False])
def test_saved_streams_restore_generators(untrusted_model: bool) -> None:
    streams = SavedStreams((), untrusted_model=untrusted_model)
    streams.save()
    drawn = _draw()
    streams.restore()
    again = _draw()
    assert again[0] == drawn[0]
    assert (again[1:] == drawn[1:]) == untrusted_model


def test_random_state_includes_pending_numbers() -> None:
    _draw()  # generators of normal numbers keep every second one
    state, drawn = get_random_state(()), _draw()
    set_random_state(state, ())
    assert _draw() == drawn


def test_random_states_of_gpus_are_separate(monkeypatch: pytest.MonkeyPatch) -> None:
    gpus = [torch.device("cuda", index) for index in range(2)]
    states = expected = dict(zip(gpus, torch.tensor([3, 5]), strict=True))
    monkeypatch.setattr(torch.cuda, "get_rng_state", lambda gpu: states[gpu])
    monkeypatch.setattr(torch.cuda, "set_rng_state", lambda state, gpu: states.update({gpu: state}))
    state, streams = get_random_state(gpus), SavedStreams(gpus, untrusted_model=False)
    streams.save()
    for restore in (lambda: set_random_state(state, gpus), streams.restore):
        states = dict.fromkeys(gpus, torch.tensor(0))
        restore()
        assert states == expected
    set_random_state(state, gpus[:1])  # fewer than before


@pytest.mark.parametrize(
    ("state", "name"),
    [
        ({"a": torch.ones(3), "steps": torch.tensor(4), "rate": 0.1}, ""),
        ({"a": torch.tensor([1.0, INF]), "b": torch.tensor([INF])}, "a"),
        ({"a": torch.ones(1), "inner": {"b": {"c": torch.tensor([0.0, float("nan")])}}}, "inner.b.c"),
        ({"a": torch.tensor([INF, -INF])}, "a"),
        ({"a": torch.full((4,), 3e38)}, ""),
        ({"a": torch.full((4,), 1e308, dtype=torch.float64)}, ""),
        ({"a": torch.full((4,), 6e4, dtype=torch.float16)}, ""),
        ({"a": torch.tensor([1.0, INF], dtype=torch.bfloat16)}, "a"),
        ({"a": torch.ones(2, dtype=torch.bfloat16)}, ""),
        ({"mask": torch.tensor([INF]), "inner": {"mask": torch.tensor([INF]), "b": torch.tensor([INF])}}, "inner.b"),
    ],
)
def test_first_nonfinite_finds_any_position(state: dict[str, Any], name: str) -> None:
    assert find_first_nonfinite(state, {"mask"}) == name


def test_nonfinite_buffers_returns_names() -> None:
    model = nn.Sequential(nn.BatchNorm1d(2), nn.Linear(2, 2))
    model[1].weight.data.fill_(INF)
    model[1].register_buffer("mask", torch.tensor([0.0, -INF]))
    assert find_nonfinite_buffers(model) == ["1.mask"]
