"""Slices of complete tensors that a rank holds, for meshes that are simulated in this process."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from engine.optim.shards import copy_shard, get_slice, pack_qkv

ROWS, COLUMNS, ALL = (SimpleNamespace(dim=dim, is_replicate=lambda dim=dim: dim is None) for dim in (0, 1, None))


def make_parameter(shape: tuple[int, ...], mesh: dict[int, Any], coordinate: tuple[int, ...], **values: Any) -> Any:
    """Return a replacement for a DTensor. `mesh` has the placement of each dimension of the mesh by its size."""
    device_mesh = SimpleNamespace(shape=tuple(mesh), get_coordinate=lambda: coordinate)
    return SimpleNamespace(device_mesh=device_mesh, placements=tuple(mesh.values()), shape=torch.Size(shape), **values)


@pytest.mark.parametrize("rows", [8, 5, 3])
def test_slices_are_the_chunks_of_dtensors(rows: int) -> None:
    tensor = torch.arange(rows * 2).reshape(rows, 2)
    chunks = [*tensor.chunk(4), *[tensor[:0]] * 4][:4]  # the last ranks may have none
    for rank in range(4):
        found = get_slice(tensor, make_parameter((rows, 2), {4: ROWS}, (rank,)))
        assert torch.equal(found, chunks[rank])
        if len(found):
            assert found.untyped_storage().data_ptr() == tensor.untyped_storage().data_ptr(), "it is a view"


def test_slices_of_two_dimensions_are_divided_by_the_last_one_first() -> None:
    tensor = torch.arange(36).reshape(6, 6)
    for outer in range(2):
        for inner in range(3):
            both = get_slice(tensor, make_parameter((6, 6), {2: ROWS, 3: ROWS}, (outer, inner)))
            assert torch.equal(both, tensor.chunk(3)[inner].chunk(2)[outer])
            crossed = get_slice(tensor, make_parameter((6, 6), {2: COLUMNS, 3: ROWS}, (outer, inner)))
            assert torch.equal(crossed, tensor.chunk(3)[inner].chunk(2, 1)[outer])
            replicated = get_slice(tensor, make_parameter((6, 6), {2: ALL, 3: ROWS}, (outer, inner)))
            assert torch.equal(replicated, tensor.chunk(3)[inner])


def test_slices_of_packed_weights_have_their_order() -> None:
    tensor = torch.arange(24).reshape(12, 2)
    for rank in range(2):
        parameter = make_parameter((12, 2), {2: ROWS}, (rank,), packed_for=2)
        assert torch.equal(get_slice(tensor, parameter), pack_qkv(tensor, 2).chunk(2)[rank])


def test_plain_and_single_values_are_not_divided() -> None:
    tensor, step = torch.arange(6.0), torch.tensor(3.0)
    parameter = make_parameter((6,), {2: ROWS}, (1,))
    assert get_slice(tensor, torch.zeros(6)) is tensor
    assert get_slice(step, parameter) is step
    copied = copy_shard(step, parameter)
    assert copied == step
    assert copied is not step
