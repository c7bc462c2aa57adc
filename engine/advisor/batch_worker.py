"""What a rank does for the batch-size finder: a few steps of its job with a batch of one size, and what they took."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import torch

from engine.advisor.batch_search import Probe
from engine.advisor.memory import MainMemory, gpu_peaks
from engine.contract.devices import CPU
from engine.contract.worker import WorkerDone, WorkerSpec
from engine.data.loading.base_loader import AHEAD, Batch
from engine.data.loading.sampler import divide
from engine.strategies.base import Strategy, clock, memory_format
from engine.training import worker
from engine.training.checkpointing.checkpointer import optimizer_state
from engine.training.dataloaders import DataLoaders
from engine.training.report import Reporter

WARM_UP, LEAST, MOST = 1, 1, 5
"""Untimed steps, and the least and the most timed ones. The second step is the first with the optimizer's state."""
WARM_UP_GPU = 3
"""cuDNN tries its algorithms in the first step, and may keep more memory from it than later steps use."""
ENOUGH_S = 0.5
ENOUGH_CPU_S = 5.0
"""The timed steps end after so long. On a CPU they are more, since a heap that fragments grows over its first steps: by up
to a quarter until the sixth."""
EXAMPLES = 16
"""Samples per rank that are loaded; batches repeat them."""


def probe_file(rank: int) -> str:
    """Where a rank leaves its `Probe`, whose speed is the whole batch's, in the folder of its run."""
    return f"probe-{rank}.msgpack"


def run(spec: WorkerSpec, channel: socket.socket) -> int:
    """Makes the steps for the finder; see `engine.training.worker.run`."""
    return worker.reported(spec, channel, partial(_try, spec))


def _try(spec: WorkerSpec, reporter: Reporter) -> WorkerDone:
    on_cpu = CPU in spec.devices
    memory = MainMemory(spec.devices.count(CPU)) if on_cpu else None
    prepared = worker.prepare(spec, reporter)
    strategy = prepared.strategy
    optimizer_step = prepared.optimizer_step(1)
    gpus = [torch.device("cuda", index) for index in range(torch.cuda.device_count())] if not on_cpu else []
    if len(spec.devices) == spec.world_size:
        gpus = [device for device in gpus if device == strategy.device]
    batches = _batches(prepared, reporter)
    ready = _read_ahead(prepared)
    saved: Any = None
    reporter.phase("training")
    warm_up = WARM_UP if on_cpu else WARM_UP_GPU
    enough_s = ENOUGH_CPU_S if on_cpu else ENOUGH_S
    seconds, timed = 0.0, 0
    for number in range(1, warm_up + MOST + 1):
        batch = next(batches)
        reporter.at("step")
        begun = clock(strategy.device)
        strategy.step(batch, optimizer_step)
        took = clock(strategy.device) - begun
        reporter.progressed(number)
        if number == 1:  # as a checkpoint, whose copy is written beside the next steps
            saved = strategy.state_dict(), optimizer_state(strategy, optimizer_step)
        if number > warm_up:
            seconds, timed = seconds + took, timed + 1
        if strategy.collectives.all_reduce_max([int(timed >= LEAST and seconds > enough_s)])[0]:
            break
    del ready, saved
    slowest = strategy.collectives.all_reduce_max([round(1e6 * seconds / timed)])[0] / 1e6
    used = memory.peak() if memory is not None else gpu_peaks(gpus)
    found = Probe(spec.job.batch_size / slowest, used, len(prepared.splits.train))
    Path(spec.run_folder, probe_file(spec.rank)).write_bytes(msgspec.msgpack.encode(found))
    strategy.teardown()
    return WorkerDone(stopped=False)


def _batches(prepared: worker.Prepared, reporter: Reporter) -> Iterator[Batch | None]:
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


def _read_ahead(prepared: worker.Prepared) -> torch.Tensor | None:
    """As much memory on the device as the next batches of training and of validation take there, which wait as
    bytes."""
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
