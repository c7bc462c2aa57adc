"""Sampler whose global batches are the same for any number of workers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.utils.data import DistributedSampler

from engine.data.randomness import Purpose, RandomStreams


class RankSamples(NamedTuple):
    """Samples of one batch that one rank processes.

    `indices`, int64 [n], are their indices in the split, and n may be 0. `global_size` is the number of samples of the
    batch on all ranks.
    """

    indices: npt.NDArray[np.int64]
    global_size: int


class GlobalBatchSampler(DistributedSampler[Any]):
    """Sampler that yields this rank's samples of each global batch.

    Global batch k is the k-th slice of `batch_size` samples in a permutation that depends only on the seed and the
    epoch. It is divided among the ranks into contiguous slices. The slices are nearly equal, or proportional to
    `shares` if these are given. The samples of all ranks together are therefore the same for any number of ranks.

    With `shuffle` (training), an incomplete last batch is dropped unless it is the only one. Without it (validation),
    no sample is dropped or repeated, and the samples are in their original order.

    If `chances` [length] are given, a sample's number of occurrences in an epoch is proportional to its chance, rounded
    up or down. Otherwise, each sample occurs once.
    """

    def __init__(  # noqa: PLR0917 - as torch's DistributedSampler
        self,
        length: int,
        batch_size: int,
        rank: int,
        world_size: int,
        streams: RandomStreams,
        shuffle: bool = True,
        shares: Sequence[float] = (),
        chances: npt.NDArray[np.float64] | None = None,
    ) -> None:
        dataset: Any = range(length)  # DistributedSampler uses only the length
        super().__init__(dataset, num_replicas=world_size, rank=rank, shuffle=shuffle, seed=streams.seed)
        self.streams = streams
        self.length = length
        self.batch_size = batch_size
        self.shares = tuple(shares) or (1.0,) * world_size  # relative size of each rank's local batch
        self._chances = chances  # relative chance of each sample to be drawn, or None for equal ones

    def __len__(self) -> int:
        """Return the number of global batches per epoch."""
        full, remaining = divmod(self.length, self.batch_size)
        return full + int(remaining > 0 and (full == 0 or not self.shuffle))

    @property
    def max_local_batch(self) -> int:
        """Largest number of samples in a batch on this rank."""
        # Only the last global batch may be smaller than the first one.
        sizes = {min(self.batch_size, self.length - step * self.batch_size) for step in (0, len(self) - 1)}
        return max(divide(size, self.shares)[self.rank] for size in sizes)

    def __iter__(self) -> Iterator[RankSamples]:
        return self.iterate_epoch(self.epoch)

    def iterate_epoch(self, epoch: int, start: int = 0) -> Iterator[RankSamples]:
        """Yield this rank's samples for each batch of `epoch`, starting with the batch at index `start`."""
        order = self._order(epoch)
        for step in range(start, len(self)):
            yield self._select_rank_samples(order, step)

    def list_dropped_samples(self, epoch: int) -> npt.NDArray[np.int64]:
        """Return the indices of this rank's samples in the dropped, incomplete last batch of an epoch.

        The array is empty if no batch is dropped.
        """
        return self._select_rank_samples(self._order(epoch), len(self)).indices

    def _select_rank_samples(self, order: npt.NDArray[np.int64], step: int) -> RankSamples:
        """Return this rank's samples in the global batch with the index `step`, given the order of all samples."""
        batch = order[step * self.batch_size : (step + 1) * self.batch_size]
        sizes = divide(len(batch), self.shares)
        start = sum(sizes[: self.rank])
        return RankSamples(batch[start : start + sizes[self.rank]], len(batch))

    def _order(self, epoch: int) -> npt.NDArray[np.int64]:
        """Return the indices of the samples in `epoch` in the order of the global batches, [length]."""
        if not self.shuffle:
            return np.arange(self.length, dtype=np.int64)
        generator = self.streams.generator(Purpose.ORDER, epoch=epoch, batch=0)
        order = generator.permutation(self.length)
        if self._chances is None:
            return order
        # Systematic sampling (Kitagawa 1996, appendix): evenly spaced points on the cumulated chances. Samples of equal
        # chance are adjacent, so that rare ones are drawn equally often in every epoch.
        by_chance = order[np.argsort(self._chances[order], kind="stable")]
        ends = np.cumsum(self._chances[by_chance])
        points = (np.arange(self.length) + generator.random()) * (ends[-1] / self.length)
        picked = np.minimum(np.searchsorted(ends, points, side="right"), self.length - 1)
        return by_chance[picked][generator.permutation(self.length)]


def compute_balancing_chances(targets: Tensor) -> npt.NDArray[np.float64]:
    """Return chances [N] for the samples so that each class is selected equally often.

    `targets` are int64 [N], the class of each sample, or float [N, C], which are positive for the labels of a sample.
    In the second case, a sample has the chance of its rarest label (like the repeat factors in Gupta et al. 2019, LVIS,
    appendix A), and samples without a label form an additional class.
    """
    if targets.dim() == 1:
        counts = torch.bincount(targets).double()
        return (1 / counts.clamp(min=1))[targets].numpy()
    has_class = torch.cat([targets > 0, ~(targets > 0).any(1, keepdim=True)], dim=1)
    counts = has_class.sum(0).double()
    return (has_class / counts.clamp(min=1)).amax(1).numpy()


def divide(count: int, shares: Sequence[float]) -> list[int]:
    """Divide `count` into integers that are proportional to `shares` and have the sum `count`.

    The exact values are rounded down, and the remaining units are assigned to the values with the largest fractions.
    Equal shares give the same sizes as np.array_split.
    """
    exact = [count * share / sum(shares) for share in shares]
    sizes = [int(value) for value in exact]
    by_remainder = sorted(range(len(shares)), key=lambda index: (sizes[index] - exact[index], index))
    for index in by_remainder[: count - sum(sizes)]:
        sizes[index] += 1
    return sizes
