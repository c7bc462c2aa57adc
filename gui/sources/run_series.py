"""A run's figures as columns that plots can show as they are.

A run that goes back to a checkpoint makes the steps after it again. What was told of them before is cut off, so that
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
    """A column for each figure of the training steps, all of one length.

    `seconds` are the run's own (see `RunData`); `data_wait_s` and `compute_s` are seconds per step.
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
    def told_accuracy(self) -> bool:
        """Whether any of them has an accuracy: not every task and strategy has one."""
        return bool(np.isfinite(self.accuracy.values).any())

    def extend(self, events: Sequence[StepMetrics], origin: float) -> None:
        """Adds steps in order; `origin` is where their seconds count from, in seconds since the epoch."""
        self.seconds.extend(_floats(events, "time") - origin)
        for name in _STEP_FIGURES:
            column: Column = getattr(self, name)
            column.extend(_floats(events, name))

    def cut(self, step: int) -> bool:
        """Keeps what was told up to `step`; False where that is all there is."""
        return _cut(self.step, step, (self.seconds, *(getattr(self, name) for name in _STEP_FIGURES)))


_STEP_FIGURES = ("step", "loss", "accuracy", "learning_rate", "images_per_second", "data_wait_s", "compute_s")


class Validations:
    """When the validation set was gone through, and a column for each measure, by its id."""

    def __init__(self) -> None:
        self.seconds = Column(16)
        self.step = Column(16)
        self.epoch = Column(16)
        self.measures: dict[str, Column] = {}

    def append(self, seconds: float, event: Validation) -> None:
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
        """As in `Steps`."""
        return _cut(self.step, step, (self.seconds, self.epoch, self.step, *self.measures.values()))


@dataclass(frozen=True)
class ClassFigures:
    """What one validation found of each class: by title a share for each, NaN for a class that does not occur, and
    how often each true class (a row) was found as each (a column), int64, None where that was not told. `intervals`
    are, by title, the ends of a 95 % interval of each share, [n, 2], where there are such.
    """

    epoch: int
    step: int
    measures: dict[str, Floats]
    confusion: npt.NDArray[np.int64] | None
    intervals: dict[str, Floats] = field(default_factory=dict)


class Looks:
    """What validations told besides their measures, in the order of their steps: figures of each class and
    predictions.
    """

    def __init__(self) -> None:
        self.classes: list[ClassFigures] = []
        self.predicted: list[Predicted] = []

    def add_classes(self, event: ClassMeasures) -> None:
        """Arrays take a fraction of what tuples of as many numbers take, of which a long run has many."""
        _cut_after(self.classes, event.step - 1)
        measures: dict[str, Floats] = {title: np.array(values, np.float64) for title, values in event.measures.items()}
        width = max(map(len, event.confusion), default=0)
        square = width > 0 and all(len(row) == width for row in event.confusion)
        confusion = np.array(event.confusion, np.int64) if square else None
        self.classes.append(ClassFigures(event.epoch, event.step, measures, confusion))

    def add_predicted(self, event: Predicted) -> None:
        _cut_after(self.predicted, event.step - 1)
        self.predicted.append(event)

    def cut(self, step: int) -> bool:
        """As in `Steps`."""
        return any([_cut_after(self.classes, step), _cut_after(self.predicted, step)])


class DeviceColumns:
    """A run's samples of one device; `step` is the training step at the time."""

    def __init__(self) -> None:
        self.seconds = Column()
        self.step = Column()
        self.utilization_percent = Column()
        self.memory_used_bytes = Column()
        self.power_w = Column()
        self.temperature_c = Column()
        self.memory_total_bytes: int | None = None

    def extend(self, told: Sequence[tuple[float, float, DeviceSample]]) -> None:
        """Adds samples in order, each with its seconds and step."""
        seconds, steps, samples = zip(*told, strict=True)
        self.seconds.extend(seconds)
        self.step.extend(steps)
        for name in _SAMPLE_FIGURES:
            column: Column = getattr(self, name)
            column.extend(_floats(samples, name))
        totals = (sample.memory_total_bytes for sample in reversed(samples))
        self.memory_total_bytes = next(filter(None, totals), self.memory_total_bytes)

    def go_back(self, step: int) -> None:
        """Training goes back to `step`. What the device did for the steps after it stays true over time; over steps
        it is laid at `step`.
        """
        np.minimum(self.step.values, step, out=self.step.values)


_SAMPLE_FIGURES = ("utilization_percent", "memory_used_bytes", "power_w", "temperature_c")


def _cut(steps: Column, step: int, columns: Sequence[Column]) -> bool:
    kept = int(np.searchsorted(steps.values, step, side="right"))
    if kept == len(steps):
        return False
    for column in columns:
        column.shorten(kept)
    return True


def _cut_after(entries: list[ClassFigures] | list[Predicted], step: int) -> bool:
    """Drops those after `step` from the end; False where there are none. A validation may be told of twice."""
    before = len(entries)
    while entries and entries[-1].step > step:
        entries.pop()
    return len(entries) != before


def _floats(all_of_them: Sequence[StepMetrics | DeviceSample], name: str) -> Floats:
    """One field of all of them, NaN for None."""
    return np.array(list(map(attrgetter(name), all_of_them)), np.float64)
