"""One of several runs that are compared: all that it said, and its figures."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from engine.contract.job import Job
from engine.runs.folder import RunSummary
from engine.runs.metrics import find_measure
from gui.sources.columns import Floats
from gui.sources.run_data import RunData
from gui.sources.run_series import Steps, Validations
from gui.titles import run_title

Over = Literal["step", "epoch", "time"]

GAP_S = 10.0
"""Samples come once a second; where two are farther apart the run stood still, or nobody looked, between them."""

_JOULES_PER_WH = 3600.0


@dataclass(frozen=True)
class ComparedRun:
    """`series` counts from 0 and decides the run's colour; `job` is None where its file cannot be read."""

    series: int
    summary: RunSummary
    job: Job | None
    data: RunData

    @property
    def number(self) -> str:
        """A short label for where the name does not fit."""
        return str(self.series + 1)

    @property
    def title(self) -> str:
        return f"{self.number} · {run_title(self.summary)}"

    def x(self, of: Steps | Validations, over: Over) -> Floats:
        """Where its points lie: steps, epochs (with fractions), or seconds since its start. Empty where not known."""
        if over == "time":
            return of.seconds.values
        if over == "step":
            return of.step.values
        plan = self.data.plan
        return of.step.values / plan.steps_per_epoch if plan is not None and plan.steps_per_epoch else np.empty(0)

    def best(self, measure: str) -> tuple[float, int] | None:
        """The best value of all its validations and the epoch that it was in, None without any."""
        column = self.data.validations.measures.get(measure)
        if column is None or not np.isfinite(column.values).any():
            return None
        known = find_measure(self.job.task if self.job is not None else "", measure)
        higher = known is not None and known.higher_is_better
        index = int(np.nanargmax(column.values) if higher else np.nanargmin(column.values))
        return float(column.values[index]), int(self.data.validations.epoch.values[index])

    @property
    def images_per_second(self) -> float | None:
        """The median over what was logged; the first, which carries the warming up, counts only where it is alone."""
        told = self.data.steps.images_per_second.values
        told = told[1:] if len(told) > 1 else told
        told = told[np.isfinite(told)]
        return float(np.median(told)) if len(told) else None

    @property
    def energy_wh(self) -> float | None:
        """What its devices used while they were sampled, in watt-hours: the integral of their power by the trapezoid
        rule, without gaps of more than `GAP_S`. None where no device told its power.
        """
        parts = [_joules(each.seconds.values, each.power_w.values) for each in self.data.devices.values()]
        told = [part for part in parts if part is not None]
        return sum(told) / _JOULES_PER_WH if told else None


def _joules(seconds: Floats, power_w: Floats) -> float | None:
    told = np.isfinite(power_w)
    if told.sum() < 2:
        return None
    seconds, power_w = seconds[told], power_w[told]
    lengths = np.diff(seconds)
    middles = (power_w[1:] + power_w[:-1]) / 2
    return float(np.sum(np.where(lengths <= GAP_S, lengths * middles, 0.0)))
