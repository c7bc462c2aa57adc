"""Which trials are trained again with other seeds, and what comes of it.

The best of many values is lucky as well as good: with other seeds its settings reach less (the winner's curse; Cawley
and Talbot 2010). So the mean of the repeats alone decides, without the value for which a trial was chosen. All
candidates are given the same seeds, so that they compare pair by pair.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from engine.contract.search import CONFIRMED, Goal, TrialRow

_SEEDS = 2**31
"""So many seeds a job can have."""


def candidates(rows: Iterable[TrialRow], goal: Goal, baseline: int | None) -> tuple[int, ...]:
    """The numbers of the trials to be confirmed, from the best: the best completed ones of `rows`, which are the
    search's own, of equal ones the earlier, and `baseline`.
    """
    values = {row.number: row.values[0] for row in rows if row.state == "completed" and row.values[0] is not None}
    best = _ranked(values, goal)[:CONFIRMED]
    return (*best, baseline) if baseline in values and baseline not in best else best


def baseline(rows: Iterable[TrialRow], own_settings: Mapping[str, Any] | None) -> int | None:
    """0 where the first trial was completed with the job's own settings, else None."""
    first = next((row for row in rows if row.number == 0), None)
    there = first is not None and first.state == "completed" and first.params == own_settings
    return 0 if there else None


def missing(numbers: Sequence[int], repeats: Iterable[TrialRow], confirm: int, seed: int) -> list[tuple[int, int]]:
    """The repeats that are still to begin, as numbers of trials with the seeds of their jobs: all trials with the
    first seed, then all with the second, so that what is there is a fair comparison at any time. `seed` is that of
    the search's job.
    """
    begun = {(row.again, row.params["seed"]) for row in repeats}
    seeds = [(seed + 1 + k) % _SEEDS for k in range(confirm)]
    return [(number, each) for each in seeds for number in numbers if (number, each) not in begun]


def confirmed(repeats: Iterable[TrialRow]) -> dict[int, tuple[float, ...]]:
    """The values of the completed repeats, by the numbers of the trials that they repeat."""
    found: dict[int, tuple[float, ...]] = {}
    for row in repeats:
        if row.again is not None and row.state == "completed" and row.values[0] is not None:
            found[row.again] = (*found.get(row.again, ()), row.values[0])
    return found


def winner(values: Mapping[int, Sequence[float]], goal: Goal) -> int | None:
    """The number of the trial with the best mean of its `values`, of equal ones the earlier; None where there are
    none.
    """
    means = {number: sum(each) / len(each) for number, each in values.items()}
    return next(iter(_ranked(means, goal)), None)


def _ranked(values: Mapping[int, float], goal: Goal) -> tuple[int, ...]:
    sign = -1 if goal.higher_is_better else 1
    return tuple(sorted(values, key=lambda number: (sign * values[number], number)))
