"""Which random streams a run has, and that none of them is that of another run, epoch, rank or purpose."""

from __future__ import annotations

from itertools import product

import numpy as np
import torch

from engine.data.loading.sampler import GlobalBatchSampler
from engine.data.randomness import Purpose, RandomStreams
from engine.training.randomness import seed


def order(streams: RandomStreams, epoch: int) -> list[int]:
    (share,) = GlobalBatchSampler(40, 40, 0, 1, streams).epoch_from(epoch)
    return share.indices.tolist()


def test_that_no_two_seeds_share_the_order_of_an_epoch() -> None:
    orders = {str(order(RandomStreams(seed), epoch)) for seed in range(20) for epoch in range(1, 51)}
    assert len(orders) == 20 * 50


def test_that_no_two_of_seed_epoch_batch_rank_and_purpose_share_a_stream() -> None:
    which = list(product((0, 1, 2, 2**31 - 1), Purpose, range(12), range(12), range(12)))
    numbers = {
        RandomStreams(seed).number(purpose, epoch=epoch, batch=batch, rank=rank)
        for seed, purpose, epoch, batch, rank in which
    }
    assert len(numbers) == len(which)
    in_32_bits = {
        RandomStreams(seed).number(Purpose.MODEL, rank=rank) & 0xFFFFFFFF for seed in range(100) for rank in range(16)
    }
    assert len(in_32_bits) == 1600  # which torch's generator on the CPU goes by


def test_that_ranks_of_neighbouring_seeds_draw_apart_from_every_generator() -> None:
    state = torch.get_rng_state()
    drawn = []
    for number, rank in product((0, 1), repeat=2):
        seed(RandomStreams(number).number(Purpose.MODEL, rank=rank))
        drawn += [torch.rand(()).item(), float(np.random.random())]
    torch.set_rng_state(state)
    assert len(set(drawn)) == 8
