"""Requests to the advisor and to the finders of a learning rate or batch size, and their answers.

``python -m engine.advisor`` executes a `FinderRequest`. ``python -m engine.advisor.advice`` finds the fastest way to
train a job by short trials. On Ctrl+C or SIGTERM it stops the trials and answers with the measurements made until then
(`Advice.ended_by` is "stopped"). Callers should therefore read its output to the end. Both processes and their workers
exit when their parent exits.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from engine.contract.job import Job, job_from_values
from engine.contract.messages import Done, Progress, Refused

BUDGET_S = 60.0
"""Default time in seconds for all trials of the advisor together."""

Value = bool | int | float | str | tuple[str, ...] | None
"""Value of a job field."""


class Network(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Speed of the network between machines in each direction, as stated by the user."""

    bits_per_second: float
    latency_s: float = 50e-6


class AdviceRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Job to advise on, with the devices that may be used for trials.

    Attributes:
        seconds: Time for all trials together.
        remeasure: True to measure even if a cached answer exists.
        machines: Number of machines like this one. If it is above 1, the answer also predicts their speed.
        network: Network that connects these machines, or None for a typical network.
    """

    job: Job
    seconds: float = BUDGET_S
    remeasure: bool = False
    machines: int = 1
    network: Network | None = None


State = Literal["waiting", "trying", "measured", "slower", "too_large", "failed"]
"""State of a candidate.

- waiting: its trial has not started.
- trying: its trial is running.
- measured: it was measured and may still be the fastest.
- slower: it was measured and is too slow.
- too_large: its trial ran out of memory.
- failed: its trial failed for another reason.
"""


class JobTime(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Predicted duration of the complete job: ``start_s + epochs * (steps * step_s + validation_s)``.

    Attributes:
        start_s: Time until the training begins, plus the additional time of the first epoch for decoding images.
        steps: Steps per epoch.
        validation_s: Time for validation and saving a checkpoint after each epoch.
        measured: Terms that were measured: "start", "step", "data", "validation".
        estimated: The other terms.
    """

    total_s: float
    start_s: float
    epochs: int
    steps: int
    step_s: float
    validation_s: float
    measured: tuple[str, ...]
    estimated: tuple[str, ...]


class Candidate(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Settings that the job could be trained with, and their measurements. Unknown measurements are None.

    Attributes:
        name: Name for users: "DDP, 2 devices, accumulation 2".
        changes: Fields that differ from the requested job. `apply_candidate` applies them.
        is_requested: True for the job as requested.
        images_per_second: Median speed of all devices together. It is limited by the data pipeline if that is slower
            than the step.
        low: Lower end of the confidence interval for the speed.
        high: Upper end of the confidence interval for the speed.
        timed_steps: Number of steps for which the speed was measured.
        data_wait_share: Fraction of the step that is spent waiting for data.
        memory_bytes: Peak memory of a device, or of a worker on the CPU.
        estimated_bytes: Peak memory that was estimated before the trial.
        limit_bytes: Memory capacity of the device.
        efficiency: Speed per device relative to the fastest candidate with one device.
        joules_per_thousand_images: Energy for a thousand images in joules, if the GPUs measure it.
        why: Explanation of the candidate's state in a sentence.
    """

    name: str
    strategy: str
    devices: tuple[str, ...]
    changes: dict[str, Value]
    is_requested: bool = False
    state: State = "waiting"
    images_per_second: float | None = None
    low: float | None = None
    high: float | None = None
    timed_steps: int = 0
    data_wait_share: float | None = None
    memory_bytes: int | None = None
    estimated_bytes: int | None = None
    limit_bytes: int | None = None
    efficiency: float | None = None
    joules_per_thousand_images: float | None = None
    time: JobTime | None = None
    why: str = ""


class SkippedCandidates(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Candidate settings that the advisor did not try, all for the same reason.

    Attributes:
        kind: "rules" for candidates that can't run, "memory" for those whose estimated memory exceeds the device's,
            "cost" for those that can't be faster than the fastest candidate, or "time" for those that remained when the
            time was over.
        names: Names of the candidates.
        why: Reason in a sentence.
    """

    kind: Literal["rules", "memory", "cost", "time"]
    names: tuple[str, ...]
    why: str


class AdviceProgress(Progress, tag="progress", frozen=True, kw_only=True):
    """Progress of the advisor.

    Attributes:
        considered: Number of candidates.
        left: Number of trials that remain in this round.
        table: Tried candidates in their current ranking, followed by the candidates whose trial has not started.
        seconds_left: Remaining time for trials.
    """

    considered: int = 0
    left: int = 0
    table: tuple[Candidate, ...] = ()


class MachinesPrediction(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Predicted speed of several machines.

    It is computed from the measured step and the number of bytes to send over the network. `efficiency` is the speed
    per machine relative to the speed of a single machine.
    """

    machines: int
    images_per_second: float
    efficiency: float
    total_s: float
    sent_bytes: int
    sending_s: float
    sentence: str


class Advice(msgspec.Struct, tag="advice", tag_field="type", frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Answer from the advisor.

    Attributes:
        table: Tried candidates, fastest first. Those that don't fit in memory come last. The first one is recommended
            if `fits` is True.
        fits: True if any candidate fits in memory.
        sentence: Reason why the first candidate is the best.
        remedies: Ways to make the job fit, cheapest first.
        what_would_change: Sentences about circumstances that would make another candidate the best.
        considered: Number of candidates.
        left_out: Candidates that were not tried, by reason.
        memory_by: Method that was used to compute `estimated_bytes`.
        ended_by: "settled" if the ranking is certain at the confidence level `confidence`, "time" if the time was over,
            or "stopped" if the advisor was stopped.
        measured_at: Seconds since the epoch.
        hardware: Devices used for the measurement.
        versions: Versions of the software used for the measurement.
        is_cached: True if the answer was cached when an equal request was executed on the same devices with the same
            versions.
    """

    table: tuple[Candidate, ...]
    fits: bool
    sentence: str
    remedies: tuple[str, ...] = ()
    what_would_change: tuple[str, ...] = ()
    considered: int
    left_out: tuple[SkippedCandidates, ...] = ()
    memory_by: Literal["one_device", "fake_tensors", "none"] = "none"
    ended_by: Literal["settled", "time", "stopped"]
    confidence: float
    took_s: float
    measured_at: float
    hardware: tuple[str, ...]
    versions: dict[str, str]
    is_cached: bool = False
    machines: tuple[MachinesPrediction, ...] = ()

    @property
    def equally_fast(self) -> tuple[Candidate, ...]:
        """Fastest candidate, and all candidates whose confidence intervals overlap with that of the fastest one."""
        lowest = self.table[0].low if self.table else None
        if lowest is None:
            return self.table[:1]
        return tuple(row for row in self.table if row.high is not None and row.high >= lowest)


ADVISING = msgspec.json.Decoder(AdviceProgress | Refused | Done[Advice])


def apply_candidate(job: Job, candidate: Candidate) -> Job:
    """Return a copy of `job` with the changes of `candidate`.

    Raises:
        ValueError: The changes make the job invalid.
    """
    changed_job, problems = job_from_values(job.values() | candidate.changes)
    if changed_job is None:
        raise ValueError(str(problems[0]))
    return changed_job


Finder = Literal["rate", "batch"]


class FinderRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Request to find a learning rate or a batch size for a job."""

    finder: Finder
    job: Job


class RatePoint(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Step of the learning rate finder: learning rate, loss before the step, and smoothed loss."""

    rate: float
    loss: float
    smoothed: float


class RateFound(msgspec.Struct, tag="rate", tag_field="type", frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Result of training with a rising learning rate.

    Attributes:
        points: Steps in order.
        suggestion: Suggested learning rate, or None if the curve does not suggest one.
        why: Reason for the suggestion, or for not giving one, in a sentence.
        remedy: Advice if there is no suggestion.
        steepest: Learning rate at which the smoothed loss falls fastest.
        valley: Learning rate that fastai would suggest by default.
        smoothing: Standard deviation of the Gaussian used for smoothing, in decades of the learning rate.
        diverged: True if the training was stopped because the loss exploded.
    """

    points: tuple[RatePoint, ...]
    suggestion: float | None
    why: str
    remedy: str = ""
    steepest: float | None = None
    valley: float | None = None
    smoothing: float
    diverged: bool


class BatchTrial(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Batch size that was tried. If it did not fit in memory, only `size` is known.

    Attributes:
        memory_bytes: Peak use of the scarcest memory, the one with the highest use relative to its capacity.
        limit_bytes: Capacity of that memory.
        limit: Name of that memory: "memory", "GPU 0".
    """

    size: int
    fits: bool
    images_per_second: float | None = None
    memory_bytes: int | None = None
    limit_bytes: int | None = None
    limit: str = ""


class BatchFound(msgspec.Struct, tag="batch", tag_field="type", frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Result of trying batch sizes. A batch size is the total over all devices.

    Attributes:
        trials: Tried sizes in ascending order.
        largest: Largest size that fits, verified by training steps, or None if no size fits.
        knee: Smallest size for which no larger size is more than 5% faster.
        ended_by: Reason why no larger size was tried: memory, the number of training images, or the time limit.
        why: Explanation in words.
        remedy: Advice if no size fits.
    """

    trials: tuple[BatchTrial, ...]
    largest: int | None
    knee: int | None
    ended_by: Literal["memory", "dataset", "time"] = "memory"
    why: str
    remedy: str = ""


FINDING = msgspec.json.Decoder(Progress | Refused | Done[RateFound | BatchFound])


class MemoryEstimate(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Estimated peak memory of a device or CPU worker. `bytes` is None if it can't be estimated."""

    bytes: int | None


ESTIMATING = msgspec.json.Decoder(Refused | Done[MemoryEstimate])
"""Decoder for the answers from ``python -m engine.advisor.memory_estimate``, which estimates the memory for a job."""
