"""Loader for the samples of a `SampleSet`, such as point clouds."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from engine.contract.events import Part
from engine.data.datasets.images import DatasetError, UnreadableImage
from engine.data.datasets.samples import Sample, SampleSet
from engine.data.loading.base_loader import Batch, Finish, Loader
from engine.data.loading.decode_pool import DecodePool
from engine.data.loading.prefetch import StagedBatch
from engine.data.loading.sampler import GlobalBatchSampler, RankSamples
from engine.data.splits import dataset_error


class SampleLoader(Loader["_SampleSlot"]):
    """Loader that yields the batches of a `SampleSet`, epoch by epoch.

    `Batch.inputs` are the stacked inputs of the samples. Each unreadable sample is reported once, and so is an
    unreadable file that several samples share. In training (`sampler.shuffle`), an unreadable sample is replaced with
    the next readable sample of the split. In validation, it is left out.

    Args:
        samples: The split. Its `streams` are set to those of the sampler, so that its augmentation uses the run's seed.
        sampler: Sampler that chooses this rank's samples for each batch.
        threads: Number of threads that load samples.
        device: Device of the batches.
        on_unreadable: Callback that receives the path of an unreadable sample and the reason.
        on_stage_end: Callback for measuring times. It is called in the consumer's thread after the stages "data" and
            "transfer" of each batch, and after "augment" if there is a `finish` function.
        finish: Function that makes a last change to each batch, or None for no change.
        load: Function that loads a sample in place of `samples.load`, with the same arguments, or None to use that
            method.
    """

    def __init__(
        self,
        samples: SampleSet,
        sampler: GlobalBatchSampler,
        *,
        threads: int,
        device: torch.device,
        on_unreadable: Callable[[str, str], None],
        on_stage_end: Callable[[Part], None] = lambda part: None,
        finish: Finish | None = None,
        load: Callable[[int, int], Sample] | None = None,
    ) -> None:
        super().__init__(sampler, threads)
        self._finish_batch = finish
        self.samples = samples
        samples.streams = sampler.streams  # augmentation by the set then uses the run's seed
        self._load_sample = load or samples.load
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None
        self._on_stage_end = on_stage_end
        self._on_unreadable = on_unreadable
        self._unreadable: set[int] = set()  # indices of samples
        self._reported_paths: set[str] = set()
        self._empty_batch: Sample | None = None  # has the shapes and types of a batch, but no samples
        self._lock = threading.Lock()
        self._decoded = 0  # number of loaded samples
        self._decoding_s = 0.0  # time for these samples, summed over all threads
        self._pool = DecodePool()

    @property
    def decoded(self) -> int:
        return self._decoded

    @property
    def decoding_s(self) -> float:
        return self._decoding_s

    def _make_slot(self) -> _SampleSlot:
        return _SampleSlot(self._stream)

    def _fill(self, slot: _SampleSlot, batch: RankSamples, epoch: int) -> StagedBatch[_SampleSlot]:
        """Load the samples of `batch`, stack their inputs and targets, and start sending these to the device."""
        indices, samples = self._load_readable(batch.indices.tolist(), epoch)
        if samples:
            inputs = self._stack([sample_input for sample_input, _ in samples], indices, "inputs")
            targets = self._stack([target for _, target in samples], indices, "targets")
        else:
            inputs, targets = self._make_empty_batch(epoch)
        slot.send(inputs, targets)
        return StagedBatch(slot, len(samples), batch.global_size, np.array(indices, np.int64))

    def _finish(self, staged: StagedBatch[_SampleSlot], wait_s: float, epoch: int, batch_index: int) -> Batch:
        """Return a batch that `_fill` has sent, after `finish` has changed it, and release its slot."""
        self._on_stage_end("data")
        inputs, targets = staged.slot.receive()
        if self._stream is not None:
            self._on_stage_end("transfer")
        self._slots.release(staged.slot)
        if self._finish_batch is not None:
            inputs, targets = self._finish_batch(inputs, targets, epoch, batch_index)
            self._on_stage_end("augment")
        return Batch(inputs, targets, staged.global_size, wait_s, staged.samples)

    def _close_source(self) -> None:
        self._pool.close()

    def _load_readable(self, indices: list[int], epoch: int) -> tuple[list[int], list[Sample]]:
        """Load samples, and return the indices of the loaded samples and the samples.

        In training, unreadable samples are replaced. In validation, they are left out.
        """
        loaded: dict[int, Sample | None] = {}

        def load(index: int) -> None:
            loaded[index] = self._load(index, epoch)

        self._pool.run(load, list(dict.fromkeys(indices)), self.threads)
        readable = []
        for index in indices:
            if loaded[index] is not None:
                readable.append(index)
            elif self.sampler.shuffle:
                readable.append(self._load_replacement(index, epoch, loaded))
        return readable, [sample for index in readable if (sample := loaded[index]) is not None]

    def _load(self, index: int, epoch: int) -> Sample | None:
        """Load a sample, or report it and return None if it is unreadable."""
        if index in self._unreadable:
            return None
        started = time.perf_counter()
        try:
            sample = self._load_sample(index, epoch)
        except UnreadableImage as problem:
            with self._lock:
                self._unreadable.add(index)
                is_reported = problem.path in self._reported_paths
                self._reported_paths.add(problem.path)
            if not is_reported:
                self._on_unreadable(problem.path, problem.reason)
            return None
        with self._lock:
            self._decoded += 1
            self._decoding_s += time.perf_counter() - started
        return sample

    def _load_replacement(self, index: int, epoch: int, loaded: dict[int, Sample | None]) -> int:
        """Load the next readable sample after `index` in the split, and return its index.

        `loaded` maps indices to samples, or to None for unreadable ones. The samples that are tried are added to it.
        Raises DatasetError if no sample is readable.
        """
        count = len(self.samples)
        for candidate in ((index + step) % count for step in range(1, count)):
            if loaded.get(candidate) is None:
                loaded[candidate] = self._load(candidate, epoch)
            if loaded[candidate] is not None:
                return candidate
        raise DatasetError(
            [dataset_error("No sample of the training set can be read.", "Choose a folder with readable samples.")]
        )

    def _stack(self, tensors: list[Tensor], indices: list[int], name: str) -> Tensor:
        """Stack the tensors of several samples to [n, ...] and convert floating-point values to float32.

        `indices` are the indices of the samples, and `name` names the tensors in errors. Raises DatasetError if the
        shapes differ.
        """
        for tensor, index in zip(tensors, indices, strict=True):
            if tensor.shape != tensors[0].shape:
                message = (
                    f"The {name} of {self.samples.path(index)} have the shape {list(tensor.shape)}, those of "
                    f"{self.samples.path(indices[0])} {list(tensors[0].shape)}."
                )
                raise DatasetError(
                    [dataset_error(message, "Give all samples the same shape, so that they can form a batch.")]
                )
        # The order of the dimensions in memory, which affects rounding, must not depend on how the samples were loaded.
        stacked = torch.stack([tensor.contiguous() for tensor in tensors])
        return stacked.float() if stacked.is_floating_point() else stacked

    def _make_empty_batch(self, epoch: int) -> Sample:
        """Return the inputs and targets of a batch without samples.

        Apart from the first dimension, which is 0, they have the same shapes as in other batches. The first call loads a
        sample to find out the shapes, and the result is cached.
        """
        if self._empty_batch is None:
            indices = range(len(self.samples))
            first = next((sample for index in indices if (sample := self._load(index, epoch)) is not None), None)
            if first is None:
                return torch.empty(0), torch.empty(0)
            inputs, targets = first
            self._empty_batch = self._stack([inputs], [0], "inputs")[:0], self._stack([targets], [0], "targets")[:0]
        return self._empty_batch


class _SampleSlot:
    """Slot that transfers one batch to a GPU on a separate stream. On the CPU, it returns the batch unchanged."""

    def __init__(self, stream: torch.cuda.Stream | None) -> None:
        self._stream = stream
        self._copied = None if stream is None else torch.cuda.Event(blocking=True)  # a blocking wait occupies no core
        self._host: Sample | None = None  # keeps the pinned memory until it has been copied
        self._batch: Sample | None = None  # batch on the device for `receive`

    def send(self, inputs: Tensor, targets: Tensor) -> None:
        """Start copying a batch's inputs and targets to the device."""
        if self._stream is None or self._copied is None:
            self._batch = inputs, targets
            return
        with torch.cuda.device(self._stream.device), torch.cuda.stream(self._stream):
            self._copied.synchronize()  # the pinned memory of the previous batch is read until then
            pinned_inputs, pinned_targets = self._host = inputs.pin_memory(), targets.pin_memory()
            device = self._stream.device
            self._batch = pinned_inputs.to(device, non_blocking=True), pinned_targets.to(device, non_blocking=True)
            self._copied.record(self._stream)

    def receive(self) -> Sample:
        """Return the batch on the device. The caller owns it.

        Kernels that are launched on the current stream after this call wait for the transfer.
        """
        assert self._batch is not None
        inputs, targets = self._batch
        self._batch = None
        if self._stream is not None and self._copied is not None:
            current = torch.cuda.current_stream(self._stream.device)
            current.wait_event(self._copied)
            inputs.record_stream(current)
            targets.record_stream(current)
        return inputs, targets
