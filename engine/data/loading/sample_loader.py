"""Samples that are no images of one size on their way to the device."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch
from torch import Tensor

from engine.contract.events import Part
from engine.data.datasets.images import DatasetError, UnreadableImage
from engine.data.datasets.samples import Sample, SampleSet
from engine.data.loading.base_loader import Batch, Finish, Loader
from engine.data.loading.prefetch import Filled
from engine.data.loading.sampler import GlobalBatchSampler, Share
from engine.data.splits import dataset_error


class SampleLoader(Loader["_Arriving"]):
    """Yields the batches of a `SampleSet`, epoch by epoch; `Batch.inputs` are the samples' inputs, stacked.

    An unreadable sample is reported once, and so is a file that several are parts of. In training (`sampler.shuffle`)
    the next readable one of the split takes its place; in validation it is left out. `mark(part)` is called in the
    consumer's thread when "data" and "transfer" of a batch are done, and "augment" where there is a `finish`, which
    is what is done last to each batch.
    """

    def __init__(
        self,
        samples: SampleSet,
        sampler: GlobalBatchSampler,
        *,
        threads: int,
        device: torch.device,
        on_unreadable: Callable[[str, str], None],
        mark: Callable[[Part], None] = lambda part: None,
        finish: Finish | None = None,
    ) -> None:
        super().__init__(sampler, threads)
        self._finishing = finish
        self.samples = samples
        samples.streams = sampler.streams
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None
        self._mark = mark
        self._on_unreadable = on_unreadable
        self._bad: set[int] = set()
        self._told: set[str] = set()
        self._blank: Sample | None = None
        self._counting = threading.Lock()
        self._decoded = 0
        self._seconds = 0.0
        self._pool: ThreadPoolExecutor | None = None
        self._pool_threads = 0

    @property
    def decoded(self) -> int:
        return self._decoded

    @property
    def decoding_s(self) -> float:
        return self._seconds

    def set_threads(self, threads: int) -> None:
        self.threads = threads

    def _make_slot(self) -> _Arriving:
        return _Arriving(self._stream)

    def _fill(self, slot: _Arriving, share: Share, epoch: int) -> Filled[_Arriving]:
        numbers, samples = self._take(share.indices.tolist(), epoch)
        inputs = self._stacked([given for given, _ in samples], numbers, "inputs")
        targets = self._stacked([target for _, target in samples], numbers, "targets")
        if not samples:
            inputs, targets = self._nothing(epoch)
        slot.send(inputs, targets)
        return Filled(slot, len(samples), share.global_size, np.array(numbers, np.int64))

    def _finish(self, filled: Filled[_Arriving], wait_s: float, epoch: int, batch_index: int) -> Batch:
        self._mark("data")
        inputs, targets = filled.slot.receive()
        if self._stream is not None:
            self._mark("transfer")
        self._slots.give(filled.slot)
        if self._finishing is not None:
            inputs, targets = self._finishing(inputs, targets, epoch, batch_index)
            self._mark("augment")
        return Batch(inputs, targets, filled.global_size, wait_s, filled.samples)

    def _close_source(self) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)

    def _take(self, wanted: list[int], epoch: int) -> tuple[list[int], list[Sample]]:
        """The numbers of the samples to use in place of those `wanted`, and the samples. Raises DatasetError."""
        loaded = self._load_all(list(dict.fromkeys(wanted)), epoch)
        numbers = []
        for index in wanted:
            if loaded[index] is not None:
                numbers.append(index)
            elif self.sampler.shuffle:
                numbers.append(self._instead_of(index, epoch, loaded))
        samples = [loaded[number] for number in numbers]
        return numbers, [sample for sample in samples if sample is not None]

    def _load_all(self, indices: list[int], epoch: int) -> dict[int, Sample | None]:
        """Each sample, None for one that cannot be used."""
        found: dict[int, Sample | None] = {}
        line = iter(indices)

        def work(line: Iterator[int]) -> None:
            for index in line:
                found[index] = self._load(index, epoch)

        pool = self._sized_pool()
        if pool is None or len(indices) <= 1:
            work(line)
        else:
            # Every thread takes the next one, so that none waits long for the slowest.
            list(pool.map(work, [line] * min(self._pool_threads, len(indices))))
        return found

    def _sized_pool(self) -> ThreadPoolExecutor | None:
        if self.threads != self._pool_threads:
            if self._pool is not None:
                self._pool.shutdown()
            self._pool_threads = self.threads
            self._pool = ThreadPoolExecutor(self.threads, "decode") if self.threads > 1 else None
        return self._pool

    def _load(self, index: int, epoch: int) -> Sample | None:
        if index in self._bad:
            return None
        begun = time.perf_counter()
        try:
            given, target = self.samples.load(index, epoch)
        except UnreadableImage as problem:
            with self._counting:
                self._bad.add(index)
                known = problem.path in self._told
                self._told.add(problem.path)
            if not known:
                self._on_unreadable(problem.path, problem.reason)
            return None
        with self._counting:
            self._decoded += 1
            self._seconds += time.perf_counter() - begun
        return given, target

    def _instead_of(self, index: int, epoch: int, loaded: dict[int, Sample | None]) -> int:
        """The next readable sample of the split; it is in `loaded` then."""
        count = len(self.samples)
        for batch_index in ((index + step) % count for step in range(1, count)):
            if loaded.get(batch_index) is None:
                loaded[batch_index] = self._load(batch_index, epoch)
            if loaded[batch_index] is not None:
                return batch_index
        raise DatasetError(
            [dataset_error("No sample of the training set can be read.", "Choose a folder with readable samples.")]
        )

    def _stacked(self, parts: list[Tensor], numbers: list[int], what: str) -> Tensor:
        """One tensor [n, ...], floating-point ones as float32. Raises DatasetError where they cannot be one."""
        for part, number in zip(parts, numbers, strict=True):
            if part.shape != parts[0].shape:
                message = (
                    f"The {what} of {self.samples.path(number)} have the shape {list(part.shape)}, those of "
                    f"{self.samples.path(numbers[0])} {list(parts[0].shape)}."
                )
                raise DatasetError(
                    [dataset_error(message, "Give all samples the same shape, so that they can form a batch.")]
                )
        stacked = torch.stack(parts) if parts else torch.empty(0)
        return stacked.float() if stacked.is_floating_point() else stacked

    def _nothing(self, epoch: int) -> Sample:
        """A batch without samples, of the shape that others have."""
        if self._blank is None:
            indices = range(len(self.samples))
            some = next((sample for index in indices if (sample := self._load(index, epoch)) is not None), None)
            if some is None:
                return torch.empty(0), torch.empty(0)
            self._blank = self._stacked([some[0]], [0], "inputs")[:0], self._stacked([some[1]], [0], "targets")[:0]
        return self._blank


class _Arriving:
    """One batch on its way to a GPU, by a stream of its own beside the computing; on the CPU it is there at once."""

    def __init__(self, stream: torch.cuda.Stream | None) -> None:
        self._stream = stream
        self._copied = None if stream is None else torch.cuda.Event(blocking=True)  # its waiting takes no core
        self._host: Sample | None = None
        self._batch: Sample | None = None

    def send(self, inputs: Tensor, targets: Tensor) -> None:
        """Sends a batch on its way."""
        if self._stream is None or self._copied is None:
            self._batch = inputs, targets
            return
        with torch.cuda.device(self._stream.device), torch.cuda.stream(self._stream):
            self._copied.synchronize()  # until then the pinned memory of the batch before is read
            self._host = inputs.pin_memory(), targets.pin_memory()
            there = [part.to(self._stream.device, non_blocking=True) for part in self._host]
            self._batch = there[0], there[1]
            self._copied.record(self._stream)

    def receive(self) -> Sample:
        """The batch, for what the device is asked for from now on; it is whoever takes it's own."""
        assert self._batch is not None
        inputs, targets = self._batch
        self._batch = None
        if self._stream is not None and self._copied is not None:
            current = torch.cuda.current_stream(self._stream.device)
            current.wait_event(self._copied)
            inputs.record_stream(current)
            targets.record_stream(current)
        return inputs, targets
