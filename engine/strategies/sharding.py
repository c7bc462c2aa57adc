"""Helpers for FSDP2: separately shardable blocks, tied parameters, used parameters and timed collectives."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Sequence
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from engine.models.blocks import list_blocks
from engine.strategies.collectives import Collectives
from engine.strategies.rank_times import HostTimer
from engine.torch_compat import get_storage_id

if TYPE_CHECKING:
    from torch.distributed.fsdp import FSDPModule


def separate_blocks(model: nn.Module) -> list[nn.Module]:
    """Return the blocks of `model` whose parameters are used nowhere else, so that they can be sharded separately."""
    by_path = dict(list_blocks(model))
    users: dict[nn.Parameter, set[str]] = defaultdict(set)  # paths of the blocks with each parameter, "" outside blocks
    for path, module in model.named_modules(remove_duplicate=False):
        block_path = path
        while block_path and block_path not in by_path:
            block_path = block_path.rpartition(".")[0]
        for parameter in module.parameters(recurse=False):
            users[parameter].add(block_path)
    return [block for path, block in by_path.items() if all(users[each] == {path} for each in block.parameters())]


def find_tied_views(model: nn.Module) -> tuple[str, ...]:
    """Return the names of parameters that share memory with another parameter or buffer.

    A single nn.Parameter with several names is not included, because changes to it are visible under all its names.
    """
    spans: list[tuple[int, int, int, str]] = []  # storage, first byte, end, and name of each tensor
    parameters = dict(model.named_parameters())
    for name, tensor in chain(parameters.items(), model.named_buffers()):
        if tensor.numel():
            last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
            start = int(tensor.storage_offset()) * tensor.itemsize
            spans.append((get_storage_id(tensor), start, start + (last + 1) * tensor.itemsize, name))
    tied: set[str] = set()
    last_end, last_name = (0, 0), ""
    for storage, start, end, name in sorted(spans):
        if (storage, start) < last_end:  # overlaps the earlier tensor with the last end
            tied |= {name, last_name}
        if (storage, end) > last_end:
            last_end, last_name = (storage, end), name
    return tuple(name for name in parameters if name in tied)


def time_collectives(group: FSDPModule, timer: HostTimer, *, all_reduce: bool) -> None:
    """Make the collectives of `group` report to `timer` how long they blocked a CPU worker.

    If `all_reduce` is True, the group also sums gradients over replicas, and this sum is timed, too.
    """
    scatter = _TimedReduceScatter(timer)
    group.set_custom_all_gather(_TimedAllGather(timer))  # type: ignore[arg-type]
    group.set_custom_reduce_scatter(scatter)  # type: ignore[arg-type]
    if all_reduce:  # it starts right after the reduce-scatter, and the hook runs when it ends
        group.set_all_reduce_hook(lambda _: timer.add_blocked_since(scatter.ended_at))


class _TimedCollective:
    """Base class of collectives for FSDP that are timed and otherwise behave like FSDP's defaults."""

    def __init__(self, timer: HostTimer) -> None:
        self.timer = timer

    def allocate(self, size: Sequence[int], *, dtype: torch.dtype, device: torch.device) -> Tensor:
        return torch.empty(*size, dtype=dtype, device=device)


class _TimedAllGather(_TimedCollective):
    def __call__(
        self, output_tensor: Tensor, input_tensor: Tensor, group: dist.ProcessGroup, async_op: bool = False
    ) -> dist.Work | None:
        started = time.perf_counter()
        work = dist.all_gather_into_tensor(output_tensor, input_tensor, group=group, async_op=async_op)
        self.timer.add_blocked_since(started)
        return work


class _TimedReduceScatter(_TimedCollective):
    ended_at = 0.0
    """Time when the last reduce-scatter ended, by time.perf_counter()."""

    def __call__(
        self,
        output_tensor: Tensor,
        input_tensor: Tensor,
        group: dist.ProcessGroup,
        op: Any,
        async_op: bool = False,
    ) -> dist.Work | None:
        """Reduce and scatter gradients as torch does, and report to the timer how long the host was blocked."""
        started = time.perf_counter()
        work = dist.reduce_scatter_tensor(output_tensor, input_tensor, op=op, group=group, async_op=async_op)
        self.timer.add_blocked_since(started)
        self.ended_at = time.perf_counter()
        return work


class UsedParameters:
    """Record of the parameters that received a gradient on any rank. All other parameters must not change.

    A custom model may use different layers for the images of different ranks. FSDP must then reduce gradients of 0 for
    the unused parameters. The optimizer would treat these as real gradients, so that momentum and weight decay would
    change a layer that no rank has used.
    """

    def __init__(self, model: nn.Module, groups: Sequence[FSDPModule], collectives: Collectives) -> None:
        self._collectives = collectives
        self._shards = [parameter for parameter in model.parameters() if parameter.requires_grad]
        self._used = [0] * len(self._shards)  # for each shard, 1 if a gradient has arrived
        # Gradients arrive at a group's gathered parameters. These replace its shards in the model only while the group
        # is gathered, and are the same objects every time.
        for group in groups:
            group.unshard()
            trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
            for number, (parameter, shard) in enumerate(zip(trained, self._shards, strict=True)):
                if parameter is not shard:
                    parameter.register_post_accumulate_grad_hook(partial(self._mark_used, number))
            group.reshard()

    def _mark_used(self, number: int, _: Tensor) -> None:
        self._used[number] = 1

    def drop_unused(self) -> None:
        """Drop the gradients of parameters that no rank has used since the last call. All ranks call this together."""
        for used, shard in zip(self._collectives.all_reduce_max(self._used), self._shards, strict=True):
            if not used:
                shard.grad = None
        self._used = [0] * len(self._shards)
