"""Which pictures make up each step, the same for any number of workers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch.utils.data import DistributedSampler


class Share(NamedTuple):
    """One rank's part of one global batch: `indices` int64 [n], n may be 0; `global_size` counts all ranks' pictures."""

    indices: npt.NDArray[np.int64]
    global_size: int


class GlobalBatchSampler(DistributedSampler[Any]):
    """Yields this rank's `Share` of each global batch.

    Step k's global batch is the k-th slice of `batch_size` of the epoch's permutation, which depends on
    (seed, epoch) alone; the ranks get contiguous, nearly equal parts of it, in the order of ranks. So the
    union over the ranks is the same whatever the world size.

    While shuffling (training), an incomplete last batch is dropped unless it is the only one. Without
    (validation), nothing is dropped or repeated.
    """

    def __init__(  # noqa: PLR0917 - the sampler of torch is called so, too
        self, length: int, batch_size: int, rank: int, world_size: int, seed: int, shuffle: bool = True
    ) -> None:
        dataset: Any = range(length)  # all that is asked of it is its length
        super().__init__(dataset, num_replicas=world_size, rank=rank, shuffle=shuffle, seed=seed)
        self.length = length
        self.batch_size = batch_size

    def __len__(self) -> int:
        """The number of global steps of an epoch."""
        whole, rest = divmod(self.length, self.batch_size)
        return whole + int(rest > 0 and (whole == 0 or not self.shuffle))

    def __iter__(self) -> Iterator[Share]:
        order = self._order()
        for step in range(len(self)):
            whole = order[step * self.batch_size : (step + 1) * self.batch_size]
            yield Share(np.array_split(whole, self.num_replicas)[self.rank], len(whole))

    def _order(self) -> npt.NDArray[np.int64]:
        if not self.shuffle:
            return np.arange(self.length, dtype=np.int64)
        generator = torch.Generator()
        generator.manual_seed(self.seed + self.epoch)
        return torch.randperm(self.length, generator=generator).numpy()
