"""The batches of one split, for a worker that loads its share and for one that loads nothing."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from engine.data.loading.base_loader import Batch, Loader


@dataclass(frozen=True)
class SplitLoader:
    """`steps` batches an epoch; None in place of each where there is no `loader`."""

    steps: int
    images: int
    loader: Loader[Any] | None

    def epoch(self, epoch: int, start: int = 0) -> Iterator[Batch | None]:
        """The batches of `epoch` but for the first `start`, which are not read either."""
        if self.loader is None:
            return itertools.repeat(None, self.steps - start)
        return self.loader.epoch(epoch, start)

    @property
    def threads(self) -> int | None:
        """How many threads read samples; None where there is no loader."""
        return None if self.loader is None else self.loader.threads

    @property
    def decoding_s(self) -> float:
        """Thread-seconds that decoding has taken so far."""
        return 0.0 if self.loader is None else self.loader.decoding_s

    def begin(self, epoch: int, start: int = 0) -> None:
        """Has the first batches of what `epoch` will be asked for read by then."""
        if self.loader is not None:
            self.loader.begin(epoch, start)

    def set_threads(self, threads: int) -> None:
        """Has so many threads read samples from now on."""
        if self.loader is not None:
            self.loader.set_threads(threads)

    def close(self) -> None:
        if self.loader is not None:
            self.loader.close()


def chain_prefetching(train: SplitLoader, val: SplitLoader, epochs: int) -> None:
    """Has each begin to read as soon as the other has read its epoch's last batch, so that neither's first is waited
    for.
    """
    if train.loader is not None and val.loader is not None:
        train.loader.then = val.begin
        val.loader.then = lambda epoch: train.begin(epoch + 1) if epoch < epochs else None
