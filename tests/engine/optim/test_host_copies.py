"""Copies of a training state in host memory, and the blocks of pinned memory that hold them."""

from __future__ import annotations

import itertools

import pytest
import torch

from engine.optim.host_copies import BLOCK_BYTES, _start_copies, assign_to_blocks, copy_to_host

MIB = 1 << 20


def test_copy_does_not_change_with_state() -> None:
    state = {"model": {"weight": torch.ones(2, 3).t()}, "step": 7}
    copy = copy_to_host(state)
    state["model"]["weight"].zero_()  # type: ignore[index]
    assert copy["step"] == 7
    assert copy["model"]["weight"].stride() == (1, 3)  # type: ignore[index]
    assert copy["model"]["weight"].sum() == 6  # type: ignore[index]


def test_packed_copies_have_strides_and_storages_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    empty = torch.empty
    monkeypatch.setattr(torch, "empty", lambda size, *, dtype, pin_memory: empty(size, dtype=dtype))
    tensors = [torch.arange(6.0).view(2, 3).t(), torch.arange(4), torch.tensor(True)]
    copies = _start_copies(tensors)
    for tensor, copy in zip(tensors, copies, strict=True):
        assert torch.equal(copy, tensor)
        assert (copy.dtype, copy.stride(), copy.untyped_storage().nbytes()) == (
            tensor.dtype,
            tensor.stride(),
            tensor.nbytes,
        )


@pytest.mark.parametrize(
    ("sizes", "limit"),
    [
        ([9 * MIB] * 30, 1.2),
        ([100 * MIB] * 3 + [2 * MIB] * 40, 1.05),
        ([33 * MIB], 2.0),
        ([300, 4, 4, 8, 1000], 1.8),
        ([n * 4096 + 4 for n in range(1, 400)], 1.02),
    ],
    ids=str,
)
def test_blocks_waste_little(sizes: list[int], limit: float) -> None:
    blocks, spaces = assign_to_blocks(sizes)
    assert sum(blocks) <= limit * sum(sizes)
    assert all(block & (block - 1) == 0 for block in blocks)
    ranges = sorted((space.block, space.start, space.start + size) for space, size in zip(spaces, sizes, strict=True))
    for (block, _, end), (following, start, _) in itertools.pairwise(ranges):
        assert block != following or end <= start
    assert all(end <= blocks[block] for block, _, end in ranges)
    assert all(block <= max(BLOCK_BYTES, 2 * max(sizes)) for block in blocks)
