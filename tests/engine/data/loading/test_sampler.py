"""Global batches, divided among any number of ranks."""

from __future__ import annotations

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.data.loading.sampler import GlobalBatchSampler, compute_balancing_chances, divide
from engine.data.randomness import RandomStreams

sizes = {"length": st.integers(1, 200), "batch": st.integers(1, 64), "seed": st.integers(0, 2**31 - 1)}


def list_steps(
    length: int, batch: int, world: int, seed: int, *, epoch: int = 0, shuffle: bool
) -> list[list[np.ndarray]]:
    """Return the sample indices of an epoch: a list per step, with an array per rank. Check the batch sizes."""
    samplers = [
        GlobalBatchSampler(length, batch, rank, world, RandomStreams(seed), shuffle=shuffle) for rank in range(world)
    ]
    for sampler in samplers:
        sampler.set_epoch(epoch)
    found = []
    for shares in zip(*samplers, strict=True):
        indices = [share.indices for share in shares]
        assert {share.global_size for share in shares} == {sum(map(len, indices))}
        found.append(indices)
    assert all(len(sampler) == len(found) for sampler in samplers)
    return found


@settings(max_examples=50)
@given(**sizes, world=st.integers(1, 9), epoch=st.integers(0, 50), shuffle=st.booleans())
def test_union_of_ranks_is_the_same_for_any_world_size(
    *, length: int, batch: int, seed: int, world: int, epoch: int, shuffle: bool
) -> None:
    single = list_steps(length, batch, 1, seed, epoch=epoch, shuffle=shuffle)
    joined = list_steps(length, batch, world, seed, epoch=epoch, shuffle=shuffle)
    assert [np.concatenate(shares).tolist() for shares in joined] == [share.tolist() for [share] in single]
    assert all(max(map(len, shares)) - min(map(len, shares)) <= 1 for shares in joined)


@settings(max_examples=50)
@given(**sizes, world=st.integers(1, 9))
def test_validation_uses_every_sample_once(length: int, batch: int, seed: int, world: int) -> None:
    shares = [share for step in list_steps(length, batch, world, seed, shuffle=False) for share in step]
    assert np.concatenate(shares).tolist() == list(range(length))


@settings(max_examples=50)
@given(**sizes, epoch=st.integers(0, 50))
def test_training_has_full_batches_of_distinct_samples(length: int, batch: int, seed: int, epoch: int) -> None:
    found = [share for [share] in list_steps(length, batch, 1, seed, epoch=epoch, shuffle=True)]
    assert [len(share) for share in found] == [min(batch, length)] * max(1, length // batch)
    assert len(set(np.concatenate(found).tolist())) == sum(map(len, found))


def test_order_depends_on_epoch_and_seed() -> None:
    orders = {
        str(list_steps(100, 100, 1, seed, epoch=epoch, shuffle=True)[0][0].tolist())
        for seed, epoch in ((0, 0), (0, 1), (7, 0))
    }
    assert len(orders) == 3


@settings(max_examples=50)
@given(count=st.integers(0, 500), weights=st.lists(st.floats(0.01, 100), min_size=1, max_size=9))
def test_divide_is_proportional_and_complete(count: int, weights: list[float]) -> None:
    found = divide(count, weights)
    assert sum(found) == count
    assert all(abs(size - count * weight / sum(weights)) < 1 for size, weight in zip(found, weights, strict=True))


@settings(max_examples=50)
@given(count=st.integers(0, 500), world=st.integers(1, 33))
def test_divide_equally_matches_numpy(count: int, world: int) -> None:
    assert divide(count, (1 / world,) * world) == [len(share) for share in np.array_split(np.arange(count), world)]


@settings(max_examples=50)
@given(**sizes, weights=st.lists(st.floats(0.01, 100), min_size=1, max_size=6))
def test_union_of_ranks_is_the_same_with_unequal_shares(
    length: int, batch: int, seed: int, weights: list[float]
) -> None:
    single = list_steps(length, batch, 1, seed, shuffle=True)
    world = len(weights)
    samplers = [
        GlobalBatchSampler(length, batch, rank, world, RandomStreams(seed), shares=weights) for rank in range(world)
    ]
    steps = list(zip(*samplers, strict=True))
    for step in steps:
        for samples, weight in zip(step, weights, strict=True):
            assert abs(len(samples.indices) - samples.global_size * weight / sum(weights)) < 1
    joined = [np.concatenate([share.indices for share in shares]) for shares in steps]
    assert [indices.tolist() for indices in joined] == [indices.tolist() for [indices] in single]


def test_divide_rounds_the_largest_remainders_up() -> None:
    assert divide(10, (1, 2, 4)) == [1, 3, 6]
    assert divide(10, (4, 2, 1)) == [6, 3, 1]


def test_iterate_epoch_skips_steps_before_start() -> None:
    sampler = GlobalBatchSampler(100, 8, 0, 2, RandomStreams(0))
    everything = [share.indices.tolist() for share in sampler]
    assert [share.indices.tolist() for share in sampler.iterate_epoch(0, 5)] == everything[5:]
    assert len(sampler) == 12


@settings(max_examples=50)
@given(
    **sizes,
    weights=st.lists(st.floats(0.01, 100), min_size=1, max_size=6),
    rank=st.integers(0, 5),
    shuffle=st.booleans(),
)
def test_max_local_batch_is_exact(
    *, length: int, batch: int, seed: int, weights: list[float], rank: int, shuffle: bool
) -> None:
    sampler = GlobalBatchSampler(
        length, batch, rank % len(weights), len(weights), RandomStreams(seed), shuffle, weights
    )
    assert sampler.max_local_batch == max((len(share.indices) for share in sampler), default=0)


@settings(max_examples=50)
@given(**sizes, world=st.integers(1, 5), epoch=st.integers(0, 9))
def test_dropped_samples_complete_the_epoch(length: int, batch: int, seed: int, world: int, epoch: int) -> None:
    samplers = [GlobalBatchSampler(length, batch, rank, world, RandomStreams(seed)) for rank in range(world)]
    shares = [share.indices for sampler in samplers for share in sampler.iterate_epoch(epoch)]
    dropped = [sampler.list_dropped_samples(epoch) for sampler in samplers]
    assert sum(map(len, dropped)) < batch
    assert sorted(np.concatenate(shares + dropped).tolist()) == list(range(length))


@settings(max_examples=30)
@given(
    counts=st.lists(st.integers(1, 60), min_size=2, max_size=6),
    batch=st.integers(1, 32),
    world=st.integers(1, 4),
    epoch=st.integers(0, 9),
)
def test_balancing_chances_balance_every_epoch(*, counts: list[int], batch: int, world: int, epoch: int) -> None:
    labels = torch.repeat_interleave(torch.arange(len(counts)), torch.tensor(counts))
    labels = labels[torch.randperm(len(labels), generator=torch.Generator().manual_seed(5))]
    chances = compute_balancing_chances(labels)
    samplers = [
        GlobalBatchSampler(len(labels), batch, rank, world, RandomStreams(3), chances=chances) for rank in range(world)
    ]
    steps = zip(*(sampler.iterate_epoch(epoch) for sampler in samplers), strict=True)
    drawn = np.concatenate([share.indices for shares in steps for share in shares])
    left = np.concatenate([sampler.list_dropped_samples(epoch) for sampler in samplers])
    drawn = np.concatenate([drawn, left])
    assert len(drawn) == len(labels)
    drawn_counts = np.bincount(labels.numpy()[drawn], minlength=len(counts))
    for count in set(counts):  # classes of one size are drawn from together
        same_size = np.array(counts) == count
        assert abs(drawn_counts[same_size].sum() - same_size.sum() * len(labels) / len(counts)) <= 2
    times_drawn = np.bincount(drawn, minlength=len(labels))
    expected = len(labels) * chances / chances.sum()
    assert (np.abs(times_drawn - expected) < 1 + 1e-9).all()


def test_chances_depend_on_seed_and_epoch_and_reach_all() -> None:
    chances = compute_balancing_chances(torch.tensor([0] * 90 + [1] * 10))
    orders = [
        np.concatenate(
            [
                share.indices
                for share in GlobalBatchSampler(100, 10, 0, 1, RandomStreams(7), chances=chances).iterate_epoch(e)
            ]
        )
        for e in (*range(30), 0)
    ]
    assert orders[0].tolist() == orders[-1].tolist() != orders[1].tolist()
    assert set(np.concatenate(orders).tolist()) == set(range(100))
    rare = (orders[0] >= 90).astype(int)
    assert {-1, 1} <= set(np.diff(rare).tolist())  # samples of equal chance are not adjacent


def test_balancing_chances_use_rarest_label() -> None:
    targets = torch.tensor([[1.0, 0.0], [1.0, 0.0], [1.0, 1.0], [0.0, 0.0]])
    np.testing.assert_allclose(compute_balancing_chances(targets), [1 / 3, 1 / 3, 1, 1])
