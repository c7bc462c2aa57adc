"""Status of a run in plain words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from engine.contract.events import estimate_fetch_s
from engine.runs.folder import State
from gui.format import counted, size
from gui.titles import describe_attempt, format_short_measure
from gui.translation import tr

if TYPE_CHECKING:  # NumPy, which its columns need, is imported after the window's first paint
    from gui.sources.run_data import EndRequest, RunData

StatusLabel = Literal[
    "Idle", "Checking", "Starting", "Fetching", "Waiting", "Running", "Restarting", "Pausing", "Stopping", "Completed", "Paused",
    "Stopped", "Failed", "Unsaved", "Interrupted",
]  # fmt: skip

_ENDED: dict[State, StatusLabel] = {
    "completed": "Completed",
    "paused": "Paused",
    "stopped": "Stopped",
    "failed": "Failed",
    "unsaved": "Unsaved",
    "interrupted": "Interrupted",
}
FAILED_LABELS: tuple[StatusLabel, ...] = ("Failed", "Unsaved", "Interrupted")
"""Labels of states that have a cause of failure."""
STATE_LABELS: dict[State, StatusLabel] = {"starting": "Starting", "waiting": "Waiting", "running": "Running", **_ENDED}
STATE_MARKS: dict[StatusLabel, str] = {
    "Completed": "✔",
    "Paused": "❚❚",
    "Stopped": "■",
    "Failed": "✖",
    "Unsaved": "✖",
    "Interrupted": "⚠",
    "Running": "▶",
    "Restarting": "↻",
    "Pausing": "❚❚",
    "Stopping": "■",
    "Starting": "…",
    "Waiting": "…",
}
"""Symbols in front of states."""
_NO_PAUSE: dict[StatusLabel, str] = {
    "Idle": tr("Nothing is running"),
    "Checking": tr("Nothing is running"),
    "Fetching": tr("It holds no device yet; Stop ends it"),
    "Waiting": tr("A waiting run holds no devices; Stop removes it from the queue"),
    "Pausing": tr("It pauses after the current step"),
    "Stopping": tr("It is already stopping"),
    "Completed": tr("It is complete"),
}
_NO_STOP: dict[StatusLabel, str] = {
    "Idle": tr("Nothing is running"),
    "Checking": tr("Nothing is running"),
    "Stopping": tr("It is already stopping"),
}


@dataclass(frozen=True)
class RunStatus:
    """Status of a run. Unknown values are None.

    Attributes:
        text: Sentence that begins with `label`.
        fraction: Progress from 0 to 1.
        devices_free: True once the workers have exited, or None without a run.
        has_checkpoint: True if the run can continue from a checkpoint.
    """

    label: StatusLabel = "Idle"
    text: str = "Idle"
    epoch: int | None = None
    epochs: int | None = None
    step: int | None = None
    steps: int | None = None
    fraction: float | None = None
    seconds_left: float | None = None
    images_per_second: float | None = None
    devices_free: bool | None = None
    has_checkpoint: bool = False

    @property
    def active(self) -> bool:
        """True while the run has not ended."""
        return self.label not in ("Idle", "Checking", *_ENDED.values())

    @property
    def can_resume(self) -> bool:
        """True if the run ended before its last epoch and can be resumed."""
        return self.label in _ENDED.values() and self.label != "Completed"

    @property
    def why_no_pause(self) -> str:
        """Reason why the run can't be paused, or "" if it can."""
        return _NO_PAUSE.get(self.label, tr("It has ended") if not self.active else "")

    @property
    def why_no_stop(self) -> str:
        """Reason why the run can't be stopped, or "" if it can."""
        return _NO_STOP.get(self.label, tr("It has ended") if not self.active else "")


def derive_status(
    data: RunData,
    state: State,
    requested: EndRequest = "",
    queued: str = tr("queued for its devices"),
    interrupted: str = tr("the run's process exited without reporting an error"),
) -> RunStatus:
    """Derive the status from the state, the events and the pending request.

    `queued` describes the queue position of a waiting run, and `interrupted` the cause of an interruption.
    """
    label = _choose_label(data, state, requested)
    step = data.step or None
    total = data.plan.epochs * data.plan.steps_per_epoch if data.plan is not None else None
    fraction = min(1.0, step / total) if step is not None and total else None
    if label == "Completed":
        fraction = 1.0
    elif label == "Fetching":
        fraction = _compute_fetched_fraction(data)
    epochs = data.plan.epochs if data.plan is not None else None
    if epochs is None and data.started is not None:
        epochs = data.started.job.training.epochs
    has_steps = len(data.steps.step) > data.current_attempt_start  # earlier steps belong to the previous workers
    speed = data.steps.images_per_second.last if has_steps and label in ("Running", "Pausing", "Stopping") else None
    # Without a download of weights, `estimate_fetch_s` returns None.
    is_running = label == "Running"
    seconds_left = _estimate_seconds_left(data, step, total) if is_running else estimate_fetch_s(data.fetching)
    return RunStatus(
        label=label,
        text=_describe_status(label, data, step, epochs, interrupted if label == "Interrupted" else queued),
        epoch=data.epoch or None,
        epochs=epochs,
        step=step,
        steps=total,
        fraction=fraction,
        seconds_left=seconds_left,
        images_per_second=speed,
        devices_free=data.devices_free is not None or label in ("Waiting", *_ENDED.values()),
        has_checkpoint=data.has_checkpoint,
    )


def _choose_label(data: RunData, state: State, requested: EndRequest) -> StatusLabel:
    """Return the label of a run's status. Ended states come first, then a requested stop or pause, then phases."""
    if state in _ENDED:
        return _ENDED[state]
    label: StatusLabel = "Running"
    is_over = data.finished is not None  # the data belongs to the previous execution
    is_stopping = data.end_request == "stop" or data.phase == "stopping" or data.failure is not None
    is_pausing = data.end_request == "pause" or data.phase == "pausing"
    if requested == "stop" or (is_stopping and not is_over):
        label = "Stopping"
    elif requested == "pause" or (is_pausing and not is_over):
        label = "Pausing"
    elif state == "waiting" and (is_over or data.started is None):
        label = "Waiting"  # queued by SLURM: the run has logged nothing, or nothing since the last execution
    elif is_over or state == "starting":
        label = "Starting"
    elif data.restarting is not None:
        label = "Restarting"
    elif data.waiting is not None:
        label = "Waiting"
    elif data.phase == "fetching":
        label = "Fetching"
    elif data.phase in (None, "starting") and not data.epoch:
        label = "Starting"
    return label


def _describe_status(label: StatusLabel, data: RunData, step: int | None, epochs: int | None, reason: str) -> str:
    """Return the status line for a label. `reason` is the reason for an interruption, or for waiting.

    `step` and `epochs` are None if they are unknown.
    """
    after = tr("after {steps}").format(steps=counted(step, "step")) if step is not None else tr("before the first step")
    texts = {
        "Completed": tr("Completed")
        + (f" · {counted(epochs, 'epoch')}" if epochs else "")
        + _describe_best_metric(data),
        "Paused": tr("Paused {after} · {devices}").format(after=after, devices=_describe_devices(data)),
        "Stopped": tr("Stopped {after} · {devices}").format(after=after, devices=_describe_devices(data)),
        "Failed": tr("Failed: {cause}").format(cause=find_cause(data)),
        "Unsaved": tr("Unsaved: {cause}").format(cause=find_cause(data)),
        "Pausing": tr("Pausing {after} · waiting for the workers to save and end").format(after=after),
        "Stopping": (
            tr("Stopping {after} · waiting for the workers to end").format(after=after)
            if data.failure is None
            else tr("Stopping: {cause}").format(cause=find_cause(data))
        ),
        "Restarting": _describe_restart(data),
        "Interrupted": tr("Interrupted {after}: {cause}").format(after=after, cause=reason),
        "Waiting": tr("Waiting · {reason}").format(reason=reason),
        "Fetching": tr("Fetching · {progress}").format(progress=_describe_download(data)),
        "Starting": tr("Starting · {detail}").format(detail=data.phase_detail or tr("waiting for the workers")),
    }
    return texts.get(label) or _describe_progress(data, epochs)


def _compute_fetched_fraction(data: RunData) -> float | None:
    """Return the downloaded fraction of the weights, or None if unknown."""
    latest = data.fetching[-1] if data.fetching else None
    return latest.done_bytes / latest.total_bytes if latest is not None and latest.total_bytes else None


def _describe_download(data: RunData) -> str:
    """Describe the download, as in "the pretrained weights timm/resnet50 from huggingface.co, 12.0 MiB of 97.8 MiB"."""
    if not data.fetching:
        return data.phase_detail
    latest = data.fetching[-1]
    done = size(latest.done_bytes)
    if latest.total_bytes:
        done = tr("{done} of {total}").format(done=done, total=size(latest.total_bytes))
    return f"{data.phase_detail}, {done}"


def _describe_restart(data: RunData) -> str:
    """Return the status line of a restart, with the attempt and its cause."""
    event = data.restarting
    if event is None:
        return ""
    return tr("Restarting · {attempt}, after: {cause}").format(
        attempt=describe_attempt(event), cause=first_sentence(event.cause)
    )


def _describe_progress(data: RunData, epochs: int | None) -> str:
    """Describe the progress of a running run: its epoch and phase, or what it does before the first epoch."""
    doing = {
        "preparing": tr("preparing the data and the model, and measuring which settings are fastest"),
        "validating": tr("validating"),
        "saving": tr("retrying to save the last state") if data.unsaved else tr("saving a checkpoint"),
    }.get(data.phase or "")
    if data.epoch and epochs:
        position = tr("epoch {epoch} of {epochs}").format(epoch=data.epoch, epochs=epochs)
        if doing:
            return tr("Running · {position}, {doing}").format(position=position, doing=doing)
        return tr("Running · {position}").format(position=position)
    return tr("Running · {detail}").format(detail=data.phase_detail or doing or tr("waiting for the first step"))


def find_cause(data: RunData) -> str:
    """Return the cause of a failure in one line."""
    # The supervisor compares the failures of all ranks. Until then, show that of the first rank.
    if data.finished is not None and data.finished.cause:
        return data.finished.cause
    if data.failure is not None:
        return data.failure.cause
    return tr("unknown cause; see the log")


def first_sentence(text: str) -> str:
    """Return the first sentence of `text` without its period."""
    return text.split(". ", 1)[0].rstrip(".")


def _describe_devices(data: RunData) -> str:
    """Return a clause that says if the devices of an ended run are free."""
    if data.devices_free is not None and not data.devices_free.verified:
        return tr("the workers have exited")
    return tr("devices are free")


def _describe_best_metric(data: RunData) -> str:
    """Return the best value of the first metric as the end of a status line, or "" if there is none."""
    best = data.finished.best if data.finished is not None else {}
    task = data.started.job.task if data.started is not None else ""
    first = next(iter(best), "")
    if not first:
        return ""
    return " · " + tr("best {metric}").format(metric=format_short_measure(task, first, best[first]))


def _estimate_seconds_left(data: RunData, step: int | None, total: int | None) -> float | None:
    """Estimate the seconds left from the speed since the workers last started, or return None while it is unknown.

    The speed includes validations and checkpoints, but not the first step, which includes the warm-up.
    """
    times = data.steps.seconds.values[data.current_attempt_start :]
    if step is None or not total or len(times) < 2:
        return None
    first_step = data.steps.step.values[data.current_attempt_start]
    if step <= first_step:  # two logged times of the same step give no speed
        return None
    seconds_per_step = (times[-1] - times[0]) / (step - first_step)
    return float(seconds_per_step * (total - step))
