"""The same global batches for any number of workers."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.data.sampler import GlobalBatchSampler

sizes = {"length": st.integers(1, 200), "batch": st.integers(1, 64), "seed": st.integers(0, 2**31 - 1)}


def steps(length: int, batch: int, world: int, seed: int, *, epoch: int = 0, shuffle: bool) -> list[list[np.ndarray]]:
    """For each step the shares of all ranks."""
    samplers = [GlobalBatchSampler(length, batch, rank, world, seed, shuffle=shuffle) for rank in range(world)]
    for sampler in samplers:
        sampler.set_epoch(epoch)
    found = []
    for shares in zip(*samplers, strict=True):
        indices = [share.indices for share in shares]
        assert {share.global_size for share in shares} == {sum(map(len, indices))}
        found.append(indices)
    assert all(len(sampler) == len(found) for sampler in samplers)
    return found


@settings(deadline=None, max_examples=50)
@given(**sizes, world=st.integers(1, 9), epoch=st.integers(0, 50), shuffle=st.booleans())
def test_that_the_union_of_the_shares_is_the_same_for_any_world_size(
    *, length: int, batch: int, seed: int, world: int, epoch: int, shuffle: bool
) -> None:
    alone = steps(length, batch, 1, seed, epoch=epoch, shuffle=shuffle)
    together = steps(length, batch, world, seed, epoch=epoch, shuffle=shuffle)
    assert [np.concatenate(shares).tolist() for shares in together] == [share.tolist() for [share] in alone]
    assert all(max(map(len, shares)) - min(map(len, shares)) <= 1 for shares in together)


@settings(deadline=None, max_examples=50)
@given(**sizes, world=st.integers(1, 9))
def test_that_every_sample_is_validated_exactly_once(length: int, batch: int, seed: int, world: int) -> None:
    shares = [share for step in steps(length, batch, world, seed, shuffle=False) for share in step]
    assert np.concatenate(shares).tolist() == list(range(length))


@settings(deadline=None, max_examples=50)
@given(**sizes, epoch=st.integers(0, 50))
def test_that_training_has_whole_batches_of_different_samples(length: int, batch: int, seed: int, epoch: int) -> None:
    found = [share for [share] in steps(length, batch, 1, seed, epoch=epoch, shuffle=True)]
    assert [len(share) for share in found] == [min(batch, length)] * max(1, length // batch)
    assert len(set(np.concatenate(found).tolist())) == sum(map(len, found))


def test_that_the_order_changes_with_the_epoch_and_the_seed() -> None:
    orders = {
        str(steps(100, 100, 1, seed, epoch=epoch, shuffle=True)[0][0].tolist())
        for seed, epoch in ((0, 0), (0, 1), (7, 0))
    }
    assert len(orders) == 3
