"""Worker for the advisor's trials.

It times a few steps of the job. For a rehearsal, it also trains and validates as in a run for a short time.
"""

from __future__ import annotations

import itertools
import math
import os
import socket
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch
import torch.distributed as dist

from engine.advisor.advice.trial_files import LinkSpeed, RankMeasurements, Rehearsal, TrialRequest, read_request
from engine.advisor.memory import MainMemoryLimit, read_gpu_peaks
from engine.advisor.trial_batches import iterate_repeated_batches, reserve_prefetched
from engine.advisor.trial_results import write_result
from engine.contract.devices import CPU, is_gpu
from engine.contract.worker import WorkerDone, WorkerSpec
from engine.data.loading.base_loader import Batch
from engine.optim.optimizer_step import OptimizerStep
from engine.strategies.base import Strategy, clock
from engine.strategies.memory import is_out_of_memory
from engine.strategies.stopwatch import Times
from engine.training import worker
from engine.training.checkpointing.checkpointer import gather_optimizer_state
from engine.training.report import Reporter
from engine.training.split_loader import SplitLoader

WARM_UP, WARM_UP_GPU = 2, 4
"""Number of untimed steps at the beginning of a trial on CPUs, and on GPUs.

In these steps, the optimizer creates its state, and cuDNN tries its algorithms.
"""
MAX_STEPS = 400
PATIENCE_S = 1.0
"""Minimum time in seconds before a slow step ends the trial. A step that is slow earlier may just have been delayed."""
SPARE_MEMORY = 0.1
"""Fraction of main memory that a trial must leave free.

A run needs more memory than a few steps, for its threads and because malloc's heap grows over many epochs.
"""
LOADING_S = 0.25
"""Maximum time in seconds for timing the loaders while nothing else runs."""
MAX_WARM_STEPS = 40
"""Maximum number of steps with decoded images in a rehearsal."""
SMALLER_DIVISOR = 4
"""Divisor of the batch size for timing steps with smaller batches."""
SMALLER_MIN_STEPS, SMALLER_TIME_FRACTION = 3, 0.5
"""Minimum number of steps with smaller batches, and their time as a fraction of the trial's time for steps.

Only their median counts, which a few steps determine.
"""
MIN_IMAGES = 2
"""Minimum number of images per worker. BatchNorm can't normalize the features of a single one."""
LARGE_BYTES, SMALL_BYTES = 16 << 20, 4 << 10
"""Sizes in bytes of the tensors in the timed all-reduces."""


def run(spec: WorkerSpec, channel: socket.socket) -> int:
    """Run a trial of the advisor as one of its workers. See `engine.training.worker.run` for the arguments."""
    return worker.run_reporting(spec, channel, partial(_run_trial, spec))


class _Trial:
    """One rank's part of a trial, which measures a strategy with its settings in a short training."""

    def __init__(self, spec: WorkerSpec, reporter: Reporter, request: TrialRequest) -> None:
        self.request = request
        self.reporter = reporter
        self.prepared = worker.prepare(spec, reporter)
        self.strategy = self.prepared.strategy
        self.optimizer_step: OptimizerStep = self.prepared.create_optimizer_step(1)

    def is_true_on_any_rank(self, flag: bool) -> bool:
        """Return True on all ranks if `flag` is True on any rank. All ranks call it together."""
        return bool(self.strategy.collectives.all_reduce_max([int(flag)])[0])

    def max_over_ranks(self, seconds: list[float]) -> list[float]:
        """Return the maximum over all ranks of each duration in `seconds`. All ranks call it together."""
        nanoseconds = self.strategy.collectives.all_reduce_max([round(1e9 * each) for each in seconds])
        return [each / 1e9 for each in nanoseconds]

    def copy_state(self) -> tuple[object, object]:
        """Return copies of the states of the model and the optimizer, made in the same way as for a checkpoint."""
        return self.strategy.state_dict(), gather_optimizer_state(self.strategy, self.optimizer_step)

    def time_steps(
        self, batches: Iterator[Batch | None], *, warm_up: int, min_steps: int, seconds: float
    ) -> list[float]:
        """Run steps as the trainer does, and return the duration of each step after the warm-up on the slowest rank.

        Steps end when `min_steps` steps are timed and `seconds` have passed, or after a step that takes longer than the
        trial's `give_up_s`. After such a slow step in the warm-up of `warm_up` steps, the result is []. All ranks call
        it together.
        """
        durations: list[float] = []
        started = timed_from = before = clock(self.strategy.device)
        for number in range(1, warm_up + MAX_STEPS + 1):
            batch = next(batches, None)
            if batch is None and self.strategy.loads_data:
                break
            self.reporter.set_activity("step")
            self.strategy.profiler.mark("data")
            self.strategy.step(batch, self.optimizer_step)
            self.reporter.set_step(number)
            self.strategy.profiler.watch.end_step()
            now = clock(self.strategy.device)
            is_slow = now - before > self.request.give_up_s and now - started > PATIENCE_S
            is_enough = number >= warm_up + min_steps and now - timed_from > seconds
            if number > warm_up:
                durations.append(now - before)
            if self.is_true_on_any_rank(is_slow or is_enough):
                break
            before = clock(self.strategy.device)  # again, since the time of the all-reduce does not count
            if number == warm_up:
                timed_from = before
        return self.max_over_ranks(durations) if durations else []


def _run_trial(spec: WorkerSpec, reporter: Reporter) -> WorkerDone:
    """Make the measurements that the trial's `TrialRequest` requests, and write the results to the run folder."""
    request = read_request(spec.run_folder)
    on_cpu = CPU in spec.devices
    memory = MainMemoryLimit(spec.devices.count(CPU), SPARE_MEMORY) if on_cpu else None
    trial = _Trial(spec, reporter, request)
    strategy, batch_size = trial.strategy, trial.strategy.job.training.batch_size
    prepared_at = time.perf_counter()
    batches, prefetched = iterate_repeated_batches(trial.prepared, reporter), reserve_prefetched(trial.prepared)
    reporter.set_phase("training")
    # Durations of the timed steps in seconds, and mean power of the GPUs.
    steps, watts = _time_steps(trial, spec, batches, warm_up=WARM_UP if on_cpu else WARM_UP_GPU)
    del prefetched  # it only occupied memory during the steps
    peaks = memory.read_peak() if memory is not None else read_gpu_peaks(strategy.gpus)
    smaller_size = max(MIN_IMAGES * len(spec.devices), batch_size // SMALLER_DIVISOR)
    times_smaller = request.times_smaller and steps and smaller_size < batch_size
    smaller_step_s = _time_batch_size(trial, smaller_size) if times_smaller else None
    load_rate = _measure_loading(trial)
    rehearsal = _rehearse(trial) if request.rehearse_s and steps else None
    result = RankMeasurements(
        step_s=tuple(steps),
        memory=peaks,
        worked_s=time.perf_counter() - prepared_at,
        gave_up=not steps or statistics.median(steps) > request.give_up_s,
        load_rate=load_rate,
        smaller_step_s=smaller_step_s,
        smaller_batch=smaller_size,
        joules_per_image=watts * statistics.median(steps) / batch_size if watts and steps else None,
        backward_share=_backward_fraction(strategy.profiler.watch.take()),
        link=_measure_link(trial) if request.times_link else None,
        rehearsal=rehearsal,
    )
    write_result(spec.run_folder, spec.rank, result)
    strategy.teardown()
    return WorkerDone(stopped=False)


def _time_steps(
    trial: _Trial, spec: WorkerSpec, batches: Iterator[Batch | None], *, warm_up: int
) -> tuple[list[float], float | None]:
    """Time steps as the trial's request specifies, and measure the power of the GPUs meanwhile.

    The first `warm_up` steps are not timed. Returns the duration of each timed step in seconds, and the mean power in
    watts, or None if it is unknown. All ranks call it together.
    """
    trial.time_steps(batches, warm_up=1, min_steps=0, seconds=0.0)  # one step, which creates the optimizer's state
    checkpoint = trial.copy_state()  # occupies memory like the copy for a checkpoint
    start_j, started_at = _read_energy_j(spec), time.perf_counter()
    watch = trial.strategy.profiler.watch
    watch.start()
    request = trial.request
    steps = trial.time_steps(batches, warm_up=warm_up - 1, min_steps=request.min_steps, seconds=request.seconds)
    watch.pause()
    del checkpoint
    end_j, elapsed_s = _read_energy_j(spec), time.perf_counter() - started_at
    watts = (end_j - start_j) / elapsed_s if start_j is not None and end_j is not None else None
    return steps, watts


def _backward_fraction(times: Times | None) -> float | None:
    """Return the duration of the backward pass as a fraction of the forward and backward pass.

    Returns None if they were not timed separately.
    """
    if times is None:
        return None
    forward_s, backward_s = times.parts.get("forward"), times.parts.get("backward")
    return backward_s / (forward_s + backward_s) if forward_s and backward_s else None


def _time_batch_size(trial: _Trial, size: int) -> float | None:
    """Return the median duration of steps with a global batch of `size`, in seconds, or None if none was timed.

    All ranks call it together.
    """
    batch = next(iterate_repeated_batches(trial.prepared, trial.reporter))
    if batch is not None:
        count = max(MIN_IMAGES, size // trial.strategy.data_world)
        batch = replace(batch, inputs=batch.inputs[:count], targets=batch.targets[:count], global_size=size)
    seconds = SMALLER_TIME_FRACTION * trial.request.seconds
    steps = trial.time_steps(itertools.repeat(batch), warm_up=1, min_steps=SMALLER_MIN_STEPS, seconds=seconds)
    return statistics.median(steps) if steps else None


def _measure_loading(trial: _Trial) -> float | None:
    """Return the images per second that the loaders of all ranks deliver after the images have been decoded once.

    Returns None on ranks that load no data, and if no batch can be loaded because a rank lacks the memory to cache the
    images, which a run would cache on disk. All ranks call it together.
    """
    strategy = trial.strategy
    train = trial.prepared.dataloaders.create_train_loader()
    try:
        # The first pass determines how many batches can be loaded in `LOADING_S`. The second pass is timed.
        count, _ = _load_batches(train.epoch(1), strategy, lambda _, passed_s: passed_s > LOADING_S)
        count, seconds = _load_batches(train.epoch(1), strategy, lambda loaded_count, _: loaded_count >= count)
    finally:
        train.close()
    (slowest_s,) = trial.max_over_ranks([seconds])
    return count * strategy.job.training.batch_size / slowest_s if count and strategy.loads_data else None


def _load_batches(
    batches: Iterator[Batch | None], strategy: Strategy, is_enough: Callable[[int, float], bool]
) -> tuple[int, float]:
    """Load batches until `is_enough`, given their number and the seconds passed, is True on any rank.

    Also ends if any rank has no further batch or lacks memory. Returns the number of batches that every rank has
    loaded, and the seconds passed. All ranks call it together.
    """
    started, count = time.perf_counter(), 0
    while True:
        has_failed = not _load_batch(batches)
        has_enough = is_enough(count + 1, time.perf_counter() - started)
        any_has_failed, any_has_enough = strategy.collectives.all_reduce_max([int(has_failed), int(has_enough)])
        if not any_has_failed:
            count += 1
        if any_has_failed or any_has_enough:
            return count, time.perf_counter() - started


def _load_batch(batches: Iterator[Batch | None]) -> bool:
    """Load the next batch. Return False if there is none left or memory runs out."""
    end = object()
    try:
        return next(batches, end) is not end
    except (MemoryError, RuntimeError) as error:
        if is_out_of_memory(error):
            return False
        raise


def _rehearse(trial: _Trial) -> Rehearsal:
    """Train, validate and save the state as in a run, and return the durations. All ranks call it together.

    Images are loaded as in a run. The first batches are repeated to time steps with images that are already decoded.
    """
    limit_s, dataloaders = trial.request.rehearse_s, trial.prepared.dataloaders
    train, val = dataloaders.create_train_loader(), dataloaders.create_val_loader()
    try:
        # The first step includes the start of the loader.
        _, *cold_s = _train(trial, itertools.islice(train.epoch(1), train.steps), limit_s)
        first_s: list[float] = []  # durations of the first steps of the repetitions, and of all other steps
        warm_s: list[float] = []
        started, is_late = time.perf_counter(), False
        while len(warm_s) < MAX_WARM_STEPS and not is_late:
            remaining_s = limit_s - (time.perf_counter() - started)
            first, *others = _train(trial, itertools.islice(train.epoch(1), len(cold_s) + 1), remaining_s)
            first_s.append(first)
            warm_s += others or [first]
            is_late = trial.is_true_on_any_rank(time.perf_counter() - started > limit_s)
        validation_s, validated = _validate_twice(trial, val)
    finally:
        train.close()
        val.close()
    warm_step_s = statistics.median(warm_s)
    return Rehearsal(
        cold_step_s=statistics.fmean(cold_s) if cold_s else warm_step_s,
        warm_step_s=warm_step_s,
        start_s=max(0.0, statistics.median(first_s) - warm_step_s),
        validation_s=validation_s,
        validated=validated,
        save_s=_time_saving(trial),
    )


def _validate_twice(trial: _Trial, val: SplitLoader) -> tuple[float, float]:
    """Run the validation twice, and time the second one, for which the images are already decoded.

    A validation ends early after the request's `rehearse_s` seconds. If the first one does, it is not repeated. All
    ranks call it together.

    Returns:
        Duration of the last validation in seconds, extrapolated if it ended early, and the fraction of it that was
        completed.
    """
    strategy = trial.strategy
    metric, predictions = strategy.objective.create_metric(), trial.prepared.dataloaders.create_predictions()
    batch_count = max(1, math.ceil(len(trial.prepared.splits.val) / strategy.job.training.batch_size))
    seconds = fraction = 0.0
    for number in range(2):
        metric.reset()
        completed_count, started = 0, time.perf_counter()

        def should_stop(started: float = started) -> bool:
            """Return True once the time is over on any rank, and count a completed batch otherwise."""
            nonlocal completed_count
            is_late = trial.is_true_on_any_rank(time.perf_counter() - started > trial.request.rehearse_s)
            if not is_late:
                completed_count += 1
            return is_late

        is_complete = strategy.evaluate(val.epoch(1), metric, should_stop)
        values = metric.compute() if is_complete else {}
        if is_complete and predictions is not None:
            predictions.on_validation_end(epoch=0, step=number, metric=metric, values=values)
        (seconds,) = trial.max_over_ranks([time.perf_counter() - started])
        fraction = 1.0 if is_complete else min(1.0, max(1, completed_count) / batch_count)
        if not is_complete:
            break
    return seconds / fraction, fraction


def _time_saving(trial: _Trial) -> float:
    """Return the time that writing a checkpoint to disk takes, in seconds. All ranks call it together.

    Rank 0 writes a file for this, and deletes it.
    """
    started, spec = time.perf_counter(), trial.strategy.spec
    state = trial.copy_state()
    if spec.rank == 0:
        file = Path(spec.run_folder, "state.pt")
        torch.save(state, file)
        with open(file, "rb") as stream:
            os.fsync(stream.fileno())
        file.unlink()
    return time.perf_counter() - started


def _train(trial: _Trial, batches: Iterator[Batch | None], seconds: float) -> list[float]:
    """Train until `seconds` have passed or `batches` ends, and return the duration of each step in seconds.

    A duration includes the loading of the batch, and the first one also the start of the loader. All ranks call it
    together.
    """
    durations: list[float] = []
    started = before = clock(trial.strategy.device)
    for number, batch in enumerate(batches, 1):
        trial.strategy.step(batch, trial.optimizer_step)
        is_late = trial.is_true_on_any_rank(clock(trial.strategy.device) - started > seconds)
        now = clock(trial.strategy.device)
        durations.append(now - before)
        trial.reporter.set_step(number)
        before = now
        if is_late:
            break
    return durations


def _measure_link(trial: _Trial) -> LinkSpeed | None:
    """Measure the link between the ranks with small and large all-reduces. All ranks call it together.

    Returns None without a process group.
    """
    if not dist.is_initialized():
        return None
    device, ranks = trial.strategy.device, dist.get_world_size()

    def measure_mean_s(size: int, repetitions: int) -> float:
        """Return the mean duration of an all-reduce of `size` bytes, in seconds."""
        load = torch.ones(size // 4, device=device)
        dist.all_reduce(load)
        started = clock(device)
        for _ in range(repetitions):
            dist.all_reduce(load)
        return (clock(device) - started) / repetitions

    latency_s = measure_mean_s(SMALL_BYTES, 20)
    rate = LARGE_BYTES / max(1e-9, measure_mean_s(LARGE_BYTES, 3) - latency_s)
    return LinkSpeed(rate, latency_s, ranks)


def _read_energy_j(spec: WorkerSpec) -> float | None:
    """Return the energy that the job's GPUs have used since their driver was loaded, in joules.

    It is None on ranks other than 0, and if one of the GPUs doesn't report its energy.
    """
    gpus = [device for device in spec.devices if is_gpu(device)]
    if spec.rank or not gpus:
        return None
    import pynvml

    try:
        pynvml.nvmlInit()
        handles = [pynvml.nvmlDeviceGetHandleByUUID(uuid) for uuid in gpus]
        millijoules = [pynvml.nvmlDeviceGetTotalEnergyConsumption(handle) for handle in handles]
        return sum(millijoules) / 1000
    except pynvml.NVMLError:
        return None
