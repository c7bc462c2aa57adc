"""Backbones that remain frozen up to a certain epoch."""

from __future__ import annotations

import torch
from torch import nn

from engine.contract.job import Job
from engine.tasks.registry import TASKS
from engine.training.callbacks.unfreezing import disable_gradients, enable_frozen_gradients, unfreeze


def make_frozen_model() -> nn.Module:
    return TASKS["classification"].build_model(Job.from_fields(model="resnet18", freeze_epochs=100), 3, 3)


def list_trained_parameters(model: nn.Module) -> set[str]:
    """Return the names of the parameters that have gradients after a backward pass."""
    model.zero_grad()
    model(torch.rand(2, 3, 32, 32)).sum().backward()
    return {name for name, parameter in model.named_parameters() if parameter.grad is not None}


def test_frozen_backbone_until_unfrozen() -> None:
    model = make_frozen_model()
    names = {name for name, _ in model.named_parameters()}
    frozen_names = enable_frozen_gradients(model)
    assert frozen_names == names - {"fc.weight", "fc.bias"}
    assert list_trained_parameters(model) == names
    disable_gradients(model, frozen_names)
    assert list_trained_parameters(model) == {"fc.weight", "fc.bias"}
    before = model.get_buffer("bn1.running_mean").clone()
    assert torch.equal(before, make_frozen_model().get_buffer("bn1.running_mean"))
    model.eval()
    model.train()
    assert not model.get_submodule("bn1").training
    unfreeze(model)
    assert list_trained_parameters(model) == names
    assert not torch.equal(before, model.get_buffer("bn1.running_mean"))
    model.eval()
    assert not model.get_submodule("bn1").training
    model.train()
    assert model.get_submodule("bn1").training
