"""Format searches as text for the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from shlex import quote
from typing import Any

from engine.cli.terminal import format_table
from engine.contract.search import SECONDS, Goal, Search, SearchState, Status, TrialRow
from engine.runs.searches import describe_confirmed_result, describe_pending_confirmations
from engine.system.format import NOT_KNOWN, counted, duration, metric_value


def format_search_table(searches: Sequence[tuple[Search, SearchState, Status]]) -> list[str]:
    """Format a table of all searches as lines of text."""
    head = ("SEARCH", "STATE", "TRIALS", "PRUNED", "FAILED", "BEST", "TIME", "LEFT")
    return format_table(head, [_format_search_row(*each) for each in searches])


def _format_search_row(search: Search, state: SearchState, status: Status) -> tuple[str, ...]:
    """Return the cells of a search in the table of all searches."""
    return (
        search.name,
        status,
        _format_ended_count(state),
        str(state.count("pruned")),
        str(state.count("failed")),
        _format_best(search, state),
        duration(state.worked_s),
        duration(state.seconds_left) if status == "running" else NOT_KNOWN,
    )


def format_progress(search: Search, state: SearchState) -> str:
    """Format the progress of a running search as a line."""
    active = [f"trial {row.title}: epoch {row.epoch}/{row.epochs}" for row in state.trials if row.state == "running"]
    left = f", {duration(state.seconds_left)} left" if state.seconds_left is not None else ""
    done = describe_pending_confirmations(state) or f"{_format_ended_count(state)} trials"
    return f"{done}, best {_format_best(search, state)}{left} · {', '.join(active) or 'starting'}"


def format_trial(search: Search, row: TrialRow) -> str:
    """Format a finished trial as a line."""
    values = ", ".join(
        f"{goal.title} {_format_goal_value(goal, value)}" for goal, value in _pair_goals_with_values(search, row)
    )
    why = f": {row.cause}" if row.state == "failed" and row.cause else ""
    return f"Trial {row.title} {row.state} after {counted(row.epoch, 'epoch')}: {values}; {format_settings(row)}{why}"


def format_settings(row: TrialRow) -> str:
    """Format the settings of a trial as text, e.g. "learning_rate=0.003, optimizer=adamw"."""
    return ", ".join(f"{name}={_format_setting(value)}" for name, value in row.params.items())


def format_search(search: Search, state: SearchState, status: Status) -> list[str]:
    """Format a search as lines of text: its state, trials, best settings, and the importance of its fields."""
    goal_titles = [goal.title for goal in search.goals]
    confirmed_head = ("CONFIRMED",) if _has_confirmed(state) else ()
    goal_heads = [title.upper() for title in goal_titles]
    head = ("TRIAL", "RUN", "STATE", "EPOCHS", *goal_heads, *confirmed_head, *search.space)
    rows = [_format_trial_row(search, state, row) for row in state.trials]
    left = f", {duration(state.seconds_left)} left" if status == "running" and state.seconds_left is not None else ""
    counts = "".join(
        f", {state.count(trial_state)} {trial_state}"
        for trial_state in ("pruned", "stopped", "failed")
        if state.count(trial_state)
    )
    text = [
        f"{search.name}: {status}, {_format_ended_count(state)} trials{counts}, {duration(state.worked_s)} worked{left}",
        *filter(None, (state.cause, describe_pending_confirmations(state))),
        *(format_table(head, rows) if rows else []),
    ]
    best = state.row(state.best)
    if best is not None:
        first_goal, *_ = search.goals
        confirmed_by = describe_confirmed_result(state, lambda value: _format_goal_value(first_goal, value))
        best_text = f"Best: trial {best.number}, {_format_goal_value(first_goal, best.values[0])}"
        text.append("; ".join(filter(None, (best_text, confirmed_by))))
        text.append(f"Its settings: {format_settings(best)}")
    elif len(search.goals) > 1 and state.front:
        text.append(f"Pareto front: trials {', '.join(map(str, state.front))} (★)")
    if state.importance:
        importance = ", ".join(f"{name} {100 * value:.0f}%" for name, value in state.importance.items())
        text.append(f"Importance for {goal_titles[0].lower()}: {importance}")
    if state.front and status != "running":
        number = "" if best is not None else " NUMBER"  # several trials are on the front, so the user must choose one
        text.append(f"To train it in full: footplate search {quote(search.name)} --train-best{number}")
    return text


def _format_trial_row(search: Search, state: SearchState, row: TrialRow) -> tuple[str, ...]:
    """Return the cells of a trial in the table of a search."""
    mark = " ★" if row.number in state.front else ""
    values = [_format_goal_value(goal, value) for goal, value in _pair_goals_with_values(search, row)]
    if _has_confirmed(state):
        values.append(_format_goal_value(search.goals[0], row.mean))
    params = (_format_setting(row.params.get(name)) for name in search.space)
    return (f"{row.title}{mark}", row.run_id, row.state, f"{row.epoch}/{row.epochs}", *values, *params)


def _has_confirmed(state: SearchState) -> bool:
    """Return True if any trial was repeated with another seed."""
    return any(row.confirmed for row in state.trials)


def _format_ended_count(state: SearchState) -> str:
    """Format the number of ended trials, and their expected number if it is known, as in "7/20"."""
    total = f"/{state.originals_total}" if state.originals_total is not None else ""
    return f"{state.originals_ended}{total}"


def _format_best(search: Search, state: SearchState) -> str:
    """Format the best result until now, or the number of trials on the Pareto front."""
    if state.best is None and state.front:
        return f"{len(state.front)} on the front"
    return _format_goal_value(search.goals[0], state.best_value)


def _pair_goals_with_values(search: Search, row: TrialRow) -> list[tuple[Goal, float | None]]:
    """Return each goal with the trial's value for it, which is None if it is unknown."""
    return list(zip(search.goals, row.values, strict=True))


def _format_goal_value(goal: Goal, value: float | None) -> str:
    """Format a value of a goal: as a percentage, a duration or a number."""
    if value is None:
        return NOT_KNOWN
    return duration(value) if goal.measure == SECONDS else metric_value(value, percent=goal.percent)


def _format_setting(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    return NOT_KNOWN if value is None else str(value)
