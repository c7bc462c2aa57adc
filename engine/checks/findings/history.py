"""Training history of a run, epoch by epoch, collected from its events."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path

from engine.contract.events import (
    AnyEvent,
    CheckpointSaved,
    ClassMeasures,
    Planned,
    RunFinished,
    StepMetrics,
    Validation,
)

_USUAL_CHECKPOINTS = ("checkpoints/best.pt", "checkpoints/last.pt")


@dataclass
class Epoch:
    """Mean loss and accuracy over the training steps of an epoch, and the metrics of its validation."""

    step: int = 0
    """Number of the last training step in the epoch."""
    measures: dict[str, float] = field(default_factory=dict)
    _loss_steps: int = 0
    _mean_loss: float = 0.0
    _accuracy_steps: int = 0
    _accuracy_sum: float = 0.0

    @property
    def loss(self) -> float | None:
        """Mean loss over the training steps of the epoch, or None if no finite loss was reported."""
        return self._mean_loss if self._loss_steps else None

    @property
    def accuracy(self) -> float | None:
        """Fraction of correctly classified training samples, or None if it was not measured."""
        return self._accuracy_sum / self._accuracy_steps if self._accuracy_steps else None

    def add(self, metrics: StepMetrics, steps: int) -> None:
        """Add `metrics`, the means over `steps` training steps. Ignore a loss that isn't finite.

        The accuracy is ignored together with the loss. The number of the last step is updated in any case.
        """
        self.step = metrics.step
        if not math.isfinite(metrics.loss):
            return
        self._loss_steps += steps
        weight = steps / self._loss_steps
        # A running mean, since the sum of huge losses would overflow.
        self._mean_loss = (1 - weight) * self._mean_loss + weight * metrics.loss
        if metrics.accuracy is not None:
            self._accuracy_steps += steps
            self._accuracy_sum += steps * metrics.accuracy


class History:
    """History of a run over all its executions: epochs, classes, metrics per class, best metrics and checkpoints.

    Steps that are repeated after resuming are counted once.
    """

    def __init__(self) -> None:
        self.epochs: dict[int, Epoch] = {}
        self.classes: tuple[str, ...] = ()
        self.val_samples = 0
        self.class_measures: ClassMeasures | None = None
        self.best: dict[str, float] = {}
        self.best_epoch: int | None = None
        self._checkpoints = dict.fromkeys(_USUAL_CHECKPOINTS)  # paths of saved checkpoints, as an ordered set
        self._step = 0  # last reported step

    def add(self, event: AnyEvent) -> None:
        """Add the next event of the run to the history, and ignore events of other kinds.

        `Planned` starts or resumes the training after a step, so it discards the results of later steps.
        """
        match event:
            case Planned():
                self.classes, self.val_samples, self._step = event.classes, event.val_images, event.from_step
                self.epochs = {number: epoch for number, epoch in self.epochs.items() if epoch.step <= event.from_step}
                if self.class_measures is not None and self.class_measures.step > event.from_step:
                    self.class_measures = None
            case StepMetrics():
                # The event has the means since the previous one. A damaged log may lack the plan between them.
                steps = max(1, event.step - self._step)
                self._get_or_add_epoch(event.epoch).add(event, steps)
                self._step = event.step
            case Validation():
                epoch = self._get_or_add_epoch(event.epoch)
                epoch.step, epoch.measures = max(epoch.step, event.step), event.measures
            case ClassMeasures():
                self.class_measures = event
            case CheckpointSaved():
                self._checkpoints[event.path] = None
                epoch_of_best = self.epochs.get(event.epoch) if event.kind == "best" else None
                if epoch_of_best is not None and epoch_of_best.measures:
                    self.best, self.best_epoch = epoch_of_best.measures, event.epoch
            case RunFinished():
                self.best, self.best_epoch = event.best, event.best_epoch

    def checkpoints(self, folder: Path) -> tuple[str, ...]:
        """Return the paths, relative to the run folder `folder`, of the run's checkpoints that still exist."""
        return tuple(path for path in self._checkpoints if (folder / path).exists())

    def _get_or_add_epoch(self, number: int) -> Epoch:
        return self.epochs.setdefault(number, Epoch())
