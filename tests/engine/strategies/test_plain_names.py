"""Parameter names in checkpoints, for models with tied, unused or constant tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from engine.contract.job import Job

ODD = """
import torch
from torch import nn

class Odd(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.first = nn.Linear(768, 32)
        self.unused = nn.Linear(2, 2)
        self.register_buffer("shift", torch.full((32,), 0.1))
        self.register_buffer("untouched", torch.arange(3))
        self.norm = nn.BatchNorm1d(32)
        self.same_norm = self.norm
        self.last = nn.Linear(32, classes)
        self.alias = self.last

    def forward(self, x):
        y = torch.relu(self.norm(self.first(x.flatten(1)) + self.shift))
        return self.last(y)

def build_model(num_classes):
    return Odd(num_classes)
"""


@pytest.mark.parametrize("strategy", ["ddp", "fsdp", "pipeline"])
def test_state_dict_has_plain_names(
    job: Callable[..., Job], start: Callable[..., Any], model_file: Callable[[str], dict[str, str]], strategy: str
) -> None:
    fields = model_file(ODD)
    single = start(job(**fields)).completed()
    group = start(job(cpus=2, strategy=strategy, **fields)).completed()
    expected, state = (g.checkpoint("best.pt") for g in (single, group))
    assert list(state) == list(expected)
    assert torch.equal(state["alias.weight"], state["last.weight"])
    assert torch.equal(state["untouched"], torch.arange(3))
    assert torch.equal(state["same_norm.running_mean"], state["norm.running_mean"])
    assert int(state["same_norm.num_batches_tracked"]) >= 6
    for name in ("unused.weight", "unused.bias", "shift"):
        assert torch.equal(state[name], expected[name])
