"""One epoch's batches, read by a thread into slots while the step is at work."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

from engine.data.loading.sampler import Share
from engine.data.splits import Labels
from engine.data.transforms.augmentation import Drawn

Room = TypeVar("Room")
"""What a batch lies in."""


@dataclass(frozen=True, eq=False)
class Filled(Generic[Room]):
    """A slot that holds this worker's share of a batch, `images` of them; `stored` where the slot holds their numbers
    alone, since the pixels are on the device already. `drawn` is what an augmentation has drawn for them. `samples`
    are their numbers in the split, int64 [images].
    """

    slot: Room
    images: int
    global_size: int
    samples: Labels
    stored: bool = False
    drawn: Drawn | None = None


class Slots(Generic[Room]):
    """Slots for all who read for one loader, made by `make` when first needed, at most `limit`.

    `changed` guards what they share, and is notified of whatever one of them may wait for.
    """

    def __init__(self, make: Callable[[], Room], limit: int) -> None:
        self.changed = threading.Condition()
        self._make = make
        self._unmade = limit
        self._free: deque[Room] = deque()

    def take(self, given_up: Callable[[], bool]) -> Room | None:
        """A free slot, once there is one; None once `given_up`."""
        with self.changed:
            self.changed.wait_for(lambda: given_up() or self._free or self._unmade)
            if given_up():
                return None
            if self._free:
                return self._free.popleft()
            self._unmade -= 1
        return self._make()

    def give(self, slot: Room) -> None:
        with self.changed:
            self._free.append(slot)
            self.changed.notify_all()


class Reading(Generic[Room]):
    """Fills slots with `shares` by a thread of its own, in order, as far ahead as there are slots.

    It ends early as soon as it is not `wanted`. Where it comes to the last share it calls `complete` after it, which
    may read on, and when it reads no more `then`. `start` is the number of the first share in its epoch, `ended`
    whether it reads no more, `closed` whether nobody wants what it has read.
    """

    def __init__(
        self,
        epoch: int,
        start: int,
        shares: Iterator[Share],
        *,
        slots: Slots[Room],
        fill: Callable[[Room, Share, int], Filled[Room]],
        wanted: Callable[[], bool],
        complete: Callable[[int], None],
        then: Callable[[int], None],
    ) -> None:
        self.epoch = epoch
        self.start = start
        self.ended = False
        self.closed = False
        self._shares = shares
        self._slots = slots
        self._changed = slots.changed
        self._fill = fill
        self._wanted = wanted
        self._complete = complete
        self._then = then
        self._ready: deque[Filled[Room]] = deque()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._read, name="batches", daemon=True)
        self._thread.start()

    def get(self) -> Filled[Room] | None:
        """The next batch; None after the last, or once closed. Raises what reading failed with, after all before it."""
        with self._changed:
            self._changed.wait_for(lambda: self.closed or self._ready or self.ended)
            if self.closed:
                return None
            if self._ready:
                return self._ready.popleft()
            if self._error is not None:
                raise self._error
            return None

    def close(self) -> None:
        """Ends the thread, and gives back what nobody got."""
        with self._changed:
            self.closed = True
            self._changed.notify_all()
        self._thread.join()
        while self._ready:
            self._slots.give(self._ready.popleft().slot)

    def _read(self) -> None:
        read_all = False
        try:
            for share in self._shares:
                if not self._wanted():
                    return
                slot = self._slots.take(lambda: self.closed)
                if slot is None:
                    return
                try:
                    filled = self._fill(slot, share, self.epoch)
                except BaseException:
                    self._slots.give(slot)
                    raise
                with self._changed:
                    self._ready.append(filled)
                    self._changed.notify_all()
            self._complete(self.epoch)
            read_all = True
        except BaseException as error:
            self._error = error
        finally:
            with self._changed:
                self.ended = True
                self._changed.notify_all()
        if read_all:
            self._then(self.epoch)
