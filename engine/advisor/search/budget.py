"""Whether the budget of a search is used up, and how long it will take yet."""

from __future__ import annotations

from collections.abc import Sequence

from engine.contract.search import Budget, Search, TrialRow


def used_up(budget: Budget, own: Sequence[TrialRow], worked_s: float) -> bool:
    """Whether no further trial is to begin beside the search's `own` ones, which took `worked_s`."""
    if budget.trials is not None and len(own) >= budget.trials:
        return True
    if budget.hours is not None and worked_s >= 3600 * budget.hours:
        return True
    return budget.epochs is not None and sum(row.epoch if row.ended else row.epochs for row in own) >= budget.epochs


def seconds_left(
    search: Search, own: Sequence[TrialRow], repeats: Sequence[TrialRow], *, worked_s: float, to_repeat: int, done: bool
) -> float | None:
    """Of the search's `own` trials, which took `worked_s`, and of `to_repeat` repeats in all, of which there are
    `repeats` already; `done` is whether the own ones have all ended. None before the first trial has ended.
    """
    left = 0.0 if done else _of_own(search.budget, own, worked_s)
    taken = [row.seconds for row in own if row.state == "completed"]
    if left is None or not taken:
        return left
    at_once = len(search.devices) / search.devices_per_trial
    return round(left + (to_repeat - sum(map(_share, repeats))) * sum(taken) / len(taken) / at_once, 1)


def _of_own(budget: Budget, rows: Sequence[TrialRow], worked_s: float) -> float | None:
    left = []
    if budget.hours is not None:
        left.append(3600 * budget.hours - worked_s)
    done = sum(map(_share, rows))
    if budget.trials is not None and any(row.ended for row in rows):
        left.append(worked_s / done * (budget.trials - done))
    epochs = sum(row.epoch for row in rows)
    if budget.epochs is not None and epochs:
        left.append(worked_s / epochs * (budget.epochs - epochs))
    return round(max(0.0, min(left)), 1) if left else None


def _share(row: TrialRow) -> float:
    """How much of a trial is done, from 0 to 1."""
    return 1.0 if row.ended else row.epoch / max(1, row.epochs)
