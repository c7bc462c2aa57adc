"""The learning-rate finder (Smith 2015, Cyclical Learning Rates for Training Neural Networks, section 3.3): a short
training with a rate that rises exponentially, and what its losses suggest.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from engine.advisor.rate_curve import CURVE_FILE, FIRST_RATE, LAST_RATE, Curve, read_curve
from engine.advisor.workers import TrialFolder, import_for, run_workers
from engine.contract.events import AnyEvent, Failed, StepMetrics
from engine.contract.finders import FinderFailed, FinderProgress, RateFound
from engine.contract.job import Job
from engine.contract.problems import Problem

WORKER = "engine.advisor.rate_worker:run"
PREPARED = 0.1
"""The share of the progress bar before the first step."""

OnProgress = Callable[[FinderProgress], object]


def find_rate(job: Job, emit: OnProgress) -> RateFound | FinderFailed:
    """Tries the beginning of the training of `job` on its devices at rising learning rates."""
    if job.resume_from:
        return FinderFailed(
            Problem(
                "resume_from",
                "The finder suggests a learning rate for a training from the start, but this job continues "
                "from a checkpoint.",
                "Clear “Continue from” first.",
            )
        )
    emit(FinderProgress(0.0, "Loading PyTorch"))
    import_for(job)
    emit(FinderProgress(PREPARED / 2, "Building the model"))
    progress = _Progress(emit)
    with TrialFolder() as folder:
        failed = run_workers(job_of_trial(job), WORKER, Path(folder), progress.take)
        if failed is not None:
            return FinderFailed(_problem(failed))
        curve = msgspec.msgpack.decode(Path(folder, CURVE_FILE).read_bytes(), type=Curve)
    return read_curve(curve)


def job_of_trial(job: Job) -> Job:
    """`job` with a rate that the finder alone changes, and without what leaves something behind."""
    return msgspec.structs.replace(
        job,
        schedule="none",
        warmup_epochs=0.0,
        warmup_steps=0,
        on_not_finite="stop",
        ema_decay=None,
        compile="off",  # which a hundred steps do not repay, and which does not change the curve
        picture_cache="off" if job.picture_cache == "off" else "memory",
    )


class _Progress:
    """Tells how far the rate has risen."""

    def __init__(self, emit: OnProgress) -> None:
        self._emit = emit
        self._begun: float | None = None

    def take(self, event: AnyEvent) -> None:
        if not isinstance(event, StepMetrics):
            return
        now = time.monotonic()
        self._begun = self._begun or now
        risen = math.log(event.learning_rate / FIRST_RATE) / math.log(LAST_RATE / FIRST_RATE)
        left = (now - self._begun) * (1 - risen) / risen if risen else None
        self._emit(FinderProgress(PREPARED + (1 - PREPARED) * risen, "Training with a rising learning rate", left))


def _problem(failed: Failed) -> Problem:
    """What the workers failed of, which says itself what to do."""
    return Problem("batch_size" if failed.kind == "out_of_memory" else "", failed.cause)
