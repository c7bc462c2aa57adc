"""Conversion between sharded parameters and this rank's plain shard.

Sharded parameters are DTensors, created by FSDP and tensor parallelism; plain tensors are returned unchanged. DTensor
is only imported if there is one, since the import takes over a second.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

PACKED_FOR = "packed_for"
"""Attribute of a parameter whose rows `pack_qkv` has reordered: the number of ranks."""
_QKV = 3
"""Number of parts in a weight for queries, keys and values, whose rows follow each other."""


def pack_qkv(rows: Tensor, ranks: int) -> Tensor:
    """Reorder rows [q, k, v] so that an even division gives each of `ranks` ranks the q, k and v rows of its heads."""
    return rows.unflatten(0, (_QKV, ranks, -1)).transpose(0, 1).flatten(0, 2).contiguous()


def unpack_qkv(rows: Tensor, ranks: int) -> Tensor:
    """Undo the reordering by `pack_qkv`."""
    return rows.unflatten(0, (ranks, _QKV, -1)).transpose(0, 1).flatten(0, 2).contiguous()


def is_sharded(tensor: Tensor) -> bool:
    return hasattr(tensor, "device_mesh")


@torch.no_grad()
def local_shard(tensor: Any) -> Tensor:
    """Return this rank's shard of `tensor`, in the same memory."""
    shard: Tensor = tensor.to_local() if is_sharded(tensor) else tensor.detach()
    return shard


@torch.no_grad()
def gather_shards(shard: Tensor, like: Any) -> Tensor | None:
    """Assemble shards laid out like the parameter `like` into a copy on rank 0's CPU; None on other ranks.

    All ranks call it together. The other ranks hold one complete tensor at a time, on their device. A GPU may still be
    copying until the caller synchronizes with it. A number stored with the parameter (an optimizer's count of steps) is
    the same on all ranks and copied unchanged.
    """
    leads = dist.get_rank() == 0
    if not is_sharded(like) or shard.shape != local_shard(like).shape:
        return shard.detach().to("cpu", copy=True) if leads else None
    from torch.distributed.tensor import DTensor

    placed = DTensor.from_local(
        shard.to(like.device_mesh.device_type),
        like.device_mesh,
        like.placements,
        run_check=False,
        shape=like.shape,
        stride=like.stride(),
    )
    gathered: Tensor = placed.full_tensor()
    if not leads:
        return None
    complete = gathered.to("cpu", copy=True)
    ranks = getattr(like, PACKED_FOR, None)
    return complete if ranks is None else unpack_qkv(complete, ranks)


@torch.no_grad()
def shard_of(tensor: Tensor, like: Any) -> Tensor:
    """Return a copy of this rank's shard of `tensor`, which is complete on all ranks, laid out like `like`.

    It is on the device of the parameter `like`, except for numbers stored with it. If `tensor` is memory-mapped, FSDP
    on CPUs reads only the shard, and other strategies read one complete tensor at a time.
    """
    if tensor.shape != like.shape:
        return tensor.clone()
    if not is_sharded(like):
        return tensor.to(like.device, copy=True)
    ranks = getattr(like, PACKED_FOR, None)
    if ranks is not None:
        tensor = pack_qkv(tensor, ranks)
    from torch.distributed.tensor import distribute_tensor

    placed = distribute_tensor(tensor, like.device_mesh, like.placements, src_data_rank=None)
    return placed.to_local().to(local_shard(like).device, copy=True)
