"""Base class for loaders, which read batches in a background thread or in the caller's thread."""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Generic

from torch import Tensor

from engine.data.loading.prefetch import Prefetcher, Slots, SlotT, StagedBatch
from engine.data.loading.sampler import GlobalBatchSampler, RankSamples
from engine.data.splits import Labels

PREFETCH = 3
"""Maximum number of batches that are read in advance."""


@dataclass(frozen=True, eq=False)
class Batch:
    """Part of a global batch that this worker processes.

    Attributes:
        inputs: Normalized inputs on the device, float32 [n, ...], or [n, C, H, W] for images. n may be 0.
        targets: Targets on the device, [n, ...], in the form that the task needs, such as int64 [n] for classes or
            int64 [n, H, W] for pixels.
        global_size: Number of samples on all workers, including unreadable ones.
        wait_s: Seconds that the consumer waited for this batch.
        samples: Indices of the samples in the split, int64 [n], or None if the batch does not come from a loader.
    """

    inputs: Tensor
    targets: Tensor
    global_size: int
    wait_s: float
    samples: Labels | None = None


Finish = Callable[[Tensor, Tensor, int, int], tuple[Tensor, Tensor]]
"""Function that makes a last change to a batch on the device.

It takes the inputs, the targets, the epoch, and the index of the batch in the epoch, and returns the new inputs and
targets.
"""


class Loader(ABC, Generic[SlotT]):
    """Loader that yields the batches of one split, epoch by epoch.

    A background thread prefetches up to `PREFETCH` batches. If `threads` is 0, or a subclass considers it faster, the
    caller's thread reads the batches instead. Once an epoch's last batch has been read in the background,
    `on_epoch_read(epoch)` is called from the background thread. If the caller's thread reads the batches, it calls
    `on_epoch_read(epoch)` shortly before it reads the last batch.
    """

    def __init__(self, sampler: GlobalBatchSampler, threads: int) -> None:
        self.sampler = sampler
        self.threads = threads
        self.on_epoch_read: Callable[[int], None] = lambda epoch: None
        self._slots: Slots[SlotT] = Slots(self._make_slot, PREFETCH + 1)  # one more for the batch in use
        self._lock = threading.Lock()
        self._prefetchers: set[Prefetcher[SlotT]] = set()
        self._current_epoch: int | None = None  # epoch of the batches that the caller reads
        self._is_closed = False

    def __len__(self) -> int:
        return len(self.sampler)

    def epoch(self, epoch: int, start: int = 0) -> Iterator[Batch]:
        """Yield the batches of `epoch`, starting with the batch at index `start`.

        The caller may stop the iteration early. Only one epoch can be iterated at a time.
        """
        batch_index = start
        # Each pass reads in one of the two ways until the loader changes to the other one or the epoch ends.
        while batch_index < len(self) and not self._is_closed:
            prefetcher = self._find_or_start_prefetcher(epoch, batch_index)
            try:
                started = time.perf_counter()
                # `get` returns None after the last batch, or if the prefetcher was closed.
                batches = self._read_inline(epoch, batch_index) if prefetcher is None else iter(prefetcher.get, None)
                for staged in batches:
                    yield self._finish(staged, time.perf_counter() - started, epoch, batch_index)
                    batch_index += 1
                    started = time.perf_counter()
                if prefetcher is not None and prefetcher.is_closed:  # by `close`, or since another epoch was started
                    return
            finally:
                if prefetcher is not None:
                    self._stop([prefetcher])

    def prefetch(self, epoch: int, start: int = 0) -> None:
        """Start reading `epoch` in the background before it is iterated, from the batch at index `start`.

        Does nothing if the loader is closed, if another epoch is still being read in the background, if `epoch` is
        being read already, or if batches are or may be read in the caller's thread.
        """
        with self._lock:
            active_epochs = {self._current_epoch, *(each.epoch for each in self._prefetchers)}
            # A prefetcher that still reads needs the slots.
            can_start = not self._is_closed and all(each.is_finished for each in self._prefetchers)
            if can_start and epoch not in active_epochs and not self._is_inline and not self._needs_preparation:
                self._prefetchers.add(self._start_prefetcher(epoch, start))

    @property
    @abstractmethod
    def decoded(self) -> int:
        """Number of samples decoded since the loader was created."""

    @property
    @abstractmethod
    def decoding_s(self) -> float:
        """Seconds spent on decoding since the loader was created, summed over all threads."""

    def set_threads(self, threads: int) -> None:
        """Change the number of threads that read and decode samples."""
        self.threads = threads

    def close(self) -> None:
        """Stop the threads. The loader can't be used afterwards."""
        with self._lock:
            self._is_closed = True
        self._stop(self._prefetchers)
        self._close_source()

    @property
    def _is_inline(self) -> bool:
        """True if batches are read in the caller's thread, not in a background thread."""
        return not self.threads

    @property
    def _needs_preparation(self) -> bool:
        """True until `_prepare` has decided whether a background thread reads the batches.

        Until then, no epoch may be prefetched.
        """
        return False

    @abstractmethod
    def _make_slot(self) -> SlotT:
        """Create a slot, which is a reusable buffer for one batch."""

    @abstractmethod
    def _fill(self, slot: SlotT, batch: RankSamples, epoch: int) -> StagedBatch[SlotT]:
        """Read the samples of `batch` into `slot` and send them to the device.

        This usually runs in the background thread. It must not use torch's thread pool, which the training step needs.
        """

    @abstractmethod
    def _finish(self, staged: StagedBatch[SlotT], wait_s: float, epoch: int, batch_index: int) -> Batch:
        """Create the batch that the consumer receives from the result of `_fill`, and release its slot.

        `wait_s` is the time in seconds that the consumer waited for the batch.
        """

    @abstractmethod
    def _close_source(self) -> None:
        """Close the source of the samples, such as a cache of decoded images."""

    def _prepare(self) -> None:
        """Prepare the loader, in the consumer's thread, before an epoch is read. By default, this does nothing."""

    def _finish_epoch(self, epoch: int) -> None:
        """Do additional work in the background thread after an epoch's last batch was read.

        By default, this does nothing.
        """

    def _find_or_start_prefetcher(self, epoch: int, batch_index: int) -> Prefetcher[SlotT] | None:
        """Return a prefetcher that reads `epoch` from the batch at index `batch_index` on.

        If a prefetcher already reads from this position, it is returned, and others that read a later epoch continue.
        All other prefetchers are stopped. Otherwise the loader is prepared (see `_prepare`), and a new prefetcher is
        started. The result is None if the caller's thread should read the batches.
        """
        with self._lock:
            self._current_epoch = epoch
            matching = {each for each in self._prefetchers if (each.epoch, each.start) == (epoch, batch_index)}
            later = {each for each in self._prefetchers if matching and each.epoch > epoch}
            others = self._prefetchers - matching - later
        self._stop(others)
        if matching:
            return matching.pop()
        self._prepare()
        if self._is_inline:
            return None
        prefetcher = self._start_prefetcher(epoch, batch_index)
        with self._lock:
            self._prefetchers.add(prefetcher)
        return prefetcher

    def _stop(self, prefetchers: Iterable[Prefetcher[SlotT]]) -> None:
        """Stop the threads of some prefetchers and wait for them. The batches that they have read are lost."""
        for prefetcher in list(prefetchers):
            prefetcher.close()
            with self._lock:
                self._prefetchers.discard(prefetcher)

    def _start_prefetcher(self, epoch: int, start: int) -> Prefetcher[SlotT]:
        """Start a thread that reads the batches of `epoch` from index `start` on, and return it."""
        return Prefetcher(
            epoch,
            start,
            self.sampler.iterate_epoch(epoch, start),
            slots=self._slots,
            fill=self._fill,
            should_continue=lambda: not self._is_inline,
            finish_epoch=self._finish_epoch,
            on_epoch_read=self.on_epoch_read,
        )

    def _read_inline(self, epoch: int, start: int) -> Iterator[StagedBatch[SlotT]]:
        """Read the batches of `epoch` from index `start` on in the caller's thread and yield them.

        Ends early if a background thread should read the next batches.
        """
        for batch_index, batch in enumerate(self.sampler.iterate_epoch(epoch, start), start):
            if not self._is_inline:
                return
            slot = self._slots.acquire()
            assert slot is not None  # it is None only if the wait is cancelled
            staged = self._fill(slot, batch, epoch)
            # A background thread would be PREFETCH batches ahead, and would have read the last batch by now.
            if batch_index == max(start, len(self) - 1 - PREFETCH):
                self.on_epoch_read(epoch)
            yield staged
