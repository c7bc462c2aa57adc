"""A search ready to be drawn: the parameters and results of its trials in arrays, made on a worker thread."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np

from engine.contract.catalogue import load_catalogue
from engine.contract.job import FIELDS
from engine.contract.search import OPTION, Choices, Dimension, Goal, Search, SearchState, Status, TrialRow
from engine.runs.searches import SearchFolder
from engine.system.format import NOT_KNOWN, duration
from gui.format import localised, significant
from gui.sources.columns import Floats
from gui.titles import CHOICES, model_title, strategy_title


@dataclass(frozen=True)
class Axis:
    """Axis of a searched field.

    Positions are the values, their decimal logarithms if `log`, or indices in `choices`.
    """

    name: str
    label: str
    low: float
    high: float
    log: bool = False
    choices: tuple[Any, ...] = ()

    def position(self, value: Any) -> float:
        """Return the position of a value, NaN if it has none."""
        if self.choices:
            return float(self.choices.index(value)) if value in self.choices else math.nan
        if not isinstance(value, int | float) or (self.log and value <= 0):
            return math.nan
        return math.log10(value) if self.log else float(value)

    def ticks(self) -> list[tuple[float, str]]:
        """Return the ends, or all choices, with their titles."""
        if self.choices:
            return [(float(index), value_words(self.name, value)) for index, value in enumerate(self.choices)]
        ends = dict.fromkeys((self.low, self.high))
        return [(end, value_words(self.name, 10**end if self.log else end)) for end in ends]


@dataclass(frozen=True)
class Lines:
    """Concatenated curves, separated by NaN, to be drawn at once."""

    x: Floats
    y: Floats


@dataclass(frozen=True)
class SearchData:
    """One search with its `trials`, without repeats with other seeds.

    Attributes:
        positions: Parameters, [trials, axes], NaN if unknown.
        values: Results, [trials, goals], in the units of `shown`.
        pruned: Curves over epochs of trials that were stopped early or failed.
        others: Curves of the other trials.
    """

    folder: SearchFolder
    search: Search
    state: SearchState
    status: Status
    trials: tuple[TrialRow, ...]
    axes: tuple[Axis, ...]
    positions: Floats
    values: Floats
    pruned: Lines
    others: Lines

    @property
    def confirms(self) -> bool:
        """True if trials are, or were, repeated with other seeds."""
        return self.search.confirm > 0 or any(row.confirmed for row in self.trials)

    @property
    def best(self) -> TrialRow | None:
        """Best trial by the first goal, also if the front has several."""
        if self.state.best is not None or not self.state.front:
            return self.state.row(self.state.best)
        goal = self.search.goals[0]
        front = [row for row in self.trials if row.number in self.state.front and row.values[0] is not None]
        key = (lambda row: row.values[0]) if goal.higher_is_better else (lambda row: -row.values[0])
        return max(front, key=key, default=None)


def data_of(folder: SearchFolder, search: Search, state: SearchState, status: Status) -> SearchData:
    """Prepare a search for drawing."""
    axes = tuple(_axis(name, dimension) for name, dimension in search.space.items())
    rows, goals = state.originals, search.goals
    positions = np.array([[axis.position(row.params.get(axis.name)) for axis in axes] for row in rows], np.float64)
    scales = np.array([shown(goal, 1.0) for goal in goals])
    values = np.array([[math.nan if value is None else value for value in row.values] for row in rows], np.float64)
    ended_early = [row for row in rows if row.state in ("pruned", "failed")]
    others = [row for row in rows if row.state not in ("pruned", "failed")]
    return SearchData(
        folder,
        search,
        state,
        status,
        rows,
        axes,
        positions.reshape(len(rows), len(axes)),
        values.reshape(len(rows), len(goals)) * scales,
        lines_of(ended_early, goals[0]),
        lines_of(others, goals[0]),
    )


def lines_of(rows: Sequence[TrialRow], goal: Goal) -> Lines:
    """Return the goal's curves over epochs of the given trials."""
    x = np.fromiter(chain.from_iterable((*row.reported, math.nan) for row in rows), np.float64)
    y = np.fromiter(chain.from_iterable((*row.reported.values(), math.nan) for row in rows), np.float64)
    return Lines(x, y * shown(goal, 1.0))


def shown(goal: Goal, value: float) -> float:
    """Return a value in the unit of display: fractions in percent."""
    return 100 * value if goal.percent else value


def goal_words(goal: Goal, value: float | None) -> str:
    """Format a result such as "93.4 %", "0.2134", "3:12 min" or "11.2 M", a dash for None."""
    if value is None or math.isnan(value):
        return NOT_KNOWN
    if goal.percent:
        return f"{localised(100 * value, 1)} %"
    if goal.measure == "seconds":
        return duration(value)
    return f"{localised(value / 1e6, 2)} M" if goal.measure == "parameters" else significant(value, 4)


def field_label(name: str) -> str:
    """Return the label of a searched field."""
    if not name.startswith(OPTION):
        return FIELDS[name].label if name in FIELDS else name
    plain = name.removeprefix(OPTION)
    return next((field.label for _title, field in load_catalogue().options() if field.name == plain), plain)


def value_words(name: str, value: Any) -> str:
    """Return a field's value as the form shows it."""
    if value is None or value in ("", ()):
        return "none"
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, float):
        return significant(value, 3)
    if isinstance(value, str):
        return {"model": model_title, "strategy": strategy_title}.get(name, _choice_title)(value)
    return ", ".join(map(str, value)) if isinstance(value, tuple | list) else str(value)


def _choice_title(value: str) -> str:
    return CHOICES.get(value, value)


def _axis(name: str, dimension: Dimension) -> Axis:
    label = field_label(name)
    if isinstance(dimension, Choices):
        return Axis(name, label, 0.0, float(max(1, len(dimension.values) - 1)), choices=dimension.values)
    low, high = float(dimension.low), float(dimension.high)
    if dimension.log:
        low, high = math.log10(low), math.log10(high)
    return Axis(name, label, low, high, log=dimension.log)
