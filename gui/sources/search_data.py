"""A search as its page draws it: what its trials tried and reached, in arrays that are made away from the window's
thread.
"""

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
    """A searched field as an axis. Positions are the values themselves, their decimal logarithms where `log`, or the
    index in `choices` where these are given, by which they are titled.
    """

    name: str
    label: str
    low: float
    high: float
    log: bool = False
    choices: tuple[Any, ...] = ()

    def position(self, value: Any) -> float:
        """Where a value stands; NaN where nowhere."""
        if self.choices:
            return float(self.choices.index(value)) if value in self.choices else math.nan
        if not isinstance(value, int | float) or (self.log and value <= 0):
            return math.nan
        return math.log10(value) if self.log else float(value)

    def ticks(self) -> list[tuple[float, str]]:
        """The ends, or all choices, with their titles."""
        if self.choices:
            return [(float(index), value_words(self.name, value)) for index, value in enumerate(self.choices)]
        ends = dict.fromkeys((self.low, self.high))
        return [(end, value_words(self.name, 10**end if self.log else end)) for end in ends]


@dataclass(frozen=True)
class Lines:
    """Curves one after the other, each ended by NaN, so that they are drawn as one."""

    x: Floats
    y: Floats


@dataclass(frozen=True)
class SearchData:
    """One search with its own `trials`: repeats are no settings of their own, and stay out. `positions` are [trials,
    axes], `values` [trials, goals] as `shown` writes them; NaN for what is not known. `pruned` are the curves of
    trials that were stopped early or failed, `others` those of the rest, over epochs.
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
        """Whether trials are, or were, trained again with other seeds."""
        return self.search.confirm > 0 or any(row.confirmed for row in self.trials)

    @property
    def best(self) -> TrialRow | None:
        """The best trial by the first goal, be it one of several on the front."""
        if self.state.best is not None or not self.state.front:
            return self.state.row(self.state.best)
        goal = self.search.goals[0]
        front = [row for row in self.trials if row.number in self.state.front and row.values[0] is not None]
        key = (lambda row: row.values[0]) if goal.higher_is_better else (lambda row: -row.values[0])
        return max(front, key=key, default=None)


def data_of(folder: SearchFolder, search: Search, state: SearchState, status: Status) -> SearchData:
    """A search ready to be drawn."""
    axes = tuple(_axis(name, dimension) for name, dimension in search.space.items())
    rows, goals = state.own, search.goals
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
    """The curves of the goal by epoch of some trials."""
    x = np.fromiter(chain.from_iterable((*row.reported, math.nan) for row in rows), np.float64)
    y = np.fromiter(chain.from_iterable((*row.reported.values(), math.nan) for row in rows), np.float64)
    return Lines(x, y * shown(goal, 1.0))


def shown(goal: Goal, value: float) -> float:
    """A value as it is written: shares in percent."""
    return 100 * value if goal.percent else value


def goal_words(goal: Goal, value: float | None) -> str:
    """ "93.4 %", "0.2134", "3:12 min", "11.2 M"; a dash where there is none."""
    if value is None or math.isnan(value):
        return NOT_KNOWN
    if goal.percent:
        return f"{localised(100 * value, 1)} %"
    if goal.measure == "seconds":
        return duration(value)
    return f"{localised(value / 1e6, 2)} M" if goal.measure == "parameters" else significant(value, 4)


def field_label(name: str) -> str:
    """What a searched field is called."""
    if not name.startswith(OPTION):
        return FIELDS[name].label if name in FIELDS else name
    plain = name.removeprefix(OPTION)
    return next((field.label for _title, field in load_catalogue().options() if field.name == plain), plain)


def value_words(name: str, value: Any) -> str:
    """A field's value as the form titles it."""
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
