"""Learning rate finder, which trains briefly with an exponentially increasing rate and evaluates the losses.

The method is that of Smith 2015, Cyclical Learning Rates for Training Neural Networks, section 3.3.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from pathlib import Path

from engine.advisor.rate_curve import FIRST_RATE, LAST_RATE, Curve, suggest_rate
from engine.advisor.trial_results import take_results
from engine.advisor.workers import TrialFolder, import_for, run_workers
from engine.contract.advice import RateFound
from engine.contract.events import AnyEvent, StepMetrics
from engine.contract.job import Job
from engine.contract.messages import Progress
from engine.contract.problems import Problem
from engine.processes.requests import RequestError

WORKER = "engine.advisor.rate_worker:run"
PREPARED = 0.1
"""Fraction of the progress bar that is filled before the first step."""

OnProgress = Callable[[Progress], object]


def find_rate(job: Job, emit: OnProgress) -> RateFound:
    """Suggest a learning rate for `job`, after a short training on its devices with an increasing rate.

    Raises RequestError if the training fails, or if the job continues from a checkpoint.
    """
    if job.checkpoints.resume_from:
        raise RequestError(
            Problem(
                "resume_from",
                "The finder suggests a learning rate for a training from the start, but this job continues "
                "from a checkpoint.",
                "Clear “Continue from” first.",
            )
        )
    emit(Progress(0.0, "Loading PyTorch"))
    import_for(job)
    emit(Progress(PREPARED / 2, "Building the model"))
    progress = _ProgressReporter(emit)
    with TrialFolder() as folder:
        failure = run_workers(_create_trial_job(job), WORKER, Path(folder), progress.on_event)
        if failure is not None:
            raise RequestError(Problem("batch_size" if failure.kind == "out_of_memory" else "", failure.cause))
        (curve,) = take_results(Path(folder), Curve)  # that of rank 0
    return suggest_rate(curve)


def _create_trial_job(job: Job) -> Job:
    """Return a copy of `job` without learning rate schedule, warm-up, weight averaging and compilation.

    Only the finder changes the learning rate.
    """
    return job.with_fields(
        schedule="none",
        warmup_epochs=0.0,
        warmup_steps=0,
        on_not_finite="stop",
        ema_decay=None,
        compile="off",  # it takes longer than a hundred steps, and does not change the curve
        picture_cache="off" if job.data.picture_cache == "off" else "memory",
    )


class _ProgressReporter:
    """Reporter of the progress, which is derived from the learning rate in the workers' events."""

    def __init__(self, emit: OnProgress) -> None:
        self._emit = emit
        self._started: float | None = None

    def on_event(self, event: AnyEvent) -> None:
        """Report the progress and the remaining time if `event` has the metrics of a step. Other events are ignored."""
        if not isinstance(event, StepMetrics):
            return
        now = time.monotonic()
        self._started = self._started or now
        fraction = math.log(event.learning_rate / FIRST_RATE) / math.log(LAST_RATE / FIRST_RATE)  # rises linearly
        remaining_s = (now - self._started) * (1 - fraction) / fraction if fraction else None
        self._emit(Progress(PREPARED + (1 - PREPARED) * fraction, "Training with a rising learning rate", remaining_s))
