"""CSV tables of an evaluation."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from gui.run.classes.table import class_names, format_number
from gui.run.model.evaluation_format import format_classes, list_metrics
from gui.sources.evaluations import OpenedEvaluation


@dataclass(frozen=True)
class MetricsCsv:
    """Metrics with their intervals: fractions from 0 to 1, empty without an interval."""

    opened: OpenedEvaluation

    def lines(self) -> Iterator[list[str]]:
        yield ["metric", "value", "low", "high"]
        for entry, each in list_metrics(self.opened.evaluation):
            yield [entry.title, *map(format_number, (each.value, each.low, each.high))]


@dataclass(frozen=True)
class ClassesCsv:
    """Metrics of each class with their intervals."""

    opened: OpenedEvaluation

    def lines(self) -> Iterator[list[str]]:
        columns = self.opened.evaluation.per_class
        yield ["class", *(f"{title}{end}" for title in columns for end in ("", " low", " high"))]
        for number, name in enumerate(self.opened.evaluation.classes):
            cells = [name]
            for values in columns.values():
                each = values[number] if number < len(values) else None
                cells += ["", "", ""] if each is None else [*map(format_number, (each.value, each.low, each.high))]
            yield cells


@dataclass(frozen=True)
class MatrixCsv:
    """Confusion matrix: a row per true class, a column per predicted class."""

    opened: OpenedEvaluation

    def lines(self) -> Iterator[list[str]]:
        counts = self.opened.evaluation.confusion
        names = class_names(self.opened.evaluation.classes, len(counts))
        yield ["true class", *names]
        for name, row in zip(names, counts, strict=True):
            yield [name, *map(str, row)]


@dataclass(frozen=True)
class SamplesCsv:
    """Samples in the order of the split."""

    opened: OpenedEvaluation

    def lines(self) -> Iterator[list[str]]:
        samples, classes = self.opened.samples, self.opened.evaluation.classes
        yield ["path", "split", "true", "predicted", "confidence", "correct", "loss"]
        for row, path in enumerate(samples.paths):
            named = (format_classes(classes, of[row], "") if of else "" for of in (samples.true, samples.predicted))
            numbers = (samples.confidence, samples.correct, samples.losses)
            values = (None if column is None else float(column[row]) for column in numbers)
            yield [path, samples.splits[row], *named, *map(format_number, values)]
