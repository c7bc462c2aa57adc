"""Fully sharded training against a single device that gets the ranks' parts in sequence."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from engine.contract.events import Failed, Planned, Validation, Warned
from engine.contract.job import Job
from engine.models.blocks import blocks
from engine.strategies.sharding import separate_blocks, tied_views

Make = Callable[..., Job]
Start = Callable[..., Any]
WriteModel = Callable[[str], dict[str, str]]


def checkpoint(group: Any, name: str = "last") -> Any:
    return torch.load(group.folder / f"checkpoints/{name}.pt", weights_only=True)


def assert_equal(actual: dict[str, Tensor], expected: dict[str, Tensor], rtol: float = 0.0) -> None:
    """Compare names, their order and values, exactly if `rtol` is 0."""
    assert list(actual) == list(expected)
    for name, tensor in actual.items():
        torch.testing.assert_close(
            tensor, expected[name], rtol=rtol, atol=rtol / 100, msg=lambda m, n=name: f"{n}: {m}"
        )


def assert_same_training(group: Any, single: Any, rtol: float = 0.0) -> None:
    """Compare losses, metrics and the contents of last.pt and best.pt."""
    np.testing.assert_allclose(group.losses, single.losses, rtol=max(rtol, 1e-6))
    for one, other in zip(group.of(Validation), single.of(Validation), strict=True):
        assert one.measures == pytest.approx(other.measures, rel=max(rtol, 1e-6), abs=1e-7)  # fp32 resolves 1.2e-7
    actual, expected = checkpoint(group), checkpoint(single)
    assert_equal(actual["model"], expected["model"], rtol)
    assert list(actual["optimizer"]["state"]) == list(expected["optimizer"]["state"])
    for name, state in actual["optimizer"]["state"].items():
        assert_equal(state, expected["optimizer"]["state"][name], rtol)
    assert_equal(actual["optimizer"]["ema"], expected["optimizer"]["ema"], rtol)
    assert_equal(checkpoint(group, "best"), checkpoint(single, "best"), rtol)


def test_fsdp_two_ranks_are_exact(job: Make, start: Start) -> None:
    single = start(job(accumulation=2, epochs=5), every_step=True).completed()
    group = start(job(cpus=2, strategy="fsdp", epochs=5), every_step=True).completed()
    assert len(single.losses) == 30
    assert single.losses[-1] < single.losses[0]
    assert_same_training(group, single)


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
"""Model with three blocks, and a layer with two names.

The size of each rank's shard is a multiple of the CPU's vector length, or less than one vector: torch's fused
optimizers round a remainder differently.
"""


FORWARD = "        return self.last(self.blocks(self.first(x.flatten(1))))\n"
assert FORWARD in BLOCKS
LAYER_NORM = BLOCKS.replace("NORM", "LayerNorm")
BATCH_NORM = BLOCKS.replace("NORM", "BatchNorm1d")


@pytest.mark.parametrize(
    ("fields", "rtol"),
    [
        pytest.param({"activation_checkpointing": True}, 0.0, marks=pytest.mark.long),
        ({"optimizer": "adamw", "schedule": "onecycle", "learning_rate": 0.003, "ema_decay": 0.9}, 0.0),
        # The norm of all gradients is the root of the shards' sums of squares, which are rounded by themselves.
        pytest.param({"clip_norm": 0.3}, 1e-5, marks=pytest.mark.long),
    ],
    ids=["checkpointing", "adamw-averaged", "clipped"],
)
def test_fsdp_blocks_train_equally(
    job: Make, start: Start, model_file: WriteModel, fields: dict[str, Any], rtol: float
) -> None:
    fields = {"epochs": 2} | fields | model_file(LAYER_NORM)
    single = start(job(accumulation=2, **fields), every_step=True).completed()
    group = start(job(cpus=2, strategy="fsdp", **fields), every_step=True).completed()
    assert_same_training(group, single, rtol)


def test_fsdp_shares_tied_weights(job: Make, start: Start, model_file: WriteModel) -> None:
    common = "self.blocks[2].one.weight = self.blocks[0].one.weight"
    fields = {"epochs": 2} | model_file(LAYER_NORM.replace("self.alias", f"{common}; self.alias"))
    single = start(job(accumulation=2, **fields), every_step=True).completed()
    group = start(job(cpus=2, strategy="fsdp", **fields), every_step=True).completed()
    assert_same_training(group, single, 1e-5)
    state = checkpoint(group)["model"]
    assert torch.equal(state["blocks.0.one.weight"], state["blocks.2.one.weight"])


@pytest.mark.long
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
    assert {"none.weight", "none.bias"} == checkpoint(group)["model"].keys() - checkpoint(group)["optimizer"][
        "state"
    ].keys() - {"alias.weight", "alias.bias"}


@pytest.mark.long
def test_fsdp_batchnorm_matches_ddp(job: Make, start: Start, model_file: WriteModel) -> None:
    fields = {"epochs": 2} | model_file(BATCH_NORM)
    ddp = start(job(cpus=2, strategy="ddp", **fields), every_step=True).completed()
    group = start(job(cpus=2, strategy="fsdp", **fields), every_step=True).completed()
    assert_same_training(group, ddp)
    assert int(checkpoint(group)["model"]["blocks.1.norm.num_batches_tracked"]) == 12


@pytest.mark.parametrize(
    ("cpus", "fields"),
    [
        pytest.param(3, {"batch_size": 13}, marks=pytest.mark.long),
        pytest.param(3, {"batch_size": 2, "epochs": 1}, marks=pytest.mark.long),
        pytest.param(2, {"accumulation": 5}, marks=pytest.mark.long),
    ],
    ids=["unequal", "empty", "empty-chunks"],
)
def test_fsdp_unequal_shares_train_equally(
    job: Make, start: Start, model_file: WriteModel, cpus: int, fields: dict[str, Any]
) -> None:
    fields = {"epochs": 2} | fields | model_file(LAYER_NORM)
    single = start(job(**fields), every_step=True).completed()
    group = start(job(cpus=cpus, strategy="fsdp", **fields), every_step=True).completed()
    assert_same_training(group, single, 1e-4)


@pytest.mark.long
def test_fsdp_empty_chunks_keep_batchnorm(job: Make, start: Start, model_file: WriteModel) -> None:
    wider = "self.norm(self.one(x)[..., None].repeat(1, 1, 2))[..., 0]"  # two values of each image
    fields = {"batch_size": 6, "accumulation": 5} | model_file(BATCH_NORM.replace("self.norm(self.one(x))", wider))
    group = start(job(cpus=2, strategy="fsdp", **fields), every_step=True).completed()
    ddp = start(job(cpus=2, strategy="ddp", **fields), every_step=True).completed()
    assert_same_training(group, ddp, 1e-4)


@pytest.mark.long
def test_hsdp_replicas_are_exact(job: Make, start: Start, model_file: WriteModel) -> None:
    fields = {"epochs": 2, "clip_norm": 0.5, "ema_decay": 0.9} | model_file(LAYER_NORM)
    single = start(job(accumulation=4, **fields), every_step=True).completed()
    group = start(job(cpus=4, strategy="hsdp", replicas=2, **fields), every_step=True).completed()
    assert_same_training(group, single, 1e-4)


@pytest.mark.long
def test_fsdp_checkpoint_loads_elsewhere(job: Make, start: Start, model_file: WriteModel) -> None:
    fields = {"optimizer": "adamw", "learning_rate": 0.003, "schedule": "none", "ema_decay": 0.9}
    fields |= model_file(LAYER_NORM)
    straight = start(job(accumulation=2, epochs=4, **fields), every_step=True).completed()
    losses = []
    before: dict[str, Any] = {}
    legs = [("fsdp", 2, 1), ("single", 1, 2), ("fsdp", 2, 1), ("ddp", 2, 1)]
    for epochs, (strategy, cpus, accumulation) in enumerate(legs, 1):
        one = job(cpus=cpus, strategy=strategy, accumulation=accumulation, epochs=epochs, **fields, **before)
        leg = start(one, every_step=True).completed()
        losses += leg.losses
        before = {"resume_from": str(leg.folder / "checkpoints/last.pt")}
    np.testing.assert_allclose(losses, straight.losses, rtol=1e-6)
    actual, expected = checkpoint(leg), checkpoint(straight)
    assert_equal(actual["model"], expected["model"])
    for name, state in actual["optimizer"]["state"].items():
        assert_equal(state, expected["optimizer"]["state"][name])
    assert_equal(actual["optimizer"]["ema"], expected["optimizer"]["ema"])


def test_fsdp_bf16_keeps_fp32_shards(job: Make, start: Start, model_file: WriteModel) -> None:
    with_buffer = BATCH_NORM.replace("self.alias =", 'self.register_buffer("shift", torch.ones(64)); self.alias =')
    fields = model_file(with_buffer.replace("self.last(self.blocks(", "self.last(self.shift + self.blocks("))
    exact = start(job(cpus=2, strategy="ddp", **fields), every_step=True).completed()
    group = start(job(cpus=2, strategy="fsdp", shard_precision="bf16", **fields), every_step=True).completed()
    np.testing.assert_allclose(group.losses, exact.losses, rtol=0.05)
    assert group.losses != exact.losses
    state = checkpoint(group)
    assert {tensor.dtype for tensor in state["model"].values()} == {torch.float32, torch.int64}
    assert {s["momentum_buffer"].dtype for s in state["optimizer"]["state"].values()} == {torch.float32}


@pytest.mark.long
def test_fsdp_fp16_scales_loss(job: Make, start: Start, model_file: WriteModel) -> None:
    fields = {"precision": "fp16", "epochs": 2} | model_file(LAYER_NORM)
    single = start(job(accumulation=2, **fields), every_step=True).completed()
    group = start(job(cpus=2, strategy="fsdp", **fields), every_step=True).completed()
    assert_same_training(group, single, 1e-4)
    assert checkpoint(group)["optimizer"]["scaler"] == checkpoint(single)["optimizer"]["scaler"]


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
    scaler = checkpoint(group)["optimizer"]["scaler"]
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
    assert [path for path, _ in blocks(model)] == ["rows.0", "rows.1", "rows.2"]
    assert separate_blocks(model) == []
    model.alias = nn.Identity()
    assert separate_blocks(model) == [model.rows[2]]


def test_overlapping_parameters_are_named() -> None:
    model = Tied()
    assert tied_views(model) == ()
    flat = torch.zeros(40)
    model.halves = nn.ParameterList([nn.Parameter(flat[:20]), nn.Parameter(flat[20:])])
    assert tied_views(model) == ()
    model.register_buffer("view", model.rows[0][1].weight.detach()[3:])
    model.turned = nn.Parameter(model.rows[2][1].weight.detach().t())
    assert tied_views(model) == ("turned", "rows.0.1.weight", "rows.2.1.weight")
    meta = Tied().to("meta")
    assert tied_views(meta) == ()
