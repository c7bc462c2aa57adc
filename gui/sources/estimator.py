"""Estimates of a job's time and memory, computed outside the GUI thread.

They are based on past runs, or on the layers of the model.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import msgspec
from PySide6.QtCore import QObject, QTimer, Signal

from engine.contract.advice import ESTIMATING, MemoryEstimate
from engine.contract.job import Job, fields_with_trait
from engine.runs.estimates import Estimate, PastRun, estimate, read_past_runs
from engine.runs.folder import RunSummary
from gui.sources.background import SingleFlight, ignore_os_error
from gui.sources.json_lines import JsonLinesProcess
from gui.translation import tr

_TYPING_MS, _PAUSE_MS = 200, 1500
"""Milliseconds after the last change until past runs are compared, and until memory is computed."""


@dataclass(frozen=True)
class EstimateRequest:
    """Properties of a job that determine its estimate.

    Attributes:
        image_size: Side length of the images in pixels.
        device_kinds: Name of each device.
        images: Numbers of training and validation images.
    """

    job: Job
    image_size: int
    device_kinds: tuple[str, ...]
    images: tuple[int, int]


class MemoryProcess(JsonLinesProcess):
    """Child process that computes how much memory a job needs, one job at a time. Its result is a MemoryEstimate."""

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__("engine.advisor.memory_estimate", tr("Estimating the memory"), ESTIMATING.decode, parent)

    def start(self, job: Job) -> None:
        """Compute how much GPU memory `job` needs."""
        self.run(stdin=msgspec.json.encode(job))


class Estimator(QObject):
    """Estimator of the time and memory of the job in the form. It answers only the newest request.

    Time and memory are estimated from past runs. If no past run is comparable, a child process computes the memory as
    soon as the user stops editing the job for a moment.

    Signals:
        changed(): the estimate has changed or was removed.
    """

    changed = Signal()

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self.estimate: Estimate | None = None
        """Estimate for the last request, or None if there isn't enough information."""
        self.request: EstimateRequest | None = None
        """Request that `estimate` answers, or None for an incomplete job, or while its estimate is being computed."""
        self._newest_request: EstimateRequest | None = None
        self._runs: tuple[RunSummary, ...] = ()
        self._past_runs: dict[str, PastRun | None] = {}  # facts of past runs, cached between estimates
        self._flight = SingleFlight(self, self._next_estimation, self._on_estimated, ignore_os_error)
        self._typing_timer = QTimer(self, interval=_TYPING_MS, singleShot=True)
        self._typing_timer.timeout.connect(self._flight.request)
        self._computed: dict[tuple[Any, ...], int | None] = {}
        """Computed memory by the job fields that determine it."""
        self._process = MemoryProcess(self)
        self._process.done.connect(self._on_computed)
        for signal in (self._process.refused, self._process.failed):
            signal.connect(lambda _reason: self._on_computed(MemoryEstimate(None)))
        # Delays the computation until edits pause.
        self._pause_timer = QTimer(self, interval=_PAUSE_MS, singleShot=True)
        self._pause_timer.timeout.connect(self._compute)

    def close(self) -> None:
        """Stop the child process."""
        self._typing_timer.stop()
        self._pause_timer.stop()
        self._process.close()

    def prepare_estimates_by_model(self, image_sizes: Mapping[str, int]) -> Callable[[], dict[str, Estimate]]:
        """Return a function for a worker thread that estimates the current job with other models.

        `image_sizes` are the default image sizes of these models.
        """
        if self._newest_request is None:
            return dict
        return partial(estimates_by_model, self._newest_request, image_sizes, self._runs, self._past_runs)

    def set_runs(self, runs: tuple[RunSummary, ...]) -> None:
        """Use these runs as the basis of estimates, newest first. If one is new or in another state, estimate again."""
        if [(run.run_id, run.state) for run in runs] != [(run.run_id, run.state) for run in self._runs]:
            self._runs = runs
            self._typing_timer.start()

    def set_request(self, request: EstimateRequest | None) -> None:
        """Estimate another job, or remove the estimate if `request` is None because the job or its data is unknown."""
        if request == self._newest_request:
            return
        self._newest_request = request
        self._pause_timer.stop()
        self._process.cancel()
        if request is None:
            self._on_estimated((None, None))  # remove the previous estimate now
        self._typing_timer.start()

    def _next_estimation(self) -> Callable[[], tuple[EstimateRequest | None, Estimate | None]] | None:
        """Return a function that estimates the newest request from past runs, or None if there is no request."""
        if self._newest_request is None:
            return None
        return partial(_compute_estimate, self._newest_request, self._runs, self._past_runs)

    def _on_estimated(self, answer: tuple[EstimateRequest | None, Estimate | None]) -> None:
        """Publish a request and its estimate, unless there is a newer request.

        If the past runs give no estimate of the memory, use the memory that the child process has computed for this
        job. If it has not computed it yet, start the timer for the computation.
        """
        request, estimate = answer
        if request != self._newest_request:
            return
        self.request, self.estimate = request, estimate
        if request is not None and (estimate is None or estimate.memory_bytes is None):
            key = _memory_key(request.job)
            memory_bytes = self._computed.get(key)
            if memory_bytes is not None:
                estimate = estimate or Estimate(seconds=None)
                self.estimate = msgspec.structs.replace(estimate, memory_bytes=memory_bytes, is_computed=True)
            elif key not in self._computed and not self._process.running:  # otherwise, it has failed, or continues
                self._pause_timer.start()
        self.changed.emit()

    def _compute(self) -> None:
        """Start the child process that computes the job's memory, unless it would execute the user's model file."""
        if self._newest_request is not None and not self._newest_request.job.model_is_file:
            self._process.start(self._newest_request.job)

    def _on_computed(self, answer: MemoryEstimate) -> None:
        """Store the memory that the child process has computed, and update the estimate of the current job.

        A new request cancels the process, so that the answer always belongs to the newest request.
        """
        if self._newest_request is not None:
            self._computed[_memory_key(self._newest_request.job)] = answer.bytes
            self._typing_timer.start()


_MEMORY_FIELDS = (
    "dataset",
    "devices",
    "optimizer",
    "ema_decay",
    "accumulation",
    "precision",
    *fields_with_trait("memory"),
)


def _memory_key(job: Job) -> tuple[Any, ...]:
    """Return the values of the job fields that determine its memory."""
    return tuple(job.value(name) for name in dict.fromkeys(_MEMORY_FIELDS))


def estimates_by_model(
    request: EstimateRequest,
    image_sizes: Mapping[str, int],
    runs: tuple[RunSummary, ...],
    cached_runs: dict[str, PastRun | None],
) -> dict[str, Estimate]:
    """Estimate the requested job with each model in `image_sizes` that has past runs. Return the estimates by model id.

    Args:
        request: Job to estimate.
        image_sizes: Default image size of each model by id. It applies if the job doesn't set a size.
        runs: Past runs, newest first.
        cached_runs: Cache of past runs by id, with None for runs that have not trained. It is extended.
    """
    trained = {run.model for run in runs}
    found = {}
    for model, image_size in image_sizes.items():
        if model in trained:
            job = request.job.with_fields(model=model)
            changed = replace(request, job=job, image_size=job.data.image_size or image_size)
            _request, found[model] = _compute_estimate(changed, runs, cached_runs)
    return {model: answer for model, answer in found.items() if answer is not None}


def _compute_estimate(
    request: EstimateRequest, runs: tuple[RunSummary, ...], cached_runs: dict[str, PastRun | None]
) -> tuple[EstimateRequest, Estimate | None]:
    """Return `request` and its estimate from past runs, or None if no run is comparable. `cached_runs` is extended."""
    past = read_past_runs(request.job, runs, cached_runs)
    return request, estimate(request.job, request.image_size, request.device_kinds, request.images, past)
