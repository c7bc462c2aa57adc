"""DDP with a sharded optimizer, compared with a single device, and the division of the optimizer state."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from engine.contract.events import Validation
from engine.contract.job import Job
from engine.strategies.zero1 import assign_owners
from tests.engine.strategies.comparison import assert_same_training, is_statistic

WATCHED = """
import gc, json, pathlib, sys
import torch
import torch.distributed as dist
from torch import nn

class Net(nn.Module):
    '''In every validation, each rank writes how many numbers its optimizer keeps.'''
    def __init__(self, classes):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Flatten(), nn.Linear(768, 64, bias=False), nn.BatchNorm1d(64), nn.Tanh(), nn.Linear(64, 384), nn.Tanh(),
            nn.Linear(384, 64), nn.Tanh(), nn.Linear(64, classes))

    def forward(self, x):
        if not self.training and dist.is_initialized():
            kept = [t.numel() for o in gc.get_objects() if isinstance(o, torch.optim.Optimizer)
                    for state in o.state.values() for t in state.values() if t.numel() > 1]
            pathlib.Path({folder!r}, f"{{dist.get_rank()}}.json").write_text(json.dumps(sum(kept)))
        return self.layers(x)

def build_model(num_classes):
    return Net(num_classes)
"""
SIZES = [768 * 64, 64, 64, 64 * 384, 384, 384 * 64, 64, 64 * 3, 3]


def test_owners_balance_parameter_sizes() -> None:
    assert assign_owners([5, 1, 4, 2], 2) == [0, 0, 1, 1]
    assert assign_owners([1, 1], 3) == [0, 1]
    assert assign_owners([], 2) == []


def test_zero1_divides_optimizer_state(
    job: Callable[..., Job], start: Callable[..., Any], model_file: Callable[[str], dict[str, str]], tmp_path: Path
) -> None:
    fields: dict[str, Any] = {"optimizer": "adamw", "learning_rate": 0.003, "weight_decay": 0.3, "decay_norms": False}
    fields |= {"layer_decay": 0.7, "ema_decay": 0.9, "clip_norm": 0.5, "epochs": 3}
    fields |= model_file(WATCHED.format(folder=str(tmp_path)))
    single = start(job(accumulation=2, **fields), every_step=True).completed()
    group = start(job(cpus=2, strategy="zero1", **fields), every_step=True).completed()
    assert_same_training(group, single, 1e-4, losses_rtol=1e-6, ignore=is_statistic)
    first = assign_owners(SIZES, 2)
    state_sizes = [
        2 * sum(size for size, rank in zip(SIZES, first, strict=True) if rank == rank_index) for rank_index in (0, 1)
    ]
    assert [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in (0, 1)] == state_sizes
    assert max(state_sizes) < 0.51 * sum(state_sizes)


@pytest.mark.long
def test_zero1_validates_averages(job: Callable[..., Job], start: Callable[..., Any]) -> None:
    """Train a model without BatchNorm statistics, and compare the results with those of DDP."""
    fields: dict[str, Any] = {"ema_decay": 0.9, "optimizer": "adamw", "learning_rate": 0.003, "epochs": 3}
    ddp = start(job(cpus=2, strategy="ddp", **fields), every_step=True).completed()
    group = start(job(cpus=2, strategy="zero1", **fields), every_step=True).completed()
    assert group.losses == ddp.losses
    assert [v.measures for v in group.of(Validation)] == [v.measures for v in ddp.of(Validation)]
