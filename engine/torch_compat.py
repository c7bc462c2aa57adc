"""What Footplate needs of torch that is private, or that is not the same in all versions from 2.11 to 2.15.

Nothing else in Footplate touches either. Where a function is for some versions alone, it says for which and from where
that is known, so that it can go when they are no longer supported.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.amp.grad_scaler import GradScaler, OptState
from torch.autograd.graph import GradientEdge
from torch.nn.modules.batchnorm import _BatchNorm as BatchNorm
from torch.nn.modules.batchnorm import _NormBase as RunningNorm
from torch.optim import Optimizer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch.distributed.fsdp import FSDPModule

__all__ = ["BatchNorm", "FakeTensorMode", "RunningNorm"]
"""The base class of torch's BatchNorm layers, and that of all layers that may keep running statistics, InstanceNorm
included; and the mode in which tensors have shapes but no memory."""

_RELEASE = tuple(map(int, torch.__version__.split(".")[:2]))


def buffers_of(module: nn.Module) -> dict[str, Tensor | None]:
    """The buffers of `module` itself, in which others may be put in their place."""
    return module._buffers


def storage_of(tensor: Tensor) -> int:
    """A number for the memory that `tensor` lies in, on the meta device, too."""
    return tensor.untyped_storage()._cdata


def copy_all(targets: list[Tensor], sources: list[Tensor]) -> None:
    """Copies each of `sources` into its target, all of one type and device, at once."""
    torch._foreach_copy_(targets, sources)


def lerp_all(targets: list[Tensor], towards: list[Tensor], weight: float) -> None:
    """Moves each of `targets` by `weight`, 0 to 1, of its way towards its other, all at once."""
    torch._foreach_lerp_(targets, towards, weight)


def unscale_all(gradients: list[Tensor], overflows: Tensor, inverse: Tensor) -> None:
    """Multiplies `gradients`, all of one type and device, by `inverse`, and sets `overflows` to 1 if one is not
    finite.
    """
    torch._amp_foreach_non_finite_check_and_unscale_(gradients, overflows, inverse)


def begin_scaling(scaler: GradScaler, device: torch.device) -> None:
    """Gives `scaler` its scale, which it otherwise has from the first loss on."""
    scaler._lazy_init_scale_growth_tracker(device)


def scale_of(scaler: GradScaler) -> Tensor:
    """The scale of `scaler` on its device."""
    scale, _ = scaler._check_scale_growth_tracker("unscale_")
    return scale


def note_unscaled(scaler: GradScaler, optimizer: Optimizer, overflows: Tensor) -> None:
    """Lets `scaler` know that the gradients are unscaled, and whether any overflowed: 1 for yes, 0 for no."""
    state = scaler._per_optimizer_states[id(optimizer)]
    state["found_inf_per_device"] = {overflows.device: overflows}
    state["stage"] = OptState.UNSCALED


def let_schedule_begin(optimizer: Optimizer) -> None:
    """Has a schedule not warn when it moves before the first step of `optimizer`."""
    optimizer._opt_called = True  # type: ignore[attr-defined]


def is_compiled(model: nn.Module) -> bool:
    """Whether `model` computes with torch.compile."""
    return model._compiled_call_impl is not None


def undo_compiling(model: nn.Module) -> None:
    """Has `model` compute without torch.compile again, and gives back what its CUDA graphs hold."""
    model._compiled_call_impl = None  # undoes Module.compile, for which torch has no call
    torch.compiler.reset()


def compile_in_this_process() -> None:
    """Keeps torch.compile from starting processes, which would be left behind."""
    import torch._inductor.config

    torch._inductor.config.compile_threads = 1


def keep_compiled_in(folder: str) -> None:
    """Has torch.compile keep in `folder` what it keeps in the temporary folder that all users share whatever
    TORCHINDUCTOR_CACHE_DIR says, as the precompiled headers of its C++ code; to be called before it first compiles.
    """
    from torch._inductor.runtime import cache_dir_utils, runtime_utils

    cache_dir_utils.default_cache_dir = runtime_utils.default_cache_dir = lambda: folder


def prepare_pipelines() -> None:
    """To be called before the first step of a pipeline.

    torch before 2.13 adds up wrong gradients under schedules that divide the backward pass: of a layer with several
    outputs before 2.12 (pytorch#170277), of a weight that a stage uses twice before 2.13 (pytorch#180952).
    """
    from torch.distributed.pipelining import stage

    if _RELEASE < (2, 13):
        stage.stage_backward_weight = _backward_of_weights  # type: ignore[assignment]


def _backward_of_weights(_: Iterator[nn.Parameter], groups: list[dict[str, Any]], retain_graph: bool = False) -> None:
    """Adds the gradients of weights to theirs, from what torch has kept of the backward pass of the inputs.

    Weights of one of the `groups` are reached through the same `intermediates`, nodes of the graph for each of whose
    outputs `grads` has the gradient. Such a node may lie behind another: what comes from there is in its gradient
    already.
    """
    for group in groups:
        kept = list(zip(group.pop("intermediates"), group.pop("grads"), strict=True))
        given = [
            (GradientEdge(node, number), gradient)
            for node, gradients in kept
            for number, gradient in enumerate(gradients)
            if gradient is not None
        ]
        if not given:
            continue
        hooks = [node.register_prehook(lambda _, gradients=gradients: gradients) for node, gradients in kept]
        outputs, gradients = zip(*given, strict=True)
        leaves = group["params"]
        found = torch.autograd.grad(
            outputs, tuple(GradientEdge(leaf, 0) for leaf in leaves), gradients, retain_graph=retain_graph
        )
        for hook in hooks:
            hook.remove()
        for leaf, gradient in zip(leaves, found, strict=True):
            weight = leaf.variable
            weight.grad = gradient if weight.grad is None else weight.grad.add_(gradient)


def greet_no_own_rank(stage: Any) -> None:
    """Keeps a pipeline's `stage` from sending a first message to its neighbour where that lies on the same rank, as
    under ZBV.
    torch 2.11 opens each connection so, which gloo cannot do with its own rank; since 2.12 such neighbours are left out
    (`_PipelineSchedule._warmup_p2p`).
    """
    greetings = getattr(stage, "_get_init_p2p_neighbors_ops", None)
    if greetings is not None:
        stage._get_init_p2p_neighbors_ops = lambda: [op for op in greetings() if op.group_peer != stage.group_rank]


def send_no_missing_gradient(stage: Any) -> None:
    """Keeps a pipeline's `stage` from sending the gradient of an input that takes none, for which no other stage waits.

    torch 2.12 asks for one of every input that comes from another stage (`_PipelineStageBase.get_bwd_send_ops`);
    before, all inputs took one, and since 2.13 what is known of the gradients decides.
    """
    if _RELEASE == (2, 12):
        receivers = stage._create_grad_send_info
        stage._create_grad_send_info = lambda received: [
            receiver if receiver is not None and info.tensor_meta.requires_grad else None
            for receiver, info in zip(receivers(received), received, strict=True)
        ]


def join_unused(group: FSDPModule) -> None:
    """Has `group` join a gradient of 0 for each of its parameters that a backward pass has not used.

    `set_reduce_scatter_unused_params` does so since torch 2.13; before, the gradients are put where FSDP looks for
    them.
    """
    if hasattr(group, "set_reduce_scatter_unused_params"):
        group.set_reduce_scatter_unused_params(True, recurse=False)
        return
    own: Any = group._get_fsdp_state()._fsdp_param_group
    if own is not None:  # it has parameters of its own
        own.post_backward = partial(_with_zeros, own, own.post_backward)


def _with_zeros(group: Any, post_backward: Callable[..., None], *unused: Any) -> None:
    for parameter in group.fsdp_params:
        if hasattr(parameter, "_unsharded_param") and parameter.unsharded_accumulated_grad is None:
            whole = parameter.unsharded_param
            if whole.requires_grad and whole.grad is None:
                whole.grad = torch.zeros_like(whole)
    post_backward(*unused)


def scan(step: Callable[[Any, Any], tuple[Any, Any]], state: Any, inputs: Any) -> tuple[Any, Any]:
    """A loop as one operation of an exported graph: `step(state, input)` gives the next state and an output, for each
    of `inputs` in turn; the last state and all outputs, stacked. Private in all versions so far
    (`torch._higher_order_ops.scan`).
    """
    from torch._higher_order_ops.scan import scan as of_torch

    result: tuple[Any, Any] = of_torch(step, state, inputs)
    return result
