"""CSV tables of a comparison."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from gui.compare.compared_run import ComparedRun
from gui.compare.comparison import Row, measures
from gui.sources.columns import Floats
from gui.sources.run_data import Steps, Validations
from gui.translation import tr

STEP_FIGURES = ("loss", "accuracy", "learning_rate", "images_per_second", "data_wait_s", "compute_s")
_DIGITS = 9


@dataclass(frozen=True)
class CurvesTable:
    """Curves of the runs: a row per logged step and per validation, at full rate.

    Unknown values are empty; `epoch` is a fraction that starts at 0.
    """

    runs: tuple[ComparedRun, ...]

    def lines(self) -> Iterator[list[str]]:
        names = measures(self.runs)
        yield ["run", "name", "step", "epoch", "time_s", *STEP_FIGURES, *(f"validation_{name}" for name in names)]
        for run in self.runs:
            head = [run.summary.run_id, run.summary.name]
            steps, validations = run.data.steps, run.data.validations
            figures = [getattr(steps, name).values for name in STEP_FIGURES]
            for position, values in _points(run, steps, figures):
                yield [*head, *position, *values, *("" for _ in names)]
            unknown = [float("nan")] * len(validations.step)
            figures = [
                column.values if (column := validations.measures.get(name)) is not None else unknown for name in names
            ]
            for position, values in _points(run, validations, figures):
                yield [*head, *position, *("" for _ in STEP_FIGURES), *values]


@dataclass(frozen=True)
class RowsTable:
    """Comparison table: a row per figure or field, a column per run."""

    runs: tuple[ComparedRun, ...]
    rows: tuple[Row, ...]

    def lines(self) -> Iterator[list[str]]:
        yield ["", *(run.summary.run_id for run in self.runs)]
        yield [tr("Name"), *(run.summary.name for run in self.runs)]
        for row in self.rows:
            if not row.heading:
                yield [row.title, *row.texts]


class _Point(NamedTuple):
    position: list[str]
    values: list[str]


def _points(
    run: ComparedRun, values_of: Steps | Validations, figures: Sequence[Floats | list[float]]
) -> Iterator[_Point]:
    epochs = run.x(values_of, "epoch")
    positions = (
        values_of.step.values,
        epochs if len(epochs) else [float("nan")] * len(values_of.step),
        values_of.seconds.values,
    )
    for cells, *values in zip(zip(*positions, strict=True), *figures, strict=True):
        yield _Point([_format(value) for value in cells], [_format(value) for value in values])


def _format(value: float) -> str:
    """Format a number; "" for NaN."""
    return "" if math.isnan(value) else f"{value:.{_DIGITS}g}"
