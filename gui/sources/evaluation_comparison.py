"""Two evaluations of the same samples compared, by what is kept of both."""

from __future__ import annotations

import numpy as np

from engine.contract.catalogue import Measure
from engine.contract.inference.evaluation import Comparison, Difference, Interval, McNemar
from engine.runs.evaluations import KeptEvaluation
from gui.sources.columns import Floats
from gui.sources.evaluations import OpenedEvaluation, SampleTable, read_samples


def compare(second: OpenedEvaluation, first: KeptEvaluation) -> Comparison:
    """`second` against `first`, over the samples that both have. Raises DamagedEvaluation."""
    theirs, ours = read_samples(first), second.samples
    pairs = _pairs(theirs, ours)
    right = _right(theirs, ours, pairs)
    only_first, only_second = (None, None) if right is None else right
    return Comparison(
        first=first.evaluation,
        second=second.evaluation,
        samples=len(pairs),
        differences=_differences(first, second.kept, paired=len(pairs) == len(theirs) == len(ours)),
        mcnemar=None if right is None else mcnemar(len(right[0]), len(right[1])),
        only_first=only_first,
        only_second=only_second,
    )


def mcnemar(only_first: int, only_second: int) -> McNemar:
    """McNemar's exact test: twice the probability that a fair coin falls as unevenly, or more so, to one side."""
    n, few = only_first + only_second, min(only_first, only_second)
    factorials = np.concatenate(([0.0], np.cumsum(np.log(np.arange(1, n + 1)))))
    logs = factorials[n] - factorials[: few + 1] - factorials[n - few : n + 1][::-1] - n * np.log(2)
    return McNemar(only_first=only_first, only_second=only_second, p=float(min(1.0, 2 * np.exp(logs).sum())))


def _pairs(theirs: SampleTable, ours: SampleTable) -> list[tuple[int, int]]:
    """The rows of each sample that both have, theirs first."""
    rows = {sample: row for row, sample in enumerate(zip(theirs.splits, theirs.paths, strict=True))}
    samples = enumerate(zip(ours.splits, ours.paths, strict=True))
    return [(rows[sample], row) for row, sample in samples if sample in rows]


def _right(
    theirs: SampleTable, ours: SampleTable, pairs: list[tuple[int, int]]
) -> tuple[tuple[str, ...], tuple[str, ...]] | None:
    """The paths of what the first alone and the second alone has right; None where samples are not either right or wrong."""
    if theirs.correct is None or ours.correct is None or not pairs:
        return None
    first, second = (
        column[list(rows)]
        for column, rows in zip((theirs.correct, ours.correct), zip(*pairs, strict=True), strict=True)
    )
    if not np.isin(np.concatenate((first, second)), (0.0, 1.0)).all():
        return None
    paths = np.array([ours.paths[row] for _, row in pairs], object)
    return tuple(paths[(first == 1) & (second == 0)]), tuple(paths[(first == 0) & (second == 1)])


def _differences(first: KeptEvaluation, second: KeptEvaluation, *, paired: bool) -> tuple[Difference, ...]:
    """The measures that both have. Intervals are of resamples that draw the same samples, as those of as many samples do."""
    entries = {entry.id: entry for entry in (*first.evaluation.entries, *second.evaluation.entries)}
    draws = (first.resamples().measures, second.resamples().measures) if paired else ({}, {})
    told = []
    for name, ours in second.evaluation.measures.items():
        theirs = first.evaluation.measures.get(name)
        if theirs is None:
            continue
        low, high = _interval(*(np.array(each.get(name, ()), np.float64) for each in draws))
        told.append(
            Difference(
                entry=entries.get(name) or Measure(name, name, True),
                first=theirs.value,
                second=ours.value,
                difference=Interval(ours.value - theirs.value, low, high),
            )
        )
    return tuple(told)


def _interval(first: Floats, second: Floats) -> tuple[float | None, float | None]:
    """The 2.5th and 97.5th percentile of the differences."""
    if not len(first) or len(first) != len(second):
        return None, None
    between = second - first
    known = between[~np.isnan(between)]
    if not len(known):
        return None, None
    low, high = np.percentile(known, (2.5, 97.5))
    return float(low), float(high)
