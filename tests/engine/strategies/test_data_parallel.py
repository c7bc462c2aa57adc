"""DistributedDataParallel, compared with a single device that processes the ranks' chunks of each batch in turn."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from engine.contract.events import Failed, Planned, Warned
from engine.contract.job import Job
from tests.engine.strategies.comparison import assert_same_training, is_statistic
from tests.support.cases import mark_long_cases

Make = Callable[..., Job]
Start = Callable[..., Any]
Write = Callable[[str], dict[str, str]]

PLAIN = """
from torch import nn

def build_model(num_classes):
    return nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 16, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(),
        nn.Linear(64, num_classes))
"""

BATCHNORM = """
from torch import nn

def block(a, b):
    return nn.Sequential(nn.Conv2d(a, b, 3, bias=False), nn.BatchNorm2d(b), nn.ReLU(inplace=True))

def build_model(num_classes):
    return nn.Sequential(block(3, 8), block(8, 16), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(64, num_classes))
"""

# Training reads and updates the buffer from each rank's samples. It must be equal on all ranks before every step.
MOVING = """
import torch
import torch.distributed as dist
from torch import nn

class Centered(nn.Module):
    def __init__(self, num_classes):
        super().__init__()
        self.layer = nn.Linear(768, num_classes)
        self.register_buffer("center", torch.zeros(768))

    def forward(self, x):
        x = x.flatten(1)
        if self.training:
            if dist.is_initialized():
                everyones = [torch.empty_like(self.center) for _ in range(dist.get_world_size())]
                dist.all_gather(everyones, self.center)
                assert all(torch.equal(one, everyones[0]) for one in everyones)
            self.center = self.center * 0.9 + x.detach().mean(0) * 0.1
        return self.layer(x - self.center)

def build_model(num_classes):
    return Centered(num_classes)
"""

# Its gradients overflow in fp16 with the initial loss scales.
LOUD = """
from torch import nn

class Louder(nn.Module):
    def forward(self, x):
        return x * 8

def build_model(num_classes):
    return nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.Tanh(), nn.Conv2d(8, 16, 3), nn.Tanh(), nn.Flatten(), nn.Linear(2304, 32), nn.Tanh(),
        nn.Linear(32, num_classes), Louder())
"""

UNEVEN = """
import os
import time
import torch.distributed as dist
from torch import nn

class Slow(nn.Module):
    '''Takes longer on the last of several ranks.'''
    def __init__(self, num_classes):
        super().__init__()
        self.layers = nn.Sequential(nn.Flatten(), nn.Linear(768, 64), nn.Tanh(), nn.Linear(64, num_classes))

    def forward(self, x):
        if dist.is_initialized() and dist.get_rank() == dist.get_world_size() - 1:
            until = time.thread_time() + 0.002 * len(x)
            while time.thread_time() < until:
                pass
        return self.layers(x)

def build_model(num_classes):
    return Slow(num_classes)
"""


VARIATIONS: dict[str, dict[str, Any]] = {
    "sgd": {},
    "adamw": {"optimizer": "adamw", "learning_rate": 0.005},
    "clipped": {"clip_norm": 0.3},
    "averaged": {"ema_decay": 0.8},
    "checkpointed": {"activation_checkpointing": True},
}


@pytest.mark.parametrize("variation", mark_long_cases(VARIATIONS, everyday=["adamw", "checkpointed"]))
@pytest.mark.parametrize("model", mark_long_cases(["plain", "batchnorm"], everyday=["batchnorm"]))
def test_two_ranks_equal_accumulation(job: Make, start: Start, model_file: Write, model: str, variation: str) -> None:
    text = {"plain": PLAIN, "batchnorm": BATCHNORM}[model]
    fields = model_file(text) | {"epochs": 2} | VARIATIONS[variation]
    alone = start(job(accumulation=2, **fields), every_step=True).completed()
    ranks = start(job(2, strategy="ddp", **fields), every_step=True).completed()
    # The running statistics are those of rank 0, which has seen only the first part of every batch.
    assert_same_training(ranks, alone, ignore=is_statistic if model == "batchnorm" else None)
    assert ranks.checkpoint()["optimizer"]["schedule"] == alone.checkpoint()["optimizer"]["schedule"]


@pytest.mark.parametrize(
    "options", mark_long_cases([{}, {"static_graph": True}], everyday=[{}]), ids=["", "static_graph"]
)
def test_accumulating_ranks_reduce_once(job: Make, start: Start, model_file: Write, options: dict[str, Any]) -> None:
    fields = model_file(BATCHNORM) | {"epochs": 2, "clip_norm": 0.3}
    alone = start(job(accumulation=4, **fields), every_step=True).completed()
    ranks = start(job(2, strategy="ddp", accumulation=2, **options, **fields), every_step=True).completed()
    # The gradients of four parts are summed in pairs, which rounds differently.
    assert_same_training(ranks, alone, 1e-5, ignore=is_statistic)


@pytest.mark.long
def test_ranks_with_few_images_take_part(job: Make, start: Start, model_file: Write) -> None:
    fields = model_file(BATCHNORM) | {"batch_size": 5}
    alone = start(job(strategy="single", **fields), every_step=True).completed()
    assert len(alone.losses) == 14
    fields |= {"accumulation": 4, "strategy": "ddp"}
    three = start(job(3, **fields), every_step=True)
    assert not any(three.finish()), three.of(Failed)
    assert len(three.losses) == 14

    fields = model_file(PLAIN) | {"batch_size": 2, "accumulation": 3}
    alone = start(job(**fields), every_step=True).completed()
    assert_same_training(start(job(3, strategy="ddp", **fields), every_step=True).completed(), alone, 1e-5)


OPTIONS: dict[str, dict[str, Any]] = {
    "small buckets": {"bucket_mib": 0.001},
    "static graph": {"static_graph": True},
    "static graph, checkpointed": {"static_graph": True, "activation_checkpointing": True},
}


@pytest.mark.parametrize("name", mark_long_cases(OPTIONS, everyday=["small buckets", "static graph, checkpointed"]))
def test_ddp_options_train_equally(job: Make, start: Start, model_file: Write, name: str) -> None:
    fields = model_file(BATCHNORM) | {"strategy": "ddp"}
    plain = start(job(2, **fields), every_step=True).completed()
    assert_same_training(start(job(2, **fields, **OPTIONS[name]), every_step=True).completed(), plain)


@pytest.mark.parametrize("compression", mark_long_cases(["fp16", "bf16"], everyday=["bf16"]))
def test_compressed_gradients_only_round(job: Make, start: Start, model_file: Write, compression: str) -> None:
    fields = model_file(PLAIN) | {"strategy": "ddp"}
    plain = start(job(2, **fields), every_step=True).completed()
    rounded = start(job(2, gradient_compression=compression, **fields), every_step=True).completed()
    assert rounded.losses == pytest.approx(plain.losses, rel=1e-2)
    assert rounded.losses != plain.losses


def test_buffers_are_broadcast_from_rank_0(job: Make, start: Start, model_file: Write) -> None:
    group = start(job(2, strategy="ddp", **model_file(MOVING)), every_step=True).completed()
    assert group.checkpoint()["model"]["center"].abs().max() > 0


def test_slow_rank_gets_smaller_share(job: Make, start: Start, model_file: Write) -> None:
    fields = model_file(UNEVEN) | {"epochs": 2}
    alone = start(job(**fields), every_step=True).completed()
    ranks = start(job(2, strategy="ddp", balance="speed", **fields), every_step=True).completed()
    (planned,) = ranks.of(Planned)
    fast, slow = planned.shares
    assert slow < 0.4 < fast
    assert fast + slow == pytest.approx(1)
    (warned,) = ranks.of(Warned)
    assert (warned.code, warned.rank) == ("straggler", 1)
    assert f"It gets {100 * slow:.0f}% of every batch" in warned.message
    assert_same_training(ranks, alone, 1e-5)


def test_recompute_without_blocks_is_reported(job: Make, start: Start, model_file: Write) -> None:
    group = start(job(2, strategy="ddp", activation_checkpointing=True, **model_file(PLAIN))).completed()
    (warned,) = group.of(Warned)
    assert warned.code == "no_blocks"


@pytest.mark.long
@pytest.mark.parametrize("strategy", mark_long_cases(["ddp", "fsdp", "pipeline"], everyday=["ddp"]))
def test_ranks_share_loss_scale(job: Make, start: Start, model_file: Write, strategy: str) -> None:
    """Compare only the scales, because a chunk of a batch overflows at a different scale than the full batch."""
    fields = model_file(LOUD) | {"precision": "fp16", "clip_norm": 0.5, "learning_rate": 0.002, "epochs": 6}
    alone = start(job(**fields), every_step=True).completed()
    ranks = start(job(2, strategy=strategy, **fields), every_step=True).completed()
    scales = [group.checkpoint()["optimizer"]["scaler"]["scale"] for group in (alone, ranks)]
    assert max(scales) < 65536  # the first steps overflowed
    assert 1 / 4 <= scales[1] / scales[0] <= 4
    assert ranks.losses[0] == pytest.approx(alone.losses[0], rel=1e-3)
    assert sum(ranks.losses[-3:]) < 0.9 * sum(ranks.losses[:3])
