"""Exports of a comparison: CSV tables and an image."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from gui.compare.compared_run import ComparedRun
from gui.compare.comparison import Row, measures
from gui.sources.columns import Floats
from gui.sources.run_data import Steps, Validations

STEP_FIGURES = ("loss", "accuracy", "learning_rate", "images_per_second", "data_wait_s", "compute_s")
_DIGITS = 9


@dataclass(frozen=True)
class CurvesTable:
    """Every point of the runs' curves: a line for each logged step and each validation, at full rate. What is not known
    is empty; `epoch` counts from 0 at the start and has fractions.
    """

    runs: tuple[ComparedRun, ...]

    def lines(self) -> Iterator[list[str]]:
        told = measures(self.runs)
        yield ["run", "name", "step", "epoch", "time_s", *STEP_FIGURES, *(f"validation_{name}" for name in told)]
        for run in self.runs:
            head = [run.summary.run_id, run.summary.name]
            steps, validations = run.data.steps, run.data.validations
            figures = [getattr(steps, name).values for name in STEP_FIGURES]
            for where, values in _points(run, steps, figures):
                yield [*head, *where, *values, *("" for _ in told)]
            nothing = [float("nan")] * len(validations.step)
            figures = [
                column.values if (column := validations.measures.get(name)) is not None else nothing for name in told
            ]
            for where, values in _points(run, validations, figures):
                yield [*head, *where, *("" for _ in STEP_FIGURES), *values]


@dataclass(frozen=True)
class RowsTable:
    """The table: a line for each figure or field, a column for each run."""

    runs: tuple[ComparedRun, ...]
    rows: tuple[Row, ...]

    def lines(self) -> Iterator[list[str]]:
        yield ["", *(run.summary.run_id for run in self.runs)]
        yield ["Name", *(run.summary.name for run in self.runs)]
        for row in self.rows:
            if not row.heading:
                yield [row.title, *row.texts]


class _Point(NamedTuple):
    where: list[str]
    values: list[str]


def _points(run: ComparedRun, of: Steps | Validations, figures: Sequence[Floats | list[float]]) -> Iterator[_Point]:
    epochs = run.x(of, "epoch")
    where = (of.step.values, epochs if len(epochs) else [float("nan")] * len(of.step), of.seconds.values)
    for cells, *values in zip(zip(*where, strict=True), *figures, strict=True):
        yield _Point([_written(value) for value in cells], [_written(value) for value in values])


def _written(value: float) -> str:
    """A number as text, "" for NaN."""
    return "" if math.isnan(value) else f"{value:.{_DIGITS}g}"
