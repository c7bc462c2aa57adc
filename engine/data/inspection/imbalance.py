"""Classes of which there is far more than of others. Torch-free."""

from __future__ import annotations

from engine.contract.dataset import SplitReport
from engine.contract.problems import Problem
from engine.data.splits import warn
from engine.system.format import listed

STRONG = 10
"""From so many samples of the largest class for each one of another on, that is told: of two such classes, a model that
never finds the smaller one is right in 10 of 11 cases."""


def imbalance(train: SplitReport) -> list[Problem]:
    """The problem of classes that are rare compared with the largest. Empty classes are reported elsewhere, and
    classes of pixels are not judged, since the background always dominates."""
    counts = {name: count for name, count in train.counts.items() if count}
    if len(counts) < 2 or train.shares:
        return []
    largest = max(counts, key=lambda name: counts[name])
    rare = sorted((name for name in counts if counts[largest] >= STRONG * counts[name]), key=lambda name: counts[name])
    if not rare:
        return []
    named = listed([f"{name} ({counts[name]:,})" for name in rare], most=5)
    message = (
        f"Class {largest} has {counts[largest]:,} training samples, at least {STRONG} times as many as {named}: "
        f"a model that ignores the rare classes still looks accurate."
    )
    remedy = (
        "Add samples of the rare classes, balance the class weights, or oversample; and check the metrics of each "
        "class."
    )
    return [warn(message, remedy)]
