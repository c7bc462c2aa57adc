"""A run's state in plain words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from engine.contract.runs import State
from gui.run.data import RunData

StatusWord = Literal[
    "Idle", "Checking", "Starting", "Running", "Stopping", "Completed", "Stopped", "Failed", "Interrupted"
]


@dataclass(frozen=True)
class RunStatus:
    """`text` begins with `word`. `fraction` is 0 to 1; what is not known is None.

    `devices_free` is true once the workers are gone, false while they may hold devices, None where no run is open.
    """

    word: StatusWord = "Idle"
    text: str = "Idle"
    epoch: int | None = None
    epochs: int | None = None
    step: int | None = None
    steps: int | None = None
    fraction: float | None = None
    seconds_left: float | None = None
    images_per_second: float | None = None
    devices_free: bool | None = None

    @property
    def active(self) -> bool:
        """Whether a run is going on."""
        return self.word in ("Starting", "Running", "Stopping")


def status_of(data: RunData, state: State, stopping: bool) -> RunStatus:
    """What to say of a run in `state` that has said `data`; `stopping` once it has been asked to stop."""
    word = _word(data, state, stopping)
    steps = data.steps
    step = int(steps.step.last) if len(steps.step) else None
    total = data.plan.epochs * data.plan.steps_per_epoch if data.plan is not None else None
    fraction = min(1.0, step / total) if step is not None and total else None
    if word == "Completed":
        fraction = 1.0
    epochs = data.plan.epochs if data.plan is not None else None
    if epochs is None and data.started is not None:
        epochs = data.started.job.epochs
    speed = steps.images_per_second.last if word in ("Running", "Stopping") and len(steps.step) else None
    return RunStatus(
        word=word,
        text=_text(word, data, step, epochs),
        epoch=data.epoch or None,
        epochs=epochs,
        step=step,
        steps=total,
        fraction=fraction,
        seconds_left=_seconds_left(data, step, total) if word == "Running" else None,
        images_per_second=speed,
        devices_free=data.devices_free is not None or word in ("Completed", "Stopped", "Failed", "Interrupted"),
    )


def _word(data: RunData, state: State, stopping: bool) -> StatusWord:
    ended: dict[State, StatusWord] = {
        "completed": "Completed",
        "stopped": "Stopped",
        "failed": "Failed",
        "interrupted": "Interrupted",
    }
    if state in ended:
        return ended[state]
    if stopping or data.stop_asked or data.phase == "stopping" or data.failure is not None:
        return "Stopping"
    if state == "starting" or (data.phase in (None, "starting") and not data.epoch):
        return "Starting"
    return "Running"


def _text(word: StatusWord, data: RunData, step: int | None, epochs: int | None) -> str:
    after = f"after {_plural(step, 'step')}" if step is not None else "before the first step"
    texts = {
        "Completed": "Completed" + (f" · {_plural(epochs, 'epoch')}" if epochs else "") + _best(data),
        "Stopped": f"Stopped {after} · {_free(data)}",
        "Failed": f"Failed: {cause_of(data)}",
        "Interrupted": f"Interrupted {after}: the run's process ended without a word",
        "Stopping": (
            f"Stopping {after} · waiting for the workers to end"
            if data.failure is None
            else f"Stopping: {cause_of(data)}"
        ),
        "Starting": f"Starting · {data.phase_detail or 'waiting for the workers'}",
    }
    return texts.get(word) or _running(data, epochs)


def _running(data: RunData, epochs: int | None) -> str:
    doing = {
        "preparing": "preparing the data and the model",
        "validating": "validating",
        "saving": "saving a checkpoint",
    }.get(data.phase or "")
    if data.epoch and epochs:
        place = f"epoch {data.epoch} of {epochs}"
        return f"Running · {place}, {doing}" if doing else f"Running · {place}"
    return f"Running · {data.phase_detail or doing or 'waiting for the first step'}"


def cause_of(data: RunData) -> str:
    """Why the run failed, in one line."""
    # The supervisor weighs what all ranks said; until it has, the first to fail is taken at its word.
    if data.finished is not None and data.finished.cause:
        return data.finished.cause
    if data.failure is not None:
        return data.failure.cause
    return "no cause was given; see the log"


def _free(data: RunData) -> str:
    if data.devices_free is not None and not data.devices_free.verified:
        return "the workers are gone"
    return "devices are free"


def _plural(count: int, noun: str) -> str:
    return f"{count:,} {noun}" + ("" if count == 1 else "s")


def _best(data: RunData) -> str:
    best = data.finished.best if data.finished is not None else {}
    return f" · best top-1 {100 * best['top1']:.1f} %" if "top1" in best else ""


def _seconds_left(data: RunData, step: int | None, total: int | None) -> float | None:
    """From how long the steps so far took, validations and checkpoints included; the first is left out,
    since it carries the warming up."""
    times = data.steps.seconds.values
    if step is None or not total or len(times) < 2:
        return None
    first = data.steps.step.values[0]
    if step <= first:
        return None
    return float((times[-1] - times[0]) / (step - first) * (total - step))
