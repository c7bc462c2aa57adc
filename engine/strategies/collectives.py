"""Collectives on the CPU. They serve everything except the exchange of gradients, parameters and activations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import Tensor

if TYPE_CHECKING:
    from engine.metrics.base import Metric


class Collectives:
    """Collectives for a run with a single rank, and the interface for several ranks.

    All ranks call each method together. Every rank gets the result, except that only rank 0 gets the result of a
    gather. Ranks may run on different machines, where facts such as the time, the GPU or the files differ. If such a
    fact decides whether, how often or with which shapes ranks call a collective, the ranks must first use these methods
    to agree on it.
    """

    def all_reduce_max(self, flags: Sequence[int]) -> list[int]:
        """Return the maximum of each flag over all ranks."""
        return self.start_all_reduce_max(flags)()

    def start_all_reduce_max(self, flags: Sequence[int]) -> Callable[[], list[int]]:
        """Start `all_reduce_max` without waiting, and return a function that waits for the result and returns it.

        All ranks must start and finish these operations in the same order.
        """
        return lambda: list(flags)

    def all_reduce_sum(self, values: Tensor) -> Tensor:
        """Return the sum of each value over all ranks, on the CPU."""
        return values.cpu()

    def gather_objects(self, value: Any) -> list[Any] | None:
        """Return a list with the `value` of each rank on rank 0, and None on other ranks."""
        return [value]

    def gather_states(self, state: Any) -> list[Any] | None:
        """Return a list with the `state` of each rank on rank 0, and None on other ranks.

        A state consists of nested dicts that may contain tensors. In the result, tensors of other ranks are on the CPU.
        Ranks send their tensors one by one, so that they need no second copy of their state.
        """
        return [state]

    def all_gather_objects(self, value: Any) -> list[Any]:
        """Return a list with the `value` of each rank."""
        return [value]

    def broadcast_object(self, value: Any) -> Any:
        """Return the `value` of rank 0."""
        return value


class GroupCollectives(Collectives):
    """Collectives over `group`, a gloo group with all ranks of the run."""

    def __init__(self, group: dist.ProcessGroup) -> None:
        self.group = group

    def start_all_reduce_max(self, flags: Sequence[int]) -> Callable[[], list[int]]:
        """Start `all_reduce_max`, and return a function that waits for the maxima and returns them.

        All ranks must start and finish these operations in the same order.
        """
        shared = torch.tensor(flags, dtype=torch.int64)
        work = dist.all_reduce(shared, dist.ReduceOp.MAX, group=self.group, async_op=True)

        def wait_for_maxima() -> list[int]:
            if work is not None:
                work.wait()
            return shared.tolist()

        return wait_for_maxima

    def all_reduce_sum(self, values: Tensor) -> Tensor:
        summed = values.to("cpu", copy=True)
        dist.all_reduce(summed, group=self.group)
        return summed

    def gather_objects(self, value: Any) -> list[Any] | None:
        values: list[Any] | None = [None] * dist.get_world_size() if dist.get_rank() == 0 else None
        dist.gather_object(value, values, 0, group=self.group)
        return values

    def gather_states(self, state: Any) -> list[Any] | None:
        """Gather the states on rank 0: first their shapes and plain values, then one tensor after another.

        All ranks call it together. Other ranks than rank 0 return None.
        """
        outlines = self.gather_objects(_map_tensors(state, lambda tensor: tensor.to("meta")))
        if outlines is None:
            _map_tensors(state, self._send)
            return None
        received = (_map_tensors(each, partial(self._receive, rank)) for rank, each in enumerate(outlines) if rank)
        return [state, *received]

    def _send(self, tensor: Tensor) -> None:
        """Send the values of `tensor` to rank 0, which calls `_receive`. An empty tensor is not sent."""
        if tensor.numel():
            dist.send(_view_as_bytes(tensor.cpu().contiguous()), 0, group=self.group)

    def _receive(self, rank: int, outline: Tensor) -> Tensor:
        """Receive a tensor from `rank` and return it. `outline` is a meta tensor with its shape and type."""
        tensor = torch.empty(outline.shape, dtype=outline.dtype)
        if tensor.numel():
            dist.recv(_view_as_bytes(tensor), rank, group=self.group)
        return tensor

    def all_gather_objects(self, value: Any) -> list[Any]:
        values: list[Any] = [None] * dist.get_world_size(self.group)
        dist.all_gather_object(values, value, group=self.group)
        return values

    def broadcast_object(self, value: Any) -> Any:
        values = [value]
        dist.broadcast_object_list(values, 0, group=self.group)
        return values[0]


def _map_tensors(state: Any, change: Callable[[Tensor], Any]) -> Any:
    """Apply `change` to each tensor in the nested dicts `state`, and return the result as new dicts."""
    if isinstance(state, dict):
        return {name: _map_tensors(value, change) for name, value in state.items()}
    return change(state) if isinstance(state, Tensor) else state


def _view_as_bytes(tensor: Tensor) -> Tensor:
    """Return a view of the memory of a contiguous tensor of any type as bytes."""
    return tensor.view(-1).view(torch.uint8)


def sync_metrics(measures: Metric, collectives: Collectives) -> None:
    """Merge the metric states of all ranks into `measures` on every rank. All ranks call it together."""
    measures.counters = collectives.all_reduce_sum(measures.counters)
    gathered = collectives.all_gather_objects(measures.rows.cpu().clone())  # a slice would be sent with its full memory
    nonempty = [rows for rows in gathered if len(rows)]  # empty rows may have another width, which torch.cat refuses
    measures.rows = torch.cat(nonempty) if nonempty else gathered[0]
    measures.sync(collectives.all_gather_objects)
