"""From a split to normalised batches on the device, read ahead by threads."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from engine.data.augmentation import crop_margin, crop_randomly
from engine.data.pictures import PictureSet
from engine.data.reading import quieten_pillow
from engine.data.sampler import GlobalBatchSampler, Share
from engine.data.source import PictureSource

AHEAD = 3
"""Batches that may wait ready for the consumer."""


@dataclass(frozen=True, eq=False)
class Batch:
    """This worker's share of one global batch.

    `inputs` is float32 [n, C, H, W], normalised, and `targets` int64 [n], both on the device; n may be 0.
    `global_size` counts the pictures of all workers' shares before any was left out. `wait_s` is how long the
    consumer waited for this batch.
    """

    inputs: Tensor
    targets: Tensor
    global_size: int
    wait_s: float


class BatchLoader:
    """Yields the batches of one split, epoch by epoch.

    An unreadable picture is reported once. In training (`sampler.shuffle`) the next readable one of the split
    takes its place; in validation it is left out. With `threads` of 0 everything happens in the caller's thread.
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
    ) -> None:
        self.pictures = pictures
        self.sampler = sampler
        self._size = size
        self._light = augmentation == "light"
        self._seed = seed
        self._device = device
        margin = crop_margin(size) if self._light else 0
        self._source = PictureSource(pictures, size + margin, channels, threads, on_unreadable)
        shape = (1, channels, 1, 1)
        self._mean = (torch.tensor(mean, dtype=torch.float32) * 255).reshape(shape).to(device)
        self._scale = (1 / (torch.tensor(std, dtype=torch.float32) * 255)).reshape(shape).to(device)
        self._threads = threads
        quieten_pillow()
        self._running: tuple[_Channel, threading.Thread] | None = None

    def __len__(self) -> int:
        return len(self.sampler)

    def epoch(self, epoch: int) -> Iterator[Batch]:
        """The batches of `epoch`. May be left early; only one epoch can be under way at a time."""
        self._stop()
        self.sampler.set_epoch(epoch)
        if not self._threads:
            for share in self.sampler:
                begun = time.perf_counter()
                yield self._finish(self._prepare(share, epoch), begun)
            return
        channel = _Channel(AHEAD)
        thread = threading.Thread(target=self._read_ahead, args=(channel, epoch), name="batches", daemon=True)
        self._running = channel, thread
        thread.start()
        try:
            while True:
                begun = time.perf_counter()
                item = channel.get()
                if item is None:
                    return
                yield self._finish(item, begun)
        finally:
            channel.close()
            thread.join()

    def close(self) -> None:
        """Ends the threads; the loader cannot be used afterwards."""
        self._stop()
        self._source.close()

    def _stop(self) -> None:
        if self._running is not None:
            channel, thread = self._running
            channel.close()
            thread.join()

    def _read_ahead(self, channel: _Channel, epoch: int) -> None:
        try:
            for share in self.sampler:
                if not channel.put(self._prepare(share, epoch)):
                    return
            channel.put(None)
        except BaseException as error:
            channel.fail(error)

    def _prepare(self, share: Share, epoch: int) -> _Prepared:
        """Everything that can be done away from the consumer; numpy alone, so that torch's threads are left to it."""
        samples = self._source.take(share.indices, replace=self.sampler.shuffle)
        targets = self.pictures.targets[torch.from_numpy(samples)]
        pixels = self._source.pixels(samples)
        if self._light:
            pixels = crop_randomly(pixels, self._size, self._seed, epoch, samples, mirror=self.pictures.mirror)
        inputs = torch.from_numpy(np.ascontiguousarray(pixels))
        if self._device.type == "cuda":
            inputs, targets = inputs.pin_memory(), targets.pin_memory()
        return _Prepared(inputs, targets, share.global_size)

    def _finish(self, item: _Prepared, begun: float) -> Batch:
        targets = item.targets.to(self._device, non_blocking=True)
        inputs = item.inputs.to(self._device, non_blocking=True).to(torch.float32)
        inputs.sub_(self._mean).mul_(self._scale)
        return Batch(inputs, targets, item.global_size, time.perf_counter() - begun)


@dataclass(frozen=True, eq=False)
class _Prepared:
    inputs: Tensor
    targets: Tensor
    global_size: int


class _Channel:
    """A bounded queue that can be closed from both ends without anybody left waiting."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._items: deque[Any] = deque()
        self._changed = threading.Condition()
        self._closed = False
        self._error: BaseException | None = None

    def put(self, item: Any) -> bool:
        """Waits for room; False once the reader has closed the channel."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or len(self._items) < self._limit)
            if self._closed:
                return False
            self._items.append(item)
            self._changed.notify_all()
            return True

    def get(self) -> Any:
        """The next item; None if closed. Raises what the writer failed with, after all that it put before."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or self._items or self._error)
            if self._closed:
                return None
            if self._items:
                item = self._items.popleft()
                self._changed.notify_all()
                return item
            assert self._error is not None
            raise self._error

    def fail(self, error: BaseException) -> None:
        with self._changed:
            self._error = error
            self._changed.notify_all()

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._items.clear()
            self._changed.notify_all()
