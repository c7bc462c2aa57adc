"""Copies of model and optimizer states in the host's memory."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor

BLOCK_BYTES = 1 << 26
"""Maximum size of a pinned block that several tensors share, in bytes."""
_ALIGNMENT = 64
_State = TypeVar("_State")


class _BlockPosition(NamedTuple):
    """Position of a tensor, given by the index of its block and its first byte in the block."""

    block: int
    start: int


@torch.no_grad()
def copy_to_host(state: _State) -> _State:
    """Copy the tensors in `state`, nested dicts, to the CPU, and return the copy of `state`.

    Tensors on a GPU are copied asynchronously into pinned memory, so synchronize with the GPU before reading them. They
    share blocks of memory, because PyTorch rounds each allocation of pinned memory up to a power of two and never frees
    it. Each tensor has its own storage object, so that torch.save does not write the entire block.
    """
    copies: dict[int, Tensor] = {}
    tensors = list(_iterate_tensors(state))
    for device in {tensor.device for tensor in tensors if _is_packable(tensor)}:
        on_device = [tensor for tensor in tensors if tensor.device == device and _is_packable(tensor)]
        copies |= {id(tensor): copy for tensor, copy in zip(on_device, _start_copies(on_device), strict=True)}

    def copy_value(value: Any) -> Any:
        """Return a copy of a value in which nested tensors are replaced by their copies."""
        if isinstance(value, dict):
            return {name: copy_value(item) for name, item in value.items()}
        if not isinstance(value, Tensor):
            return value
        return copies[id(value)] if id(value) in copies else value.detach().to("cpu", copy=True)

    result: _State = copy_value(state)
    return result


def _iterate_tensors(state: Any) -> Iterable[Tensor]:
    """Yield the tensors in nested dicts."""
    if isinstance(state, dict):
        for value in state.values():
            yield from _iterate_tensors(value)
    elif isinstance(state, Tensor):
        yield state


def _is_packable(tensor: Tensor) -> bool:
    """Return True for a strided tensor on a GPU that is not empty."""
    return tensor.is_cuda and tensor.layout == torch.strided and tensor.numel() > 0


def _start_copies(tensors: Sequence[Tensor]) -> list[Tensor]:
    """Start copying tensors from one GPU to the host, and return the copies, which have the same strides.

    They are complete once the device's current stream has been synchronized.
    """
    blocks, positions = assign_to_blocks([tensor.nbytes for tensor in tensors])
    memory = [torch.empty(size, dtype=torch.uint8, pin_memory=True) for size in blocks]
    copies = []
    for tensor, (block, start) in zip(tensors, positions, strict=True):
        strides = torch.empty_like(tensor, device="meta").stride()
        # The target is a view of the block, so that PyTorch keeps the block until the device has finished copying.
        block_view = memory[block][start : start + tensor.nbytes].view(tensor.dtype)
        block_view.as_strided(tensor.shape, strides).copy_(tensor.detach(), non_blocking=True)
        # `block_view` shares the storage object of its block, which torch.save would write completely. frombuffer
        # creates a storage object of only this tensor's size, in the same memory.
        host_copy = torch.frombuffer(memory[block].numpy(), dtype=tensor.dtype, count=tensor.numel(), offset=start)
        copies.append(host_copy.as_strided(tensor.shape, strides))
    return copies


def assign_to_blocks(sizes: Sequence[int]) -> tuple[list[int], list[_BlockPosition]]:
    """Assign tensors of these `sizes` in bytes to blocks of pinned memory.

    Return the sizes of the blocks and the positions of the tensors. The largest tensors are assigned first, each to the
    first block with enough room. The size of a block is a power of two. A new block is at most as large as all
    remaining tensors and as `BLOCK_BYTES`, unless its first tensor needs more. Sizes must not be 0.
    """
    blocks: list[int] = []
    used_bytes: list[int] = []
    positions = [_BlockPosition(0, 0)] * len(sizes)
    aligned_sizes = [-(-size // _ALIGNMENT) * _ALIGNMENT for size in sizes]
    remaining_bytes = sum(aligned_sizes)
    for index in sorted(range(len(sizes)), key=lambda each: -aligned_sizes[each]):
        size = aligned_sizes[index]
        block_index = next((each for each, block in enumerate(blocks) if block - used_bytes[each] >= size), len(blocks))
        if block_index == len(blocks):
            smallest = 1 << (size - 1).bit_length()  # smallest power of two that holds the tensor
            usual = min(BLOCK_BYTES, 1 << (remaining_bytes.bit_length() - 1))
            blocks.append(max(smallest, usual))
            used_bytes.append(0)
        positions[index] = _BlockPosition(block_index, used_bytes[block_index])
        used_bytes[block_index] += size
        remaining_bytes -= size
    return blocks, positions
