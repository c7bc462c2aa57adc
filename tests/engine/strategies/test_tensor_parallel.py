"""Layers that tensor parallelism divides, including the attention heads of a timm ViT."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from timm.layers import Attention
from torch import nn
from torch.distributed.tensor import Shard
from torchvision.models.vision_transformer import EncoderBlock

from engine.contract.events import Failed, LogLine
from engine.contract.job import Job
from engine.optim.shards import get_slice, pack_qkv, unpack_qkv
from engine.strategies import STRATEGIES, StrategyError
from engine.strategies.collectives import Collectives
from engine.strategies.layer_split import find_layer_pairs
from engine.strategies.tensor_parallel import gpu_type
from tests.engine.strategies.comparison import assert_same_training
from tests.support.specs import make_worker_spec

Make = Callable[..., Job]
Start = Callable[..., Any]
WriteModel = Callable[[str], dict[str, str]]

HEADS = """
from timm.models.vision_transformer import VisionTransformer

def build_model(num_classes):
    return VisionTransformer(
        img_size=16, patch_size=4, embed_dim=32, depth=2, num_heads=4, mlp_ratio=2, num_classes=num_classes,
        proj_drop_rate=0.1, drop_path_rate=0.1)
"""
NOTHING = """
from torch import nn

def build_model(num_classes):
    return nn.Sequential(nn.Flatten(), nn.Linear(768, 16), nn.BatchNorm1d(16), nn.Tanh(), nn.Linear(16, num_classes))
"""


def test_pack_qkv_groups_heads_by_rank() -> None:
    rows = torch.arange(12)
    assert pack_qkv(rows, 2).tolist() == [0, 1, 4, 5, 8, 9, 2, 3, 6, 7, 10, 11]
    weight = torch.randn(36, 5)
    assert torch.equal(unpack_qkv(pack_qkv(weight, 3), 3), weight)


@pytest.mark.parametrize(
    ("coordinate", "packed", "rows"),
    [((1, 0), None, [3, 4]), ((0, 1), None, [5, 6, 7]), ((3, 1), None, []), ((0, 1), 2, [2, 3, 6]), ((1, 1), 2, [7, 10, 11])],
)  # fmt: skip
def test_slices_are_divided_by_tensor_parallelism_first(
    coordinate: tuple[int, int], packed: int | None, rows: list[int]
) -> None:
    """Check the rows of the rank at `coordinate` in a mesh of sharding ranks and two tensor-parallel ranks."""
    size, sharding_ranks = (12, 2) if packed else (10, max(2, coordinate[0] + 1))
    mesh = SimpleNamespace(shape=(sharding_ranks, 2), get_coordinate=lambda: coordinate)
    like = SimpleNamespace(shape=(size,), device_mesh=mesh, placements=(Shard(0), Shard(0)))
    if packed:
        like.packed_for = packed
    assert get_slice(torch.arange(size), like).tolist() == rows


@pytest.mark.parametrize(("other", "is_same"), [(("H200", 132), True), (("H200", 66), False), (("H100", 132), False)])
def test_gpu_types_differ_by_name_and_size(
    monkeypatch: pytest.MonkeyPatch, other: tuple[str, int], *, is_same: bool
) -> None:
    found = {0: SimpleNamespace(name="H200", multi_processor_count=132)}
    found[1] = SimpleNamespace(name=other[0], multi_processor_count=other[1])
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: found[device.index])
    assert (gpu_type(torch.device("cuda", 0)) == gpu_type(torch.device("cuda", 1))) is is_same
    assert gpu_type(torch.device("cpu")) == "CPU"


@pytest.mark.parametrize(
    ("dropout", "other", "is_refused"), [(0.1, "H100", True), (0.1, "H200", False), (0.0, "H100", False)]
)
def test_models_with_dropout_need_gpus_of_one_type(dropout: float, other: str, is_refused: bool) -> None:
    class TwoGpus(Collectives):
        def all_gather_objects(self, value: Any) -> list[Any]:
            return ["H200", other]

    strategy: Any = STRATEGIES["tp"](make_worker_spec(Job.from_fields(strategy="tp", devices=("cpu", "cpu"))))
    strategy.collectives = TwoGpus()
    with pytest.raises(StrategyError, match="H100, H200") if is_refused else nullcontext():
        strategy._check_equal_gpus(nn.Sequential(nn.Dropout(dropout)))


def test_layer_pairs_are_divisible() -> None:
    def linear() -> nn.Linear:
        return nn.Linear(8, 8)

    row = [linear(), nn.GELU(), nn.Dropout(0.1), linear(), nn.ReLU(), linear(), nn.BatchNorm1d(8), nn.ReLU(), linear()]
    model = nn.Sequential(*row, linear())
    (pair,) = find_layer_pairs(model)
    assert (pair.first, pair.second, pair.units, pair.dropouts) == (row[0], row[3], 8, (row[2],))
    # Those after `second` must not change its output in place.
    assert pair.elementwise == (row[1], row[2], row[4], row[7])
    model[8].weight = model[3].weight
    assert find_layer_pairs(model) == []
    assert find_layer_pairs(nn.Sequential(nn.Linear(7, 8), nn.GELU(), linear())) == [], "it has few inputs"


def test_attention_is_divided_unless_its_heads_share_dropout_or_norms() -> None:
    for options, pairs in (({}, 1), ({"attn_drop": 0.1}, 0), ({"qk_norm": True, "norm_layer": nn.LayerNorm}, 0)):
        assert len(find_layer_pairs(Attention(32, 4, **options))) == pairs
    for dropout, is_attention in ((0.0, [True, False]), (0.1, [False])):
        block = EncoderBlock(2, 16, 32, 0.0, dropout)
        assert [pair.attention is not None for pair in find_layer_pairs(block)] == is_attention


@pytest.mark.parametrize(
    ("strategy", "cpus"),
    [("tp", 2), pytest.param("ddp_tp", 4, marks=pytest.mark.long), pytest.param("fsdp_tp", 4, marks=pytest.mark.long)],
)
def test_tensor_parallel_trains_equally(
    job: Make, start: Start, model_file: WriteModel, strategy: str, cpus: int
) -> None:
    """Train with gradient clipping, weight decay, layer-wise learning rate decay, and weight averaging."""
    fields: dict[str, Any] = {"optimizer": "adamw", "learning_rate": 0.003, "schedule": "none", "ema_decay": 0.9}
    fields |= {"clip_norm": 0.5, "epochs": 2, "weight_decay": 0.1, "decay_norms": False, "layer_decay": 0.8}
    if cpus == 4:  # groups with unequal shares and separate random numbers
        fields |= {"batch_size": 11, "activation_checkpointing": True, "momentum": 0.9, "optimizer": "sgd"}
    fields |= model_file(HEADS if cpus == 2 else HEADS.replace("0.1", "0.0"))
    single = start(job(**fields), every_step=True).completed()
    group = start(job(cpus=cpus, strategy=strategy, **fields), every_step=True).completed()
    assert_same_training(group, single, 1e-3, losses_rtol=1e-5)
    (remark,) = [line.text for line in group.of(LogLine) if "divided among" in line.text]
    assert re.findall(r"\d+", remark) == ["2", "2", "2", "87"]


def test_tensor_parallel_refuses_indivisible_model(job: Make, start: Start, model_file: WriteModel) -> None:
    group = start(job(cpus=2, strategy="tp", **model_file(NOTHING)))
    assert group.finish() == [1, 1]
    cause = group.of(Failed, 0)[0].cause
    assert "no layers that Tensor parallel can divide among 2 devices" in cause
    assert "Choose another strategy" in cause
