"""Results that are written beside the model's work."""

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
"""Threads that turn outputs into results beside the model's."""
IN_HAND = 3
"""Batches of outputs that may wait for them."""


class Writers:
    """Threads that write the results of batches, some of which may wait for them, so that the model need not."""

    def __init__(self, journal: Journal, share: Share) -> None:
        self._journal, self._share = journal, share
        self._pool = ThreadPoolExecutor(WRITERS, "results")
        self._waiting: deque[tuple[Future[None], int]] = deque()

    def __enter__(self) -> Self:
        return self

    def give(
        self, make: Callable[[Sample, Tensor, Tensor], Entry], samples: list[Sample], outputs: Tensor, inputs: Tensor
    ) -> None:
        """Has the entries of a batch made and noted. Raises what went wrong with an earlier one."""
        while len(self._waiting) >= IN_HAND:
            self._take()
        self._waiting.append((self._pool.submit(self._write, make, samples, outputs, inputs), len(samples)))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            while kind is None and self._waiting:
                self._take()
        finally:
            self._pool.shutdown(cancel_futures=True)

    def _take(self) -> None:
        future, count = self._waiting.popleft()
        future.result()
        self._share.progressed(count)

    def _write(
        self, make: Callable[[Sample, Tensor, Tensor], Entry], samples: list[Sample], outputs: Tensor, inputs: Tensor
    ) -> None:
        self._journal.add(*map(make, samples, outputs, inputs))
