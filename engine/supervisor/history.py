"""What a run has told of its epochs, over all of its executions. Torch-free."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from engine.contract.events import AnyEvent, ClassMeasures, Planned, StepMetrics, Validation


@dataclass
class Epoch:
    """One epoch: the means of its training steps, and its validation's measures; None and empty where not told."""

    step: int = 0
    """The last one made."""
    measures: dict[str, float] = field(default_factory=dict)
    _steps: int = 0
    _loss: float = 0.0
    _judged: int = 0
    _right: float = 0.0

    @property
    def loss(self) -> float | None:
        return self._loss if self._steps else None

    @property
    def accuracy(self) -> float | None:
        """The share of training samples right, 0 to 1."""
        return self._right / self._judged if self._judged else None

    def add(self, metrics: StepMetrics, steps: int) -> None:
        """Takes in the means of so many steps."""
        self.step = metrics.step
        if not math.isfinite(metrics.loss):
            return
        self._steps += steps
        share = steps / self._steps
        self._loss = (1 - share) * self._loss + share * metrics.loss  # a sum of huge losses would overflow
        if metrics.accuracy is not None:
            self._judged += steps
            self._right += steps * metrics.accuracy


class History:
    """The epochs of a run by their numbers, its classes, and what the last validation found of each of them.

    `take` is given the run's events in order. What a run that went back to a checkpoint makes again counts once.
    """

    def __init__(self) -> None:
        self.epochs: dict[int, Epoch] = {}
        self.classes: tuple[str, ...] = ()
        self.val_samples = 0
        self.of_classes: ClassMeasures | None = None
        self._step = 0

    def take(self, event: AnyEvent) -> None:
        """Notes what is told of epochs and classes; all else is passed over."""
        match event:
            case Planned():
                self.classes, self.val_samples, self._step = event.classes, event.val_images, event.from_step
                self.epochs = {number: epoch for number, epoch in self.epochs.items() if epoch.step <= event.from_step}
                if self.of_classes is not None and self.of_classes.step > event.from_step:
                    self.of_classes = None
            case StepMetrics():
                self._at(event.epoch).add(event, max(1, event.step - self._step))
                self._step = event.step
            case Validation():
                epoch = self._at(event.epoch)
                epoch.step, epoch.measures = max(epoch.step, event.step), event.measures
            case ClassMeasures():
                self.of_classes = event

    def _at(self, number: int) -> Epoch:
        return self.epochs.setdefault(number, Epoch())
