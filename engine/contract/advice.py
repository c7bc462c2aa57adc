"""What ``python -m engine.advisor.advice`` is asked, and what it says: which strategy, how many devices and which
settings train a job fastest, measured by short trials.

It reads one `AdviceOrder` as JSON from its standard input, which it reads to the end, and prints a message a line:
`AdviceProgress` any number of times, then `Advice` or `AdviceRefused` as the last one. Ctrl+C and SIGTERM end it
gently: it ends its trials and then answers with what is known (`Advice.ended_by` is "stopped"), so that who stops it
reads on to the last line. The end of its parent ends it and its workers, too.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from engine.contract.job import Job, job_from_values
from engine.contract.problems import Problem

BUDGET_S = 60.0
"""The time for all trials unless the order gives another."""

Value = bool | int | float | str | tuple[str, ...] | None
"""A value of a job's field."""


class Network(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The network between machines, in each direction, as it is stated: nobody has measured it."""

    bits_per_second: float
    latency_s: float = 50e-6


class AdviceOrder(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The job to advise on, which also names the devices that may be used.

    `seconds` is the time for all trials. `again` measures anew where a kept answer would do. With `machines` above 1
    the answer also predicts what so many machines like this one would bring, joined by `network`.
    """

    job: Job
    seconds: float = BUDGET_S
    again: bool = False
    machines: int = 1
    network: Network | None = None


State = Literal["waiting", "trying", "measured", "slower", "too_large", "failed"]
"""Of a candidate: not tried yet; being tried; measured and still in the running; measured and dropped as too slow;
out of memory in its trial; its trial failed of something else."""


class JobTime(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What the whole job would take: ``start_s + epochs * (steps * step_s + validation_s)``, in seconds.

    `steps` are those of an epoch, and `validation_s` holds the checkpoint after it, too. `start_s` holds what the
    first epoch takes longer than the others, while images are decoded. `measured` names the parts that were measured,
    `estimated` those that were not, each of "start", "step", "data" and "validation".
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
    """One way to train the job, and what is known of it. What is not known is None.

    `name` is for people: "DDP, 2 devices, accumulation 2". `changes` are the fields in which it differs from the
    order's job; `changed` gives the job with them. `own`: it is the job as it was asked for.

    `images_per_second` is the median's, between `low` and `high` with the confidence of the answer, over
    `timed_steps` steps. It is the whole batch's, over all devices, and already waits for data where the data are
    slower than the step. `data_wait_share` is the share of the step that so waits.

    `memory_bytes` is the most that a device used (on the CPU: a worker), `estimated_bytes` what was foreseen before,
    `limit_bytes` what a device has. `efficiency` is the speed per device, as a share of the best that was measured on
    one device. `joules_per_thousand_images` is told by GPUs that measure it. `why` says in a sentence what became of
    it.
    """

    name: str
    strategy: str
    devices: tuple[str, ...]
    changes: dict[str, Value]
    own: bool = False
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


class LeftOut(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Candidates that were not tried, for one reason: `kind` says by what it was seen. "rules": they cannot run;
    "memory": the estimate exceeds the device; "cost": they cannot be the fastest, by what their parts cost; "time": the
    time was up.
    """

    kind: Literal["rules", "memory", "cost", "time"]
    names: tuple[str, ...]
    why: str


class AdviceProgress(
    msgspec.Struct, tag="progress", tag_field="type", frozen=True, forbid_unknown_fields=True, kw_only=True
):
    """How far it has come: `fraction` is from 0 to 1, `what` a short sentence on what is being done, `seconds_left`
    what is left of the time for trials. `considered` counts all candidates, `left` those that are yet to be tried in
    this round. `table` holds those that are or were tried, as the answer would rank them now, then those that
    wait.
    """

    fraction: float
    what: str
    seconds_left: float
    considered: int = 0
    left: int = 0
    table: tuple[Candidate, ...] = ()


class MachinesPrediction(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What `machines` like this one would bring by the stated network: a prediction, from the measured step and
    the bytes that would have to be sent. `efficiency` is the speed per machine as a share of one machine's.
    """

    machines: int
    images_per_second: float
    efficiency: float
    total_s: float
    sent_bytes: int
    sending_s: float
    sentence: str


class Advice(msgspec.Struct, tag="advice", tag_field="type", frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The answer. `table` holds the candidates that were tried, fastest first, those that did not fit last; its first
    one is the advice, unless `fits` is false: then nothing that was tried fits.

    `sentence` says why the first is first, and `remedies` what to do where the job does not fit one device or not at
    all, by what it costs. `what_would_change` are sentences on what would make another the first.

    `considered` counts all candidates, `left_out` holds those that were not tried, by reason. `memory_by` says where
    `estimated_bytes` come from. `ended_by`: the ranking is settled at `confidence`, the time was up, or it was stopped.

    `measured_at` is in seconds since 1970, `hardware` and `versions` say on what it was measured. `kept`: it was
    measured for an earlier order, for the same work on the same devices with the same versions.
    """

    table: tuple[Candidate, ...]
    fits: bool
    sentence: str
    remedies: tuple[str, ...] = ()
    what_would_change: tuple[str, ...] = ()
    considered: int
    left_out: tuple[LeftOut, ...] = ()
    memory_by: Literal["one_device", "fake_tensors", "none"] = "none"
    ended_by: Literal["settled", "time", "stopped"]
    confidence: float
    took_s: float
    measured_at: float
    hardware: tuple[str, ...]
    versions: dict[str, str]
    kept: bool = False
    machines: tuple[MachinesPrediction, ...] = ()


class AdviceRefused(msgspec.Struct, tag="refused", tag_field="type", frozen=True, forbid_unknown_fields=True):
    """The last line where the job could not be tried at all: each field to mark, why, and what to do."""

    problems: tuple[Problem, ...]


AdviceMessage = AdviceProgress | Advice | AdviceRefused
"""One line of the advisor's output."""

ADVISING = msgspec.json.Decoder(AdviceMessage)


def changed(job: Job, candidate: Candidate) -> Job:
    """Return `job` with the changes of `candidate`. Raises ValueError for a change that no job can have."""
    changed_job, problems = job_from_values(job.values() | candidate.changes)
    if changed_job is None:
        raise ValueError(str(problems[0]))
    return changed_job
