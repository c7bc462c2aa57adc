"""Batches of one split, also for workers that load no data."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from engine.data.loading.base_loader import Batch, Loader


@dataclass(frozen=True)
class SplitLoader:
    """Loader with `steps` batches per epoch. Without a `loader`, it yields None for each batch."""

    steps: int
    images: int
    loader: Loader[Any] | None

    def epoch(self, epoch: int, start: int = 0) -> Iterator[Batch | None]:
        """Yield the batches of `epoch` from index `start` on. Earlier batches are not read."""
        if self.loader is None:
            return itertools.repeat(None, self.steps - start)
        return self.loader.epoch(epoch, start)

    @property
    def threads(self) -> int | None:
        """Number of threads that read samples. It is None without a loader."""
        return None if self.loader is None else self.loader.threads

    @property
    def decoding_s(self) -> float:
        """Thread-seconds spent on decoding."""
        return 0.0 if self.loader is None else self.loader.decoding_s

    def prefetch(self, epoch: int, start: int = 0) -> None:
        """Prefetch the first batches of an epoch."""
        if self.loader is not None:
            self.loader.prefetch(epoch, start)

    def set_threads(self, threads: int) -> None:
        """Set the number of threads that read samples."""
        if self.loader is not None:
            self.loader.set_threads(threads)

    def close(self) -> None:
        if self.loader is not None:
            self.loader.close()


def chain_prefetching(train: SplitLoader, val: SplitLoader, epochs: int) -> None:
    """Make each loader prefetch its next epoch once the other one has read the last batch of its epoch."""
    if train.loader is not None and val.loader is not None:
        train.loader.on_epoch_read = val.prefetch
        val.loader.on_epoch_read = lambda epoch: train.prefetch(epoch + 1) if epoch < epochs else None
