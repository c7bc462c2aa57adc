"""Budget of a search, and the estimate of its remaining time."""

from __future__ import annotations

from collections.abc import Sequence

from engine.contract.search import Budget, Search, TrialRow


def is_used_up(budget: Budget, rows: Sequence[TrialRow], worked_s: float) -> bool:
    """Return True if the budget allows no more trials.

    `rows` are the original trials that have started, without repeats, and `worked_s` is the time spent on them in
    seconds.
    """
    if budget.trials is not None and len(rows) >= budget.trials:
        return True
    if budget.hours is not None and worked_s >= 3600 * budget.hours:
        return True
    return budget.epochs is not None and sum(row.epoch if row.ended else row.epochs for row in rows) >= budget.epochs


def estimate_seconds_left(
    search: Search,
    rows: Sequence[TrialRow],
    repeats: Sequence[TrialRow],
    *,
    worked_s: float,
    repeat_count: int,
    are_originals_done: bool,
) -> float | None:
    """Estimate the remaining time of a search in seconds. Return None while it is unknown.

    The original trials are `rows`, and took `worked_s`. Of all `repeat_count` repeats, `repeats` have started.
    """
    originals_s = 0.0 if are_originals_done else _estimate_original_seconds_left(search.budget, rows, worked_s)
    durations_s = [row.seconds for row in rows if row.state == "completed"]
    if originals_s is None or not durations_s:
        return originals_s
    trials_at_once = len(search.devices) / search.devices_per_trial
    mean_s = sum(durations_s) / len(durations_s)
    repeats_s = (repeat_count - sum(map(_compute_completed_fraction, repeats))) * mean_s / trials_at_once
    return round(originals_s + repeats_s, 1)


def _estimate_original_seconds_left(budget: Budget, rows: Sequence[TrialRow], worked_s: float) -> float | None:
    """Estimate the seconds until the first limit of the budget is reached, without repeats. None if it is unknown.

    `rows` are the original trials, which have taken `worked_s` seconds until now.
    """
    estimates_s = []
    if budget.hours is not None:
        estimates_s.append(3600 * budget.hours - worked_s)
    done = sum(map(_compute_completed_fraction, rows))
    if budget.trials is not None and any(row.ended for row in rows):
        estimates_s.append(worked_s / done * (budget.trials - done))
    epochs = sum(row.epoch for row in rows)
    if budget.epochs is not None and epochs:
        estimates_s.append(worked_s / epochs * (budget.epochs - epochs))
    return round(max(0.0, min(estimates_s)), 1) if estimates_s else None


def _compute_completed_fraction(row: TrialRow) -> float:
    """Return the fraction of a trial's epochs that are complete, or 1 if the trial has ended."""
    return 1.0 if row.ended else row.epoch / max(1, row.epochs)
