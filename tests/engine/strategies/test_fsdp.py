"""Fully sharded training, compared with a single device that processes the ranks' chunks of each batch in turn."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from engine.contract.events import Failed, Planned, Warned
from engine.contract.job import Job
from engine.models.blocks import list_blocks
from engine.strategies.sharding import find_tied_views, separate_blocks
from tests.engine.strategies.comparison import assert_same_training
from tests.support.cases import mark_long_cases

Make = Callable[..., Job]
Start = Callable[..., Any]
WriteModel = Callable[[str], dict[str, str]]


BLOCKS = """
import torch
from torch import nn

class Block(nn.Module):
    def __init__(self, norm):
        super().__init__()
        self.one, self.two = nn.Linear(64, 128), nn.Linear(128, 64)
        self.norm = norm(128)

    def forward(self, x):
        return x + self.two(torch.relu(self.norm(self.one(x))))

class Net(nn.Module):
    def __init__(self, classes, norm):
        super().__init__()
        self.first = nn.Linear(768, 64)
        self.blocks = nn.Sequential(*(Block(norm) for _ in range(3)))
        self.last = nn.Linear(64, classes)
        self.alias = self.last

    def forward(self, x):
        return self.last(self.blocks(self.first(x.flatten(1))))

def build_model(num_classes):
    return Net(num_classes, nn.NORM)
"""
"""Source of a model with three blocks, and a layer that has two names.

The size of each rank's shard is a multiple of the CPU's vector length, or smaller than one vector. Otherwise, torch's
fused optimizers would round the remainder differently.
"""


FORWARD = "        return self.last(self.blocks(self.first(x.flatten(1))))\n"
assert FORWARD in BLOCKS
LAYER_NORM = BLOCKS.replace("NORM", "LayerNorm")
BATCH_NORM = BLOCKS.replace("NORM", "BatchNorm1d")
TWO_VALUES_EACH = BATCH_NORM.replace(
    "self.norm(self.one(x))", "self.norm(self.one(x)[..., None].repeat(1, 1, 2))[..., 0]"
)
FSDP: dict[str, Any] = {"strategy": "fsdp", "cpus": 2}
DDP: dict[str, Any] = {"strategy": "ddp", "cpus": 2}
IN_PARTS: dict[str, Any] = {"accumulation": 2}
"""Job fields for a single device that processes the chunks of two ranks in turn."""

CASES: dict[str, tuple[str, dict[str, Any], dict[str, Any], dict[str, Any], float]] = {
    "checkpointing": (LAYER_NORM, FSDP, IN_PARTS, {"activation_checkpointing": True}, 0.0),
    "adamw, averaged, batchnorm": (
        BATCH_NORM, FSDP, DDP,
        # The last batch of the validation, which has 21 images, is empty on rank 1.
        {"optimizer": "adamw", "schedule": "onecycle", "learning_rate": 0.003, "ema_decay": 0.9, "batch_size": 20}, 0.0,
    ),
    # The norm of all gradients is computed from the rounded sums of squares of the shards.
    "clipped": (LAYER_NORM, FSDP, IN_PARTS, {"clip_norm": 0.3}, 1e-5),
    "fp16": (LAYER_NORM, FSDP, IN_PARTS, {"precision": "fp16"}, 1e-4),
    "unequal": (LAYER_NORM, FSDP | {"cpus": 3}, {}, {"batch_size": 13}, 1e-4),
    "empty ranks": (LAYER_NORM, FSDP | {"cpus": 3}, {}, {"batch_size": 2}, 1e-4),
    "empty chunks": (LAYER_NORM, FSDP | {"accumulation": 5}, {}, {}, 1e-4),
    "empty chunks, batchnorm": (TWO_VALUES_EACH, FSDP, DDP, {"batch_size": 6, "accumulation": 5}, 1e-4),
    "replicas": (
        LAYER_NORM, {"strategy": "hsdp", "cpus": 4, "replicas": 2}, {"accumulation": 4},
        {"clip_norm": 0.5, "ema_decay": 0.9}, 1e-4,
    ),
}  # fmt: skip
"""Test cases by name.

A case consists of a model, job fields for the sharded run, job fields for the run to compare with, job fields for both
runs, and the relative tolerance of the weights.
"""


@pytest.mark.parametrize("case", mark_long_cases(CASES, everyday=["adamw, averaged, batchnorm"]))
def test_fsdp_trains_equally(job: Make, start: Start, model_file: WriteModel, case: str) -> None:
    text, sharded, reference, fields, rtol = CASES[case]
    fields = {"epochs": 2} | fields | model_file(text)
    expected = start(job(**fields | reference), every_step=True).completed()
    group = start(job(**fields | sharded), every_step=True).completed()
    assert_same_training(group, expected, rtol)
    assert group.checkpoint()["optimizer"].get("scaler") == expected.checkpoint()["optimizer"].get("scaler")
    if rtol == 0.0:
        torch.testing.assert_close(group.checkpoint("best.pt"), expected.checkpoint("best.pt"), rtol=0.0, atol=0.0)


RECEIVING = [
    *(
        ("fsdp", 2, "mnist_cnn"),
        ("pipeline", 2, "mnist_cnn"),
        ("tp", 2, "timm:test_vit"),
        ("fsdp", 2, "resnet18"),
        ("pipeline", 2, "resnet18"),
    ),
    *(("hsdp", 4, "resnet18"), ("tp", 2, "vit_b_16"), ("fsdp_tp", 4, "convnext_tiny")),
    *(("ddp_pipeline", 4, "resnet18"), ("model_parallel", 2, "vit_b_16")),
]
"""Test cases: strategy, number of devices, and model. Ranks build a user's model themselves."""


@pytest.mark.parametrize("case", mark_long_cases(RECEIVING, everyday=RECEIVING[:3]), ids=str)
def test_ranks_start_with_the_weights_of_rank_0(job: Make, start: Start, case: tuple[str, int, str]) -> None:
    strategy, cpus, model_name = case
    fields = {"strategy": strategy, "cpus": cpus, "epochs": 1, "batch_size": 24, "model": model_name, "image_size": 32}
    everywhere = start(
        job(**fields), every_step=True, prepare="tests.benchmarks.start_memory:build_everywhere"
    ).completed()
    received = start(job(**fields), every_step=True).completed()
    assert received.losses == everywhere.losses
    model, expected = received.checkpoint()["model"], everywhere.checkpoint()["model"]
    assert all(torch.equal(model[name], expected[name]) for name in expected)


def test_fsdp_unused_layers_match_ddp(job: Make, start: Start, model_file: WriteModel) -> None:
    text = LAYER_NORM.replace(
        "self.alias =",
        "self.some, self.early, self.none = (nn.Linear(64, 64) for _ in range(3)); self.passes = 0; self.alias =",
    )
    text = text.replace(
        FORWARD,
        """
        self.passes += 1
        x = self.blocks(self.first(x.flatten(1)))
        x = self.early(x) if self.passes < 5 else x  # in the first steps alone
        return self.last(self.some(x) if torch.distributed.get_rank() else x)
""",
    )
    fields = {"epochs": 2, "weight_decay": 0.1, "accumulation": 2} | model_file(text)
    ddp = start(job(cpus=2, strategy="ddp", **fields), every_step=True).completed()
    group = start(job(cpus=2, strategy="fsdp", **fields), every_step=True).completed()
    assert_same_training(group, ddp)
    assert {"none.weight", "none.bias"} == group.checkpoint()["model"].keys() - group.checkpoint()["optimizer"][
        "state"
    ].keys() - {"alias.weight", "alias.bias"}


def test_fsdp_bf16_keeps_fp32_shards(job: Make, start: Start, model_file: WriteModel) -> None:
    with_buffer = BATCH_NORM.replace("self.alias =", 'self.register_buffer("shift", torch.ones(64)); self.alias =')
    fields = model_file(with_buffer.replace("self.last(self.blocks(", "self.last(self.shift + self.blocks("))
    exact = start(job(cpus=2, strategy="ddp", **fields), every_step=True).completed()
    reduced = {"precision": "bf16", "shard_precision": "bf16"}
    group = start(job(cpus=2, strategy="fsdp", **reduced, **fields), every_step=True).completed()
    np.testing.assert_allclose(group.losses, exact.losses, rtol=0.05)
    assert group.losses != exact.losses
    state = group.checkpoint()
    assert {tensor.dtype for tensor in state["model"].values()} == {torch.float32, torch.int64}
    assert {s["momentum_buffer"].dtype for s in state["optimizer"]["state"].values()} == {torch.float32}


@pytest.mark.parametrize("strategy", ["ddp", "fsdp", pytest.param("zero1", marks=pytest.mark.long)])
def test_fsdp_overflow_skips_on_all_ranks(job: Make, start: Start, model_file: WriteModel, strategy: str) -> None:
    text = LAYER_NORM.replace(
        FORWARD,
        """
        x = self.blocks(self.first(x.flatten(1)))
        self.steps = getattr(self, "steps", 0) + self.training
        if self.training and self.steps == 1 and torch.distributed.get_rank() == 1:
            x.register_hook(lambda gradient: gradient * float("inf"))
        return self.last(x)
""",
    )
    group = start(job(cpus=2, strategy=strategy, precision="fp16", **model_file(text)), every_step=True)
    group.completed()
    assert np.isfinite(group.losses).all()
    scaler = group.checkpoint()["optimizer"]["scaler"]
    assert (scaler["scale"], scaler["_growth_tracker"]) == (2.0**15, 5)


@pytest.mark.long
def test_fsdp_balances_by_speed(job: Make, start: Start, model_file: WriteModel) -> None:
    pause = FORWARD.replace(
        "        return", "        if dist.is_initialized() and dist.get_rank(): time.sleep(0.03)\n        return"
    )
    slow = "import time\nimport torch.distributed as dist\n" + LAYER_NORM.replace(FORWARD, pause)
    fields = {"epochs": 2} | model_file(slow)
    single = start(job(**fields), every_step=True).completed()
    group = start(job(cpus=2, strategy="fsdp", balance="speed", **fields), every_step=True).completed()
    (planned,) = group.of(Planned)
    fast, slow_share = planned.shares
    assert fast > 1.5 * slow_share
    assert fast + slow_share == pytest.approx(1)
    assert_same_training(group, single, 1e-4)


def test_fsdp_reports_model_without_blocks(job: Make, start: Start) -> None:
    group = start(job(cpus=2, strategy="fsdp")).completed()
    assert [warning.code for warning in group.of(Warned, 0)] == ["no_blocks"]
    assert not group.of(Warned, 1)


@pytest.mark.parametrize(
    "refused",
    [
        ("nn.Parameter(self.last.weight.data[:2])", {}, "extra, last.weight share memory"),
        ("nn.Parameter(torch.tensor(1.0))", {}, "extra has no dimension"),
        ("None", {"precision": "fp16", "shard_precision": "bf16"}, "can't be combined"),
    ],
    ids=["view", "scalar", "precisions"],
)
def test_fsdp_refuses_unshardable_model(
    job: Make, start: Start, model_file: WriteModel, refused: tuple[str, dict[str, Any], str]
) -> None:
    change, fields, text = refused
    fields |= model_file(LAYER_NORM.replace("self.alias =", f"self.extra = {change}; self.alias ="))
    group = start(job(cpus=2, strategy="fsdp", **fields))
    assert group.finish() == [1, 1]
    failed = group.of(Failed, 0)[0]
    assert text in failed.cause
    assert "hoose" in failed.cause


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.rows = nn.ModuleList(nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4)) for _ in range(3))
        self.rows[1][0].weight = self.rows[0][0].weight
        self.rows[2].extra = nn.Linear(2, 2)
        self.alias = self.rows[2].extra


def test_fsdp_groups_blocks_with_shared_weights() -> None:
    model = Tied()
    assert [path for path, _ in list_blocks(model)] == ["rows.0", "rows.1", "rows.2"]
    assert separate_blocks(model) == []
    model.alias = nn.Identity()
    assert separate_blocks(model) == [model.rows[2]]


def test_overlapping_parameters_are_named() -> None:
    model = Tied()
    assert find_tied_views(model) == ()
    flat = torch.zeros(40)
    model.halves = nn.ParameterList([nn.Parameter(flat[:20]), nn.Parameter(flat[20:])])
    assert find_tied_views(model) == ()
    model.register_buffer("view", model.rows[0][1].weight.detach()[3:])
    model.turned = nn.Parameter(model.rows[2][1].weight.detach().t())
    assert find_tied_views(model) == ("turned", "rows.0.1.weight", "rows.2.1.weight")
    meta = Tied().to("meta")
    assert find_tied_views(meta) == ()
