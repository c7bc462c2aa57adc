"""Networks for road extraction."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

from engine.models.meta_device import build_on_meta
from engine.strategies.pipelining.model_split import find_split_points
from engine.tasks.roads.networks import LinkNetMTL, StackHourglassNetMTL, initialize_weights, unpack_maps


def hourglass(stacks: int = 1) -> nn.Module:
    return StackHourglassNetMTL(2, 37, 3, stacks=stacks, depth=1)


def test_hourglass_returns_maps_at_three_scales() -> None:
    maps = unpack_maps(hourglass(3)(torch.zeros(2, 3, 32, 32)), 32)
    assert [tuple(each.shape) for each in maps] == [(2, 39, side, side) for side in (32, 16, 8, 8, 8)]


@pytest.mark.parametrize("encoder", ["resnet18", "tu-tf_efficientnet_lite0", "mit_b0"])
def test_linknet_returns_one_full_size_map_on_any_encoder(encoder: str) -> None:
    (scores,) = unpack_maps(LinkNetMTL(encoder, 2, 37, 1)(torch.zeros(2, 1, 64, 64)), 64)
    assert scores.shape == (2, 39, 64, 64)


def test_linknet_adds_the_encoders_maps_at_each_stride() -> None:
    model = LinkNetMTL("resnet18", 2, 37, 3).eval()
    inputs = torch.rand(1, 3, 64, 64)
    with torch.no_grad():
        e1, e2, e3, e4 = model.encoder(inputs)[2:]
        decoder = model.roads
        x = decoder.blocks[3](decoder.blocks[2](decoder.blocks[1](decoder.blocks[0](e4) + e3) + e2) + e1)
        x = functional.leaky_relu(decoder.finalconv2(functional.leaky_relu(decoder.finaldeconv1(x), 0.2)), 0.2)
        (scores,) = unpack_maps(model(inputs), 64)
        torch.testing.assert_close(scores[:, :2], decoder.finalconv3(x))


def test_packed_maps_round_trip() -> None:
    maps = [torch.randn(2, 5, side, side) for side in (8, 4, 2, 2)]
    packed = torch.cat([each.flatten(2) for each in maps], 2)
    for found, given in zip(unpack_maps(packed, 8), maps, strict=True):
        assert torch.equal(found, given)
    (found,) = unpack_maps(maps[0], 8)
    assert torch.equal(found, maps[0])


def test_networks_have_the_authors_sizes() -> None:
    """Compare the numbers of parameters with those of the authors' code."""
    sizes = [
        sum(parameter.numel() for parameter in build_on_meta(build).parameters())
        for build in (lambda: LinkNetMTL("resnet34", 2, 37, 3), lambda: StackHourglassNetMTL(2, 37, 3))
    ]
    assert sizes == [22_004_903, 29_002_012]


def test_networks_start_with_scores_near_zero() -> None:
    linknet, stacked = LinkNetMTL("resnet18", 2, 37, 3), hourglass()
    layers = [linknet.roads.finalconv3, linknet.directions.finalconv3, stacked.finalconv3, stacked.angle_finalconv3]
    deviations = [layer.weight.std().item() for layer in layers]  # type: ignore[union-attr, operator]
    assert deviations == pytest.approx([0.01] * 4, rel=0.2)


def test_initial_weights_depend_on_the_number_of_outputs() -> None:
    outputs = {"conv": 256, "score": 256, "_score_": 64}
    model = nn.ModuleDict({name: nn.Conv2d(64, count, 3) for name, count in outputs.items()})
    initialize_weights(model)
    assert [module.weight.std().item() for module in model.values()] == pytest.approx(
        [(2 / 9 / 256) ** 0.5, 0.01, (2 / 9 / 64) ** 0.5], rel=0.05
    )


def test_branches_train_themselves_and_the_trunk() -> None:
    model = hourglass(2)
    scores = unpack_maps(model(torch.randn(2, 3, 32, 32)), 32)[0]
    scores[:, :2].sum().backward()
    gradients = {name: parameter.grad for name, parameter in model.named_parameters()}
    reached = {name for name, gradient in gradients.items() if gradient is not None and gradient.any()}
    assert "conv1.weight" in reached
    assert "finalconv3.weight" in reached
    assert "score_2.0.weight" in reached  # the second hourglass gets the directions of the first
    assert not any(name.startswith(("angle_", "fc_2.1.", "hg.1.hg.0.3.")) for name in reached)


def test_hourglasses_refine_the_scores_of_each_other() -> None:
    model = StackHourglassNetMTL(2, 37, 3, stacks=2, depth=2).eval()
    received: dict[str, torch.Tensor] = {}
    returned: dict[str, Any] = {}

    def record(name: str, inputs: tuple[torch.Tensor, ...], output: Any) -> None:
        received[name], returned[name] = inputs[0], output

    for name, module in model.named_modules():
        module.register_forward_hook(lambda _module, inputs, output, name=name: record(name, inputs, output))
    with torch.no_grad():
        full, half, *quarters = unpack_maps(model(torch.randn(1, 3, 32, 32)), 32)
    corrections = [returned[name] for name in ("_fc_1.0", "_score_1.0", "_fc_2.0", "_score_2.0")]
    torch.testing.assert_close(received["hg.1"], received["hg.0"] + sum(corrections), rtol=1e-4, atol=1e-4)
    assert received["layer1"].min() >= 0
    for stack, scores in enumerate(quarters):
        branches = (returned[f"score_1.{stack}"], returned[f"score_2.{stack}"])
        torch.testing.assert_close(scores, torch.cat(branches, 1))
        for branch, output in enumerate(returned[f"hg.{stack}"]):
            assert torch.equal(received[f"res_{1 + branch}.{stack}"], output)
            larger = functional.interpolate(returned[f"hg.{stack}.hg.1.{2 + branch}"], scale_factor=2.0)
            torch.testing.assert_close(output, returned[f"hg.{stack}.hg.1.0"] + larger)
    for number, (branch, channels) in enumerate((("", slice(2)), ("angle_", slice(2, None))), 1):
        assert torch.equal(received[f"{branch}decoder1"], returned[f"fc_{number}.1"])
        assert torch.equal(full[:, channels], returned[f"{branch}finalconv3"])
        assert torch.equal(half[:, channels], returned[f"{branch}decoder1_score"])
        assert min(received[f"{branch}finalconv{layer}"].min() for layer in (2, 3)) == 0


def test_networks_split_before_their_branches() -> None:
    for build in (lambda: LinkNetMTL("resnet18", 2, 37, 3), hourglass):
        assert len(find_split_points(build_on_meta(build))) > 2


@pytest.mark.parametrize(
    ("build", "max_deviation"), [(hourglass, 0.4), (partial(LinkNetMTL, "resnet18", 2, 37, 3), 0.2)]
)
def test_fresh_networks_are_uncertain(build: Callable[[], nn.Module], max_deviation: float) -> None:
    torch.manual_seed(0)
    for scores in unpack_maps(build()(torch.randn(2, 3, 32, 32)), 32):
        assert scores[:, :2].softmax(1).sub(0.5).abs().max() < max_deviation
