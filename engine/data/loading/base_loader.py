"""Batches of a split, epoch by epoch, read by a thread before they are asked for, or in the caller's thread."""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

from torch import Tensor

from engine.data.loading.prefetch import Filled, Reading, Slots
from engine.data.loading.sampler import GlobalBatchSampler, Share
from engine.data.splits import Labels

AHEAD = 3
"""Batches that may wait ready for the consumer."""

Room = TypeVar("Room")
"""What a batch lies in until it is given out."""


@dataclass(frozen=True, eq=False)
class Batch:
    """This worker's share of one global batch.

    `inputs` is float32 [n, ...], normalised, of images [n, C, H, W], and `targets` [n, ...], as the task learns it:
    int64 [n] of classes, int64 [n, H, W] where each pixel has one; both on the device; n may be 0. `global_size`
    counts the samples of all workers' shares before any was left out. `wait_s` is how long the consumer waited for
    this batch to be read. `samples` are the numbers of its samples in their split, int64 [n], where a loader made it.
    """

    inputs: Tensor
    targets: Tensor
    global_size: int
    wait_s: float
    samples: Labels | None = None


Finish = Callable[[Tensor, Tensor, int, int], tuple[Tensor, Tensor]]
"""What is done last to a batch's inputs and targets, given with its epoch and its place in it, on their device."""


class Loader(ABC, Generic[Room]):
    """Yields the batches of one split, epoch by epoch.

    A thread reads ahead, by up to `AHEAD` batches; with `threads` of 0, or where a subclass finds it faster,
    everything happens in the caller's thread. `then(epoch)` is called, in whatever thread, once the last batch of an
    epoch has been read.
    """

    def __init__(self, sampler: GlobalBatchSampler, threads: int) -> None:
        self.sampler = sampler
        self.threads = threads
        self.then: Callable[[int], None] = lambda epoch: None
        self._slots: Slots[Room] = Slots(self._make_slot, AHEAD + 1)
        self._lock = threading.Lock()
        self._readings: set[Reading[Room]] = set()
        self._under_way: int | None = None
        self._closed = False

    def __len__(self) -> int:
        return len(self.sampler)

    def epoch(self, epoch: int, start: int = 0) -> Iterator[Batch]:
        """The batches of `epoch` but for the first `start`. May be left early; only one epoch can be under way at a
        time.
        """
        batch_index = start
        while batch_index < len(self) and not self._closed:
            reading = self._reading_of(epoch, batch_index)
            try:
                begun = time.perf_counter()
                for filled in self._fill_here(epoch, batch_index) if reading is None else iter(reading.get, None):
                    yield self._finish(filled, time.perf_counter() - begun, epoch, batch_index)
                    batch_index += 1
                    begun = time.perf_counter()
                if reading is not None and reading.closed:
                    return
            finally:
                if reading is not None:
                    self._end([reading])

    def begin(self, epoch: int, start: int = 0) -> None:
        """Begins to read `epoch` before `epoch` is called, where a thread is to read it."""
        with self._lock:
            known = {self._under_way, *(reading.epoch for reading in self._readings)}
            # One that still reads needs the slots.
            free = not self._closed and all(reading.ended for reading in self._readings)
            if free and epoch not in known and not self._reads_here and not self._awaits_preparing:
                self._readings.add(self._read_ahead(epoch, start))

    @property
    @abstractmethod
    def decoded(self) -> int:
        """How many samples have been decoded so far."""

    @property
    @abstractmethod
    def decoding_s(self) -> float:
        """Thread-seconds that decoding has taken so far."""

    @abstractmethod
    def set_threads(self, threads: int) -> None:
        """Reads and decodes with so many threads from now on."""

    def close(self) -> None:
        """Ends the threads; the loader cannot be used afterwards."""
        with self._lock:
            self._closed = True
        self._end(self._readings)
        self._close_source()

    @property
    def _reads_here(self) -> bool:
        """Whether batches are put together in the caller's thread."""
        return not self.threads

    @property
    def _awaits_preparing(self) -> bool:
        """Whether `_prepare` has yet to decide how batches are read from now on, so that no epoch may be begun before
        it.
        """
        return False

    @abstractmethod
    def _make_slot(self) -> Room:
        """Room for a batch."""

    @abstractmethod
    def _fill(self, slot: Room, share: Share, epoch: int) -> Filled[Room]:
        """Reads a share into `slot` and sends it on its way. Without torch's own threads, of which the step has
        need.
        """

    @abstractmethod
    def _finish(self, filled: Filled[Room], wait_s: float, epoch: int, batch_index: int) -> Batch:
        """Takes the batch at `batch_index` of its epoch, which has arrived; gives its slot back."""

    @abstractmethod
    def _close_source(self) -> None:
        """Ends what reads the samples."""

    def _prepare(self) -> None:
        """Called before an epoch's reading is begun in the consumer's thread."""

    def _complete(self, epoch: int) -> None:
        """Called by the reading thread after the last share of an epoch."""

    def _reading_of(self, epoch: int, batch_index: int) -> Reading[Room] | None:
        """What reads `epoch` from `batch_index` on, by now or from now on; None where that is to be done here.

        Ends all others, but those that were begun when this one had read all.
        """
        with self._lock:
            self._under_way = epoch
            begun = {reading for reading in self._readings if (reading.epoch, reading.start) == (epoch, batch_index)}
            later = {reading for reading in self._readings if begun and reading.epoch > epoch}
            others = self._readings - begun - later
        self._end(others)
        if begun:
            return begun.pop()
        self._prepare()
        if self._reads_here:
            return None
        reading = self._read_ahead(epoch, batch_index)
        with self._lock:
            self._readings.add(reading)
        return reading

    def _end(self, readings: Iterable[Reading[Room]]) -> None:
        for reading in list(readings):
            reading.close()
            with self._lock:
                self._readings.discard(reading)

    def _read_ahead(self, epoch: int, start: int) -> Reading[Room]:
        return Reading(
            epoch,
            start,
            self.sampler.epoch_from(epoch, start),
            slots=self._slots,
            fill=self._fill,
            wanted=lambda: not self._reads_here,
            complete=self._complete,
            then=self.then,
        )

    def _fill_here(self, epoch: int, start: int) -> Iterator[Filled[Room]]:
        """The batches from `start` on as they are asked for, until the end or until a thread is to read them."""
        for batch_index, share in enumerate(self.sampler.epoch_from(epoch, start), start):
            if not self._reads_here:
                return
            slot = self._slots.take(lambda: False)
            assert slot is not None
            filled = self._fill(slot, share, epoch)
            if batch_index == max(start, len(self) - 1 - AHEAD):
                self.then(epoch)
            yield filled
