"""Optuna studies. Their proposals depend only on the trials and a seed."""

from __future__ import annotations

import msgspec
import pytest

from engine.advisor.search.study import KnownTrial, Study
from engine.contract.catalogue import load_catalogue
from engine.contract.search import Search, Trial, TrialRow, TrialState
from tests.support.searches import SPACE, make_small_search

CATALOGUE = load_catalogue()


def make_known_trial(
    trial: Trial, *values: float | None, state: TrialState = "completed", epoch: int = 9
) -> KnownTrial:
    """Return an ended trial with one result in `values` per goal of its search.

    It has reported the first of these values after each of its `epoch` epochs.
    """
    reported = dict.fromkeys(range(1, epoch + 1), values[0]) if values and values[0] is not None else {}
    row = TrialRow(
        number=trial.number,
        run_id="",
        state=state,
        params=trial.params,
        values=values or (None,),
        reported=reported,
        epoch=epoch,
        epochs=9,
    )
    # As it is loaded from disk.
    return KnownTrial(msgspec.json.decode(msgspec.json.encode(trial), type=Trial), row)


def make_known_trials(search: Search, count: int) -> list[KnownTrial]:
    """Return `count` trials of `search` whose metric is best at a learning rate of 0.01.

    Two of them have failed. If the search has a single goal, a quarter of them have been pruned.
    """
    study, known = Study(search, CATALOGUE), list[KnownTrial]()
    for number in range(count):
        trial = study.ask(known, number)
        assert trial is not None
        value = 1.0 / (1 + abs(trial.params["learning_rate"] / 0.01 - 1))
        several = (value, 10.0 * trial.params["learning_rate"]) if len(search.goals) > 1 else (value,)
        if number in (5, 7):
            known.append(make_known_trial(trial, state="failed", epoch=0))
        elif number % 4 == 3 and len(search.goals) == 1:
            known.append(make_known_trial(trial, *several, state="pruned", epoch=2))
        else:
            known.append(make_known_trial(trial, *several))
    return known


@pytest.mark.parametrize(
    "values",
    [{}, {"sampler": "random"}, {"goals": ["top1", "seconds"]}, {"goals": ["top1", "seconds"], "sampler": "tpe"}],
    ids=["tpe", "random", "nsgaii", "tpe-several"],
)
def test_ask_is_reproducible(values: dict[str, object]) -> None:
    search = make_small_search(trials=30, seed=7, **values)
    known = make_known_trials(search, 25)
    for number in (3, 12, 24):
        asked = known[number].trial
        before = [each for each in known if each.trial.number in asked.known]
        again = Study(search, CATALOGUE).ask(before, number)
        assert again is not None
        assert again.params == asked.params
        assert again.seed == asked.seed == (7 + number) * 1000
    study, other = Study(search, CATALOGUE), Study(msgspec.structs.replace(search, seed=8), CATALOGUE)
    last, retried = study.ask(known, 25), study.ask(known, 25, 3)
    assert last is not None
    assert retried is not None
    assert (retried.seed, retried.params == last.params) == (32_003, False)
    assert other.ask(known, 25) != last
    if search.sampler == "nsgaii":
        assert last.attrs["NSGAIISampler:generation"] > 1


@pytest.mark.parametrize(("trials", "expected"), [(3, 4), (18, 6), (300, 10)])
def test_tpe_starts_with_random_trials(trials: int, expected: int) -> None:
    tpe, random = (make_small_search(trials=trials, sampler=sampler) for sampler in ("tpe", "random"))
    known = [each for each in make_known_trials(tpe, 20) if each.row.state == "completed"]
    random_counts = []
    for count in range(len(known)):
        settings = [Study(search, CATALOGUE).ask(known[:count], 20) for search in (tpe, random)]
        if settings[0] == settings[1]:
            random_counts.append(count)
    assert random_counts == list(range(expected))


def test_ask_records_ended_and_active_trials() -> None:
    search = make_small_search(trials=30)
    known = make_known_trials(search, 12)
    states: list[TrialState] = ["running", "waiting", "paused", "interrupted", "stopped"]
    known[:5] = [make_known_trial(each.trial, 0.5, state=state) for each, state in zip(known, states, strict=False)]
    asked = Study(search, CATALOGUE).ask(known, 12)
    assert asked is not None
    assert (asked.known, asked.in_hand) == (tuple(range(4, 12)), (0, 1, 2, 3))


def test_active_trials_change_the_next_settings_but_failed_ones_do_not() -> None:
    search = make_small_search(trials=30)
    study, known = Study(search, CATALOGUE), make_known_trials(search, 20)
    tried = study.ask(known, 20)
    assert tried is not None
    params = {}
    for state in ("failed", "pruned", "running"):
        others = [
            make_known_trial(msgspec.structs.replace(tried, number=20 + n), state=state, epoch=0) for n in range(6)
        ]
        asked = study.ask([*known, *others], 26)
        params[state] = asked and asked.params
    assert params["pruned"] == params["failed"] != params["running"]


def test_front_of_several_goals_has_no_pruned_trials() -> None:
    search = make_small_search(trials=30, goals=["top1", "seconds"])
    first, second, *_ = make_known_trials(search, 2)
    pruned = make_known_trial(second.trial, 0.99, 0.1, state="pruned", epoch=2)
    assert Study(search, CATALOGUE).compute_front([first, pruned]) == (0,)


def test_settings_follow_steps_and_logarithms() -> None:
    batches = {"low": 8, "high": 64, "step": 8}
    space = {
        "batch_size": batches,
        "learning_rate": SPACE["learning_rate"],
        "momentum": {"low": 0.5, "high": 0.9, "step": 0.2},
    }
    study = Study(make_small_search(space=space, sampler="random"), CATALOGUE)
    asked = [trial.params for number in range(1, 30) if (trial := study.ask([], number))]
    assert {params["batch_size"] for params in asked} == set(range(8, 65, 8))
    assert {round(params["momentum"], 3) for params in asked} == {0.5, 0.7, 0.9}
    assert 8 < sum(params["learning_rate"] < 0.01 for params in asked) < 22


def test_first_trial_has_job_settings_if_in_space() -> None:
    study = Study(
        make_small_search(space={"learning_rate": SPACE["learning_rate"], "optimizer": ["sgd", "adamw"]}), CATALOGUE
    )
    first = study.ask([], 0)
    assert first is not None
    assert first.params == {"learning_rate": 0.01, "optimizer": "sgd"}
    retried = study.ask([], 0, 1)
    assert retried is not None
    assert retried.params != first.params
    without = Study(make_small_search(), CATALOGUE).ask([], 0)
    assert without is not None
    assert without.params["milestones"] in ([1], [1, 2]), "the job's milestones are empty, which is outside the space"


def test_tpe_finds_optimum_and_importance() -> None:
    search = make_small_search(trials=40)
    known = make_known_trials(search, 40)
    study = Study(search, CATALOGUE)
    (best,) = study.compute_front(known)
    assert known[best].row.values[0] == max(e.row.values[0] or 0 for e in known if e.row.state == "completed")
    assert 0.005 < known[best].trial.params["learning_rate"] < 0.02
    importance = study.compute_importance(known)
    assert next(iter(importance)) == "learning_rate"
    assert sum(importance.values()) == pytest.approx(1.0, abs=0.01)
    assert study.compute_importance(known[:4]) == {}, "three are completed"
    assert study.compute_importance(known[:5]) != {}


def test_importance_is_that_for_the_first_goal() -> None:
    search = make_small_search(goals=["top1", "seconds"], trials=30)
    known = make_known_trials(search, 25)
    by_first = [KnownTrial(each.trial, msgspec.structs.replace(each.row, values=each.row.values[:1])) for each in known]
    alone = Study(make_small_search(trials=30), CATALOGUE).compute_importance(by_first)
    assert Study(search, CATALOGUE).compute_importance(known) == alone != {}


def test_front_holds_undominated_trials() -> None:
    search = make_small_search(goals=["top1", "seconds"])
    study = Study(search, CATALOGUE)
    trials = [study.ask([], number) for number in range(4)]
    values = [(0.9, 30.0), (0.8, 10.0), (0.7, 20.0), (0.95, 40.0)]
    known = [make_known_trial(trial, *value) for trial, value in zip(trials, values, strict=True) if trial is not None]
    assert set(study.compute_front(known)) == {0, 1, 3}


@pytest.mark.parametrize("pruner", ["hyperband", "halving", "median"])
def test_pruner_stops_worse_trials(pruner: str) -> None:
    search = make_small_search(pruner=pruner)
    study, known = Study(search, CATALOGUE), list[KnownTrial]()
    for number in range(12):
        trial = study.ask(known, number)
        assert trial is not None
        for epoch in range(1, 10):  # each reports, and Optuna's notes on it are saved
            known = [*known[:number], make_known_trial(trial, 0.5 + 0.01 * number, epoch=epoch, state="running")]
            _, attrs = study.should_prune(known, number)
            trial = msgspec.structs.replace(trial, attrs=attrs)
        assert any(name.startswith("completed_rung") for name in trial.attrs) == (pruner != "median")
        known[number] = make_known_trial(trial, 0.5 + 0.01 * number)
    trial = study.ask(known, 12)
    assert trial is not None
    assert study.should_prune([*known, make_known_trial(trial, 0.1, epoch=4, state="running")], 12)[0]
    assert not study.should_prune([*known, make_known_trial(trial, 0.99, epoch=4, state="running")], 12)[0]


def test_grid_is_tried_once() -> None:
    search = make_small_search(
        space={"momentum": {"low": 0.5, "high": 0.9, "step": 0.2}, "milestones": [[1], [1, 2]]},
        sampler="grid",
        trials=9,
    )
    study, known = Study(search, CATALOGUE), list[KnownTrial]()
    other = Study(msgspec.structs.replace(search, seed=8), CATALOGUE)
    firsts = [each and each.params for each in (study.ask([], 0), study.ask([], 0, 1), other.ask([], 0))]
    assert firsts[0] not in firsts[1:]
    while (trial := study.ask(known, len(known))) is not None:
        known.append(make_known_trial(trial, 0.5))
    tried = {(round(each.trial.params["momentum"], 3), tuple(each.trial.params["milestones"])) for each in known}
    assert tried == {(m, s) for m in (0.5, 0.7, 0.9) for s in ((1,), (1, 2))}
    assert len(known) == 6


def test_deleted_trial_keeps_numbers_of_others() -> None:
    search = make_small_search(trials=30)
    known = make_known_trials(search, 12)
    left = [each for each in known if each.trial.number not in (0, 4)]
    best = max((each for each in left if each.row.state == "completed"), key=lambda each: each.row.values[0] or 0.0)
    assert Study(search, CATALOGUE).compute_front(left) == (best.trial.number,)
