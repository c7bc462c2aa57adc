"""Trials of a setup in a temporary folder, with the same kind of workers as in a run."""

from __future__ import annotations

import time
from pathlib import Path

import msgspec

from engine.advisor.advice.contenders import DROP_FACTOR, Contender
from engine.advisor.advice.trial_files import Footprint, RankMeasurements, Rehearsal, TrialRequest, write_request
from engine.advisor.batch_finder import create_trial_job, is_out_of_memory
from engine.advisor.trial_results import take_results
from engine.advisor.workers import run_workers
from engine.contract.catalogue import load_catalogue
from engine.contract.events import Failed
from engine.contract.job import Job

WORKER = "engine.advisor.advice.trial_worker:run"
FOOTPRINT_WORKER = "engine.advisor.advice.footprint_worker:run"


def _create_trial_job(job: Job) -> Job:
    """Return a copy of `job` for a trial, without compilation, balancing and pretrained weights.

    Decoded images are cached in memory, unless the job turns the cache off.
    """
    cache = "off" if job.data.picture_cache == "off" else "memory"
    return create_trial_job(job, job.training.batch_size).with_fields(picture_cache=cache)


def measure_footprint(job: Job, folder: Path, timeout_s: float) -> Footprint | Failed | None:
    """Measure the sizes of the job's model and data on its first device, in a worker.

    Returns the failure if the worker fails, and None if it takes longer than `timeout_s` seconds.
    """
    single = load_catalogue().recommended_strategy().id
    alone = _create_trial_job(job).with_fields(strategy=single, devices=job.parallel.devices[:1])
    try:
        failure = run_workers(alone, FOOTPRINT_WORKER, folder, lambda _event: None, seconds=timeout_s)
    except TimeoutError:
        return None
    return take_results(folder, Footprint)[0] if failure is None else failure


def try_setup(contender: Contender, request: TrialRequest, folder: Path, timeout_s: float) -> None:
    """Run a trial of at most `timeout_s` seconds, and store its measurements in `contender`.

    The contender's state is set to "measured", "slower", "too_large" or "failed".
    """
    started, contender.state = time.monotonic(), "trying"
    outcome = _run_trial(_create_trial_job(contender.setup.job), request, folder, timeout_s)
    contender.wall_s = time.monotonic() - started
    if outcome is None:  # the time ran out
        contender.state = "measured" if contender.steps else "slower"
        contender.why = "" if contender.steps else f"It took over {timeout_s:.0f} s to try."
    elif isinstance(outcome, Failed):
        contender.steps = []  # it can't be recommended, even if earlier trials succeeded
        is_too_large = is_out_of_memory(outcome)
        contender.state = "too_large" if is_too_large else "failed"
        contender.why = "Out of memory." if is_too_large else outcome.cause
    else:
        first_rank, before = outcome[0], contender.measured  # `before` is from earlier trials
        contender.trials += 1
        contender.steps += first_rank.step_s
        contender.startup_s = contender.wall_s - first_rank.worked_s
        contender.measured = first_rank if before is None else _merge(before, first_rank)
        peaks_and_limits = [peak_and_limit for rank in outcome for peak_and_limit in rank.memory.values()]
        used_fractions = [peak / limit for peak, limit in peaks_and_limits]
        contender.memory = peaks_and_limits[used_fractions.index(max(used_fractions))]
        contender.state, contender.why = "measured", ""
        if first_rank.gave_up:
            contender.state = "slower"
            contender.why = f"A step takes over {DROP_FACTOR:g} times as long as the fastest's."


def rehearse(contender: Contender, phase_s: float, folder: Path, timeout_s: float) -> tuple[Rehearsal, float] | None:
    """Train and validate with a contender's settings as in a run, each for at most `phase_s` seconds.

    Returns the measurements, and the seconds that the workers needed to start, prepare and exit. Returns None after a
    failure or after `timeout_s`.
    """
    started, job = time.monotonic(), contender.setup.job
    # Settings that a run chooses at its start are left open, as in the run.
    rehearsed = _create_trial_job(job).with_fields(
        memory_format=job.precision.memory_format,
        cpu_threads=job.precision.cpu_threads,
        predictions=job.checkpoints.predictions,
    )
    outcome = _run_trial(rehearsed, TrialRequest(min_steps=1, seconds=0.0, rehearse_s=phase_s), folder, timeout_s)
    wall_s = time.monotonic() - started
    if outcome is None or isinstance(outcome, Failed):
        return None
    first_rank = outcome[0]
    return (first_rank.rehearsal, wall_s - first_rank.worked_s) if first_rank.rehearsal is not None else None


def _run_trial(
    job: Job, request: TrialRequest, folder: Path, timeout_s: float
) -> list[RankMeasurements] | Failed | None:
    """Run a trial, and return the measurements of all ranks.

    Returns the failure instead if a rank fails, or None if the trial takes longer than `timeout_s` seconds.
    """
    write_request(folder, request)
    try:
        failure = run_workers(job, WORKER, folder, lambda _event: None, seconds=timeout_s)
    except TimeoutError:
        return None
    return failure if failure is not None else take_results(folder, RankMeasurements)


def _merge(before: RankMeasurements, now: RankMeasurements) -> RankMeasurements:
    """Return the measurements `now` of the latest trial. Those that it did not make are taken from `before`."""
    return msgspec.structs.replace(
        now,
        link=now.link or before.link,
        smaller_step_s=now.smaller_step_s or before.smaller_step_s,
        smaller_batch=now.smaller_batch or before.smaller_batch,
        load_rate=now.load_rate or before.load_rate,
    )
