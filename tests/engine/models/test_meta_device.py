"""Models on the meta device whose parameters and buffers are copied from another model."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

from engine.contract.catalogue import ANY_SIZE
from engine.contract.job import Job
from engine.models.meta_device import build_on_meta, build_skeleton, find_largest_single_value_size
from engine.tasks.registry import TASKS

CLASSES = 3


def build(model: str, task: str) -> nn.Module:
    torch.manual_seed(0)
    return TASKS[task].build_model(Job.from_fields(model=model, task=task, pretrained=False), CLASSES, 3)


class Hidden(nn.Module):
    """Model that keeps a tensor in a list, where torch doesn't find it."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(2, 2)
        self.scales = [{"first": torch.ones(2)}]


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(2, 2), nn.Linear(2, 2)
        self.second.weight = self.first.weight


def by_value() -> nn.Module:
    return nn.Linear(2, int(torch.ones(3).sum()))


@pytest.mark.parametrize("build", [Hidden, Tied, by_value])
def test_model_that_its_parameters_do_not_complete_has_no_skeleton(build: Callable[[], nn.Module]) -> None:
    assert build_skeleton(build) is None


@pytest.mark.parametrize("name", ["resnet18", "vit_b_16", "swin_v2_t", "convnext_tiny", "timm:tf_efficientnet_lite0"])
def test_completed_skeleton_computes_as_its_model(name: str) -> None:
    model = build(name, "classification").eval()
    other = build_skeleton(lambda: build(name, "classification"))
    assert other is not None
    other.to_empty(device="cpu")
    for tensor, copy in zip(
        (*model.parameters(), *model.buffers()), (*other.parameters(), *other.buffers()), strict=True
    ):
        copy.detach().copy_(tensor.detach())
    images = torch.rand(2, 3, 224, 224)
    with torch.no_grad():
        assert torch.equal(model(images), other.eval()(images))


class Twice(nn.Module):
    """Model that normalizes a pooled map and then the entire map with one layer."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm2d(3)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        self.norm(images.mean((2, 3), keepdim=True))
        return self.norm(images)


def stage(stride: int, *pools: nn.Module) -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(3, 3, 3, stride, 1), *pools, nn.BatchNorm2d(3))


class NeedsTargets(nn.Module):
    """Model that runs without targets only in evaluation mode."""

    def __init__(self) -> None:
        super().__init__()
        self.stage = stage(4)

    def forward(self, images: torch.Tensor, targets: torch.Tensor | None = None) -> torch.Tensor:
        if self.training and targets is None:
            raise ValueError("no targets")
        result: torch.Tensor = self.stage(images)
        return result


@pytest.mark.parametrize(
    ("model", "smallest", "expected"),
    [
        (nn.Conv2d(3, 3, 3), 8, 0),
        (stage(4), 8, 0),
        (stage(4), 1, 4),
        (nn.Sequential(stage(4), stage(2)), 1, 8),
        (stage(32), 32, 32),
        (stage(4, nn.AdaptiveAvgPool2d(1)), 8, ANY_SIZE),
        (stage(4, nn.AdaptiveAvgPool2d((1, 4))), 8, 0),
        (stage(4, nn.AvgPool2d(16)), 64, 64),
        (Twice(), 8, ANY_SIZE),
        (NeedsTargets(), 1, 4),
    ],
)
def test_largest_single_value_size_depends_on_strides(model: nn.Module, smallest: int, expected: int) -> None:
    meta = build_on_meta(lambda: model)
    assert find_largest_single_value_size(meta, 3, smallest=smallest, usual=64) == expected
    assert not any("forward" in vars(module) for module in meta.modules())
