"""Warning about classes with few samples. Torch-free."""

from __future__ import annotations

from engine.contract.dataset import SplitReport
from engine.contract.problems import Problem
from engine.data.splits import dataset_warning
from engine.system.format import listed

STRONG = 10
"""Ratio of the largest class to a smaller one that is reported: a model that never predicts the smaller of two such
classes is right in 10 of 11 cases."""


def check_imbalance(train: SplitReport) -> list[Problem]:
    """Return the warning about classes that are rare compared with the largest one.

    Empty classes are reported elsewhere. Classes of pixels are not checked, since the background always dominates.
    """
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
    return [dataset_warning(message, remedy)]
