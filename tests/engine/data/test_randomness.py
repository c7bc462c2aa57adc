"""Random streams for each run, epoch, rank and purpose."""

from __future__ import annotations

from itertools import product

import numpy as np
import torch

from engine.data.loading.sampler import GlobalBatchSampler
from engine.data.randomness import Purpose, RandomStreams, mix
from engine.training.randomness import seed


def order(streams: RandomStreams, epoch: int) -> list[int]:
    (share,) = GlobalBatchSampler(40, 40, 0, 1, streams).iterate_epoch(epoch)
    return share.indices.tolist()


def test_orders_differ_between_seeds_and_epochs() -> None:
    orders = {str(order(RandomStreams(seed), epoch)) for seed in range(20) for epoch in range(1, 51)}
    assert len(orders) == 20 * 50


def test_all_streams_differ() -> None:
    combinations = list(product((0, 1, 2, 2**31 - 1), Purpose, range(12), range(12), range(12)))
    numbers = {
        RandomStreams(seed).derive_seed(purpose, epoch=epoch, batch=batch, rank=rank)
        for seed, purpose, epoch, batch, rank in combinations
    }
    assert len(numbers) == len(combinations)
    in_32_bits = {
        RandomStreams(seed).derive_seed(Purpose.MODEL, rank=rank) & 0xFFFFFFFF
        for seed in range(100)
        for rank in range(16)
    }
    assert len(in_32_bits) == 1600  # bits that torch's generator on the CPU uses


def test_draw_hashes_samples_with_splitmix64() -> None:
    assert mix(0) == 0xE220A8397B1DCDAF
    streams, samples = RandomStreams(7), (0, 5, 9)
    for draw_index in (0, 3):
        number = streams.derive_seed(Purpose.CROP, epoch=2, batch=draw_index)
        hashes = [[mix(sample ^ mix(number ^ column)) >> 11 for sample in samples] for column in range(2)]
        drawn = streams.draw(Purpose.CROP, 2, np.array(samples), 2, draw_index=draw_index)
        assert (drawn * 2.0**53).tolist() == hashes
    generators = [
        streams.generator(Purpose.MIX, epoch=epoch, batch=batch) for epoch, batch in product((0, 1), repeat=2)
    ]
    assert len({generator.random() for generator in generators}) == 4


def test_ranks_of_adjacent_seeds_draw_differently() -> None:
    state = torch.get_rng_state()
    drawn = []
    for number, rank in product((0, 1), repeat=2):
        seed(RandomStreams(number).derive_seed(Purpose.MODEL, rank=rank))
        drawn += [torch.rand(()).item(), float(np.random.random())]
    torch.set_rng_state(state)
    assert len(set(drawn)) == 8
