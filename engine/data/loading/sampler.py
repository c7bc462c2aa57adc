"""Which images make up each step, the same for any number of workers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.utils.data import DistributedSampler

from engine.data.randomness import Purpose, RandomStreams


class Share(NamedTuple):
    """One rank's part of one global batch: `indices` int64 [n], n may be 0; `global_size` counts all ranks' images."""

    indices: npt.NDArray[np.int64]
    global_size: int


class GlobalBatchSampler(DistributedSampler[Any]):
    """Yields this rank's `Share` of each global batch.

    Step k's global batch is the k-th slice of `batch_size` of the epoch's permutation, which depends on
    (seed, epoch) alone; the ranks get contiguous parts of it, in the order of ranks, nearly equal ones or in the
    proportion of `shares`. So the union over the ranks is the same whatever the world size.

    While shuffling (training), an incomplete last batch is dropped unless it is the only one. Without
    (validation), nothing is dropped or repeated.

    With `chances` [length], an epoch is of as many samples, each of which comes as often as its part of all chances
    says: not once each, but in the mean over the epochs, and in each epoch that number rounded up or down.
    """

    def __init__(  # noqa: PLR0917 - the sampler of torch is called so, too
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
        dataset: Any = range(length)  # all that is asked of it is its length
        super().__init__(dataset, num_replicas=world_size, rank=rank, shuffle=shuffle, seed=streams.seed)
        self.streams = streams
        self.length = length
        self.batch_size = batch_size
        self.shares = tuple(shares) or (1.0,) * world_size
        self._chances = chances

    def __len__(self) -> int:
        """The number of global steps of an epoch."""
        whole, rest = divmod(self.length, self.batch_size)
        return whole + int(rest > 0 and (whole == 0 or not self.shuffle))

    @property
    def largest_share(self) -> int:
        """The most images that this rank has of one batch."""
        sizes = {min(self.batch_size, self.length - step * self.batch_size) for step in (0, len(self) - 1)}
        return max(divide(max(size, 0), self.shares)[self.rank] for size in sizes)

    def __iter__(self) -> Iterator[Share]:
        return self.epoch_from(self.epoch)

    def epoch_from(self, epoch: int, start: int = 0) -> Iterator[Share]:
        """The shares of `epoch` but for those of its first `start` steps, as those made before a checkpoint."""
        order = self._order(epoch)
        for step in range(start, len(self)):
            yield self._share(order, step)

    def left_out(self, epoch: int) -> npt.NDArray[np.int64]:
        """This rank's part of the incomplete last batch that is dropped; empty where none is."""
        return self._share(self._order(epoch), len(self)).indices

    def _share(self, order: npt.NDArray[np.int64], step: int) -> Share:
        whole = order[step * self.batch_size : (step + 1) * self.batch_size]
        sizes = divide(len(whole), self.shares)
        begin = sum(sizes[: self.rank])
        return Share(whole[begin : begin + sizes[self.rank]], len(whole))

    def _order(self, epoch: int) -> npt.NDArray[np.int64]:
        if not self.shuffle:
            return np.arange(self.length, dtype=np.int64)
        drawn = self.streams.generator(Purpose.ORDER, epoch=epoch, batch=0)
        order = drawn.permutation(self.length)
        if self._chances is None:
            return order
        # The drawn are those of systematic sampling (Kitagawa 1996, appendix): marks at even distances along all chances, of
        # which those that are alike lie together, so that what is rare comes as often in every single epoch.
        alike = order[np.argsort(self._chances[order], kind="stable")]
        ends = np.cumsum(self._chances[alike])
        marks = (np.arange(self.length) + drawn.random()) * (ends[-1] / self.length)
        picked = np.minimum(np.searchsorted(ends, marks, side="right"), self.length - 1)
        return alike[picked][drawn.permutation(self.length)]


def even_chances(targets: Tensor) -> npt.NDArray[np.float64]:
    """The chances by which each class comes as often as any other, of `targets` int64 [N], the class of each sample.

    Of float [N, C], several classes for each sample, its chance is that of its rarest class (as the repeat factors of
    Gupta et al. 2019, LVIS, appendix A), and samples without a class count as one more class.
    """
    if targets.dim() == 1:
        counts = torch.bincount(targets).double()
        return (1 / counts.clamp(min=1))[targets].numpy()
    there = torch.cat([targets > 0, ~(targets > 0).any(1, keepdim=True)], dim=1)
    counts = there.sum(0).double()
    return (there / counts.clamp(min=1)).amax(1).numpy()


def divide(count: int, shares: Sequence[float]) -> list[int]:
    """Divides `count` things in the proportion of `shares`, by largest remainders, the first ones first.

    Equal shares give the sizes of np.array_split.
    """
    exact = [count * share / sum(shares) for share in shares]
    sizes = [int(part) for part in exact]
    by_remainder = sorted(range(len(shares)), key=lambda index: (sizes[index] - exact[index], index))
    for index in by_remainder[: count - sum(sizes)]:
        sizes[index] += 1
    return sizes
