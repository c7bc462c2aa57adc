"""Interfaces of torch that Footplate uses although they are private or differ between versions."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.distributed.pipelining import stage

from engine import torch_compat
from engine.strategies.base import use_fast_kernels
from engine.torch_compat import device_events, prepare_pipelines
from tests.support.worker_group import Forker

ENGINE = Path(__file__).parents[2] / "engine"


def list_private_names(tree: ast.AST) -> Iterator[str]:
    """Yield the private torch names that a module uses."""
    for node in ast.walk(tree):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Attribute):
            names = [ast.unparse(node)]
        yield from (name for name in names if re.match(r"(torch|dist)\b[\w.]*\._[a-zA-Z]", name))


def test_private_torch_names_are_confined() -> None:
    found = {
        str(path.relative_to(ENGINE)): names
        for path in ENGINE.rglob("*.py")
        if (names := set(list_private_names(ast.parse(path.read_text()))))
    }
    assert "torch._foreach_lerp_" in found.pop("torch_compat.py")
    assert not found


def read_tf32_switches() -> list[Any]:
    """Turn TF32 on as a GPU worker does, then off as a user may. Return the switches in both interfaces of torch.

    The first six values are read after turning it on, the others after turning it off.
    """
    use_fast_kernels()
    cuda, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
    found: list[Any] = [cuda.allow_tf32, cudnn.allow_tf32, torch.get_float32_matmul_precision()]
    found += [cuda.fp32_precision, cudnn.conv.fp32_precision, cudnn.rnn.fp32_precision]
    cuda.allow_tf32 = False
    return [*found, cuda.allow_tf32, torch.get_float32_matmul_precision(), cuda.fp32_precision == "tf32"]


def test_tf32_switches_stay_readable(forker: Forker) -> None:
    answer = forker.call(read_tf32_switches, (), {})
    assert answer == [True, True, "high", "tf32", "tf32", "tf32", False, "highest", False]


class SharedLayerModel(nn.Module):
    """Model that applies the same layer twice."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(self.layer(x).tanh())


class RecurrentModel(nn.Module):
    """Model with a layer that has several outputs, all of which are used."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.LSTM(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        outputs, (_, cell) = self.layer(x.tanh())
        return outputs.sin() * cell


@pytest.mark.parametrize("is_old", [False, True], ids=["this torch", "old torch"])
@pytest.mark.parametrize("model", [SharedLayerModel, RecurrentModel])
def test_split_backward_equals_full_backward(
    monkeypatch: pytest.MonkeyPatch, model: Callable[[], nn.Module], is_old: bool
) -> None:
    monkeypatch.setattr(stage, "stage_backward_weight", stage.stage_backward_weight)  # restored after the test
    if is_old:
        monkeypatch.setattr(torch_compat, "_RELEASE", (2, 11))
    prepare_pipelines()
    torch.manual_seed(0)
    built = model()
    weights = list(built.parameters())
    inputs = torch.randn(3, 4, requires_grad=True)
    expected = torch.autograd.grad(built(inputs).sum(), [inputs, *weights])
    for _ in range(2):  # the second microbatch adds to the gradients of the first
        (gradient,), groups = stage.stage_backward_input([built(inputs).sum()], None, [inputs], iter(weights))
        stage.stage_backward_weight(iter(weights), groups)
        torch.testing.assert_close(gradient, expected[0])
        inputs.grad = None
    for weight, weight_before in zip(weights, expected[1:], strict=True):
        torch.testing.assert_close(weight.grad, 2 * weight_before)


def test_device_events_have_names_and_durations_of_the_profile() -> None:
    layer = nn.Linear(8, 8)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        for _ in range(3):
            layer(torch.ones(4, 8))
    cpu, cuda = torch.autograd.DeviceType.CPU, torch.autograd.DeviceType.CUDA
    found = sorted((name, round(1e6 * (end - start))) for name, start, end in device_events(profile, cpu))
    expected = sorted((event.name, round(event.time_range.elapsed_us())) for event in profile.events() or ())
    assert [each for each in found if each[0] == "aten::linear"] == [
        each for each in expected if each[0] == "aten::linear"
    ]
    assert len([each for each in found if each[0] == "aten::linear"]) == 3
    assert not list(device_events(profile, cuda))
