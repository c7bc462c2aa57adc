"""Batches of one split, also for workers that load no data."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from engine.data.loading.base_loader import Batch, Loader


@dataclass(frozen=True)
class SplitLoader:
    """Loader of one split that yields `steps` batches per epoch.

    Without a `loader`, it yields None in place of each batch.
    """

    steps: int
    images: int
    loader: Loader[Any] | None

    def epoch(self, epoch: int, start: int = 0) -> Iterator[Batch | None]:
        """Yield the batches of `epoch` from index `start` on. Batches before it are not read."""
        if self.loader is None:
            return itertools.repeat(None, self.steps - start)
        return self.loader.epoch(epoch, start)

    @property
    def threads(self) -> int | None:
        """Number of threads that read samples, or None without a loader."""
        return None if self.loader is None else self.loader.threads

    @property
    def decoding_s(self) -> float:
        """Total time that threads have spent on decoding samples, in seconds."""
        return 0.0 if self.loader is None else self.loader.decoding_s

    def prefetch(self, epoch: int, start: int = 0) -> None:
        """Start loading the first batches of `epoch`, beginning with index `start`."""
        if self.loader is not None:
            self.loader.prefetch(epoch, start)

    def set_threads(self, threads: int) -> None:
        """Set the number of threads that read samples."""
        if self.loader is not None:
            self.loader.set_threads(threads)

    def close(self) -> None:
        """Stop the loader's threads."""
        if self.loader is not None:
            self.loader.close()


def chain_prefetching(train: SplitLoader, val: SplitLoader, epochs: int) -> None:
    """Make each loader start loading its next epoch when the other loader has read the last batch of its epoch.

    `epochs` is the number of epochs in the run.
    """
    if train.loader is not None and val.loader is not None:
        train.loader.on_epoch_read = val.prefetch
        val.loader.on_epoch_read = lambda epoch: train.prefetch(epoch + 1) if epoch < epochs else None
