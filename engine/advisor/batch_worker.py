"""What a rank does for the batch-size finder: a few steps of its job with a batch of one size, and what they took."""

from __future__ import annotations

import socket
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import torch

from engine.advisor.batch_search import Probe
from engine.advisor.memory import MainMemory, gpu_peaks
from engine.advisor.trial_batches import read_ahead, repeated_batches
from engine.contract.devices import CPU
from engine.contract.worker import WorkerDone, WorkerSpec
from engine.strategies.base import clock
from engine.training import worker
from engine.training.checkpointing.checkpointer import optimizer_state
from engine.training.report import Reporter

WARM_UP, LEAST, MOST = 1, 1, 5
"""Untimed steps, and the least and the most timed ones. The second step is the first with the optimizer's state."""
WARM_UP_GPU = 3
"""cuDNN tries its algorithms in the first step, and may keep more memory from it than later steps use."""
ENOUGH_S = 0.5
ENOUGH_CPU_S = 5.0
"""The timed steps end after so long. On a CPU they are more, since a heap that fragments grows over its first steps:
by up to a quarter until the sixth."""


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
    batches = repeated_batches(prepared, reporter)
    ready = read_ahead(prepared)
    saved: Any = None
    reporter.set_phase("training")
    warm_up = WARM_UP if on_cpu else WARM_UP_GPU
    enough_s = ENOUGH_CPU_S if on_cpu else ENOUGH_S
    seconds, timed = 0.0, 0
    for number in range(1, warm_up + MOST + 1):
        batch = next(batches)
        reporter.set_activity("step")
        begun = clock(strategy.device)
        strategy.step(batch, optimizer_step)
        took = clock(strategy.device) - begun
        reporter.set_step(number)
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
