"""Batches for a trial. They repeat a few samples of the job up to the batch size."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import msgspec
import torch

from engine.data.loading.base_loader import PREFETCH, Batch
from engine.data.loading.sampler import divide
from engine.strategies.base import Strategy, memory_format
from engine.training import worker
from engine.training.dataloaders import DataLoaders
from engine.training.report import Reporter

EXAMPLES = 16
"""Maximum number of different samples that each rank loads."""


def iterate_repeated_batches(prepared: worker.WorkerContext, reporter: Reporter) -> Iterator[Batch | None]:
    """Yield this rank's part of a batch with the job's batch size. The same part is repeated without end.

    A rank that loads no data yields None. A batch of the validation split is also loaded once, since its loader needs
    additional memory.
    """
    strategy = prepared.strategy
    job = strategy.job
    smaller = job.with_fields(batch_size=min(job.training.batch_size, EXAMPLES * strategy.data_world))
    spec = msgspec.structs.replace(prepared.spec, job=smaller)
    dataloaders = DataLoaders(spec, strategy, prepared.task, prepared.splits, reporter, streams=prepared.streams)
    train, val = dataloaders.create_train_loader(), dataloaders.create_val_loader()
    try:
        loaded = next(train.epoch(1))
        next(val.epoch(1), None)
    finally:
        train.close()
        val.close()
    count = _count_rank_images(strategy)
    while True:
        yield None if loaded is None else _repeat(strategy, replace(loaded, global_size=job.training.batch_size), count)


def reserve_prefetched(prepared: worker.WorkerContext) -> torch.Tensor | None:
    """Allocate the device memory that prefetched batches of both splits would occupy.

    Returns the memory as a tensor of bytes, or None on a rank that loads no data.
    """
    strategy, splits = prepared.strategy, prepared.splits
    if not strategy.loads_data:
        return None
    train_count = _count_rank_images(strategy)
    val_count = min(train_count, len(splits.val) // strategy.data_world)
    prefetched_count = (PREFETCH + 1) * (train_count + val_count)
    example = prepared.task.get_example_shape(strategy.job, splits.channels)
    return torch.ones((prefetched_count, *example), dtype=torch.uint8, device=strategy.device)


def _count_rank_images(strategy: Strategy) -> int:
    """Return the number of images in this rank's part of a batch."""
    return divide(strategy.job.training.batch_size, (1.0,) * strategy.data_world)[strategy.data_rank]


def _repeat(strategy: Strategy, batch: Batch, count: int) -> Batch:
    """Repeat the samples in `batch` until it has `count` samples."""
    indices = torch.arange(count, device=batch.inputs.device) % len(batch.inputs)
    inputs = batch.inputs[indices]
    if inputs.dim() == 4:  # images, whose memory format indexing may change
        inputs = inputs.contiguous(memory_format=memory_format(strategy.job))
    return replace(batch, inputs=inputs, targets=batch.targets[indices])
