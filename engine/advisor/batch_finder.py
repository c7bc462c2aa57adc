"""The batch-size finder: a few steps at one size after another, each in processes of its own, until the largest is
known.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import msgspec

from engine.advisor.batch_search import FASTER, MOST_TRIALS, Probe, Searched, search
from engine.advisor.workers import TrialFolder, import_for, run_workers
from engine.contract.catalogue import load_catalogue
from engine.contract.devices import CPU
from engine.contract.events import Failed
from engine.contract.finders import BatchFound, BatchTrial, FinderFailed, FinderProgress
from engine.contract.job import FIELDS, Job
from engine.contract.problems import Problem
from engine.parallel.layout import layout
from engine.supervisor.environment import usable_cores
from engine.supervisor.restart_policy import world_size

WORKER = "engine.advisor.batch_worker:run"
PREPARED = 0.05
"""The share of the progress bar before the first trial."""
BUDGET_S = 120.0
"""No trial is begun that would end later than this after the first one's beginning, judged by those before."""
STEPS = 2
"""The steps that a trial makes at least on a CPU, where they may take long."""

OnProgress = Callable[[FinderProgress], object]


class _Broken(Exception):  # noqa: N818 - it carries what happened
    """A trial failed of something else than memory."""

    def __init__(self, failed: Failed) -> None:
        super().__init__(failed.cause)
        self.failed = failed


class _Timing:
    """How long trials took, from which follows how long another would."""

    def __init__(self) -> None:
        self.count = 0
        self._begun = time.monotonic()
        self._rest_s = self._per_image_s = 0.0

    @property
    def left_s(self) -> float:
        return self._begun + BUDGET_S - time.monotonic()

    @property
    def trials_left_s(self) -> float | None:
        """How long the trials that are left would take at most; None before the first one."""
        mean_s = (time.monotonic() - self._begun) / self.count if self.count else None
        return None if mean_s is None else max(0.0, min(mean_s * (MOST_TRIALS - self.count), self.left_s))

    def add(self, size: int, took_s: float, probe: Probe) -> None:
        self._per_image_s = 1 / probe.images_per_second
        self._rest_s = max(self._rest_s, took_s - STEPS * size * self._per_image_s)

    def allows(self, size: int) -> bool:
        """Whether a trial of that size would end in time."""
        return self._rest_s + STEPS * size * self._per_image_s <= self.left_s


def find_batch(job: Job, emit: OnProgress) -> BatchFound | FinderFailed:
    """Tries steps of `job` on its devices with batches of several sizes."""
    emit(FinderProgress(0.0, "Loading PyTorch"))
    import_for(job)
    timing = _Timing()
    fitted = 0
    with TrialFolder() as folder:

        def probe(size: int) -> Probe | None:
            nonlocal fitted
            done = PREPARED + (1 - PREPARED) * timing.count / MOST_TRIALS
            emit(FinderProgress(done, f"Trying batches of {size:,}", timing.trials_left_s))
            timing.count += 1
            begun = time.monotonic()
            failed = run_workers(job_of_trial(job, size), WORKER, Path(folder), lambda _event: None)
            if failed is None:
                fitted += 1
                found = _probe_of(Path(folder))
                timing.add(size, time.monotonic() - begun, found)
                return found
            # A library may also fail in other ways where memory runs out, but not at sizes below one that fits.
            if not fitted and not ran_out(failed):
                raise _Broken(failed)
            return None

        most = int(FIELDS["batch_size"].maximum or math.inf)
        try:
            searched = search(probe, unit=_unit(job), most=most, in_time=timing.allows)
        except _Broken as broken:
            return FinderFailed(Problem("", broken.failed.cause))
    return found_of(searched)


def job_of_trial(job: Job, size: int) -> Job:
    """`job` with batches of `size`, as it takes the most memory in its run, and without what takes long or leaves
    something behind. Weights are drawn, never loaded: what they are does not change what they take.
    """
    on_cpu = CPU in job.devices
    return msgspec.structs.replace(
        job,
        batch_size=size,
        freeze_epochs=0 if job.unfreezes else job.freeze_epochs,
        progressive_from=None,
        pretrained=False,
        weights_file="",
        resume_from="",
        on_not_finite="stop",
        compile="off",
        balance="equal",
        memory_format="contiguous" if job.memory_format == "auto" else job.memory_format,
        cpu_threads=job.cpu_threads or (max(1, usable_cores() // world_size(job)) if on_cpu else None),
        picture_cache="off",
    )


def _unit(job: Job) -> int:
    """What batch sizes are multiples of, so that all devices and parts of a batch get equal shares."""
    strategy = load_catalogue().strategy(job.strategy)
    if strategy is None:
        return 1
    laid = layout(job, strategy)
    sharing = laid.replicas if strategy.cuts_model or strategy.splits_layers else len(job.devices)
    return sharing * job.accumulation * (laid.microbatches or 1)


def ran_out(failed: Failed) -> bool:
    """Whether a worker had no memory left. The kernel ends with signal 9 what takes too much, and a model that is too
    large fails where it is looked at, before training.
    """
    words = ("(signal 9)", "allocate memory", "out of memory")
    return failed.kind == "out_of_memory" or any(said in failed.cause for said in words)


def _probe_of(folder: Path) -> Probe:
    """What all ranks measured, taken together."""
    probes = []
    for file in sorted(folder.glob("probe-*.msgpack")):
        probes.append(msgspec.msgpack.decode(file.read_bytes(), type=Probe))
        file.unlink()
    memory = {
        f"{name} of rank {rank}": used for rank, probe in enumerate(probes) for name, used in probe.memory.items()
    }
    return probes[-1]._replace(memory=memory)


def found_of(searched: Searched) -> BatchFound:
    """The answer, in numbers and in words."""
    trials = tuple(_trial(size, probe) for size, probe in searched.trials.items())
    if not searched.largest:
        why = f"Even a batch of {trials[0].size} does not fit into memory."
        remedy = "Choose a smaller image size or model, bf16, activation checkpointing, or a device with more memory."
        return BatchFound(trials=trials, largest=None, knee=None, why=why, remedy=remedy)
    largest, knee = searched.largest, searched.knee
    speeds = {
        trial.size: f"{trial.images_per_second:,.{0 if trial.images_per_second >= 10 else 1}f} images/s"
        for trial in trials
        if trial.images_per_second is not None
    }
    ended_by, why = _ended(searched)
    if knee < largest:
        why += (
            f" Beyond {knee:,}, throughput gains less than {100 * FASTER:.0f} %: {speeds[knee]} "
            f"at {knee:,}, {speeds[largest]} at {largest:,}."
        )
    else:
        why += f" Throughput still grows up to there: {speeds[largest]}."
    return BatchFound(trials=trials, largest=largest, knee=knee, ended_by=ended_by, why=why)


def _ended(searched: Searched) -> tuple[Literal["memory", "dataset", "time"], str]:
    """What kept the search from larger sizes, by its name and in words."""
    largest = searched.largest
    fits = f"A batch of {largest:,} fits. Larger ones were not tried: "
    if largest == searched.most:
        images = next(tried.train_images for tried in searched.trials.values() if tried is not None)
        return "dataset", f"{fits}the training split has only {images:,} images."
    if searched.untried > largest:
        failed = min((size for size, tried in searched.trials.items() if tried is None), default=None)
        between = "" if failed is None else f" One of {failed:,} does not fit."
        slow = f"one of {searched.untried:,} would take longer than is left of the {BUDGET_S:.0f} s for all trials."
        return "time", f"{fits}{slow}{between}"
    return "memory", f"The largest batch that fits is {largest:,}, with little room to spare."


def _trial(size: int, probe: Probe | None) -> BatchTrial:
    if probe is None:
        return BatchTrial(size=size, fits=False)
    name, (used, limit) = max(probe.memory.items(), key=lambda named: named[1][0] / named[1][1])
    return BatchTrial(
        size=size,
        fits=True,
        images_per_second=probe.images_per_second,
        memory_bytes=used,
        limit_bytes=limit,
        limit=name.removesuffix(" of rank 0"),
    )
