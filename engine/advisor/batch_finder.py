"""The batch-size finder: a few steps at one size after another, each in processes of its own, until the largest is
known."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from pathlib import Path

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

OnProgress = Callable[[FinderProgress], object]


class _Broken(Exception):  # noqa: N818 - it carries what happened
    """A trial failed of something else than memory."""

    def __init__(self, failed: Failed) -> None:
        super().__init__(failed.cause)
        self.failed = failed


def find_batch(job: Job, emit: OnProgress) -> BatchFound | FinderFailed:
    """Tries steps of `job` on its devices with batches of several sizes."""
    emit(FinderProgress(0.0, "Loading PyTorch"))
    import_for(job)
    unit = _unit(job)
    begun = time.monotonic()
    count = fitted = 0
    with TrialFolder() as folder:

        def probe(size: int) -> Probe | None:
            nonlocal count, fitted
            done = PREPARED + (1 - PREPARED) * count / MOST_TRIALS
            left = (time.monotonic() - begun) / count * (MOST_TRIALS - count) if count else None
            emit(FinderProgress(done, f"Trying batches of {size:,}", left))
            count += 1
            failed = run_workers(job_of_trial(job, size), WORKER, Path(folder), lambda _event: None)
            if failed is None:
                fitted += 1
                return _probe_of(Path(folder))
            # A library may also fail in other ways where memory runs out, but not at sizes below one that fits.
            if not fitted and not _ran_out(failed):
                raise _Broken(failed)
            return None

        try:
            searched = search(probe, unit=unit, most=int(FIELDS["batch_size"].maximum or math.inf))
        except _Broken as broken:
            return FinderFailed(Problem("", broken.failed.cause))
    return _found(searched)


def job_of_trial(job: Job, size: int) -> Job:
    """`job` with batches of `size`, as it takes the most memory in its run, and without what takes long or leaves
    something behind. Weights are drawn, never loaded: what they are does not change what they take."""
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


def _ran_out(failed: Failed) -> bool:
    """Whether a worker had no memory left. The kernel ends with signal 9 what takes too much, and a model that is too
    large fails where it is looked at, before training."""
    words = ("(signal 9)", "allocate memory", "out of memory")
    return failed.kind == "out_of_memory" or any(said in failed.cause for said in words)


def _probe_of(folder: Path) -> Probe:
    """What all ranks measured, taken together."""
    memory: dict[str, tuple[int, int]] = {}
    speed = 0.0
    for rank, file in enumerate(sorted(folder.glob("probe-*.msgpack"))):
        own = msgspec.msgpack.decode(file.read_bytes(), type=Probe)
        file.unlink()
        speed = own.images_per_second
        memory |= {f"{name} of rank {rank}": used for name, used in own.memory.items()}
    return Probe(speed, memory)


def _found(searched: Searched) -> BatchFound:
    trials = tuple(_trial(size, probe) for size, probe in searched.trials.items())
    if not searched.largest:
        why = f"Even a batch of {trials[0].size} does not fit into memory."
        remedy = "Choose a smaller image size or model, bf16, activation checkpointing, or a device with more memory."
        return BatchFound(trials=trials, largest=None, knee=None, why=why, remedy=remedy)
    largest, knee = searched.largest, searched.knee
    speeds = {trial.size: trial.images_per_second for trial in trials if trial.images_per_second is not None}
    why = f"The largest batch that fits is {largest:,}, with little room to spare. "
    if knee < largest:
        why += (
            f"Beyond {knee:,}, throughput gains less than {100 * FASTER:.0f} %: {speeds[knee]:,.0f} "
            f"images/s at {knee:,}, {speeds[largest]:,.0f} images/s at {largest:,}."
        )
    else:
        why += f"Throughput still grows up to there: {speeds[largest]:,.0f} images/s."
    return BatchFound(trials=trials, largest=largest, knee=knee, why=why)


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
