"""The part of a sharded parameter (a DTensor, as FSDP makes them) that this rank holds, as a plain tensor, and back.

Plain tensors pass through all of these. DTensor itself is imported only where there is one: its import costs over a
second, which strategies without shards do without.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


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
    return gathered.to("cpu", copy=True)


@torch.no_grad()
def part_of(tensor: Tensor, like: Any) -> Tensor:
    """The inverse of `whole`: this rank's part of `tensor`, where the parameter `like` has its own; all ranks call it."""
    if not is_sharded(like) or tensor.shape != like.shape:
        return tensor
    from torch.distributed.tensor import distribute_tensor

    placed = distribute_tensor(tensor.to(like.device_mesh.device_type), like.device_mesh, like.placements)
    return placed.to_local().to(own_part(like).device)
