"""From a split to normalised batches on the device, in time for the step."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from engine.contract.events import Part
from engine.data import resident
from engine.data.augmentation import Normalisation, crop, crop_margin, draw_crops
from engine.data.cache_space import shown_bytes
from engine.data.keeping import OnChosen
from engine.data.pictures import PictureSet
from engine.data.readahead import Filled, Reading, Slots
from engine.data.reading import quieten_pillow
from engine.data.sampler import GlobalBatchSampler, Share
from engine.data.slots import CROP, SAMPLE, DeviceSlot, Slot
from engine.data.source import PictureSource

AHEAD = 3
"""Batches that may wait ready for the consumer."""
INLINE_BYTES = 4 << 20
"""A batch on the CPU of at most so many bytes, with nothing left to decode, is put together in the caller's thread: that
takes a five hundredth of the time of a small network's step or less, and a thread would take it from the step's own."""


@dataclass(frozen=True, eq=False)
class Batch:
    """This worker's share of one global batch.

    `inputs` is float32 [n, C, H, W], normalised, and `targets` [n, ...], as the task learns it: int64 [n] of classes, int64
    [n, H, W] where each pixel has one; both on the device; n may be 0.
    `global_size` counts the pictures of all workers' shares before any was left out. `wait_s` is how long the
    consumer waited for this batch to be read.
    """

    inputs: Tensor
    targets: Tensor
    global_size: int
    wait_s: float


class BatchLoader:
    """Yields the batches of one split, epoch by epoch.

    Pixels travel as uint8, and are cropped and normalised on the device. A thread reads ahead, by up to `AHEAD` batches;
    but where nothing is left to decode and a batch is small, it is put together in the caller's thread, which is
    faster, and on a GPU a split that takes a small part of its memory is brought there whole. With `threads` of 0
    everything happens in the caller's thread.

    An unreadable picture is reported once. In training (`sampler.shuffle`) the next readable one of the split
    takes its place; in validation it is left out.

    `mark(part)` is called in the consumer's thread whenever a part of a batch's way is done: "data", "transfer" and
    "augment". `then(epoch)` is called, in whatever thread, once the last batch of an epoch has been read.
    """

    def __init__(
        self,
        pictures: PictureSet,
        sampler: GlobalBatchSampler,
        *,
        size: int,
        channels: int,
        augmentation: str,
        mean: Sequence[float],
        std: Sequence[float],
        seed: int,
        threads: int,
        device: torch.device,
        on_unreadable: Callable[[str, str], None],
        memory_format: torch.memory_format = torch.contiguous_format,
        mark: Callable[[Part], None] = lambda part: None,
        keep: str = "auto",
        on_chosen: OnChosen = lambda choice, why: None,
    ) -> None:
        self.pictures = pictures
        self.sampler = sampler
        self.memory_format = memory_format
        self.then: Callable[[int], None] = lambda epoch: None
        self._size = size
        self._seed = seed
        self._device = device
        self._mark = mark
        self._on_chosen = on_chosen
        self._margin = crop_margin(size) if augmentation == "light" else 0
        self._channels = channels
        self._shape = (channels + pictures.planes, size + self._margin, size + self._margin)
        self._source = PictureSource(
            pictures, self._shape[1], channels, threads, on_unreadable, keep=keep, on_chosen=on_chosen
        )
        self._normalise = Normalisation(torch.tensor(mean), torch.tensor(std), device)
        self._targets = pictures.targets.to(device)
        self.threads = threads
        self._capacity = max(1, sampler.largest_share)
        self._quick = device.type == "cpu" and self._capacity * math.prod(self._shape) <= INLINE_BYTES
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None
        self._slots = Slots(self._make_slot, AHEAD + 1)
        self._stored: Tensor | None = None
        quieten_pillow()
        self._lock = threading.Lock()
        self._readings: set[Reading] = set()
        self._under_way: int | None = None
        self._closed = False

    def __len__(self) -> int:
        return len(self.sampler)

    def epoch(self, epoch: int, start: int = 0) -> Iterator[Batch]:
        """The batches of `epoch` but for the first `start`. May be left early; only one epoch can be under way at a time."""
        place = start
        while place < len(self) and not self._closed:
            reading = self._reading_of(epoch, place)
            try:
                begun = time.perf_counter()
                for filled in self._fill_here(epoch, place) if reading is None else iter(reading.get, None):
                    place += 1
                    yield self._finish(filled, time.perf_counter() - begun)
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
            if free and epoch not in known and not self._reads_here:
                self._readings.add(self._read_ahead(epoch, start))

    @property
    def decoded(self) -> int:
        """How many pictures have been decoded so far."""
        return self._source.decoded

    @property
    def decoding_s(self) -> float:
        """Thread-seconds that decoding has taken so far."""
        return self._source.decode_seconds

    def set_threads(self, threads: int) -> None:
        """Reads and decodes with so many threads from now on."""
        self.threads = threads
        self._source.resize_threads(threads)

    def close(self) -> None:
        """Ends the threads; the loader cannot be used afterwards."""
        with self._lock:
            self._closed = True
        self._end(self._readings)
        self._source.close()

    @property
    def _reads_here(self) -> bool:
        """Whether batches are put together in the caller's thread."""
        if not self.threads or self._stored is not None:
            return True
        return self._quick and self._source.at_hand

    def _reading_of(self, epoch: int, place: int) -> Reading | None:
        """What reads `epoch` from `place` on, by now or from now on; None where that is to be done here.

        Ends all others, but those that were begun when this one had read all.
        """
        with self._lock:
            self._under_way = epoch
            begun = {reading for reading in self._readings if (reading.epoch, reading.start) == (epoch, place)}
            later = {reading for reading in self._readings if begun and reading.epoch > epoch}
            others = self._readings - begun - later
        self._end(others)
        if begun:
            return begun.pop()
        self._source.open()
        self._bring_to_device()
        if self._reads_here:
            return None
        reading = self._read_ahead(epoch, place)
        with self._lock:
            self._readings.add(reading)
        return reading

    def _end(self, readings: Iterable[Reading]) -> None:
        for reading in list(readings):
            reading.close()
            with self._lock:
                self._readings.discard(reading)

    def _read_ahead(self, epoch: int, start: int) -> Reading:
        return Reading(
            epoch,
            start,
            self.sampler.epoch_from(epoch, start),
            slots=self._slots,
            fill=self._fill,
            wanted=lambda: not self._reads_here,
            complete=self._decode_left_out,
            then=self.then,
        )

    def _decode_left_out(self, epoch: int) -> None:
        """So that all is decoded after one epoch, though it drops an incomplete batch."""
        if self._source.keeps:
            self._source.take(self.sampler.left_out(epoch), replace=False)

    def _fill_here(self, epoch: int, start: int) -> Iterator[Filled]:
        """The batches from `start` on as they are asked for, until the end or until a thread is to read them."""
        for place, share in enumerate(self.sampler.epoch_from(epoch, start), start):
            if not self._reads_here:
                return
            slot = self._slots.take(lambda: False)
            assert slot is not None
            filled = self._fill(slot, share, epoch)
            if place == max(start, len(self) - 1 - AHEAD):
                self.then(epoch)
            yield filled

    def _bring_to_device(self) -> None:
        """Keeps the split on the GPU whole, once nothing of it is left to decode and where there is room."""
        if self._stored is not None or not self._source.at_hand:
            return
        count = len(self.pictures)
        needed = count * math.prod(self._shape)
        if 0 < needed <= resident.room(self._device):
            slot = self._slots.take(lambda: False)
            assert slot is not None
            self._stored = resident.bring(self._source, count, slot, self._device)
            self._slots.give(slot)
            self._on_chosen("device", f"They are few enough to lie on the GPU whole: {shown_bytes(needed)}.")

    def _make_slot(self) -> Slot:
        if self._stream is None:
            return Slot(self._capacity, self._shape)
        return DeviceSlot(self._capacity, self._shape, self._stream)

    def _fill(self, slot: Slot, share: Share, epoch: int) -> Filled:
        """Reads a share into `slot` and sends it on its way. Without torch's own threads, of which the step has need."""
        samples = self._source.take(share.indices, replace=self.sampler.shuffle)
        count, stored = len(samples), self._stored is not None
        slot.begin()
        if not stored:
            self._source.pixels(samples, slot.pixels[:count])
        numbers = slot.numbers[:count]
        numbers[:, SAMPLE] = samples
        if self._margin:
            numbers[:, CROP] = draw_crops(self._margin, self._seed, epoch, samples, mirror=self.pictures.mirror)
        slot.send(0 if stored else count, count)
        return Filled(slot, count, share.global_size, stored)

    def _finish(self, filled: Filled, wait_s: float) -> Batch:
        """Crops and normalises what has arrived."""
        self._mark("data")
        pixels, numbers = filled.slot.receive(0 if filled.stored else filled.pictures, filled.pictures)
        if self._stream is not None:
            self._mark("transfer")
        if filled.stored:
            assert self._stored is not None
            pixels = self._stored[numbers[:, SAMPLE]]
        crops = numbers[:, CROP] if self._margin else None
        if crops is not None:
            pixels = crop(pixels, crops, self._size)
        inputs = self._normalise(pixels[:, : self._channels], self.memory_format)
        planes = pixels[:, self._channels :] if self.pictures.planes else None
        rows = self._targets[numbers[:, SAMPLE]]
        targets = self.pictures.batch_targets(rows, planes, crops, self._shape[1], self._size)
        filled.slot.leave()
        self._slots.give(filled.slot)
        self._mark("augment")
        return Batch(inputs, targets, filled.global_size, wait_s)
