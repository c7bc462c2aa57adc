"""Batch size finder, which times a few steps with one batch size after another, each in new processes."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

from engine.advisor.batch_search import KNEE_GAIN, MAX_TRIALS, Probe, SearchResult, search
from engine.advisor.trial_results import take_results
from engine.advisor.workers import TrialFolder, import_for, run_workers
from engine.contract.advice import BatchFound, BatchTrial
from engine.contract.catalogue import load_catalogue
from engine.contract.devices import CPU
from engine.contract.events import Failed
from engine.contract.job import FIELDS, Job
from engine.contract.messages import Progress
from engine.contract.problems import Problem
from engine.parallel.layout import compute_layout
from engine.processes.requests import RequestError
from engine.supervisor.environment import usable_cores
from engine.supervisor.restart_policy import world_size
from engine.system.format import counted, speed

WORKER = "engine.advisor.batch_worker:run"
PREPARED = 0.05
"""Fraction of the progress bar that is filled before the first trial."""
BUDGET_S = 120.0
"""Maximum time in seconds from the start of the first trial to the predicted end of the last one."""
STEPS = 2
"""Minimum number of steps in a trial on a CPU, where a step may take long."""

OnProgress = Callable[[Progress], object]


class _Timing:
    """Durations of the trials until now, for predicting the duration of the next trial."""

    def __init__(self) -> None:
        self.count = 0
        self._started = time.monotonic()
        self._overhead_s = self._per_image_s = 0.0

    @property
    def remaining_s(self) -> float:
        """Time in seconds that is left of `BUDGET_S`."""
        return self._started + BUDGET_S - time.monotonic()

    @property
    def trials_remaining_s(self) -> float | None:
        """Maximum duration of all remaining trials in seconds, or None before the first trial."""
        if not self.count:
            return None
        mean_s = (time.monotonic() - self._started) / self.count
        return max(0.0, min(mean_s * (MAX_TRIALS - self.count), self.remaining_s))

    def record_trial(self, size: int, took_s: float, probe: Probe) -> None:
        """Update the time per image and the overhead of trials from a trial with batches of `size`, which took `took_s`."""
        self._per_image_s = 1 / probe.images_per_second
        self._overhead_s = max(self._overhead_s, took_s - STEPS * size * self._per_image_s)

    def has_time_for(self, size: int) -> bool:
        """Return True if a trial with batch size `size` would finish in time."""
        return self._overhead_s + STEPS * size * self._per_image_s <= self.remaining_s


def find_batch(job: Job, emit: OnProgress) -> BatchFound:
    """Find the largest batch size for `job` that fits on its devices, and the smallest one that is nearly as fast.

    Raises RequestError if a trial fails for another reason than a lack of memory before any size has fitted.
    """
    emit(Progress(0.0, "Loading PyTorch"))
    import_for(job)
    timing = _Timing()
    fitted = 0  # number of sizes that have fitted
    with TrialFolder() as folder:

        def probe(size: int) -> Probe | None:
            """Run a trial, and return its measurements, or None if the size doesn't fit. Raises RequestError."""
            nonlocal fitted
            done = PREPARED + (1 - PREPARED) * timing.count / MAX_TRIALS
            emit(Progress(done, f"Trying batches of {size:,}", timing.trials_remaining_s))
            timing.count += 1
            started = time.monotonic()
            failed = run_workers(create_trial_job(job, size), WORKER, Path(folder), lambda _event: None)
            if failed is None:
                fitted += 1
                found = merge_probes(take_results(Path(folder), Probe))
                timing.record_trial(size, time.monotonic() - started, found)
                return found
            # Libraries may fail in other ways if memory runs out, but not once a smaller size has fitted.
            if not fitted and not is_out_of_memory(failed):
                raise RequestError(Problem("", failed.cause))
            return None

        maximum = FIELDS["batch_size"].maximum
        assert maximum is not None
        searched = search(probe, unit=_compute_size_unit(job), maximum=int(maximum), has_time=timing.has_time_for)
        return describe_result(searched)


def create_trial_job(job: Job, size: int) -> Job:
    """Return a copy of `job` with batches of `size`, and with the settings that need most memory.

    Compilation, balancing, the cache of decoded images and the choice of a memory format, which all take time, are
    turned off, and a loss that isn't finite ends the trial. Weights are initialized instead of loaded, since their
    values don't affect the memory. CPU workers share the cores as in a run.
    """
    cpu_threads = job.precision.cpu_threads
    if cpu_threads is None and CPU in job.parallel.devices:
        cpu_threads = max(1, usable_cores() // world_size(job))
    return job.with_fields(
        batch_size=size,
        freeze_epochs=0 if job.unfreezes_backbone else job.model.freeze_epochs,
        progressive_from=None,
        pretrained=False,
        weights_file="",
        resume_from="",
        on_not_finite="stop",
        compile="off",
        balance="equal",
        memory_format="contiguous" if job.precision.memory_format == "auto" else job.precision.memory_format,
        cpu_threads=cpu_threads,
        picture_cache="off",
    )


def _compute_size_unit(job: Job) -> int:
    """Return the number that batch sizes must be divisible by.

    All devices and microbatches then get the same number of samples.
    """
    strategy = load_catalogue().strategy(job.resolved_strategy)
    if strategy is None:
        return 1
    arrangement = compute_layout(job, strategy)
    # The devices of a replica that divides the model share one part of the batch.
    parts = arrangement.replicas if strategy.splits_model or strategy.splits_layers else len(job.parallel.devices)
    return parts * job.training.accumulation * (arrangement.microbatches or 1)


def is_out_of_memory(failed: Failed) -> bool:
    """Return True if a worker failed because it ran out of memory.

    If a process uses too much memory, the kernel ends it with signal 9. If the model is too large, the worker fails
    before the training, which is recognized by the message.
    """
    phrases = ("(signal 9)", "allocate memory", "out of memory")
    return failed.kind == "out_of_memory" or any(phrase in failed.cause for phrase in phrases)


def merge_probes(probes: Sequence[Probe]) -> Probe:
    """Combine the measurements of all ranks, given in order of ranks.

    The result has the memories of all ranks, named "GPU 0 of rank 1". Its speed is that of any rank, since all measure
    the same speed.
    """
    memory = {
        f"{name} of rank {rank}": used for rank, probe in enumerate(probes) for name, used in probe.memory.items()
    }
    return probes[-1]._replace(memory=memory)


def describe_result(searched: SearchResult) -> BatchFound:
    """Convert the result of a search to an answer with explanations."""
    trials = tuple(_create_trial_row(size, probe) for size, probe in searched.trials.items())
    if not searched.largest:
        why = f"Even a batch of {trials[0].size} does not fit into memory."
        remedy = "Choose a smaller image size or model, bf16, activation checkpointing, or a device with more memory."
        return BatchFound(trials=trials, largest=None, knee=None, why=why, remedy=remedy)
    largest, knee = searched.largest, searched.knee
    speeds = {trial.size: speed(trial.images_per_second) for trial in trials if trial.images_per_second is not None}
    ended_by, why = _end_reason(searched)
    if knee < largest:
        why += (
            f" Beyond {knee:,}, throughput gains less than {100 * KNEE_GAIN:.0f}%: {speeds[knee]} "
            f"at {knee:,}, {speeds[largest]} at {largest:,}."
        )
    else:
        why += f" Throughput still grows up to there: {speeds[largest]}."
    return BatchFound(trials=trials, largest=largest, knee=knee, ended_by=ended_by, why=why)


def _end_reason(searched: SearchResult) -> tuple[Literal["memory", "dataset", "time"], str]:
    """Return the reason why no larger size was tried, as a code and as a clause."""
    largest = searched.largest
    untried = f"A batch of {largest:,} fits. Larger ones were not tried: "
    if largest == searched.maximum:
        images = next(measured.train_images for measured in searched.trials.values() if measured is not None)
        return "dataset", f"{untried}the training split has only {counted(images, 'image')}."
    if searched.untried > largest:
        smallest_failed = min((size for size, measured in searched.trials.items() if measured is None), default=None)
        limit = "" if smallest_failed is None else f" One of {smallest_failed:,} does not fit."
        slow = f"one of {searched.untried:,} would take longer than is left of the {BUDGET_S:.0f} s for all trials."
        return "time", f"{untried}{slow}{limit}"
    return "memory", f"The largest batch that fits is {largest:,}, with little room to spare."


def _create_trial_row(size: int, probe: Probe | None) -> BatchTrial:
    """Return the table row for a batch size. `probe` is its measurement, or None if the batch does not fit.

    The row shows the memory that is closest to its limit.
    """
    if probe is None:
        return BatchTrial(size=size, fits=False)
    used_fractions = {name: used / limit for name, (used, limit) in probe.memory.items()}
    name = max(used_fractions, key=used_fractions.__getitem__)
    used, limit = probe.memory[name]
    return BatchTrial(
        size=size,
        fits=True,
        images_per_second=probe.images_per_second,
        memory_bytes=used,
        limit_bytes=limit,
        limit=name.removesuffix(" of rank 0"),
    )
