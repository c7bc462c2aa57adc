"""Conversion between complete parameters and this rank's shards.

FSDP and tensor parallelism shard parameters as DTensors. Plain tensors are returned unchanged. DTensor is only imported
if a parameter is one, because the import takes over a second.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

PACKED_FOR = "packed_for"
"""Name of a parameter's attribute that holds the number of ranks given to `pack_qkv`."""
_QKV = 3
"""Number of equal parts of a weight that `pack_qkv` reorders: rows for queries, keys and values."""


def pack_qkv(rows: Tensor, ranks: int) -> Tensor:
    """Reorder the rows of a weight for queries, keys and values (in this order), and return them.

    Each of `ranks` equal chunks of the result contains the query, key and value rows of the same heads.
    """
    return rows.unflatten(0, (_QKV, ranks, -1)).transpose(0, 1).flatten(0, 2).contiguous()


def unpack_qkv(rows: Tensor, ranks: int) -> Tensor:
    """Return rows in their original order, given the result of `pack_qkv` for the same number of `ranks`."""
    return rows.unflatten(0, (ranks, _QKV, -1)).transpose(0, 1).flatten(0, 2).contiguous()


def is_sharded(tensor: Tensor) -> bool:
    """Return True if a tensor is a DTensor."""
    return hasattr(tensor, "device_mesh")


@torch.no_grad()
def get_local_shard(tensor: Any) -> Tensor:
    """Return this rank's shard of `tensor`, as a plain tensor that shares memory with it."""
    shard: Tensor = tensor.to_local() if is_sharded(tensor) else tensor.detach()
    return shard


@torch.no_grad()
def gather_shards(shard: Tensor, like: Any) -> Tensor | None:
    """Assemble the shards of all ranks on rank 0's CPU, and return the complete tensor there. Other ranks return None.

    `shard` must be laid out like the shard of the parameter `like`. Single numbers that belong to a parameter, such as
    an optimizer's step count, are equal on all ranks, and are copied unchanged. All ranks call it together. Other ranks
    temporarily hold the complete tensor on their device. A GPU may still be copying the result, so synchronize with it
    before reading.
    """
    is_first_rank = dist.get_rank() == 0
    if not is_sharded(like) or shard.shape != get_local_shard(like).shape:
        return shard.detach().to("cpu", copy=True) if is_first_rank else None
    from torch.distributed.tensor import DTensor

    distributed = DTensor.from_local(
        shard.to(like.device_mesh.device_type),
        like.device_mesh,
        like.placements,
        run_check=False,
        shape=like.shape,
        stride=like.stride(),
    )
    gathered: Tensor = distributed.full_tensor()
    if not is_first_rank:
        return None
    complete = gathered.to("cpu", copy=True)
    # Tensor parallelism stores the rows of queries, keys and values in another order, for this number of ranks.
    ranks = getattr(like, PACKED_FOR, None)
    return complete if ranks is None else unpack_qkv(complete, ranks)


@torch.no_grad()
def get_slice(tensor: Tensor, like: Any) -> Tensor:
    """Return the slice of the complete `tensor` that this rank's shard of the parameter `like` holds.

    The slice is a view, so that only the slice is read from a memory-mapped file. For attention's packed weights (see
    `pack_qkv`), it is a copy. DTensor's `distribute_tensor` would copy every slice, and with tensor parallelism even
    the complete tensor.
    """
    if not is_sharded(like) or tensor.shape != like.shape:
        return tensor
    # Tensor parallelism stores the rows of queries, keys and values in another order, for this number of ranks.
    ranks = getattr(like, PACKED_FOR, None)
    if ranks is None:
        return _narrow_to_slice(tensor, like)
    rows = pack_qkv(torch.arange(len(tensor), device=tensor.device), ranks)
    return tensor[_narrow_to_slice(rows, like)]


def _narrow_to_slice(tensor: Tensor, like: Any) -> Tensor:
    """Return this rank's slice of `tensor`, which is divided along the same dimensions as the parameter `like`."""
    mesh = like.device_mesh
    # Tensor parallelism is the last dimension of the mesh. It divides first, and FSDP then divides its slices.
    for placement, ranks, rank in reversed([*zip(like.placements, mesh.shape, mesh.get_coordinate(), strict=True)]):
        if not placement.is_replicate():
            size = tensor.shape[placement.dim]
            chunk_size = -(-size // ranks)
            start = min(rank * chunk_size, size)
            tensor = tensor.narrow(placement.dim, start, min(chunk_size, size - start))
    return tensor


@torch.no_grad()
def copy_shard(tensor: Tensor, like: Any) -> Tensor:
    """Copy this rank's slice of the complete `tensor`, to the device and with the layout of the shard of `like`.

    Equal strides are required by fused optimizers. Single numbers that belong to a parameter stay on their device.
    """
    if tensor.shape != like.shape:
        return tensor.clone()
    return torch.empty_like(get_local_shard(like), dtype=tensor.dtype).copy_(get_slice(tensor, like))
