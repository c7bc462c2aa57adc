"""Which random streams a run has, and that none of them is that of another run, epoch, rank or purpose."""

from __future__ import annotations

from itertools import product

import numpy as np
import torch

from engine.data.loading.sampler import GlobalBatchSampler
from engine.data.randomness import UNMIXED, Purpose, RandomStreams
from engine.data.transforms.crops import draw_crops
from engine.training.randomness import seed

BEFORE = RandomStreams(3, UNMIXED)


def order(streams: RandomStreams, epoch: int, *, chances: np.ndarray | None = None) -> list[int]:
    length = 40 if chances is None else len(chances)
    (share,) = GlobalBatchSampler(length, length, 0, 1, streams, chances=chances).epoch_from(epoch)
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


def test_that_the_rule_of_older_checkpoints_draws_what_it_drew_then() -> None:
    """The numbers are those of the programs that wrote them."""
    assert order(BEFORE, 2, chances=np.ones(8)) != order(RandomStreams(3), 2, chances=np.ones(8))
    (share,) = GlobalBatchSampler(8, 8, 0, 1, BEFORE).epoch_from(2)
    assert share.indices.tolist() == [3, 6, 0, 2, 1, 4, 5, 7]
    assert order(BEFORE, 2, chances=np.array([0.5] * 2 + [0.1] * 6)) == [0, 4, 7, 6, 0, 1, 1, 1]
    crops = draw_crops(28, BEFORE, 2, np.arange(4), mirror=True)
    assert crops.tolist() == [[14, 22, 1], [17, 22, 1], [5, 8, 1], [18, 28, 1]]
    for batch in (0, 5):
        mixed = BEFORE.generator(Purpose.MIX, epoch=2, batch=batch)
        assert mixed.random() == np.random.default_rng((3, 2, batch)).random()
    assert BEFORE.number(Purpose.TRANSFORM, epoch=2, batch=5, rank=1) == 2952316646
    assert BEFORE.number(Purpose.MODEL, rank=2) == 5
