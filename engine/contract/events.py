"""Events of a run, as a strict tagged union.

A run's `events.jsonl` contains one event per line. Only the supervisor writes it, and gives each line its number `n`
(from 1, without gaps) and `time` (seconds since the epoch). Events sent by a worker have 0 for both. The socket
transmits the same lines.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

from engine.contract.catalogue import Measure
from engine.contract.devices import DeviceSample
from engine.contract.images import LegendEntry, Preprocessing
from engine.contract.job import FIELDS, Job
from engine.contract.model_split import ModelSplit

Phase = Literal["starting", "fetching", "preparing", "training", "validating", "saving", "pausing", "stopping"]
Outcome = Literal["completed", "paused", "stopped", "failed", "unsaved"]
"""Outcome of an execution. It is "unsaved" if the last state could not be written to disk."""
LogLevel = Literal["debug", "info", "warning", "error"]
FailureKind = Literal["error", "fault", "out_of_memory", "not_finite", "lost_machine", "lost_gpu"]
"""Kind of a failure.

- error: caused by the job, the data or the program, so that it would happen again.
- fault: caused by a process, a device or the machine, so that it may not happen again.
- out_of_memory: a device ran out of memory.
- not_finite: the loss is NaN or infinite.
- lost_machine: a machine can no longer be reached.
- lost_gpu: the driver can no longer reach a GPU.
"""


class Event(msgspec.Struct, tag_field="type", forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    n: int = 0
    time: float = 0.0


class RunDevice(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Device that a run uses. `id` is a UUID or "cpu", and `ranks` are the workers on it."""

    id: str
    name: str
    ranks: tuple[int, ...]
    memory_total_bytes: int | None = None


class RunStarted(Event, tag="run_started", kw_only=True):
    """First event in every execution.

    `environment` maps names to versions and facts about the host. `execution` counts from 1. Resuming a run starts the
    next execution, possibly on other devices. `worked_s` is the total duration of the earlier executions.
    """

    run_id: str
    job: Job
    devices: tuple[RunDevice, ...]
    world_size: int
    environment: dict[str, str]
    supervisor_pid: int
    execution: int = 1
    worked_s: float = 0.0


class Waiting(Event, tag="waiting", kw_only=True):
    """Message that the run waits in the queue for its devices. It is sent again whenever the reasons change.

    Attributes:
        position: Position in the queue. The run at position 1 starts next.
        behind: Ids of the runs that use its devices or precede it in the queue.
        others: Descriptions of other users' processes on the devices.
        held: True if the user holds the run, so that other runs may overtake it.
    """

    position: int
    behind: tuple[str, ...] = ()
    others: tuple[str, ...] = ()
    held: bool = False


class PhaseChanged(Event, tag="phase", kw_only=True):
    phase: Phase
    detail: str = ""


class Fetching(Event, tag="fetching", kw_only=True):
    """Progress of downloading pretrained weights from `source`, before the run enters the queue for its devices."""

    source: str
    done_bytes: int
    total_bytes: int | None = None


class Planned(Event, tag="planned", kw_only=True):
    """Planned epochs and steps of the training and facts about data and model, sent once these are known.

    Training continues after `from_step`. Earlier events about later steps become invalid, because these steps are
    repeated.
    """

    epochs: int
    from_step: int = 0
    steps_per_epoch: int
    train_images: int
    val_images: int
    classes: tuple[str, ...]
    image_size: int
    channels: int = 3
    """1 for gray images, 3 for color images, otherwise the number of bands."""
    parameters: int
    trainable_parameters: int
    model_split: ModelSplit | None = None
    """Pipeline stages and their measured costs, if the strategy splits the model."""
    shares: tuple[float, ...] = ()
    """Fraction of every batch per rank. The fractions sum to 1. Empty if all are equal."""
    preprocessing: Preprocessing | None = None
    """Preprocessing of the model's inputs."""
    metrics: tuple[Measure, ...] = ()
    """Metrics of the task, including those from a user's file or from plug-ins, which are not in the catalogue."""


class EpochStarted(Event, tag="epoch_started", kw_only=True):
    epoch: int


# It contains only numbers and can't be part of a cycle. Untracked, a long log is read a third faster.
class StepMetrics(Event, tag="step", kw_only=True, gc=False):
    """Training metrics over the steps since the previous such event. `step` counts from 1 over all epochs.

    `loss` is the mean. `accuracy` is the fraction of correctly classified images, or None if the strategy doesn't
    compute it. `losses` are the parts of the loss by name, if the model reports several. `data_wait_s` and `compute_s`
    are seconds per step on the reporting rank. `images_per_second` is the sum over all devices.
    """

    epoch: int
    step: int
    loss: float
    accuracy: float | None = None
    learning_rate: float
    images_per_second: float
    data_wait_s: float
    compute_s: float
    losses: dict[str, float] = {}


class Action(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Action of a pipeline rank for one microbatch.

    Its kind is forward (F), backward (B), or backward for inputs (I) or weights (W). Times are in seconds since the
    first action of the step on any rank.
    """

    kind: Literal["F", "B", "I", "W"]
    stage: int
    microbatch: int
    begin_s: float
    end_s: float


class ScheduleTraced(Event, tag="schedule", kw_only=True):
    """Actions of each pipeline rank in the first replica during one step, in order.

    `bubble` is the idle fraction of the ranks' time from the first to the last action. `theory` is the idle fraction
    expected for stages of equal cost and a backward pass that takes twice as long as a forward pass.
    """

    step: int
    schedule: str
    ranks: tuple[tuple[Action, ...], ...]
    span_s: float
    bubble: float
    theory: float


class RankTimes(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Seconds that a rank spends in a step: computing, communicating without computing, and waiting for others."""

    compute_s: float
    communication_s: float
    waiting_s: float


class RanksTimed(Event, tag="ranks", kw_only=True):
    """Times of one step on each rank under a data-parallel strategy.

    `straggler` is the rank that the others wait for, or None if no rank stands out.
    """

    step: int
    ranks: tuple[RankTimes, ...]
    straggler: int | None = None


Part = Literal["data", "transfer", "augment", "forward", "backward", "communication", "optimizer", "logging", "other"]
"""Part of a training step whose time is measured separately.

"data" is waiting for samples, "transfer" is the copy to the device, "augment" includes normalization, "communication"
is the exchange of gradients or activations that is not hidden by computation, and "logging" is sending reports.
"""


class Advice(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Bottleneck of the run and a remedy, in one sentence.

    The remedy sets the job's `field` to `value`: in the current run if `live` is True, otherwise in the next one.
    `field` is "" if there is no remedy.
    """

    sentence: str
    field: str = ""
    value: int | str = ""
    live: bool = False


class TimeSpent(Event, tag="time", kw_only=True):
    """Mean seconds per part of a training step on rank 0's device, over the steps since the previous TimeSpent.

    The parts sum to `step_s`. Parts that can't be separated are omitted.
    """

    step: int
    step_s: float
    parts: dict[Part, float]
    advice: Advice | None = None


class Chosen(Event, tag="chosen", kw_only=True):
    """Automatically chosen value of a job field, with the reason in words."""

    field: str
    choice: str
    why: str

    @property
    def text(self) -> str:
        """Sentences about the choice for users: "Precision: bf16. The GPUs compute in it natively."."""
        label = FIELDS[self.field].label if self.field in FIELDS else self.field
        why = self.why.rstrip(".")
        return f"{label}: {self.choice}. {why[:1].upper()}{why[1:]}."


class Validation(Event, tag="validation", kw_only=True):
    """Metrics over the full validation set, by the ids of the task's metrics."""

    epoch: int
    step: int
    measures: dict[str, float]
    images: int
    seconds: float


class ClassMeasures(Event, tag="class_measures", kw_only=True):
    """Metrics for each class in the validation that this event follows.

    `measures` maps the title of a metric to its values, one from 0 to 1 for each class in `Planned`. The value is None
    if a class does not occur. `confusion` has counts by true class (rows) and predicted class (columns), or is empty if
    there are many classes.
    """

    epoch: int
    step: int
    measures: dict[str, tuple[float | None, ...]]
    confusion: tuple[tuple[int, ...], ...] = ()


class PredictedSample(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Sample from the validation split with its prediction.

    Images are given by paths relative to the run folder. Descriptions in words are "" for tasks that have none.
    `legend` lists the indices of entries in `Predicted.legend` that occur in the images.
    """

    name: str
    truth_png: str
    prediction_png: str
    truth_words: str = ""
    prediction_words: str = ""
    legend: tuple[int, ...] = ()


class Predicted(Event, tag="predicted", kw_only=True):
    """Predictions at `step` for some validation samples, which are the same in every validation.

    `legend` explains the colors in the images, if they have a meaning.
    """

    epoch: int
    step: int
    samples: tuple[PredictedSample, ...]
    legend: tuple[LegendEntry, ...] = ()


class CheckpointSaved(Event, tag="checkpoint", kw_only=True):
    """Message that a checkpoint was saved at `path`, relative to the run folder.

    Writing took `seconds` in the background. Training paused for `pause_s`.
    """

    kind: Literal["last", "best"]
    path: str
    epoch: int
    step: int
    bytes: int
    seconds: float
    pause_s: float = 0.0
    measure: float | None = None


class DevicesSampled(Event, tag="devices", kw_only=True):
    samples: tuple[DeviceSample, ...]


class LogLine(Event, tag="log", kw_only=True):
    text: str
    level: LogLevel = "info"
    rank: int | None = None


class Warned(Event, tag="warning", kw_only=True):
    """Warning for the user that doesn't stop the run. `code` never changes."""

    code: str
    message: str
    rank: int | None = None


class Failed(Event, tag="failed", kw_only=True):
    """Failure of a rank that ends the run.

    Attributes:
        field: Job field that must change, such as "pretrained" for unavailable weights, or "" if unknown.
        traceback_file: Path relative to the run folder.
        devices: Lost devices of the run.
        changes: Job fields with which the run can resume on its other devices. Empty if it can't resume.
    """

    cause: str
    field: str = ""
    rank: int | None = None
    step: int | None = None
    traceback_file: str = ""
    kind: FailureKind = "error"
    devices: tuple[str, ...] = ()
    changes: dict[str, int | str | tuple[str, ...]] = msgspec.field(default_factory=dict)


class Restarting(Event, tag="restarting", kw_only=True):
    """Message that the workers have exited because of `cause` and restart from the last checkpoint.

    This is restart number `attempt` of at most `max_attempts` without a new checkpoint in between. `changes` are the
    job fields that are changed to avoid the failure. `devices` are the remaining devices if a machine or a GPU was
    dropped.
    """

    cause: str
    rank: int | None = None
    step: int | None = None
    traceback_file: str = ""
    kind: FailureKind = "fault"
    attempt: int
    max_attempts: int
    changes: dict[str, int | str] = msgspec.field(default_factory=dict)
    devices: tuple[str, ...] = ()


VerdictCode = Literal["falling", "overfitted", "not_fitted", "not_generalized", "weak_classes", "converged"]
"""Diagnosis of a finished run.

- falling: the validation loss was still falling; more epochs would help.
- overfitted: the training loss kept falling while the validation loss rose.
- not_fitted: the model did not learn the training samples.
- not_generalized: the model learned the training samples, but fails on the validation samples.
- weak_classes: some classes are rarely recognized.
- converged: no change of the settings is known to help.
"""


class Verdict(Event, tag="verdict", kw_only=True):
    """Diagnosis of a finished run in one sentence, with suggested changes.

    `figures` are the numbers in the sentence. `changes` are job fields. They apply to this run if the diagnosis is
    "falling", because it can be trained further, otherwise to the next run.
    """

    code: VerdictCode
    sentence: str
    figures: dict[str, float] = msgspec.field(default_factory=dict)
    changes: dict[str, int | float | str | bool] = msgspec.field(default_factory=dict)


class CommandReceived(Event, tag="command", kw_only=True):
    command: str


class EventsLost(Event, tag="lost", kw_only=True):
    """Number of dropped step metrics or device samples, and the reason. Other events are never dropped."""

    count: int
    reason: str


class DevicesFree(Event, tag="devices_free", kw_only=True):
    """Message that all workers have exited. If `verified` is True, the GPUs report that their memory is free again."""

    seconds: float
    verified: bool


class RunFinished(Event, tag="run_finished", kw_only=True):
    """Last event in an execution."""

    outcome: Outcome
    execution: int = 1
    cause: str = ""
    seconds: float = 0.0
    best: dict[str, float] = msgspec.field(default_factory=dict)
    best_epoch: int | None = None
    checkpoints: tuple[str, ...] = ()


AnyEvent = (
    RunStarted | Waiting | PhaseChanged | Fetching | Planned | EpochStarted | StepMetrics | ScheduleTraced | RanksTimed
    | TimeSpent | Chosen | Validation | ClassMeasures | Predicted | CheckpointSaved | DevicesSampled | LogLine | Warned
    | Failed | Restarting | Verdict | CommandReceived | EventsLost | DevicesFree | RunFinished
)  # fmt: skip

DROPPABLE = (Fetching, StepMetrics, ScheduleTraced, RanksTimed, TimeSpent, DevicesSampled)
"""Events that may be dropped for a slow reader."""


def estimate_fetch_s(progress: Sequence[Fetching]) -> float | None:
    """Return the remaining seconds of a download, or None if they can't be estimated.

    `progress` contains the first and the latest progress event of the download, or fewer at its beginning.
    """
    if not progress:
        return None
    first, last = progress[0], progress[-1]
    fetched_bytes = last.done_bytes - first.done_bytes
    if last.total_bytes is None or fetched_bytes <= 0:
        return None
    return (last.time - first.time) / fetched_bytes * (last.total_bytes - last.done_bytes)


EVENT = msgspec.json.Decoder(AnyEvent)
ENCODE = msgspec.json.Encoder()
