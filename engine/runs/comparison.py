"""Two evaluations of the same samples side by side: what of their difference is more than chance."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from statistics import quantiles

from engine.contract.catalogue import predictions_of
from engine.contract.inference.evaluation import Comparison, Difference, Interval, McNemar, Samples
from engine.runs.evaluations import KeptEvaluation

_LEAST_DRAWS = 25
"""Resamples from which an interval is made."""


class NotComparable(ValueError):  # noqa: N818 - it says why
    """Two evaluations can't be compared; the text says why, and what to do."""


def compare(first: KeptEvaluation, second: KeptEvaluation) -> Comparison:
    """Compares two evaluations of the same split of a folder. Raises NotComparable, or DamagedEvaluation."""
    one, other = first.evaluation, second.evaluation
    for name, what in (("task", "tasks"), ("dataset", "folders"), ("split", "splits")):
        values = getattr(one, name), getattr(other, name)
        if values[0] != values[1]:
            message = f"The evaluations are of different {what} ({values[0]} and {values[1]})."
            raise NotComparable(f"{message} Evaluate both models on the same split of the same folder.")
    samples = first.samples(), second.samples()
    paired = samples[0].paths == samples[1].paths
    draws = (first.resamples().measures, second.resamples().measures) if paired else ({}, {})
    differences = []
    for entry in one.entries:
        if entry.id in one.measures and entry.id in other.measures:
            values = one.measures[entry.id].value, other.measures[entry.id].value
            between = _interval(values[1] - values[0], draws[0].get(entry.id, ()), draws[1].get(entry.id, ()))
            differences.append(Difference(entry=entry, first=values[0], second=values[1], difference=between))
    mcnemar, only_first, only_second = None, None, None
    if predictions_of(one.task) in ("class", "labels"):
        only_first, only_second = _only(*samples), _only(*reversed(samples))
        mcnemar = mcnemar_test(len(only_first), len(only_second))
    return Comparison(
        first=one,
        second=other,
        samples=len(set(_keys(samples[0])) & set(_keys(samples[1]))),
        differences=tuple(differences),
        mcnemar=mcnemar,
        only_first=only_first,
        only_second=only_second,
    )


def mcnemar_test(only_first: int, only_second: int) -> McNemar:
    """McNemar's test in its exact form, by the binomial distribution of so many samples that one alone has right."""
    count, fewer = only_first + only_second, min(only_first, only_second)
    logs = (_log_share(count, number) for number in range(fewer + 1))
    return McNemar(only_first=only_first, only_second=only_second, p=min(1.0, 2 * sum(map(math.exp, logs))))


def _log_share(count: int, number: int) -> float:
    """The logarithm of how likely `number` of `count` fair coins fall one way."""
    return math.lgamma(count + 1) - math.lgamma(number + 1) - math.lgamma(count - number + 1) - count * math.log(2.0)


def _interval(value: float, first: Sequence[float | None], second: Sequence[float | None]) -> Interval:
    """`value` with the 95 % percentile interval of the differences of paired resamples."""
    draws = [
        after - before for before, after in zip(first, second, strict=False) if before is not None and after is not None
    ]
    if len(draws) < _LEAST_DRAWS:
        return Interval(value)
    edges = quantiles(draws, n=40, method="inclusive")
    return Interval(value, edges[0], edges[-1])


def _keys(samples: Samples) -> list[tuple[str, int]]:
    """What tells each sample from the others: its path, and which of those of this path it is."""
    seen: Counter[str] = Counter()
    keys = []
    for path in samples.paths:
        keys.append((path, seen[path]))
        seen[path] += 1
    return keys


def _only(samples: Samples, others: Samples) -> tuple[str, ...]:
    """The paths of what `samples` have wholly right, and `others` not."""
    right, of_others = _right(samples), _right(others)
    return tuple(key[0] for key, whole in right.items() if whole and of_others.get(key) is False)


def _right(samples: Samples) -> dict[tuple[str, int], bool]:
    return {key: share == 1 for key, share in zip(_keys(samples), samples.correct or (), strict=True)}
