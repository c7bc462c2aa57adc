"""Threads that write results while the model computes."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Self

from torch import Tensor

from engine.inference.prediction.journal import Entry, Journal
from engine.inference.prediction.results import Sample
from engine.inference.worker import Share

WRITERS = 2
"""Number of threads."""
MAX_QUEUED = 3
"""Batches of outputs that may be queued."""


class Writers:
    """Pool of threads that write the results of batches, with a bounded queue."""

    def __init__(self, journal: Journal, share: Share) -> None:
        self._journal, self._share = journal, share
        self._pool = ThreadPoolExecutor(WRITERS, "results")
        self._queued: deque[tuple[Future[None], int]] = deque()

    def __enter__(self) -> Self:
        return self

    def submit(
        self, make: Callable[[Sample, Tensor, Tensor], Entry], samples: list[Sample], outputs: Tensor, inputs: Tensor
    ) -> None:
        """Queue a batch to be written. Raises the error of an earlier batch."""
        while len(self._queued) >= MAX_QUEUED:
            self._take()
        self._queued.append((self._pool.submit(self._write, make, samples, outputs, inputs), len(samples)))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            while kind is None and self._queued:
                self._take()
        finally:
            self._pool.shutdown(cancel_futures=True)

    def _take(self) -> None:
        future, count = self._queued.popleft()
        future.result()
        self._share.advance(count)

    def _write(
        self, make: Callable[[Sample, Tensor, Tensor], Entry], samples: list[Sample], outputs: Tensor, inputs: Tensor
    ) -> None:
        self._journal.add(*map(make, samples, outputs, inputs))
