"""Batches of a trial's own: a few of the job's samples, repeated to the size that is tried."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import msgspec
import torch

from engine.data.loading.base_loader import AHEAD, Batch
from engine.data.loading.sampler import divide
from engine.strategies.base import Strategy, memory_format
from engine.training import worker
from engine.training.dataloaders import DataLoaders
from engine.training.report import Reporter

EXAMPLES = 16
"""Samples per rank that are loaded; batches repeat them."""


def repeated_batches(prepared: worker.WorkerContext, reporter: Reporter) -> Iterator[Batch | None]:
    """This rank's share of a batch of the job's size, again and again, of a few samples of the job's own.

    Those of validation are read, too, as what reads them keeps memory of its own.
    """
    strategy = prepared.strategy
    job = strategy.job
    few = msgspec.structs.replace(job, batch_size=min(job.batch_size, EXAMPLES * strategy.data_world))
    spec = msgspec.structs.replace(prepared.spec, job=few)
    dataloaders = DataLoaders(spec, strategy, prepared.task, prepared.splits, reporter, streams=prepared.streams)
    train, val = dataloaders.train(), dataloaders.val()
    try:
        read = next(train.epoch(1))
        next(val.epoch(1), None)
    finally:
        train.close()
        val.close()
    share = _share(strategy)
    while True:
        yield None if read is None else _filled(strategy, replace(read, global_size=job.batch_size), share)


def read_ahead(prepared: worker.WorkerContext) -> torch.Tensor | None:
    """As much memory on the device as the next batches of training and of validation take there, which wait as
    bytes.
    """
    strategy, splits = prepared.strategy, prepared.splits
    if not strategy.loads_data:
        return None
    share = _share(strategy)
    waiting = (AHEAD + 1) * (share + min(share, len(splits.val) // strategy.data_world))
    example = prepared.task.example_shape(strategy.job, splits.channels)
    return torch.ones((waiting, *example), dtype=torch.uint8, device=strategy.device)


def _share(strategy: Strategy) -> int:
    """How many images of a batch of the job's size this rank has."""
    return divide(strategy.job.batch_size, (1.0,) * strategy.data_world)[strategy.data_rank]


def _filled(strategy: Strategy, batch: Batch, share: int) -> Batch:
    indices = torch.arange(share, device=batch.inputs.device) % len(batch.inputs)
    inputs = batch.inputs[indices]
    if inputs.dim() == 4:
        inputs = inputs.contiguous(memory_format=memory_format(strategy.job))
    return replace(batch, inputs=inputs, targets=batch.targets[indices])
