"""Logged numbers of a run, in columns that plots use without copying.

A run that returns to a checkpoint repeats the steps after it. The earlier values for these steps are removed, so that
`step` always rises.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from operator import attrgetter

import numpy as np
import numpy.typing as npt

from engine.contract.devices import DeviceSample
from engine.contract.events import ClassMeasures, Predicted, StepMetrics, Validation
from gui.sources.columns import Column, Floats


class Steps:
    """Values of the training steps, in columns of equal length.

    `seconds` is in the run's time (see `RunData`). `data_wait_s` and `compute_s` are in seconds per step.
    """

    def __init__(self) -> None:
        self.seconds = Column()
        self.step = Column()
        self.loss = Column()
        self.accuracy = Column()
        self.learning_rate = Column()
        self.images_per_second = Column()
        self.data_wait_s = Column()
        self.compute_s = Column()

    @property
    def has_accuracy(self) -> bool:
        """True if any step has an accuracy. Some tasks and strategies have none."""
        return bool(np.isfinite(self.accuracy.values).any())

    def extend(self, events: Sequence[StepMetrics], origin: float) -> None:
        """Append steps in order. `origin` is the start of the run's time in seconds since the epoch."""
        self.seconds.extend(_make_float_array(events, "time") - origin)
        for name in _STEP_FIELDS:
            column: Column = getattr(self, name)
            column.extend(_make_float_array(events, name))

    def cut(self, step: int) -> bool:
        """Remove all values after `step`. Return False if there are none."""
        return _cut(self.step, step, (self.seconds, *(getattr(self, name) for name in _STEP_FIELDS)))


_STEP_FIELDS = ("step", "loss", "accuracy", "learning_rate", "images_per_second", "data_wait_s", "compute_s")


class Validations:
    """Times of the validations, and a column for each metric, by its id."""

    def __init__(self) -> None:
        self.seconds = Column(16)
        self.step = Column(16)
        self.epoch = Column(16)
        self.measures: dict[str, Column] = {}

    def append(self, seconds: float, event: Validation) -> None:
        """Append a validation. Metrics that are missing, also in earlier validations, are NaN."""
        for name in event.measures:
            if name not in self.measures:
                self.measures[name] = Column(16)
                self.measures[name].extend([float("nan")] * len(self.seconds))
        self.seconds.append(seconds)
        self.step.append(event.step)
        self.epoch.append(event.epoch)
        for name, column in self.measures.items():
            column.append(event.measures.get(name))

    def cut(self, step: int) -> bool:
        """Remove all validations after `step`. Return False if there are none."""
        return _cut(self.step, step, (self.seconds, self.epoch, self.step, *self.measures.values()))


@dataclass(frozen=True)
class ClassMetrics:
    """Metrics of each class in a validation.

    Attributes:
        measures: Values of all classes as fractions, by the metric's title. The value of a class that doesn't
            occur is NaN.
        confusion: Counts by true class (row) and predicted class (column), int64, or None if not logged.
        intervals: Limits of the 95% confidence interval of each value, [n, 2], by the metric's title.
    """

    epoch: int
    step: int
    measures: dict[str, Floats]
    confusion: npt.NDArray[np.int64] | None
    intervals: dict[str, Floats] = field(default_factory=dict)


class ValidationDetails:
    """Class metrics and predictions of the validations, in the order of their steps."""

    def __init__(self) -> None:
        self.classes: list[ClassMetrics] = []
        self.predicted: list[Predicted] = []

    def add_classes(self, event: ClassMeasures) -> None:
        """Append class metrics as arrays, which need far less memory than tuples."""
        _cut_after(self.classes, event.step - 1)  # a validation may be logged twice
        measures: dict[str, Floats] = {title: np.array(values, np.float64) for title, values in event.measures.items()}
        width = max(map(len, event.confusion), default=0)
        is_rectangular = width > 0 and all(len(row) == width for row in event.confusion)
        confusion = np.array(event.confusion, np.int64) if is_rectangular else None
        self.classes.append(ClassMetrics(event.epoch, event.step, measures, confusion))

    def add_predicted(self, event: Predicted) -> None:
        """Append predictions. They replace those of the same step."""
        _cut_after(self.predicted, event.step - 1)
        self.predicted.append(event)

    def cut(self, step: int) -> bool:
        """Remove all details after `step`. Return False if there are none."""
        # A list, since both must be cut.
        return any([_cut_after(self.classes, step), _cut_after(self.predicted, step)])


class DeviceColumns:
    """Samples of a device. `step` is the training step at the time of each sample."""

    def __init__(self) -> None:
        self.seconds = Column()
        self.step = Column()
        self.utilization_percent = Column()
        self.memory_used_bytes = Column()
        self.power_w = Column()
        self.temperature_c = Column()

    def extend(self, samples: Sequence[tuple[float, float, DeviceSample]]) -> None:
        """Append one or more samples in chronological order, each with its time and step."""
        seconds, steps, device_samples = zip(*samples, strict=True)
        self.seconds.extend(seconds)
        self.step.extend(steps)
        for name in _SAMPLE_FIELDS:
            column: Column = getattr(self, name)
            column.extend(_make_float_array(device_samples, name))

    def return_to_step(self, step: int) -> None:
        """Assign the samples after `step` to `step`, because training returns to it. Their times don't change."""
        np.minimum(self.step.values, step, out=self.step.values)


_SAMPLE_FIELDS = ("utilization_percent", "memory_used_bytes", "power_w", "temperature_c")


def _cut(steps: Column, step: int, columns: Sequence[Column]) -> bool:
    """Remove the values after `step` from all `columns`, whose steps are `steps`. Return False if there are none."""
    remaining = int(np.searchsorted(steps.values, step, side="right"))
    if remaining == len(steps):
        return False
    for column in columns:
        column.shorten(remaining)
    return True


def _cut_after(entries: list[ClassMetrics] | list[Predicted], step: int) -> bool:
    """Remove all entries after `step`. Return False if there are none."""
    previous_length = len(entries)
    while entries and entries[-1].step > step:
        entries.pop()
    return len(entries) != previous_length


def _make_float_array(entries: Sequence[StepMetrics | DeviceSample], name: str) -> Floats:
    """Return a field of all entries as an array, with NaN for None."""
    return np.array(list(map(attrgetter(name), entries)), np.float64)
