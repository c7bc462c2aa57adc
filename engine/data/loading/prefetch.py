"""Background thread that reads the batches of an epoch into reusable slots during training steps."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

from engine.data.loading.sampler import RankSamples
from engine.data.splits import Labels
from engine.data.transforms.augmentation import Draws

SlotT = TypeVar("SlotT")
"""Type of a loader's slots. A slot is a buffer for one batch."""


@dataclass(frozen=True, eq=False)
class StagedBatch(Generic[SlotT]):
    """Batch that was read into a slot: this worker's samples from a global batch.

    Attributes:
        count: Number of samples in the buffer, including the additional images of mosaics.
        global_size: Number of samples on all workers.
        samples: Indices of the samples in the split, int64 [n].
        on_device: True if the slot contains only sample indices because the pixels are already on the device.
        draws: Random numbers for the augmentation, or None without augmentation.
    """

    slot: SlotT
    count: int
    global_size: int
    samples: Labels
    on_device: bool = False
    draws: Draws | None = None


class Slots(Generic[SlotT]):
    """Pool of at most `limit` slots (buffers for batches), which the prefetchers of a loader share.

    `make` creates a slot on demand. The condition `changed` guards the state of the slots and of all prefetchers. It is
    notified of every change.
    """

    def __init__(self, make: Callable[[], SlotT], limit: int) -> None:
        self.changed = threading.Condition()
        self._make = make
        self._not_created = limit  # number of slots that may still be created
        self._free: deque[SlotT] = deque()  # slots that no batch uses

    def acquire(self, is_cancelled: Callable[[], bool] = lambda: False) -> SlotT | None:
        """Wait for a free slot and return it, or return None as soon as `is_cancelled` returns True."""
        with self.changed:
            self.changed.wait_for(lambda: is_cancelled() or self._free or self._not_created)
            if is_cancelled():
                return None
            if self._free:
                return self._free.popleft()
            self._not_created -= 1
        return self._make()

    def release(self, slot: SlotT) -> None:
        """Make a slot available for another batch."""
        with self.changed:
            self._free.append(slot)
            self.changed.notify_all()


class Prefetcher(Generic[SlotT]):
    """Thread that reads the batches of an epoch into slots, in order, as long as slots are free.

    It stops before the next batch if `should_continue()` returns False. After the last batch, it calls
    `finish_epoch(epoch)`, which may read more samples, and finally `on_epoch_read(epoch)`.

    Attributes:
        start: Index of the first batch that is read.
        is_finished: True once the thread has stopped reading.
        is_closed: True once its batches are no longer needed.
    """

    def __init__(
        self,
        epoch: int,
        start: int,
        batches: Iterator[RankSamples],
        *,
        slots: Slots[SlotT],
        fill: Callable[[SlotT, RankSamples, int], StagedBatch[SlotT]],
        should_continue: Callable[[], bool],
        finish_epoch: Callable[[int], None],
        on_epoch_read: Callable[[int], None],
    ) -> None:
        self.epoch = epoch
        self.start = start
        self.is_finished = False
        self.is_closed = False
        self._batches = batches
        self._slots = slots
        self._changed = slots.changed
        self._fill = fill
        self._should_continue = should_continue
        self._finish_epoch = finish_epoch
        self._on_epoch_read = on_epoch_read
        self._ready: deque[StagedBatch[SlotT]] = deque()  # batches for `get`
        self._error: BaseException | None = None  # exception in the thread, which `get` raises
        self._thread = threading.Thread(target=self._run, name="batches", daemon=True)
        self._thread.start()

    def get(self) -> StagedBatch[SlotT] | None:
        """Wait for the next batch and return it, or return None after the last batch or after `close`.

        If reading fails, the error is raised after all batches that were read before have been returned.
        """
        with self._changed:
            self._changed.wait_for(lambda: self.is_closed or self._ready or self.is_finished)
            if self.is_closed:
                return None
            if self._ready:
                return self._ready.popleft()
            if self._error is not None:
                raise self._error
            return None

    def close(self) -> None:
        """Stop the thread and release the slots of unused batches."""
        with self._changed:
            self.is_closed = True
            self._changed.notify_all()
        self._thread.join()
        while self._ready:
            self._slots.release(self._ready.popleft().slot)

    def _run(self) -> None:
        """Read the epoch's batches in the thread, and save an error for `get` to raise.

        After the last batch, but not after an early stop, call `finish_epoch` and `on_epoch_read`.
        """
        try:
            if self._read_batches():
                self._finish_epoch(self.epoch)
                self._on_epoch_read(self.epoch)
        except BaseException as error:
            self._error = error
        finally:
            with self._changed:
                self.is_finished = True
                self._changed.notify_all()

    def _read_batches(self) -> bool:
        """Read batches into slots. Returns True if all batches were read, or False if the thread should stop early."""
        for batch in self._batches:
            if not self._should_continue():
                return False
            slot = self._slots.acquire(lambda: self.is_closed)
            if slot is None:
                return False
            try:
                staged = self._fill(slot, batch, self.epoch)
            except BaseException:
                self._slots.release(slot)
                raise
            with self._changed:
                self._ready.append(staged)
                self._changed.notify_all()
        return True
