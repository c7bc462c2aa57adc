"""Tracing of a model, detection of its split points, and division into pipeline stages.

A model is traced with torch.fx, once in training and once in evaluation mode, because functional calls fix
`training=self.training` in the graph. A split point is a node after which the graph may be split. These conditions must
hold, or stages would fail or compute wrong results:

- A single tensor crosses the split point, so that only activations travel between stages.

- That tensor is not a view, and nothing after the split point modifies it in place. It arrives as a leaf that
  requires a gradient.

- No parameter or buffer is used on both sides, where it would be updated twice.

- Both traces have the split point, with the same parameters before it.
"""

from __future__ import annotations

import itertools
import operator
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

from torch import fx, nn

from engine.parallel.split_points import CannotSplit


@dataclass(frozen=True, slots=True)
class SplitPoint:
    """Split point after the graph node `node`, which belongs to the submodule `module` (dotted path)."""

    node: str
    module: str


@dataclass(frozen=True)
class Traces:
    """Graphs of a model in training mode and in evaluation mode.

    `points` lists the split points that exist in both graphs, in order.
    """

    train: fx.Graph
    eval: fx.Graph
    points: tuple[SplitPoint, ...]


VIEWS = frozenset(
    {
        "chunk", "detach", "diagonal", "expand", "expand_as", "flatten", "movedim", "moveaxis", "narrow", "permute",
        "ravel", "reshape", "select", "split", "squeeze", "swapaxes", "swapdims", "t", "tensor_split", "transpose",
        "type_as", "unbind", "unflatten", "unfold", "unsqueeze", "view", "view_as", "getitem",
    }
)  # fmt: skip
"""Functions and methods whose result may share memory with their input."""

MAY_RETURN_INPUT = frozenset({"contiguous", "dropout", "stochastic_depth", "to", "float"})
"""Functions and methods that may return their input itself."""

NOT_TENSORS = frozenset({"getattr", "size", "dim", "numel", "_assert", "len", "eq", "ne", "floordiv", "mod"})
"""Functions and methods that return numbers, shapes or booleans."""

_VIEW_MODULES = (nn.Flatten, nn.Unflatten)
_MAY_RETURN_INPUT_MODULES = (nn.Identity, nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout)
_TUPLE_MODULES = (nn.MultiheadAttention, nn.RNNBase)


def find_split_points(model: nn.Module) -> list[SplitPoint]:
    """Return all split points of `model`, in the order of computation.

    Nothing is computed, so the model may be on the meta device. Its modules keep their modes. Raises CannotSplit if
    there is no split point or if the model can't be traced.
    """
    return list(trace(model).points)


def trace(model: nn.Module) -> Traces:
    """Trace `model` in training and in evaluation mode. Raises CannotSplit like `find_split_points`."""
    with preserve_modes(model):
        in_training = _trace_graph(model.train())
        in_evaluation = _trace_graph(model.eval())
    modules = dict(model.named_modules())
    points = _find_common_split_points(
        _find_in_graph(model, in_training, modules), _find_in_graph(model, in_evaluation, modules)
    )
    if not points:
        raise CannotSplit("there is no position at which a single tensor passes from one part of it to the next")
    return Traces(in_training, in_evaluation, points)


@contextmanager
def preserve_modes(model: nn.Module) -> Iterator[None]:
    """Context manager that restores the mode (training or evaluation) of each module when it exits.

    Calling `train` on the model would not do this, since frozen layers may have another mode than the model.
    """
    modes = {module: module.training for module in model.modules()}
    try:
        yield
    finally:
        for module, training in modes.items():
            module.training = training


def _trace_graph(model: nn.Module) -> fx.Graph:
    """Trace `model` in its current mode. Raises CannotSplit if it can't be traced, or has several inputs or outputs."""
    try:
        graph = fx.Tracer().trace(model)
    except Exception as error:
        # Tracing runs the model's own Python, which may fail in any way.
        raise CannotSplit(f"it can't be traced, since its computation depends on its input ({error})") from error
    result = next(node for node in graph.nodes if node.op == "output").args[0]
    if not isinstance(result, fx.Node):
        raise CannotSplit("it returns more than one output")
    if sum(node.op == "placeholder" and bool(node.users) for node in graph.nodes) != 1:
        raise CannotSplit("it takes more than one input")
    # Move constants next to their first use, so that they do not cross a split point before it. The order of all other
    # nodes remains the same, and no constant uses another one.
    order = {node: index for index, node in enumerate(graph.nodes)}
    for node in [node for node in order if node.op == "get_attr" and node.users]:
        min(node.users, key=order.__getitem__).prepend(node)
    return graph


class _PointLocation(NamedTuple):
    """Position of a split point's node in a graph, and the number of parameters and buffers used up to there."""

    position: int
    used_tensors: int


class _GraphSplitPoints(NamedTuple):
    """Split points found in one graph, and the first use of each of its parameters and buffers.

    `first_used` has the position of the first node that uses each tensor, in graph order. Keys are the tensors' ids.
    """

    locations: dict[SplitPoint, _PointLocation]
    first_used: dict[int, int]


def _find_common_split_points(train: _GraphSplitPoints, evaluation: _GraphSplitPoints) -> tuple[SplitPoint, ...]:
    """Return the split points that both graphs have, with the same parameters and buffers before them.

    These sets of tensors are equal if they have equal sizes, and the evaluation graph uses every tensor of the training
    graph's set before its split point.
    """
    first_uses = (evaluation.first_used.get(tensor, sys.maxsize) for tensor in train.first_used)
    # Item n is where the evaluation graph has used the training graph's first n tensors.
    all_used_at = list(itertools.accumulate(first_uses, max, initial=-1))
    common = []
    for point, (_, count) in train.locations.items():
        location = evaluation.locations.get(point)
        if location is not None and count == location.used_tensors and all_used_at[count] <= location.position:
            common.append(point)
    return tuple(common)


def _find_in_graph(model: nn.Module, graph: fx.Graph, modules: dict[str, nn.Module]) -> _GraphSplitPoints:
    """Find the split points of a traced model: the nodes of `graph` that a stage can end with.

    After such a node, its output is the only intermediate tensor that later nodes use, no parameter or buffer is used
    on both sides, and no later operation modifies the output in place. `modules` has the modules of the model by dotted
    path.
    """
    nodes = list(graph.nodes)
    order = {node: number for number, node in enumerate(nodes)}
    last_use = [max((order[user] for user in node.users), default=-1) for node in nodes]
    outputs_last_used_at = Counter(last_use)
    used_tensors = [_find_used_tensors(model, node, modules) for node in nodes]
    last_tensor_use = {tensor: number for number, tensors in enumerate(used_tensors) for tensor in tensors}
    last_call = max((number for number, node in enumerate(nodes) if node.op.startswith("call_")), default=0)
    locations: dict[SplitPoint, _PointLocation] = {}
    first_used: dict[int, int] = {}
    alive = 0  # number of outputs until now that later nodes use
    needed_until = -1  # position of the last use of a parameter or buffer used until now
    for number, node in enumerate(nodes[:last_call]):  # after the last call, no computation remains for another stage
        for tensor in used_tensors[number]:
            first_used.setdefault(tensor, number)
            needed_until = max(needed_until, last_tensor_use[tensor])
        is_used_later = last_use[number] > number
        alive += int(is_used_later) - outputs_last_used_at[number]
        is_only_output = is_used_later and alive == 1
        if not is_only_output or needed_until > number:
            continue
        if _is_fresh_tensor(node, modules) and not _is_changed_in_place(node, modules):
            locations[SplitPoint(node.name, module_of(node))] = _PointLocation(number, len(first_used))
    return _GraphSplitPoints(locations, first_used)


def _find_used_tensors(model: nn.Module, node: fx.Node, modules: dict[str, nn.Module]) -> set[int]:
    """Return the ids of the parameters and buffers that `node` uses."""
    if node.op == "call_module":
        module = modules[str(node.target)]
        return {id(tensor) for tensors in (module.parameters(), module.buffers()) for tensor in tensors}
    if node.op == "get_attr":
        value: Any = model
        for attribute in str(node.target).split("."):
            value = getattr(value, attribute)
        return {id(value)}
    return set()


def _get_function_name(node: fx.Node) -> str:
    """Return the name of the function or method that `node` calls."""
    return node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")


def _is_fresh_tensor(node: fx.Node, modules: dict[str, nn.Module]) -> bool:
    """Return True if the output of `node` is a new tensor, which shares no memory with any other tensor.

    The classes of modules and the names of functions and methods decide.
    """
    while True:
        if node.op == "call_module":
            module = modules[str(node.target)]
            if isinstance(module, (*_VIEW_MODULES, *_TUPLE_MODULES)):
                return False
            may_return_input = isinstance(module, _MAY_RETURN_INPUT_MODULES)
        elif node.op in ("call_function", "call_method"):
            name = _get_function_name(node)
            if name in VIEWS or name in NOT_TENSORS:
                return False
            may_return_input = name in MAY_RETURN_INPUT
        else:
            return False
        if not may_return_input and not _is_in_place(node, modules):
            return True
        if not node.args or not isinstance(node.args[0], fx.Node):
            return False
        node = node.args[0]  # the output may be this input, so it is fresh only if the input is


def _is_in_place(node: fx.Node, modules: dict[str, nn.Module]) -> bool:
    """Return True if `node` may modify its input in place, judging by the names of functions and options."""
    if node.op == "call_module":
        return bool(getattr(modules[str(node.target)], "inplace", False))
    if node.op == "call_method":
        name = str(node.target)
        return (name.endswith("_") and not name.endswith("__")) or name.startswith("__i")
    if node.op == "call_function":
        name = _get_function_name(node)
        is_operator = getattr(operator, name, None) is node.target  # such as operator.iadd
        if is_operator and name.startswith("i") and name[1:] in _IN_PLACE_OPERATORS:
            return True
        return name.endswith("_") or bool(node.kwargs.get("inplace", False)) or name == "setitem"
    return False


_IN_PLACE_OPERATORS = frozenset({"add", "sub", "mul", "truediv", "floordiv", "pow", "matmul", "and", "or", "xor"})


def _is_changed_in_place(node: fx.Node, modules: dict[str, nn.Module]) -> bool:
    """Return True if a later operation modifies the output of `node`, or a view of it, in place."""
    for user in node.users:
        if user.args and user.args[0] is node and _is_in_place(user, modules):
            return True
        returns_tensor = user.op.startswith("call_") and _get_function_name(user) not in NOT_TENSORS
        is_view = returns_tensor and not _is_fresh_tensor(user, modules)
        if is_view and _is_changed_in_place(user, modules):
            return True
    return False


def module_of(node: fx.Node) -> str:
    """Return the dotted path of the submodule that contains `node`, or the node's name if it is not in a submodule."""
    if node.op == "call_module":
        return str(node.target)
    stack = node.meta.get("nn_module_stack")
    return str(next(reversed(stack))) if stack else node.name


def split_graph(model: nn.Module, graph: fx.Graph, points: Sequence[SplitPoint]) -> list[fx.GraphModule]:
    """Divide `graph` into modules, the stages, which end at the split points `points`. `graph` stays unchanged.

    The modules share the parameters of `model` and have the same parameter names. Each makes its output contiguous,
    because NCCL has sent wrong values between tensors with different strides (pytorch#62283).
    """
    ends = {point.node for point in points}
    stages: list[fx.GraphModule] = []
    stage = fx.Graph()
    copies: dict[fx.Node, fx.Node] = {}  # nodes of `graph`, with their copies in `stage`
    for node in graph.nodes:
        if node.op == "output":
            stage.output(copies[node.args[0]])
            stages.append(fx.GraphModule(model, stage, "Stage"))
            break
        copies[node] = stage.node_copy(node, copies.__getitem__)
        if node.name in ends:
            stage.output(stage.call_method("contiguous", (copies[node],)))
            stages.append(fx.GraphModule(model, stage, "Stage"))
            stage = fx.Graph()
            copies = {node: stage.placeholder("received")}
    return stages
