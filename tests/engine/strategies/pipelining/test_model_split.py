"""Split points of real models, tested in a single process."""

from __future__ import annotations

import cProfile
import itertools
import operator
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, fx, nn
from torch.nn import functional
from torchvision import models

from engine.parallel.split_points import CannotSplit
from engine.strategies.pipelining.model_split import _is_in_place, find_split_points, split_graph, trace
from engine.strategies.pipelining.stage import StageModule
from engine.strategies.pipelining.stage_state import PlainState, share_buffers


def test_split_points_of_meta_model() -> None:
    with torch.device("meta"):
        model = models.resnet18()
    places = find_split_points(model)
    assert [place.module for place in places][-2:] == ["layer4.1.relu", "avgpool"]
    assert len(places) == 12
    assert model.training


class _Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, inputs: Tensor) -> Tensor:
        return torch.relu(self.linear(inputs))


class _Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.Sequential(_Block(), _Block())
        self.scale, self.head = nn.Parameter(torch.ones(4)), nn.Linear(4, 2)

    def forward(self, inputs: Tensor) -> Tensor:
        scale = self.scale
        return self.head(torch.tanh(self.blocks(inputs)) * scale)  # type: ignore[no-any-return]


def test_split_points_name_the_innermost_module_or_function() -> None:
    modules = [point.module for point in find_split_points(_Net())]
    assert modules == ["blocks.0.linear", "blocks.0", "blocks.1.linear", "blocks.1", "tanh", "mul"]


@pytest.mark.parametrize(
    ("name", "size"), [("alexnet", 64), ("resnet18", 32), ("convnext_tiny", 32), ("swin_t", 32), ("densenet121", 32)]
)
def test_split_stages_equal_the_model(name: str, size: int) -> None:
    torch.manual_seed(0)
    model = models.get_model(name)
    traces = trace(model)
    inputs = torch.randn(2, 3, size, size)
    for graph, training in ((traces.train, True), (traces.eval, False)):
        model.train(training)
        parts = split_graph(model, graph, traces.points)
        assert len(parts) == len(traces.points) + 1
        stage_keys = list(itertools.chain.from_iterable(stage.state_dict() for stage in parts))
        assert sorted(stage_keys) == sorted(model.state_dict())
        with torch.no_grad():
            torch.manual_seed(1)
            expected = model(inputs)
            torch.manual_seed(1)
            crossing = inputs
            for stage in parts:
                crossing = stage(crossing)
                assert crossing.is_contiguous()
        assert torch.equal(crossing, expected)


def test_split_stages_have_the_gradients() -> None:
    torch.manual_seed(0)
    model = models.squeezenet1_1(dropout=0.0)
    traces = trace(model)
    inputs = torch.randn(2, 3, 64, 64)
    model(inputs).sum().backward()
    expected = {name: parameter.grad for name, parameter in model.named_parameters()}
    model.zero_grad()
    ends: list[tuple[Tensor, Tensor]] = []
    crossing = inputs
    for stage in split_graph(model, traces.train, traces.points):
        start = crossing.detach().requires_grad_()
        crossing = stage(start)
        ends.append((start, crossing))
    gradient: Tensor | None = torch.ones_like(crossing)
    for start, end in reversed(ends):
        end.backward(gradient)
        gradient = start.grad
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(parameter.grad, expected[name], rtol=1e-5, atol=1e-6)


class _Shared(nn.Module):
    """Model that uses the same module as its first and last layer."""

    def __init__(self) -> None:
        super().__init__()
        self.outer, self.middle = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.outer(self.middle(self.outer(x)))
        return result


class _SharedBuffers(_Shared):
    def __init__(self) -> None:
        super().__init__()
        self.outer = nn.BatchNorm1d(4, affine=False)  # type: ignore[assignment]


class _Residual(nn.Module):
    """Model in which two tensors are needed at every point except the end."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.last = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x: Tensor, unused: Tensor | None = None) -> Tensor:
        y = torch.relu(self.first(x))
        result: Tensor = self.last(self.second(y) + x)
        return result


class _InPlace(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        y = self.first(x)
        y.view(-1).add_(1.0)
        result: Tensor = self.last(y.relu_().flatten(1))
        return result


class _Flattened(nn.Module):
    """Model whose `reshape` changes the shape between two layers, and whose third layer's output is unused."""

    def __init__(self, reshape: Callable[[nn.Module, Tensor], Tensor]) -> None:
        super().__init__()
        self.first, self.dropout, self.last, self.unused = (
            nn.Linear(4, 4),
            nn.Dropout(0.0),
            nn.Linear(4, 4),
            nn.Linear(4, 4),
        )
        self.reshape = reshape

    def forward(self, x: Tensor) -> Tensor:
        y = self.first(x)
        self.unused(y)
        result: Tensor = self.last(self.reshape(self, y))
        return result


class _Branching(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.layer(x) if x.sum() > 0 else x
        return result


class _Tied(nn.Module):
    """Model that reuses its first layer's weight outside that layer."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return functional.linear(torch.tanh(self.layer(x)), self.layer.weight)


@pytest.mark.parametrize("model", [_Shared, _SharedBuffers, _Tied])
def test_split_divides_parameters(model: type[nn.Module]) -> None:
    with pytest.raises(CannotSplit, match="no position"):
        find_split_points(model())


def test_split_point_passes_single_tensor() -> None:
    assert [place.node for place in find_split_points(_Residual())] == ["add"]


def test_split_point_avoids_views_and_in_place_changes() -> None:
    assert [place.node for place in find_split_points(_InPlace())] == ["relu_"]
    on_a_view = _Flattened(lambda _, y: y.view(-1, 4).relu_().exp())
    assert [place.node for place in find_split_points(on_a_view)] == ["exp"]


@pytest.mark.parametrize(
    "reshape",
    [
        lambda _, y: y.view(-1, 4).contiguous(),
        lambda _, y: y.flatten(0).reshape(-1, 4).to(torch.float32),
        lambda model, y: model.dropout(y.view(-1, 4)),
    ],
)
def test_split_point_avoids_outputs_that_may_be_views_or_are_unused(
    reshape: Callable[[nn.Module, Tensor], Tensor],
) -> None:
    assert [place.node for place in find_split_points(_Flattened(reshape))] == ["first"]


@pytest.mark.parametrize(
    ("kind", "target", "options", "is_in_place"),
    [
        ("call_function", operator.setitem, {}, True),
        ("call_function", operator.iadd, {}, True),
        ("call_function", operator.add, {}, False),
        ("call_function", operator.invert, {}, False),
        ("call_function", torch.relu_, {}, True),
        ("call_function", torch.relu, {}, False),
        ("call_function", functional.relu, {"inplace": True}, True),
        ("call_function", functional.relu, {"inplace": False}, False),
        ("call_method", "relu_", {}, True),
        ("call_method", "__iadd__", {}, True),
        ("call_method", "__add__", {}, False),
        ("call_method", "add", {}, False),
        ("call_module", "changing", {}, True),
        ("call_module", "plain", {}, False),
        ("get_attr", "weight_", {}, False),
    ],
)
def test_in_place_operations_are_known(kind: str, target: Any, options: dict[str, Any], is_in_place: bool) -> None:
    node = fx.Graph().create_node(kind, target, (1.0,), options)
    assert _is_in_place(node, {"changing": nn.ReLU(inplace=True), "plain": nn.ReLU()}) == is_in_place


class _TwoOutputs(_Block):
    def forward(self, inputs: Tensor) -> tuple[Tensor, Tensor]:  # type: ignore[override]
        return super().forward(inputs), inputs


class _TwoInputs(_Block):
    def forward(self, inputs: Tensor, others: Tensor) -> Tensor:  # type: ignore[override]
        return super().forward(super().forward(inputs)) + super().forward(others)


@pytest.mark.parametrize(
    ("model", "message"),
    [(_Branching, "depends on its input"), (_TwoOutputs, "more than one output"), (_TwoInputs, "more than one input")],
)
def test_trace_refuses_model(model: type[nn.Module], message: str) -> None:
    with pytest.raises(CannotSplit, match=message):
        find_split_points(model())


class _OtherInOneMode(nn.Module):
    """Model with an additional layer in training mode if `in_training`, otherwise in evaluation mode.

    The additional layer comes before the split points of both modes.
    """

    def __init__(self, in_training: bool) -> None:
        super().__init__()
        self.in_training = in_training
        self.first, self.additional, self.second = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 4)
        self.last = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        if self.training == self.in_training:
            x = self.additional(x)
        result: Tensor = self.last(self.second(x))
        return result


@pytest.mark.parametrize("in_training", [True, False])
def test_split_points_agree_in_both_modes(in_training: bool) -> None:
    assert [place.node for place in find_split_points(_OtherInOneMode(in_training))] == ["first"]


def test_plain_state_includes_unused_and_renamed_tensors() -> None:
    model = _Net()
    model.unused, model.alias = nn.BatchNorm1d(2), model.head
    traces = trace(model)
    parts = split_graph(model, traces.train, traces.points)
    plain, other = PlainState(model, parts), {name: tensor + 1 for name, tensor in model.state_dict().items()}
    plain.load(parts, other)
    joined = plain.join(stage.state_dict() for stage in parts)
    assert list(joined) == list(other)
    assert all(map(torch.equal, joined.values(), other.values()))


class _Transposing(nn.Module):
    """Model that transposes its input before its only layer."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(2, 2)

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(self.layer(x.t().contiguous()))


@pytest.mark.parametrize(("recompute", "calls"), [(False, 1), (True, 2)])
def test_stage_recomputes_on_request_and_returns_contiguous_gradients(recompute: bool, calls: int) -> None:
    graph, called = fx.symbolic_trace(_Transposing()), []
    graph.get_submodule("layer").register_forward_hook(lambda *_: called.append(True))
    received = torch.ones(2, 3, requires_grad=True)
    output = StageModule(graph, lambda: torch.autocast("cpu", torch.bfloat16), recompute=recompute)(received)
    assert output.dtype == torch.bfloat16
    (gradient,) = torch.autograd.grad(output, received, torch.arange(6.0).view(3, 2).bfloat16())
    assert gradient.is_contiguous()
    assert len(called) == calls


def test_evaluation_uses_the_buffers_of_training() -> None:
    trained, evaluated = (nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)) for _ in range(2))
    trained.register_buffer("for_training", torch.zeros(1))
    share_buffers(trained, evaluated)
    trained(torch.randn(4, 2))
    assert evaluated.get_buffer("1.running_mean").any()
    assert [name for name, _ in evaluated.named_buffers()] == [name for name, _ in trained[1].named_buffers("1")]


def test_split_points_take_linear_time() -> None:
    """Count function calls, because their number doesn't depend on the machine's load."""

    def calls(layers: int) -> int:
        model = nn.Sequential(*(nn.Linear(2, 2) for _ in range(layers)))
        profile = cProfile.Profile()
        profile.runcall(find_split_points, model)
        return sum(entry.callcount for entry in profile.getstats())

    assert calls(400) < 1.2 * 4 * calls(100)
