"""An evaluation as CSV: its measures, and its samples."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from gui.run.classes.table import class_names
from gui.run.model.words import class_words, measures_of
from gui.sources.evaluations import OpenedEvaluation


@dataclass(frozen=True)
class MetricsCsv:
    """The measures with their intervals: shares from 0 to 1, empty where there is no interval."""

    opened: OpenedEvaluation

    def lines(self) -> Iterator[list[str]]:
        yield ["metric", "value", "low", "high"]
        for entry, each in measures_of(self.opened.evaluation):
            yield [entry.title, *map(_written, (each.value, each.low, each.high))]


@dataclass(frozen=True)
class ClassesCsv:
    """The measures of each class with their intervals."""

    opened: OpenedEvaluation

    def lines(self) -> Iterator[list[str]]:
        columns = self.opened.evaluation.per_class
        yield ["class", *(f"{title}{end}" for title in columns for end in ("", " low", " high"))]
        for number, name in enumerate(self.opened.evaluation.classes):
            cells = [name]
            for values in columns.values():
                each = values[number] if number < len(values) else None
                cells += ["", "", ""] if each is None else [*map(_written, (each.value, each.low, each.high))]
            yield cells


@dataclass(frozen=True)
class MatrixCsv:
    """The confusion matrix: a line for each true class, a column for each class found."""

    opened: OpenedEvaluation

    def lines(self) -> Iterator[list[str]]:
        counts = self.opened.evaluation.confusion
        names = class_names(self.opened.evaluation.classes, len(counts))
        yield ["true class", *names]
        for name, row in zip(names, counts, strict=True):
            yield [name, *map(str, row)]


@dataclass(frozen=True)
class SamplesCsv:
    """A line for each sample, in the order of the split."""

    opened: OpenedEvaluation

    def lines(self) -> Iterator[list[str]]:
        samples, classes = self.opened.samples, self.opened.evaluation.classes
        yield ["path", "split", "true", "predicted", "confidence", "correct", "loss"]
        for row, path in enumerate(samples.paths):
            named = (class_words(classes, of[row], "") if of else "" for of in (samples.true, samples.predicted))
            numbers = (samples.confidence, samples.correct, samples.losses)
            told = (None if column is None else float(column[row]) for column in numbers)
            yield [path, samples.splits[row], *named, *map(_written, told)]


def _written(value: float | None) -> str:
    return "" if value is None or math.isnan(value) else f"{value:.9g}"
