"""Where a model may be cut into pipeline stages, and which cuts balance them.

A model is traced with torch.fx, once in training and once in evaluation mode, because functional calls
bake `training=self.training` into the graph. A place is the output of a node after which the graph may
be cut. It has to keep these rules, each of which gave wrong or failing stages when ignored:

- a single tensor crosses, so that nothing but activations travels between stages;
- that tensor is no view, and nothing after the cut changes it in place (it arrives as a leaf that needs
  a gradient);
- no parameter or buffer is used on both sides (it would be stepped twice);
- both traces have the place, with the same parameters before it.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx, nn


class CannotCut(ValueError):  # noqa: N818 - it is an answer about a model, not a fault
    """The model cannot be cut into stages; the text is the reason, a clause in plain words."""


@dataclass(frozen=True, slots=True)
class CutPlace:
    """A place to cut: after graph node `node`, which belongs to the submodule `module` (dotted path)."""

    node: str
    module: str


@dataclass(frozen=True)
class Traces:
    """A model's graph in training and in evaluation mode, and the places that both have, in order."""

    train: fx.Graph
    eval: fx.Graph
    places: tuple[CutPlace, ...]


VIEWS = frozenset(
    {
        "chunk", "detach", "diagonal", "expand", "expand_as", "flatten", "movedim", "moveaxis", "narrow", "permute",
        "ravel", "reshape", "select", "split", "squeeze", "swapaxes", "swapdims", "t", "tensor_split", "transpose",
        "type_as", "unbind", "unflatten", "unfold", "unsqueeze", "view", "view_as", "getitem",
    }
)  # fmt: skip
"""Functions and methods whose result may share memory with their input."""

PASSING = frozenset({"contiguous", "dropout", "stochastic_depth", "to", "float"})
"""Functions and methods that may hand their input on as it is."""

NOT_TENSORS = frozenset({"getattr", "size", "dim", "numel", "_assert", "len", "eq", "ne", "floordiv", "mod"})
"""Functions and methods that make numbers, shapes or truth values."""

_VIEW_MODULES = (nn.Flatten, nn.Unflatten)
_PASSING_MODULES = (nn.Identity, nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout)
_TUPLE_MODULES = (nn.MultiheadAttention, nn.RNNBase)


def cut_places(model: nn.Module) -> list[CutPlace]:
    """All places where `model` may be cut, in the order of its computation.

    Nothing is computed, so the model may be on the meta device. The modes of its modules are left as
    they were. Raises CannotCut where there is none, or where the model cannot be traced.
    """
    return list(trace(model).places)


def trace(model: nn.Module) -> Traces:
    """Traces `model` in both modes; raises CannotCut as `cut_places` does."""
    with _modes_kept(model):
        in_training = _graph(model.train())
        in_evaluation = _graph(model.eval())
    modules = dict(model.named_modules())
    other = _places(model, in_evaluation, modules)
    places = tuple(place for place, held in _places(model, in_training, modules).items() if other.get(place) == held)
    if not places:
        raise CannotCut("there is no place where a single tensor passes from one part of it to the next")
    return Traces(in_training, in_evaluation, places)


@contextmanager
def _modes_kept(model: nn.Module) -> Iterator[None]:
    modes = {module: module.training for module in model.modules()}
    try:
        yield
    finally:
        for module, training in modes.items():
            module.training = training


def _graph(model: nn.Module) -> fx.Graph:
    try:
        graph = fx.Tracer().trace(model)
    except Exception as error:
        # Tracing runs the model's own Python, which may fail in any way.
        raise CannotCut(f"its computation depends on its input in a way that cannot be traced ({error})") from error
    result = next(node for node in graph.nodes if node.op == "output").args[0]
    if not isinstance(result, fx.Node):
        raise CannotCut("it gives more than one output")
    if sum(node.op == "placeholder" and bool(node.users) for node in graph.nodes) != 1:
        raise CannotCut("it takes more than one input")
    for node in [node for node in graph.nodes if node.op == "get_attr" and node.users]:
        # Constants stand next to their first use, so that they do not cross where they need not.
        order = {other: place for place, other in enumerate(graph.nodes)}
        min(node.users, key=order.__getitem__).prepend(node)
    return graph


def _places(model: nn.Module, graph: fx.Graph, modules: dict[str, nn.Module]) -> dict[CutPlace, frozenset[int]]:
    """The places of one graph, each with the ids of the parameters and buffers used before it."""
    nodes = list(graph.nodes)
    order = {node: place for place, node in enumerate(nodes)}
    last_use = {node: max((order[user] for user in node.users), default=-1) for node in nodes}
    held = [_held(model, node, modules) for node in nodes]
    last_held = {tensor: place for place, tensors in enumerate(held) for tensor in tensors}
    computing = [place for place, node in enumerate(nodes) if node.op.startswith("call_")]
    found: dict[CutPlace, frozenset[int]] = {}
    before: set[int] = set()
    alive: set[fx.Node] = set()
    for place, node in enumerate(nodes):
        before |= held[place]
        alive = {other for other in alive if last_use[other] > place}
        if last_use[node] > place:
            alive.add(node)
        if alive != {node} or not computing or place >= computing[-1]:
            continue
        if any(last_held[tensor] > place for tensor in before):
            continue
        if _is_fresh_tensor(node, modules) and not _changed_in_place(node, modules):
            found[CutPlace(node.name, _module_of(node))] = frozenset(before)
    return found


def _held(model: nn.Module, node: fx.Node, modules: dict[str, nn.Module]) -> set[int]:
    """The ids of the parameters and buffers that `node` uses."""
    if node.op == "call_module":
        module = modules[str(node.target)]
        return {id(tensor) for tensors in (module.parameters(), module.buffers()) for tensor in tensors}
    if node.op == "get_attr":
        value: Any = model
        for part in str(node.target).split("."):
            value = getattr(value, part)
        return {id(value)}
    return set()


def _function(node: fx.Node) -> str:
    return node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")


def _is_fresh_tensor(node: fx.Node, modules: dict[str, nn.Module]) -> bool:
    """Whether `node` makes a tensor that shares no memory with another."""
    while True:
        if node.op == "call_module":
            module = modules[str(node.target)]
            if isinstance(module, (*_VIEW_MODULES, *_TUPLE_MODULES)):
                return False
            passes = isinstance(module, _PASSING_MODULES)
        elif node.op in ("call_function", "call_method"):
            name = _function(node)
            if name in VIEWS or name in NOT_TENSORS:
                return False
            passes = name in PASSING
        else:
            return False
        if not passes and not _is_in_place(node, modules):
            return True
        if not node.args or not isinstance(node.args[0], fx.Node):
            return False
        node = node.args[0]


def _is_in_place(node: fx.Node, modules: dict[str, nn.Module]) -> bool:
    if node.op == "call_module":
        return bool(getattr(modules[str(node.target)], "inplace", False))
    if node.op == "call_method":
        name = str(node.target)
        return (name.endswith("_") and not name.endswith("__")) or name.startswith("__i")
    if node.op == "call_function":
        name = _function(node)
        in_operator = getattr(operator, name, None) is node.target and name.startswith("i") and name[1:] in _IN_PLACE
        return in_operator or name.endswith("_") or bool(node.kwargs.get("inplace", False)) or name == "setitem"
    return False


_IN_PLACE = frozenset({"add", "sub", "mul", "truediv", "floordiv", "pow", "matmul", "and", "or", "xor"})


def _changed_in_place(node: fx.Node, modules: dict[str, nn.Module]) -> bool:
    """Whether a user of `node`, or of what shares its memory, changes it in place."""
    for user in node.users:
        if user.args and user.args[0] is node and _is_in_place(user, modules):
            return True
        shares = user.op.startswith("call_") and _function(user) not in NOT_TENSORS
        if shares and not _is_fresh_tensor(user, modules) and _changed_in_place(user, modules):
            return True
    return False


def _module_of(node: fx.Node) -> str:
    if node.op == "call_module":
        return str(node.target)
    stack = node.meta.get("nn_module_stack")
    return str(next(reversed(stack))) if stack else node.name


def split(model: nn.Module, graph: fx.Graph, cuts: Sequence[CutPlace]) -> list[fx.GraphModule]:
    """Cuts `graph` after each of `cuts`. The parts share their parameters with `model`, under its names.

    The output of each part is contiguous, since NCCL has sent wrong values between differing strides
    (pytorch#62283).
    """
    ends = {cut.node for cut in cuts}
    parts: list[fx.GraphModule] = []
    part = fx.Graph()
    copies: dict[fx.Node, fx.Node] = {}
    for node in graph.nodes:
        if node.op == "output":
            part.output(copies[node.args[0]])
            parts.append(fx.GraphModule(model, part, "Stage"))
            break
        copies[node] = part.node_copy(node, copies.__getitem__)
        if node.name in ends:
            part.output(part.call_method("contiguous", (copies[node],)))
            parts.append(fx.GraphModule(model, part, "Stage"))
            part = fx.Graph()
            copies = {node: part.placeholder("received")}
    return parts


class _Timing(fx.Interpreter):
    """Runs a graph node by node and adds up the seconds of each."""

    def __init__(self, module: fx.GraphModule, clock: Callable[[], float]) -> None:
        super().__init__(module)
        self.clock = clock
        self.seconds: dict[str, float] = {}

    def run_node(self, n: fx.Node) -> Any:
        begun = self.clock()
        result = super().run_node(n)
        self.seconds[n.name] = min(self.clock() - begun, self.seconds.get(n.name, float("inf")))
        return result


def measure(model: nn.Module, traces: Traces, example: Tensor, clock: Callable[[], float]) -> dict[str, float]:
    """Seconds of each node of the evaluation graph on `example` (a microbatch on the model's device).

    `clock` gives seconds, after having waited for the device. The least of three runs counts. The forward
    pass alone is timed: the backward pass costs about twice as much in every layer. Weights and running
    statistics stay as they are.
    """
    with _modes_kept(model), torch.no_grad():
        model.eval()
        timing = _Timing(fx.GraphModule(model, traces.eval).to(example.device), clock)
        for _ in range(3):
            timing.run(example)
    return timing.seconds


def choose_cuts(traces: Traces, seconds: dict[str, float], stages: int) -> tuple[CutPlace, ...]:
    """The `stages` - 1 places that make the slowest stage fastest, given the seconds of each node.

    Raises CannotCut where there are too few places.
    """
    places = traces.places
    if len(places) < stages - 1:
        has = "1 place" if len(places) == 1 else f"{len(places)} places"
        raise CannotCut(f"it has {has} to cut, and {stages} stages need {stages - 1}")
    positions = {node.name: number for number, node in enumerate(traces.eval.nodes)}
    totals = [0.0]
    for node in traces.eval.nodes:
        totals.append(totals[-1] + seconds.get(node.name, 0.0))
    until = [totals[positions[place.node] + 1] for place in places] + [totals[-1]]
    # best[i]: the slowest stage's seconds, and the cuts, when what ends at until[i] is laid on `stage` stages.
    best: list[tuple[float, tuple[int, ...]]] = [(seconds_until, ()) for seconds_until in until]
    for stage in range(2, stages + 1):
        following: list[tuple[float, tuple[int, ...]]] = [(float("inf"), ())] * len(until)
        for end in range(stage - 1, len(until)):
            following[end] = min(
                (max(best[cut][0], until[end] - until[cut]), (*best[cut][1], cut)) for cut in range(stage - 2, end)
            )
        best = following
    return tuple(places[cut] for cut in best[-1][1])
