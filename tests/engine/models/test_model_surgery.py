"""Changes to small models: new heads and first layers, frozen norms and blocks, and loaded weights."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Annotated

import msgspec
import pytest
import torch
from safetensors.torch import save_file
from torch import nn
from torchvision import models

from engine.contract.job import Job
from engine.contract.options import option
from engine.contract.weights import Weights
from engine.models import registry
from engine.models.base import Model, TaskError
from engine.models.blocks import list_blocks
from engine.models.model_surgery import adapt_first_conv, match_channels, reset_large_head, set_heads
from engine.models.registry import MODELS, build_external, get_image_size, get_statistics, mark_heads
from engine.models.torchvision_models import list_pretrained_weights
from engine.models.weights import (
    InitialWeights,
    create_torchvision_source,
    format_published_accuracy,
    load,
    read_file,
    read_initial,
)
from engine.system.plugins import Registry


class Net(nn.Module):
    def __init__(self, channels: int = 3, classes: int = 5) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(channels, 4, 1), nn.BatchNorm2d(4))
        self.head = nn.Sequential(nn.Linear(4, classes), nn.BatchNorm1d(classes))
        self.header = nn.Linear(4, 2)


def test_set_heads_freezes_all_other_layers() -> None:
    net = Net()
    net.header_norm = nn.BatchNorm1d(2)
    set_heads(net, ["head"], freeze=True)
    assert not net.body[1].training
    for each in (net.train(), copy.deepcopy(net).train()):
        trained = {name for name, parameter in each.named_parameters() if parameter.requires_grad}
        assert trained == {f"head.{layer}.{kind}" for layer in (0, 1) for kind in ("weight", "bias")}
        assert (each.body[1].training, each.header_norm.training, each.head[1].training) == (False, False, True)


def test_mark_heads_needs_a_head_only_to_freeze_the_rest() -> None:
    mark_heads(Job.from_fields(), Net(), [], "Net", 5)
    with pytest.raises(TaskError, match="no layer with 5 outputs"):
        mark_heads(Job.from_fields(freeze_epochs=2), Net(), [], "Net", 5)


def test_registered_models_have_a_size_and_statistics_of_their_own() -> None:
    default = ((0.1,) * 3, (0.2,) * 3)
    for name, model in MODELS.items():
        assert get_image_size(Job.from_fields(model=name, task=model.task), 1) == model.image_size
        assert get_statistics(name, default) == (model.statistics or default)
    assert {model.statistics for model in MODELS.values()} - {None}
    assert (get_image_size(Job.from_fields(), 1), get_image_size(Job.from_fields(image_size=77), 1)) == (1, 77)


@pytest.mark.parametrize(("given", "channels", "is_adapted"), [(1, 5, True), (3, 5, True), (3, 3, True), (2, 5, False)])
def test_adapt_first_conv_repeats_the_channels(given: int, channels: int, is_adapted: bool) -> None:
    net = Net(given)
    before = copy.deepcopy(net.body[0])
    adapt_first_conv(net, channels)
    after = net.body[0]
    repeated = [number % given for number in range(channels if is_adapted else given)]
    assert after.weight.equal(before.weight[:, repeated])
    assert after.bias.equal(before.bias)


@pytest.mark.parametrize(("factor", "is_reset"), [(1, False), (9, True)])
def test_only_large_heads_are_reset(factor: float, is_reset: bool) -> None:
    net = Net()
    with torch.no_grad():
        before = net.head[0].weight.mul_(factor).clone()
    reset_large_head(net, "head.0")
    assert net.head[0].weight.equal(before) != is_reset


def test_load_adapts_channels_and_leaves_out_a_head_that_differs() -> None:
    source, net = Net(3, 7), Net(1)
    head = copy.deepcopy(net.head.state_dict())
    state = {name: tensor for name, tensor in source.state_dict().items() if "num_batches_tracked" not in name}
    state["head.0.bias"] = torch.ones(5)  # fits, but the weight does not
    load(net, InitialWeights(state, "pretrained", "It"), head="head", channels=1)
    assert net.body[0].weight.equal(match_channels(source.body[0].weight, 1))
    assert net.header.weight.equal(source.header.weight)
    assert all(head[name].equal(tensor) for name, tensor in net.head.state_dict().items())
    with pytest.raises(TaskError) as refused:
        load(net, InitialWeights({}, "pretrained", "It"), head="head", channels=1)
    assert refused.value.field == "pretrained"
    assert all(name in refused.value.message for name in ("body.0.weight", "body.0.bias", "body.1.weight"))


def test_read_file_finds_the_weights(tmp_path: Path) -> None:
    save_file({"a": torch.ones(2)}, tmp_path / "model.safetensors")
    torch.save({"epoch": 3, "state_dict_ema": {"module.a": torch.ones(2)}}, tmp_path / "a.pth")
    for path in (tmp_path, tmp_path / "a.pth"):
        (item,) = read_file(str(path)).items()
        assert (item[0], item[1].tolist()) == ("a", [1, 1])


def test_torchvision_describes_its_weights() -> None:
    weights = models.get_model_weights("resnet18").DEFAULT
    source = create_torchvision_source(weights)
    assert (source.bytes, source.crop, source.license) == (46_830_453, 0.875, "")
    assert format_published_accuracy(weights) == "ImageNet 69.8% top-1, torchvision"
    masks = models.get_model_weights("maskrcnn_resnet50_fpn").DEFAULT
    assert (create_torchvision_source(masks).crop, format_published_accuracy(masks)) == (
        Weights().crop,
        "COCO 34.6 mask AP, torchvision",
    )
    tags = {name: [each.name for each in list_pretrained_weights(name)] for name in ("vgg16", "resnet50")}
    assert tags == {"vgg16": ["IMAGENET1K_V1"], "resnet50": ["IMAGENET1K_V2", "IMAGENET1K_V1"]}
    swag = models.RegNet_Y_16GF_Weights.IMAGENET1K_SWAG_E2E_V1
    assert create_torchvision_source(swag).license == "cc-by-nc-4.0"


def test_weights_file_takes_precedence_over_pretrained_weights(tmp_path: Path) -> None:
    save_file({"a": torch.ones(2)}, tmp_path / "model.safetensors")
    given = Job.from_fields(model="resnet18", pretrained=True, weights_file=str(tmp_path))
    initial = read_initial(given, "ResNet-18")
    assert initial is not None
    assert (list(initial.state), initial.field, initial.source) == (["a"], "weights_file", str(tmp_path))
    assert read_initial(Job.from_fields(), "ResNet-18") is None


class Options(msgspec.Struct, frozen=True):
    width: Annotated[int, option("Width", "The number of channels.", ge=2)] = 3
    depth: Annotated[int, option("Depth", "The number of layers.", ge=1)] = 1


def test_model_of_a_plugin_gets_its_options(monkeypatch: pytest.MonkeyPatch) -> None:
    def build(classes: int, channels: int, options: Options) -> object:
        return Net(channels, classes) if options.width == 3 else options.width // (options.width - 5)

    mine = Model("Mine", "classification", build, options=Options)  # type: ignore[arg-type]
    monkeypatch.setattr(registry, "MODELS", Registry("footplate.models", {"mine": mine}, MODELS._accept))
    assert build_external(Job.from_fields(model="mine"), 7, 3).head[0].out_features == 7  # type: ignore[index]
    for width, field, message in (
        (1, "options.width", "2"),
        (5, "model", "The model Mine of the package  can't be built: ZeroDivisionError: "),
        (6, "model", "is a int, not a torch.nn.Module"),
    ):
        with pytest.raises(TaskError, match=message) as refused:
            build_external(Job.from_fields(model="mine", options={"width": width, "depth": width - 1}), 7, 3)
        assert refused.value.field == field


def test_blocks_are_items_with_several_layers() -> None:
    def block() -> nn.Module:
        return nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 2))

    stage, shared = nn.Sequential(block(), block(), nn.Linear(2, 2)), block()
    net = nn.ModuleDict({"stem": nn.Linear(2, 2), "stages": nn.Sequential(stage, nn.ModuleList([shared]))})
    net["again"] = nn.ModuleList([shared, block()])
    assert [name for name, _ in list_blocks(net)] == ["stages.0.0", "stages.0.1", "stages.1.0", "again.1"]
