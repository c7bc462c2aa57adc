"""The batches of one split, for a worker that loads its share and for one that loads nothing."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

from engine.data.loader import Batch, BatchLoader


@dataclass(frozen=True)
class Feed:
    """`steps` batches an epoch; None in place of each where there is no `loader`."""

    steps: int
    pictures: int
    loader: BatchLoader | None

    def epoch(self, epoch: int, start: int = 0) -> Iterator[Batch | None]:
        """The batches of `epoch` but for the first `start`, which are not read either."""
        if self.loader is None:
            return itertools.repeat(None, self.steps - start)
        self.loader.sampler.start = start
        return self.loader.epoch(epoch)

    def close(self) -> None:
        if self.loader is not None:
            self.loader.close()
