"""Worker for the batch size finder, which times a few steps of the job with batches of one size."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from functools import partial
from typing import Any

from engine.advisor.batch_search import Probe
from engine.advisor.memory import MainMemoryLimit, read_gpu_peaks
from engine.advisor.trial_batches import iterate_repeated_batches, reserve_prefetched
from engine.advisor.trial_results import write_result
from engine.contract.devices import CPU
from engine.contract.worker import WorkerDone, WorkerSpec
from engine.data.loading.base_loader import Batch
from engine.strategies.base import clock
from engine.training import worker
from engine.training.checkpointing.checkpointer import gather_optimizer_state
from engine.training.report import Reporter

WARM_UP, MAX_STEPS = 1, 5
"""Number of untimed steps in a trial, and maximum number of timed steps.

The second step is the first one in which the optimizer's state occupies memory.
"""
WARM_UP_GPU = 3
"""Number of untimed steps on GPUs. In the first ones, cuDNN tries algorithms and may keep memory allocated."""
ENOUGH_S = 0.5
ENOUGH_CPU_S = 5.0
"""Maximum time for the timed steps on a CPU, in seconds.

It is longer than on a GPU, since the heap fragments and grows over the first steps, by up to a quarter until the sixth.
"""


def run(spec: WorkerSpec, channel: socket.socket) -> int:
    """Time some steps for the batch size finder. See `engine.training.worker.run` for the arguments."""
    return worker.run_reporting(spec, channel, partial(_time_steps, spec))


def _time_steps(spec: WorkerSpec, reporter: Reporter) -> WorkerDone:
    """Time training steps with repeated batches, and write a `Probe` with speed and used memory to the run folder."""
    on_cpu = CPU in spec.devices
    memory = MainMemoryLimit(spec.devices.count(CPU)) if on_cpu else None
    prepared = worker.prepare(spec, reporter)
    strategy = prepared.strategy
    batches, prefetched = iterate_repeated_batches(prepared, reporter), reserve_prefetched(prepared)
    reporter.set_phase("training")
    step_s = _measure_step_s(prepared, reporter, batches, on_cpu=on_cpu)
    del prefetched  # it only occupied memory during the steps
    slowest_s = strategy.collectives.all_reduce_max([round(1e6 * step_s)])[0] / 1e6  # sent in whole microseconds
    result = Probe(
        images_per_second=spec.job.training.batch_size / slowest_s,
        memory=memory.read_peak() if memory is not None else read_gpu_peaks(strategy.gpus),
        train_images=len(prepared.splits.train),
    )
    write_result(spec.run_folder, spec.rank, result)
    strategy.teardown()
    return WorkerDone(stopped=False)


def _measure_step_s(
    prepared: worker.WorkerContext, reporter: Reporter, batches: Iterator[Batch | None], *, on_cpu: bool
) -> float:
    """Run training steps, and return the mean duration in seconds of those after the warm-up.

    On a CPU (`on_cpu`), where steps take longer, fewer of them are run. All ranks call it together.
    """
    strategy, optimizer_step = prepared.strategy, prepared.create_optimizer_step(1)
    warm_up, enough_s = (WARM_UP, ENOUGH_CPU_S) if on_cpu else (WARM_UP_GPU, ENOUGH_S)
    checkpoint: Any = None
    seconds, timed_count = 0.0, 0
    for number in range(1, warm_up + MAX_STEPS + 1):
        batch = next(batches)
        reporter.set_activity("step")
        started = clock(strategy.device)
        strategy.step(batch, optimizer_step)
        step_s = clock(strategy.device) - started
        reporter.set_step(number)
        if number == 1:  # occupies memory like the copy for a checkpoint, which is written during the next steps
            checkpoint = strategy.state_dict(), gather_optimizer_state(strategy, optimizer_step)
        if number > warm_up:
            seconds, timed_count = seconds + step_s, timed_count + 1
        if strategy.collectives.all_reduce_max([int(seconds > enough_s)])[0]:  # all ranks end together
            break
    del checkpoint
    return seconds / timed_count
