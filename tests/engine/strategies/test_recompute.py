"""Activation checkpointing. Results must be the same with less memory."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
import torchvision
from torch import Tensor, fx, nn
from torch.nn import functional
from torchvision.models.convnext import CNBlockConfig

from engine.models.blocks import list_blocks
from engine.strategies.recompute import BufferSnapshot, checkpoint_blocks, with_recomputation


def _build(name: str) -> nn.Module:
    """Return a torchvision model, made narrow and shallow if it has such options."""
    torch.manual_seed(0)
    match name:
        case "vit":
            return torchvision.models.VisionTransformer(
                32, 8, num_layers=3, num_heads=2, hidden_dim=32, mlp_dim=64, num_classes=5, dropout=0.2
            )
        case "densenet":
            return torchvision.models.DenseNet(8, (2, 2), 8, drop_rate=0.2, num_classes=5)
        case "convnext":
            settings = [CNBlockConfig(8, 16, 2), CNBlockConfig(16, None, 2)]
            return torchvision.models.ConvNeXt(settings, stochastic_depth_prob=0.5, num_classes=5)
        case _:
            return torchvision.models.get_model(name, num_classes=5)


def _train(model: nn.Module, side: int) -> list[Tensor]:
    """Train two steps of two chunks each, and return the loss of each chunk.

    All forward passes of a step come before its backward passes, as in a pipeline. `side` is the size of the images.
    """
    torch.manual_seed(1)
    inputs = torch.randn(4, 3, side, side)
    targets = torch.arange(4)
    losses = []
    for _ in range(2):
        model.zero_grad()
        chunks = zip(inputs.chunk(2), targets.chunk(2), strict=True)
        waiting = [functional.cross_entropy(model(chunk), target) for chunk, target in chunks]
        for loss in waiting:
            loss.backward()
            losses.append(loss.detach())
        with torch.no_grad():
            for parameter in model.parameters():
                if parameter.grad is not None:
                    parameter.sub_(parameter.grad, alpha=0.01)
    return losses


@pytest.mark.parametrize("name", ["resnet18", "vit", "mobilenet_v3_small", "convnext", "densenet"])
def test_recompute_is_exact(name: str) -> None:
    plain = _build(name)
    checkpointed = copy.deepcopy(plain)
    assert checkpoint_blocks(checkpointed) == len(list_blocks(plain)) > 1
    assert list(checkpointed.state_dict()) == list(plain.state_dict())
    for module, original in zip(checkpointed.modules(), plain.modules(), strict=True):
        assert (type(module).__module__, type(module).__name__) == (type(original).__module__, type(original).__name__)
    expected = _train(plain, 32)
    assert all(map(torch.equal, _train(checkpointed, 32), expected))
    for (key, actual), expected in zip(checkpointed.state_dict().items(), plain.state_dict().values(), strict=True):
        assert torch.equal(actual, expected), key


def test_recompute_restores_buffers() -> None:
    class Counting(nn.Module):
        """Module that multiplies its input by the number of its calls, which is stored in a buffer."""

        count: Tensor

        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(3, 3)
            self.register_buffer("count", torch.zeros(()))

        def forward(self, inputs: Tensor) -> Tensor:
            self.count += 1
            return torch.tanh(self.layer(inputs) * self.count.clone())

    torch.manual_seed(0)
    plain = nn.Sequential(Counting(), Counting())
    checkpointed = copy.deepcopy(plain)
    inputs = torch.randn(2, 3)
    gradients = []
    for model, functions in (
        (plain, [plain[0].forward, plain[1].forward]),
        (checkpointed, [with_recomputation(layer.forward, layer) for layer in checkpointed]),
    ):
        outputs = [functions[1](inputs=functions[0](inputs)) for _ in range(3)]
        for output in outputs:
            output.square().sum().backward()
        gradients.append([parameter.grad for parameter in model.parameters()])
        assert [layer.count.item() for layer in model] == [3, 3]
    assert all(map(torch.equal, *gradients))


def test_recompute_twice_of_traced_stage() -> None:
    """Recompute the stage for gradients of inputs and again for those of weights, as a zero-bubble schedule does."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Dropout(0.5), nn.Conv2d(4, 4, 3))
    stage = fx.symbolic_trace(model)
    inputs = torch.randn(2, 3, 8, 8, requires_grad=True)

    def gradients(function: Callable[..., Any]) -> list[Tensor]:
        torch.manual_seed(1)
        loss = function(inputs).square().sum()
        (first,) = torch.autograd.grad(loss, [inputs], retain_graph=True)
        return [first, *torch.autograd.grad(loss, list(stage.parameters()))]

    statistics = copy.deepcopy(stage.state_dict())
    expected = gradients(stage)
    after = {name: buffer.clone() for name, buffer in stage.named_buffers()}
    stage.load_state_dict(statistics)
    assert all(map(torch.equal, gradients(with_recomputation(stage, stage)), expected))
    assert all(torch.equal(buffer, after[name]) for name, buffer in stage.named_buffers())


def _saved_bytes(function: Callable[[], Tensor], parameters: set[int]) -> int:
    """Return the number of bytes that autograd saves for the backward pass of `function`, without parameters.

    `parameters` holds the data pointers of these parameters.
    """
    saved: dict[int, int] = {}

    def pack(tensor: Tensor) -> Tensor:
        if tensor.data_ptr() not in parameters:
            saved[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        result = function()
    assert result.requires_grad
    return sum(saved.values())


def test_recompute_saves_memory() -> None:
    plain = _build("resnet18")
    checkpointed = copy.deepcopy(plain)
    checkpoint_blocks(checkpointed)
    inputs = torch.randn(2, 3, 64, 64)
    saved = [
        _saved_bytes(partial(model, inputs), {parameter.data_ptr() for parameter in model.parameters()})
        for model in (plain, checkpointed)
    ]
    # What remains is the stem, each block's input, and the last layers.
    assert saved[1] < 0.55 * saved[0]


def test_recompute_is_skipped_without_gradients() -> None:
    model = _build("resnet18").eval()
    checkpoint_blocks(model)
    with torch.no_grad():
        output = model(torch.randn(1, 3, 32, 32))
    assert output.grad_fn is None


def test_blocks_are_outermost() -> None:
    names = [name for name, _ in list_blocks(_build("resnet18"))]
    assert names == [f"layer{row}.{item}" for row in range(1, 5) for item in range(2)]
    assert [name for name, _ in list_blocks(_build("vit"))] == [
        f"encoder.layers.encoder_layer_{item}" for item in range(3)
    ]
    assert list_blocks(nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU())) == []
    inner = nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 2))
    assert [name for name, _ in list_blocks(nn.ModuleList([inner, nn.ReLU(), inner]))] == ["0"]


def test_buffer_snapshot_can_be_used_again() -> None:
    norm, inside = nn.BatchNorm1d(3), []
    snapshot = BufferSnapshot(norm)
    for _ in range(2):
        with snapshot:
            norm(torch.ones(4, 3))
            inside.append(norm.get_buffer("running_mean").tolist())
    assert inside == [pytest.approx([0.1] * 3)] * 2
    assert norm.get_buffer("running_mean").tolist() == [0.0] * 3
