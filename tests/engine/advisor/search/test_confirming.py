"""Repetition of the best trials with other seeds, and the choice of the winning trial."""

from __future__ import annotations

from typing import Any

import pytest

from engine.advisor.search import confirming
from engine.advisor.search.budget import estimate_seconds_left
from engine.contract.search import Budget, TrialRow, TrialState
from tests.support.made_searches import SECONDS, TOP1, make_search_config

JOB_SETTINGS = {"learning_rate": 0.01}


def a_row(number: int, value: float | None, state: TrialState = "completed", **fields: Any) -> TrialRow:
    params = {"learning_rate": 0.01 + number}
    fields_of = {"params": params, "epoch": 10, "epochs": 10, "seconds": 20.0} | fields
    return TrialRow(number=number, run_id="", state=state, values=(value,), **fields_of)


def a_repeat(number: int, repeat_of: int, seed: int, value: float | None, state: TrialState = "completed") -> TrialRow:
    return a_row(number, value, state, params={"learning_rate": 0.01 + repeat_of, "seed": seed}, repeat_of=repeat_of)


ROWS = [
    a_row(0, 0.5),
    a_row(1, 0.9),
    a_row(2, 0.95, "pruned"),
    a_row(3, 0.8),
    a_row(4, 0.9),
    a_row(5, None, "failed"),
    a_row(6, 0.7),
]


def test_candidates_are_best_three_and_baseline() -> None:
    assert confirming.select_candidates(ROWS, TOP1, 0) == (1, 4, 3, 0)
    assert confirming.select_candidates(ROWS, TOP1, None) == (1, 4, 3)
    assert confirming.select_candidates(ROWS, SECONDS, 0) == (0, 6, 3), (
        "less is better, and the baseline is among the best"
    )
    assert confirming.select_candidates([a_row(0, 0.2, "stopped")], TOP1, 0) == ()


def test_baseline_is_completed_first_trial_with_job_settings() -> None:
    assert confirming.find_baseline(ROWS, JOB_SETTINGS) == 0
    assert confirming.find_baseline(ROWS, None) is None, "its settings are outside the space"
    assert confirming.find_baseline(ROWS, {"learning_rate": 0.3}) is None
    assert confirming.find_baseline([a_row(0, 0.5, "stopped")], JOB_SETTINGS) is None
    assert confirming.find_baseline(ROWS[1:], JOB_SETTINGS) is None


def test_missing_gives_candidates_same_seeds() -> None:
    assert confirming.list_missing_repeats((4, 0), [], 2, 7) == [(4, 8), (0, 8), (4, 9), (0, 9)]
    started = [a_repeat(9, 4, 8, None, "running"), a_repeat(10, 0, 8, None, "failed"), a_repeat(11, 2, 9, 0.5)]
    assert confirming.list_missing_repeats((4, 0), started, 2, 7) == [(4, 9), (0, 9)]
    assert confirming.list_missing_repeats((4,), [], 2, 2**31 - 2) == [(4, 2**31 - 1), (4, 0)], (
        "no seed is out of range"
    )
    assert confirming.list_missing_repeats((), started, 2, 7) == confirming.list_missing_repeats((4,), [], 0, 7) == []


def test_winner_has_best_mean_of_repeats() -> None:
    repeats = [
        a_repeat(10, 1, 1, 0.80),
        a_repeat(11, 4, 1, 0.84),
        a_repeat(12, 3, 1, 0.99, "stopped"),
        a_repeat(13, 1, 2, 0.86),
        a_repeat(14, 4, 2, None, "failed"),
    ]
    values = confirming.collect_repeat_results(repeats)
    assert values == {1: (0.80, 0.86), 4: (0.84,)}
    assert confirming.find_best_mean(values, TOP1) == 4
    assert confirming.find_best_mean(values, SECONDS) == 1
    assert confirming.find_best_mean({4: (0.5, 0.7), 1: (0.6,)}, TOP1) == 1, "ties go to the lower number"
    assert confirming.find_best_mean({}, TOP1) is None


def test_seconds_left_counts_repeats_as_full_trainings() -> None:
    search = make_search_config(budget=Budget(trials=10), devices=("cpu", "cpu"))
    originals = [a_row(0, 0.5), a_row(1, 0.6, "pruned", epoch=2, seconds=4.0)]
    assert (
        estimate_seconds_left(search, originals[:0], [], worked_s=1.0, repeat_count=4, are_originals_done=False) is None
    )
    assert (
        estimate_seconds_left(search, originals, [], worked_s=30.0, repeat_count=0, are_originals_done=False) == 120.0
    )
    assert (
        estimate_seconds_left(search, originals, [], worked_s=30.0, repeat_count=4, are_originals_done=False)
        == 120.0 + 4 * 20.0 / 2
    )
    repeats = [a_repeat(2, 0, 1, 0.5), a_row(3, None, "running", repeat_of=0, epoch=5)]
    assert (
        estimate_seconds_left(search, originals, repeats, worked_s=30.0, repeat_count=4, are_originals_done=True)
        == 2.5 * 20.0 / 2
    )


@pytest.mark.parametrize(
    ("limits", "left_s"),
    [
        ({"trials": 4}, 600 / 1.5 * 2.5),
        ({"epochs": 20}, 600 / 6 * 14),
        ({"hours": 0.5}, 1200),
        ({"trials": 4, "hours": 0.5, "epochs": 20}, 1000),
        ({"trials": 4, "hours": 0.1}, 0),
    ],
)
def test_seconds_left_end_at_the_first_limit(limits: dict[str, float], left_s: float) -> None:
    rows = [a_row(0, 0.5, epoch=4, epochs=4), a_row(1, 0.5, "running", epoch=2, epochs=4)]
    search = make_search_config(budget=Budget(**limits), devices=("cpu", "cpu"))  # type: ignore[arg-type]
    left = estimate_seconds_left(search, rows, [], worked_s=600, repeat_count=0, are_originals_done=False)
    assert left == left_s
