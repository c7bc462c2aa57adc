"""Compared run with its figures."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from engine.contract.job import Job
from engine.runs.folder import RunSummary
from gui.sources.columns import Floats
from gui.sources.run_data import RunData
from gui.sources.run_series import Steps, Validations
from gui.titles import run_title

Over = Literal["step", "epoch", "time"]

GAP_S = 10.0
"""Longest gap between two samples, in seconds, that counts as running; samples are one second apart."""

_JOULES_PER_WH = 3600.0


@dataclass(frozen=True)
class ComparedRun:
    """Compared run.

    Attributes:
        series: Index among the compared runs, which decides the color.
        summary: Summary of the run.
        job: Its job, None if the file is unreadable.
        data: Its logged data.
    """

    series: int
    summary: RunSummary
    job: Job | None
    data: RunData

    @property
    def number(self) -> str:
        """Short label where the name does not fit."""
        return str(self.series + 1)

    @property
    def title(self) -> str:
        return f"{self.number} · {run_title(self.summary)}"

    def x(self, values_of: Steps | Validations, over: Over) -> Floats:
        """Return the x values: steps, epochs (with fractions) or seconds; empty if unknown."""
        if over == "time":
            return values_of.seconds.values
        if over == "step":
            return values_of.step.values
        plan = self.data.plan
        return (
            values_of.step.values / plan.steps_per_epoch if plan is not None and plan.steps_per_epoch else np.empty(0)
        )

    def best(self, measure: str) -> tuple[float, int] | None:
        """Return the best value of a metric and its epoch, None without validations."""
        column = self.data.validations.measures.get(measure)
        if column is None or not np.isfinite(column.values).any():
            return None
        known = self.data.find_measure(measure)
        is_higher_better = known is not None and known.higher_is_better
        index = int(np.nanargmax(column.values) if is_higher_better else np.nanargmin(column.values))
        return float(column.values[index]), int(self.data.validations.epoch.values[index])

    @property
    def images_per_second(self) -> float | None:
        """Median speed; the first value includes warm-up and counts only if it is the only one."""
        rates = self.data.steps.images_per_second.values
        rates = rates[1:] if len(rates) > 1 else rates
        rates = rates[np.isfinite(rates)]
        return float(np.median(rates)) if len(rates) else None

    @property
    def energy_wh(self) -> float | None:
        """Energy of the devices while they were sampled, in watt-hours; None if no device reports power.

        Trapezoidal integral of power without gaps longer than `GAP_S`.
        """
        parts = [_joules(each.seconds.values, each.power_w.values) for each in self.data.devices.values()]
        known = [part for part in parts if part is not None]
        return sum(known) / _JOULES_PER_WH if known else None


def _joules(seconds: Floats, power_w: Floats) -> float | None:
    is_known = np.isfinite(power_w)
    if is_known.sum() < 2:
        return None
    seconds, power_w = seconds[is_known], power_w[is_known]
    lengths = np.diff(seconds)
    middles = (power_w[1:] + power_w[:-1]) / 2
    return float(np.sum(np.where(lengths <= GAP_S, lengths * middles, 0.0)))
