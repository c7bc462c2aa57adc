"""Access to private parts of torch, and workarounds for differences between its versions 2.11 to 2.15.

No other module uses private parts of torch or checks its version. If a function is only needed for some versions, its
docstring names these versions and their source, so that it can be removed later.
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
"""Private names of torch that other modules use.

`BatchNorm` is the base class of all BatchNorm layers. `RunningNorm` is the base class of all layers with running
statistics, including InstanceNorm. In `FakeTensorMode`, tensors have no memory.
"""

IS_ALL_TRUE = torch.ops.aten._is_all_true.default
"""Operator that returns whether all values of a tensor are True.

Exported programs check the shapes of tensors with it, for example transformers' detectors.
"""
_RELEASE = tuple(map(int, torch.__version__.split(".")[:2]))


def buffers_of(module: nn.Module) -> dict[str, Tensor | None]:
    """Return the dict that holds the buffers of `module` itself, without those of submodules. It may be modified."""
    return module._buffers


def get_storage_id(tensor: Tensor) -> int:
    """Return a number that identifies the memory of `tensor`.

    Tensors that share memory have the same number, also on the meta device.
    """
    return tensor.untyped_storage()._cdata


def copy_all(targets: list[Tensor], sources: list[Tensor]) -> None:
    """Copy `sources` into `targets` in a single operation. All must have the same type and device."""
    torch._foreach_copy_(targets, sources)


def lerp_all(targets: list[Tensor], towards: list[Tensor], weight: float) -> None:
    """Move each of `targets` by the fraction `weight` towards the tensor in `towards`, in a single operation."""
    torch._foreach_lerp_(targets, towards, weight)


def unscale_all(gradients: list[Tensor], overflows: Tensor, inverse: Tensor) -> None:
    """Multiply `gradients`, which must all have the same type and device, by `inverse` in place.

    If a gradient is not finite, the tensor `overflows` is set to 1.
    """
    torch._amp_foreach_non_finite_check_and_unscale_(gradients, overflows, inverse)


def create_scale(scaler: GradScaler, device: torch.device) -> None:
    """Create the scale of `scaler` on `device`. torch would create it only with the first loss."""
    scaler._lazy_init_scale_growth_tracker(device)


def scale_of(scaler: GradScaler) -> Tensor:
    """Return the scale of `scaler`, which is on its device."""
    scale, _ = scaler._check_scale_growth_tracker("unscale_")
    return scale


def mark_unscaled(scaler: GradScaler, optimizer: Optimizer, overflows: Tensor) -> None:
    """Record in `scaler` that the gradients of `optimizer` have been unscaled.

    `overflows` is 1 if a gradient has overflowed, otherwise 0.
    """
    state = scaler._per_optimizer_states[id(optimizer)]
    state["found_inf_per_device"] = {overflows.device: overflows}
    state["stage"] = OptState.UNSCALED


def suppress_schedule_warning(optimizer: Optimizer) -> None:
    """Suppress torch's warning about a schedule that advances before the first step of `optimizer`."""
    optimizer._opt_called = True  # type: ignore[attr-defined]


def is_compiled(model: nn.Module) -> bool:
    """Return True if `model` is compiled by torch.compile."""
    return model._compiled_call_impl is not None


def undo_compiling(model: nn.Module) -> None:
    """Undo torch.compile for `model`, and release the memory of its CUDA graphs."""
    model._compiled_call_impl = None  # torch has no method that undoes Module.compile
    torch.compiler.reset()


def compile_in_this_process() -> None:
    """Make torch.compile compile in this process, instead of in other processes that might outlive this one."""
    import torch._inductor.config

    torch._inductor.config.compile_threads = 1


def keep_compiled_in(folder: str) -> None:
    """Make torch.compile also store those files in `folder` that it would put into a shared temporary folder.

    Examples are the precompiled headers of its C++ code, which ignore TORCHINDUCTOR_CACHE_DIR. Call this before the
    first compilation.
    """
    from torch._inductor.runtime import cache_dir_utils, runtime_utils

    cache_dir_utils.default_cache_dir = runtime_utils.default_cache_dir = lambda: folder


def device_events(profile: torch.profiler.profile, device_type: Any) -> Iterator[tuple[str, float, float]]:
    """Yield the name, start and end of each operation on devices of type `device_type` in a stopped `profile`.

    Times are in seconds since the start of the profile. `profile.events()` would take over ten times as long, because
    it creates an object with statistics for each event.
    """
    assert profile.profiler is not None
    assert profile.profiler.kineto_results is not None
    results = profile.profiler.kineto_results
    for event in results.events():
        if event.device_type() == device_type and not event.is_user_annotation():
            start = (event.start_ns() - results.trace_start_ns()) / 1e9
            yield event.name(), start, start + event.duration_ns() / 1e9


def prepare_pipelines() -> None:
    """Correct the gradients of pipeline schedules that divide the backward pass. Call this before the first step.

    torch computes wrong gradients for a layer with several outputs before 2.12 (pytorch#170277), and for a weight that
    a stage uses twice before 2.13 (pytorch#180952).
    """
    from torch.distributed.pipelining import stage

    if _RELEASE < (2, 13):
        stage.stage_backward_weight = _compute_weight_gradients  # type: ignore[assignment]


def _compute_weight_gradients(
    _: Iterator[nn.Parameter], groups: list[dict[str, Any]], retain_graph: bool = False
) -> None:
    """Compute the gradients of weights from data that the backward pass for inputs has stored, and accumulate them.

    Each of the `groups` has weights that are reached through the same graph nodes, `intermediates`. `grads` has the
    gradients of these nodes' outputs. If one node precedes another in the graph, the gradient of the first already
    includes the contribution of the second.
    """
    for group in groups:
        stored = list(zip(group.pop("intermediates"), group.pop("grads"), strict=True))
        edges = [
            (GradientEdge(node, number), gradient)
            for node, gradients in stored
            for number, gradient in enumerate(gradients)
            if gradient is not None
        ]
        if not edges:
            continue
        # Each node uses only its stored gradients. Otherwise, those that arrive from other nodes would count twice.
        hooks = [node.register_prehook(lambda _, gradients=gradients: gradients) for node, gradients in stored]
        outputs, gradients = zip(*edges, strict=True)
        leaves = group["params"]
        leaf_gradients = torch.autograd.grad(
            outputs, tuple(GradientEdge(leaf, 0) for leaf in leaves), gradients, retain_graph=retain_graph
        )
        for hook in hooks:
            hook.remove()
        for leaf, gradient in zip(leaves, leaf_gradients, strict=True):
            weight = leaf.variable
            weight.grad = gradient if weight.grad is None else weight.grad.add_(gradient)


def skip_messages_within_rank(stage: Any) -> None:
    """Prevent a pipeline's `stage` from sending its first message to a neighbor on the same rank, as under ZBV.

    torch 2.11 opens connections with such messages, which gloo does not support within a rank. torch 2.12 leaves out
    neighbors on the same rank (`_PipelineSchedule._warmup_p2p`).
    """
    greetings = getattr(stage, "_get_init_p2p_neighbors_ops", None)
    if greetings is not None:
        stage._get_init_p2p_neighbors_ops = lambda: [op for op in greetings() if op.group_peer != stage.group_rank]


def skip_missing_gradients(stage: Any) -> None:
    """Prevent a pipeline's `stage` from sending gradients for inputs that have none. No stage waits for them.

    Only torch 2.12 needs this, because it expects a gradient for each input from another stage
    (`_PipelineStageBase.get_bwd_send_ops`).
    """
    if _RELEASE == (2, 12):
        create_receivers = stage._create_grad_send_info
        stage._create_grad_send_info = lambda received: [
            receiver if receiver is not None and info.tensor_meta.requires_grad else None
            for receiver, info in zip(create_receivers(received), received, strict=True)
        ]


def reduce_unused_parameters(group: FSDPModule) -> None:
    """Make the parameters of `group` that have no gradient contribute gradients of 0 to FSDP's reduction.

    torch 2.13 has `set_reduce_scatter_unused_params` for this. For older versions, gradients of 0 are stored where FSDP
    reads them.
    """
    if hasattr(group, "set_reduce_scatter_unused_params"):
        group.set_reduce_scatter_unused_params(True, recurse=False)
        return
    state: Any = group._get_fsdp_state()._fsdp_param_group
    if state is not None:  # the module manages its parameters itself
        state.post_backward = partial(_add_zeros_then, state, state.post_backward)


def _add_zeros_then(group: Any, post_backward: Callable[..., None], *arguments: Any) -> None:
    """Set missing gradients of the parameters in `group` to 0, then run FSDP's method `post_backward`."""
    for parameter in group.fsdp_params:
        if hasattr(parameter, "_unsharded_param") and parameter.unsharded_accumulated_grad is None:
            complete = parameter.unsharded_param
            if complete.requires_grad and complete.grad is None:
                complete.grad = torch.zeros_like(complete)
    post_backward(*arguments)


def scan(step: Callable[[Any, Any], tuple[Any, Any]], state: Any, inputs: Any) -> tuple[Any, Any]:
    """Run a loop that becomes a single operation in an exported graph. Return the last state and the stacked outputs.

    For each item of `inputs`, `step(state, input)` returns the next state and an output. The operation is private in
    all versions (`torch._higher_order_ops.scan`).
    """
    from torch._higher_order_ops.scan import scan as torch_scan

    result: tuple[Any, Any] = torch_scan(step, state, inputs)
    return result
