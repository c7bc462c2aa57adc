"""Parameter groups with their weight decay and learning rates."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from engine.contract.job import Job
from engine.models.model_surgery import get_heads
from engine.optim.optimizer_step import Group
from engine.optim.parameter_groups import create_parameter_groups
from engine.tasks.registry import TASKS


def groups_of(**fields: object) -> dict[str, Group]:
    job = Job.from_fields(image_size=64, **fields)  # type: ignore[arg-type]
    with torch.device("meta"):
        model = TASKS[job.task].build_model(job, 5, 3)
    return create_parameter_groups(model, job)


def test_parameter_groups_default_to_equal() -> None:
    assert set(groups_of(model="resnet18").values()) == {Group(1.0, True)}


@pytest.mark.parametrize(
    ("model", "spared", "decays"),
    [
        ("resnet18", ("bn1.weight", "layer1.0.bn1.bias", "fc.bias"), ("conv1.weight", "fc.weight")),
        ("vit_b_16", ("class_token", "encoder.pos_embedding", "encoder.ln.weight"), ("conv_proj.weight",)),
        ("swin_t", ("features.1.0.attn.relative_position_bias_table",), ("features.1.0.attn.qkv.weight",)),
        (
            "timm:vit_tiny_patch16_224",
            ("cls_token", "pos_embed", "blocks.0.norm1.weight"),
            ("blocks.0.attn.qkv.weight",),
        ),
    ],
)
def test_weight_decay_excludes_norms_biases_and_tokens(
    model: str, spared: tuple[str, ...], decays: tuple[str, ...]
) -> None:
    groups = groups_of(model=model, decay_norms=False)
    assert not any(groups[name].decays for name in spared)
    assert all(groups[name].decays for name in decays)


def test_weight_decay_excludes_what_the_model_names() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    model.no_weight_decay = lambda: {"0.weight"}  # type: ignore[assignment]
    groups = create_parameter_groups(model, Job.from_fields(decay_norms=False))
    assert [name for name, group in groups.items() if group.decays] == ["1.weight"]


def test_layer_decay_reduces_rates_by_depth() -> None:
    groups = groups_of(model="resnet18", layer_decay=0.5, head_rate=3.0)
    blocks = [groups[f"layer{stage}.{block}.conv1.weight"].rate for stage in range(1, 5) for block in range(2)]
    assert blocks == [0.5**depth for depth in range(8, 0, -1)]
    assert groups["conv1.weight"].rate == groups["bn1.weight"].rate == 0.5**9
    assert groups["fc.weight"].rate == groups["fc.bias"].rate == 3.0


def test_layer_decay_counts_more_than_ten_blocks() -> None:
    groups = groups_of(model="timm:vit_tiny_patch16_224", layer_decay=0.5)
    blocks = [groups[f"blocks.{block}.norm1.weight"].rate for block in range(12)]
    assert blocks == [0.5**depth for depth in range(12, 0, -1)]


def test_layer_decay_without_blocks() -> None:
    groups = groups_of(model="mnist_cnn", layer_decay=0.5)
    assert sorted({group.rate for group in groups.values()}) == [0.125, 0.25, 0.5, 1.0]


def test_layer_decay_treats_decoder_as_head() -> None:
    job = Job.from_fields(task="segmentation", model="unet", encoder="resnet18", image_size=64, freeze_epochs=100)
    model = TASKS["segmentation"].build_model(job, 5, 3)
    assert get_heads(model) == ("decoder", "segmentation_head")
    taking = {name.split(".")[0] for name, parameter in model.named_parameters() if parameter.requires_grad}
    assert taking == {"decoder", "segmentation_head"}
