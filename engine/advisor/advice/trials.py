"""A trial of a way to train, in workers of its own as those of a run, in a folder of which nothing stays."""

from __future__ import annotations

import time
from pathlib import Path

import msgspec

from engine.advisor.advice.measured import (
    Footprint,
    Measured,
    Rehearsal,
    TrialOrder,
    collect,
    collect_footprint,
    give_order,
)
from engine.advisor.advice.ranking import DROPPED, Tried
from engine.advisor.batch_finder import job_of_trial, ran_out
from engine.advisor.workers import run_workers
from engine.contract.catalogue import load_catalogue
from engine.contract.events import Failed
from engine.contract.job import Job

WORKER = "engine.advisor.advice.trial_worker:run"
FOOTPRINT_WORKER = "engine.advisor.advice.footprint_worker:run"


def job_to_try(job: Job) -> Job:
    """`job` without what takes long or leaves something behind; decoded images are kept in memory."""
    return msgspec.structs.replace(
        job_of_trial(job, job.batch_size), picture_cache="off" if job.picture_cache == "off" else "memory"
    )


def job_to_rehearse(job: Job) -> Job:
    """The same, with what its run decides at its start left open."""
    return msgspec.structs.replace(
        job_to_try(job),
        memory_format=job.memory_format,
        cpu_threads=job.cpu_threads,
        predictions=job.predictions,
    )


def footprint(job: Job, folder: Path, seconds: float) -> Footprint | Failed | None:
    """Looks at the job on its first device, as if it were alone there; None where that takes longer than `seconds`."""
    single = load_catalogue().recommended_strategy().id
    alone = msgspec.structs.replace(job_to_try(job), strategy=single, devices=job.devices[:1])
    try:
        failed = run_workers(alone, FOOTPRINT_WORKER, folder, lambda _event: None, seconds=seconds)
    except TimeoutError:
        return None
    return collect_footprint(folder) if failed is None else failed


def try_way(tried: Tried, order: TrialOrder, folder: Path, seconds: float) -> None:
    """Makes a trial of at most so many `seconds`, and adds to `tried` what came of it."""
    begun, tried.state = time.monotonic(), "trying"
    outcome = _trial(job_to_try(tried.way.job), order, folder, seconds)
    tried.wall_s = time.monotonic() - begun
    if outcome is None:
        tried.state, tried.why = (
            ("measured", "") if tried.steps else ("slower", f"It took over {seconds:.0f} s to try.")
        )
    elif isinstance(outcome, Failed):
        tried.steps = []
        out = ran_out(outcome)
        tried.state, tried.why = "too_large" if out else "failed", "Out of memory." if out else outcome.cause
    else:
        found, memory = outcome
        tried.trials += 1
        tried.steps += found.step_s
        tried.started_s = tried.wall_s - found.worked_s
        tried.measured = found if tried.measured is None else _joined(tried.measured, found)
        tried.memory = max((each for rank in memory for each in rank.values()), key=lambda pair: pair[0] / pair[1])
        tried.state = "slower" if found.gave_up else "measured"
        tried.why = f"A step takes over {DROPPED:g} times as long as the fastest's." if found.gave_up else ""


def rehearse(tried: Tried, each_s: float, folder: Path, seconds: float) -> tuple[Rehearsal, float] | None:
    """Trains and validates as a run of it would, each for `each_s` at most; what was measured, and what its workers
    took to start, to prepare and to end. None where it failed or took too long.
    """
    begun = time.monotonic()
    outcome = _trial(
        job_to_rehearse(tried.way.job), TrialOrder(least_steps=1, seconds=0.0, rehearse_s=each_s), folder, seconds
    )
    wall_s = time.monotonic() - begun
    if not isinstance(outcome, tuple) or outcome[0].rehearsal is None:
        return None
    return outcome[0].rehearsal, wall_s - outcome[0].worked_s


def _trial(
    job: Job, order: TrialOrder, folder: Path, seconds: float
) -> tuple[Measured, tuple[dict[str, tuple[int, int]], ...]] | Failed | None:
    """What its ranks measured; why they failed; None where they took longer than `seconds`."""
    give_order(folder, order)
    try:
        failed = run_workers(job, WORKER, folder, lambda _event: None, seconds=seconds)
    except TimeoutError:
        return None
    return failed if failed is not None else collect(folder)


def _joined(before: Measured, now: Measured) -> Measured:
    """The latest of what was measured each time, and what was measured once."""
    return msgspec.structs.replace(
        now,
        link=now.link or before.link,
        smaller_step_s=now.smaller_step_s or before.smaller_step_s,
        smaller_batch=now.smaller_batch or before.smaller_batch,
        load_rate=now.load_rate or before.load_rate,
    )
