"""Repeats of the best trials with other seeds.

The best of many values is partly luck: with other seeds, the same settings reach lower values (the winner's curse;
Cawley and Talbot 2010). Therefore only the mean of the repeats decides, which does not include the value for which the
trial was chosen. All trials are repeated with the same seeds, so that they can be compared pairwise.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from engine.contract.search import CONFIRMED, Goal, TrialRow

_SEEDS = 2**31
"""Number of seeds that a job can have."""


def select_candidates(rows: Iterable[TrialRow], goal: Goal, baseline: int | None) -> tuple[int, ...]:
    """Return the numbers of the trials to repeat: the best completed trials, and the baseline.

    `rows` are the original trials. `baseline` is the number of the trial with the job's requested settings, or None. If
    values are equal, earlier trials come first.
    """
    values = {row.number: row.values[0] for row in rows if row.state == "completed" and row.values[0] is not None}
    best = _rank_trials(values, goal)[:CONFIRMED]
    return (*best, baseline) if baseline in values and baseline not in best else best


def find_baseline(rows: Iterable[TrialRow], job_settings: Mapping[str, Any] | None) -> int | None:
    """Return the number of the completed trial with the job's requested settings, or None if there is none.

    Only the first trial, number 0, can have these settings. `job_settings` are the requested values of the varied
    fields.
    """
    first = next((row for row in rows if row.number == 0), None)
    is_baseline = first is not None and first.state == "completed" and first.params == job_settings
    return 0 if is_baseline else None


def list_missing_repeats(
    numbers: Sequence[int], repeats: Iterable[TrialRow], confirm: int, seed: int
) -> list[tuple[int, int]]:
    """Return the repeats that have not started, as (trial number, seed) pairs.

    Each trial in `numbers` is repeated `confirm` times. All trials are repeated with the first seed, then all with the
    second seed, so that the comparison is fair at any time. `seed` is the seed of the search's job, which the repeats
    don't use.
    """
    started = {(row.repeat_of, row.params["seed"]) for row in repeats}
    seeds = [(seed + 1 + k) % _SEEDS for k in range(confirm)]
    return [(number, each) for each in seeds for number in numbers if (number, each) not in started]


def collect_repeat_results(repeats: Iterable[TrialRow]) -> dict[int, tuple[float, ...]]:
    """Return the results of the completed repeats. Keys are the numbers of the repeated trials."""
    values: dict[int, tuple[float, ...]] = {}
    for row in repeats:
        if row.repeat_of is not None and row.state == "completed" and row.values[0] is not None:
            values[row.repeat_of] = (*values.get(row.repeat_of, ()), row.values[0])
    return values


def find_best_mean(values: Mapping[int, Sequence[float]], goal: Goal) -> int | None:
    """Return the number of the trial with the best mean of its `values`, or None if there are no values.

    If several means are equal, the earliest trial is returned.
    """
    means = {number: sum(each) / len(each) for number, each in values.items()}
    return next(iter(_rank_trials(means, goal)), None)


def _rank_trials(values: Mapping[int, float], goal: Goal) -> tuple[int, ...]:
    """Return the numbers of the trials, best first, given a value for each number."""
    sign = -1 if goal.higher_is_better else 1
    return tuple(sorted(values, key=lambda number: (sign * values[number], number)))
