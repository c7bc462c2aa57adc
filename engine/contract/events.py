"""Everything that a run can say, as one strict tagged union.

A run's `events.jsonl` holds one of these a line. The supervisor alone writes it and gives each line its
number `n` (from 1, without gaps) and `time` (seconds since the epoch); a worker sends its events with
both at 0. The socket carries the same lines.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

from engine.contract.cut import Cut
from engine.contract.devices import DeviceSample
from engine.contract.job import FIELDS, Job
from engine.contract.legend import LegendEntry
from engine.contract.preprocessing import Preprocessing

Phase = Literal["starting", "fetching", "preparing", "training", "validating", "saving", "pausing", "stopping"]
Outcome = Literal["completed", "paused", "stopped", "failed", "unsaved"]
"""How an execution ended: "unsaved" where its last state could not be written to disk."""
LogLevel = Literal["debug", "info", "warning", "error"]
FailureKind = Literal["error", "fault", "out_of_memory", "not_finite", "lost_machine"]
"""What a failure is owed to. An "error" lies in the job, the data or the program and would come again; a "fault"
befell a process, a device or the machine and need not; "out_of_memory" is a device's memory; "not_finite" a loss that
is no number; a "lost_machine" can't be reached again."""


class Event(msgspec.Struct, tag_field="type", forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    n: int = 0
    time: float = 0.0


class RunDevice(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A device that the run uses; `id` is a UUID or "cpu", `ranks` the workers that run on it."""

    id: str
    name: str
    ranks: tuple[int, ...]
    memory_total_bytes: int | None = None


class RunStarted(Event, tag="run_started", kw_only=True):
    """The first event of every execution. `environment` maps names to versions and facts of the host. `execution`
    counts from 1: a run that was paused, stopped or interrupted goes on as the next, maybe with a job of other
    devices. `worked_s` is how long those before it went on together.
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
    """The run stands in line for its devices and holds nothing; told whenever what it waits for has changed.

    `position` is 1 for the next in line. `behind` are the ids of the runs that hold its devices or stand before it,
    `others` tells of other people's processes there, in plain words. While it is `held` others go before it.
    """

    position: int
    behind: tuple[str, ...] = ()
    others: tuple[str, ...] = ()
    held: bool = False


class PhaseChanged(Event, tag="phase", kw_only=True):
    phase: Phase
    detail: str = ""


class Fetching(Event, tag="fetching", kw_only=True):
    """How much of the pretrained weights has arrived, before the run takes its place in line for its devices;
    `source` says where from.
    """

    source: str
    done_bytes: int
    total_bytes: int | None = None


class Planned(Event, tag="planned", kw_only=True):
    """What lies ahead, once the data and the model are known.

    Training goes on after `from_step`: what was told of later steps before is void, and they are made again.
    """

    epochs: int
    from_step: int = 0
    steps_per_epoch: int
    train_images: int
    val_images: int
    classes: tuple[str, ...]
    image_size: int
    channels: int = 3
    """1 for grey images, 3 for colour, else the number of their bands."""
    parameters: int
    trainable_parameters: int
    cut: Cut | None = None
    """For a strategy that cuts the model: what each stage holds, and what it was measured to cost."""
    shares: tuple[float, ...] = ()
    """Each rank's share of every batch, where they are not equal; together 1."""
    preprocessing: Preprocessing | None = None
    """What the model's inputs are made by; None in runs of versions that did not say."""


class EpochStarted(Event, tag="epoch_started", kw_only=True):
    epoch: int


# It holds numbers alone, which no cycle can go through; a long log is read a third faster when they are not looked for.
class StepMetrics(Event, tag="step", kw_only=True, gc=False):
    """Training as it stands after `step` steps (counted from 1 over the whole run).

    The figures cover the steps since the last such event. `loss` is their mean; `accuracy` the share of
    images right, 0 to 1, None where the strategy cannot tell. `data_wait_s` and `compute_s` are seconds
    per step on the reporting rank, `images_per_second` counts all devices.
    """

    epoch: int
    step: int
    loss: float
    accuracy: float | None = None
    learning_rate: float
    images_per_second: float
    data_wait_s: float
    compute_s: float


class Action(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """What a rank of a pipeline did for one microbatch: forward (F), backward (B), or the backward of the inputs (I)
    and of the weights (W) apart. Seconds since the first action of the step on any rank began.
    """

    kind: Literal["F", "B", "I", "W"]
    stage: int
    microbatch: int
    begin_s: float
    end_s: float


class ScheduleTraced(Event, tag="schedule", kw_only=True):
    """What each rank of a pipeline (of the first replica) did in one step, by its place, in order.

    `bubble` is the share of the ranks' time between the first action's begin and the last one's end in which they
    did nothing; `theory` what the schedule leaves idle where all stages take the same time and a backward pass
    twice a forward pass.
    """

    step: int
    schedule: str
    ranks: tuple[tuple[Action, ...], ...]
    span_s: float
    bubble: float
    theory: float


class RankTimes(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One rank's seconds in one step: computing, communication that nothing was computed beside, and waiting
    for slower ranks.
    """

    compute_s: float
    communication_s: float
    waiting_s: float


class RanksTimed(Event, tag="ranks", kw_only=True):
    """Where the time of one step went on each rank of a data-parallel strategy, by rank.

    `straggler` is the rank that the others wait for, None where none stands out.
    """

    step: int
    ranks: tuple[RankTimes, ...]
    straggler: int | None = None


Part = Literal["data", "transfer", "augment", "forward", "backward", "communication", "optimizer", "logging", "other"]
"""What a step's time goes into: waiting for images, copying them to the device, augmenting and normalising them
there, the two passes, joining gradients (or handing on activations) beside which nothing was computed, the optimizer,
telling."""


class Advice(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What holds the run back and what to change, in one sentence. The change sets `field` of the job to `value`:
    of this run as it goes where `live`, else of the next one. Without a change `field` is "".
    """

    sentence: str
    field: str = ""
    value: int | str = ""
    live: bool = False


class TimeSpent(Event, tag="time", kw_only=True):
    """Where the time of the steps up to `step` went since this was last told: seconds per step on the device that
    reports, by part; parts that cannot be told apart are left away. Together they are `step_s`.
    """

    step: int
    step_s: float
    parts: dict[Part, float]
    advice: Advice | None = None


class Chosen(Event, tag="chosen", kw_only=True):
    """Something that the job left to Footplate: the field of the job, what was chosen, and why, in plain words."""

    field: str
    choice: str
    why: str

    @property
    def words(self) -> str:
        """ "Precision: bf16. The GPUs compute in it natively."."""
        label = FIELDS[self.field].label if self.field in FIELDS else self.field
        why = self.why.rstrip(".")
        return f"{label}: {self.choice}. {why[:1].upper()}{why[1:]}."


class Validation(Event, tag="validation", kw_only=True):
    """Measures over the whole validation set, each image once, by the ids of the task's measures."""

    epoch: int
    step: int
    measures: dict[str, float]
    images: int
    seconds: float


class ClassMeasures(Event, tag="class_measures", kw_only=True):
    """What the validation before it found of each class.

    `measures` holds, by title, a share for each of the plan's classes in their order, None for one that does not occur.
    `confusion` has a row for each true class of how often each class was found; empty where there are many classes.
    """

    epoch: int
    step: int
    measures: dict[str, tuple[float | None, ...]]
    confusion: tuple[tuple[int, ...], ...] = ()


class PredictedSample(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One sample of the validation split, and what the model makes of it: images, their paths relative to the run's
    folder, and words where there are some to say. `name` tells which sample it is, `legend` which entries of the legend
    either image shows, by their places in it.
    """

    name: str
    truth_png: str
    prediction_png: str
    truth_words: str = ""
    prediction_words: str = ""
    legend: tuple[int, ...] = ()


class Predicted(Event, tag="predicted", kw_only=True):
    """What the model predicts at `step` for some samples of the validation split, the same at every validation;
    `legend` says what the colours in their images stand for, where they have a meaning.
    """

    epoch: int
    step: int
    samples: tuple[PredictedSample, ...]
    legend: tuple[LegendEntry, ...] = ()


class CheckpointSaved(Event, tag="checkpoint", kw_only=True):
    """`path` is relative to the run folder. `seconds` is what writing took, beside the training; `pause_s` how long the
    training stood still for it.
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
    """Something that the user should know and that does not stop the run. `code` is stable."""

    code: str
    message: str
    rank: int | None = None


class Failed(Event, tag="failed", kw_only=True):
    """A rank's failure in plain words; the run ends after it.

    Attributes:
        field: Field of the job that must change, such as "pretrained" for weights that can't be had; "" if unknown.
        traceback_file: Path relative to the run folder.
    """

    cause: str
    field: str = ""
    rank: int | None = None
    step: int | None = None
    traceback_file: str = ""
    kind: FailureKind = "error"


class Restarting(Event, tag="restarting", kw_only=True):
    """The workers have ended for `cause`, and the run starts them again from its last checkpoint.

    It is the `attempt`-th start in a row without a checkpoint between, of `most` that the job allows. `changes` are
    the fields of the job that are different from now on, so that the failure does not come again; `devices` those
    that it goes on with where they are fewer than before.
    """

    cause: str
    rank: int | None = None
    step: int | None = None
    traceback_file: str = ""
    kind: FailureKind = "fault"
    attempt: int
    most: int
    changes: dict[str, int | str] = msgspec.field(default_factory=dict)
    devices: tuple[str, ...] = ()


VerdictCode = Literal["falling", "overfitted", "not_fitted", "not_generalised", "weak_classes", "converged"]
"""What a run's history says of it at its end: it could be trained further; it learned its training images by heart; it
learned nothing; what it learned is of no use for the validation images; some classes are hardly found; it is as good as
these settings make it."""


class Verdict(Event, tag="verdict", kw_only=True):
    """How a run has ended, in one sentence, and what to change.

    `figures` are what the sentence tells, `changes` the fields of the job that are to be different: of this run where
    it is still "falling", which can so be trained further, else of the next one. Empty where there is nothing to
    change.
    """

    code: VerdictCode
    sentence: str
    figures: dict[str, float] = msgspec.field(default_factory=dict)
    changes: dict[str, int | float | str | bool] = msgspec.field(default_factory=dict)


class CommandReceived(Event, tag="command", kw_only=True):
    command: str


class EventsLost(Event, tag="lost", kw_only=True):
    """`count` step metrics or device samples were dropped, and why. Other events are never dropped."""

    count: int
    reason: str


class DevicesFree(Event, tag="devices_free", kw_only=True):
    """All workers are gone. `verified` says whether the GPUs' memory was seen to be free again."""

    seconds: float
    verified: bool


class RunFinished(Event, tag="run_finished", kw_only=True):
    """The last event of an execution, the one of `RunStarted` before it."""

    outcome: Outcome
    execution: int = 1
    cause: str = ""
    seconds: float = 0.0
    best: dict[str, float] = msgspec.field(default_factory=dict)
    best_epoch: int | None = None
    checkpoints: tuple[str, ...] = ()


AnyEvent = (
    RunStarted
    | Waiting
    | PhaseChanged
    | Fetching
    | Planned
    | EpochStarted
    | StepMetrics
    | ScheduleTraced
    | RanksTimed
    | TimeSpent
    | Chosen
    | Validation
    | ClassMeasures
    | Predicted
    | CheckpointSaved
    | DevicesSampled
    | LogLine
    | Warned
    | Failed
    | Restarting
    | Verdict
    | CommandReceived
    | EventsLost
    | DevicesFree
    | RunFinished
)

DROPPABLE = (Fetching, StepMetrics, ScheduleTraced, RanksTimed, TimeSpent, DevicesSampled)
"""Events that may be thinned on the way to a slow reader."""


def fetch_left_s(told: Sequence[Fetching]) -> float | None:
    """How long a fetch of weights takes yet, in seconds, from the first and the last that was told of it; None where
    that cannot be told.
    """
    total = told[-1].total_bytes if told else None
    if total is None or told[-1].done_bytes <= told[0].done_bytes:
        return None
    first, last = told[0], told[-1]
    return (last.time - first.time) / (last.done_bytes - first.done_bytes) * (total - last.done_bytes)


EVENT = msgspec.json.Decoder(AnyEvent)
ENCODE = msgspec.json.Encoder()
