"""The part of a sharded parameter (a DTensor, as FSDP and tensor parallelism make them) that this rank holds, as a
plain tensor, and back.

Plain tensors pass through all of these. DTensor itself is imported only where there is one: its import costs over a
second, which strategies without shards do without.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

PACKED_FOR = "packed_for"
"""The attribute of a parameter whose rows are `packed`, with the number of ranks."""
_QKV = 3
"""Queries, keys and values, whose rows lie one after another in the weight of the layer that makes them all."""


def packed(rows: Tensor, ranks: int) -> Tensor:
    """Rows [q, k, v] in the order in which an even division gives each of `ranks` ranks the q, k and v of its heads."""
    return rows.unflatten(0, (_QKV, ranks, -1)).transpose(0, 1).flatten(0, 2).contiguous()


def unpacked(rows: Tensor, ranks: int) -> Tensor:
    """The inverse of `packed`."""
    return rows.unflatten(0, (ranks, _QKV, -1)).transpose(0, 1).flatten(0, 2).contiguous()


def is_sharded(tensor: Tensor) -> bool:
    return hasattr(tensor, "device_mesh")


@torch.no_grad()
def own_part(tensor: Any) -> Tensor:
    """What this rank holds of `tensor`, in the same memory."""
    part: Tensor = tensor.to_local() if is_sharded(tensor) else tensor.detach()
    return part


@torch.no_grad()
def whole(part: Tensor, like: Any) -> Tensor:
    """A copy on the CPU of what the ranks hold in `part`s laid out as the parameter `like`; all of them call it.

    A GPU may still be copying it until it is synchronized with.
    A number beside the parameter (an optimizer's count of steps) is the same on all ranks and is copied as it is.
    """
    if not is_sharded(like) or part.shape != own_part(like).shape:
        return part.detach().to("cpu", copy=True, non_blocking=True)
    from torch.distributed.tensor import DTensor

    placed = DTensor.from_local(
        part.to(like.device_mesh.device_type),
        like.device_mesh,
        like.placements,
        run_check=False,
        shape=like.shape,
        stride=like.stride(),
    )
    gathered: Tensor = placed.full_tensor()
    # Waited for, since ranks other than 0 drop it, and pinned memory would pile up there.
    complete = gathered.to("cpu", copy=True)
    ranks = getattr(like, PACKED_FOR, None)
    return complete if ranks is None else unpacked(complete, ranks)


@torch.no_grad()
def part_of(tensor: Tensor, like: Any) -> Tensor:
    """The inverse of `whole`: this rank's part of `tensor`, where the parameter `like` has its own; all ranks call
    it.
    """
    if not is_sharded(like) or tensor.shape != like.shape:
        return tensor
    ranks = getattr(like, PACKED_FOR, None)
    if ranks is not None:
        tensor = packed(tensor, ranks)
    from torch.distributed.tensor import distribute_tensor

    placed = distribute_tensor(tensor.to(like.device_mesh.device_type), like.device_mesh, like.placements)
    return placed.to_local().to(own_part(like).device)
