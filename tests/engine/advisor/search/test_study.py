"""What Optuna is asked: the answers follow from the trials and a seed alone."""

from __future__ import annotations

import msgspec
import pytest

from engine.advisor.search.study import Known, Study
from engine.contract.catalogue import load_catalogue
from engine.contract.search import Search, Trial, TrialRow, TrialState
from tests.support.searches import SPACE, small_search

CATALOGUE = load_catalogue()


def stood(trial: Trial, *values: float | None, state: TrialState = "completed", epoch: int = 9) -> Known:
    """A trial that has reported the same value of the first goal at each epoch."""
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
    # As it comes back from the disk.
    return Known(msgspec.json.decode(msgspec.json.encode(trial), type=Trial), row)


def searched(search: Search, count: int) -> list[Known]:
    """A search whose value is best at a learning rate of 0.01, of which a quarter is pruned and two fail."""
    study, known = Study(search, CATALOGUE), list[Known]()
    for number in range(count):
        trial = study.ask(known, number)
        assert trial is not None
        value = 1.0 / (1 + abs(trial.params["learning_rate"] / 0.01 - 1))
        several = (value, 10.0 * trial.params["learning_rate"]) if len(search.goals) > 1 else (value,)
        if number in (5, 7):
            known.append(stood(trial, state="failed", epoch=0))
        elif number % 4 == 3 and len(search.goals) == 1:
            known.append(stood(trial, *several, state="pruned", epoch=2))
        else:
            known.append(stood(trial, *several))
    return known


@pytest.mark.parametrize(
    "values",
    [{}, {"sampler": "random"}, {"goals": ["top1", "seconds"]}, {"goals": ["top1", "seconds"], "sampler": "tpe"}],
    ids=["tpe", "random", "nsgaii", "tpe-several"],
)
def test_that_what_was_asked_can_be_explained_from_what_is_kept(values: dict[str, object]) -> None:
    search = small_search(trials=30, seed=7, **values)
    known = searched(search, 25)
    for number in (3, 12, 24):
        asked = known[number].trial
        before = [each for each in known if each.trial.number in asked.known]
        again = Study(search, CATALOGUE).ask(before, number)
        assert again is not None
        assert again.params == asked.params
        assert again.seed == asked.seed == (7 + number) * 1000
    other = Study(msgspec.structs.replace(search, seed=8), CATALOGUE).ask(known, 25)
    assert other != Study(search, CATALOGUE).ask(known, 25)


def test_that_the_first_trial_has_the_jobs_own_settings_where_the_space_holds_them() -> None:
    own = Study(small_search(space={"learning_rate": SPACE["learning_rate"], "optimizer": ["sgd", "adamw"]}), CATALOGUE)
    first = own.ask([], 0)
    assert first is not None
    assert first.params == {"learning_rate": 0.01, "optimizer": "sgd"}
    without = Study(small_search(), CATALOGUE).ask([], 0)
    assert without is not None
    assert without.params["milestones"] in ([1], [1, 2]), "the job's own is empty, which the space does not hold"


def test_that_the_search_comes_near_the_best_and_says_what_matters() -> None:
    search = small_search(trials=40)
    known = searched(search, 40)
    study = Study(search, CATALOGUE)
    (best,) = study.front(known)
    assert known[best].row.values[0] == max(e.row.values[0] or 0 for e in known if e.row.state == "completed")
    assert 0.005 < known[best].trial.params["learning_rate"] < 0.02
    importance = study.importance(known)
    assert next(iter(importance)) == "learning_rate"
    assert sum(importance.values()) == pytest.approx(1.0, abs=0.01)
    assert study.importance(known[:3]) == {}


def test_that_the_front_holds_what_nothing_is_better_than_in_every_goal() -> None:
    search = small_search(goals=["top1", "seconds"])
    study = Study(search, CATALOGUE)
    trials = [study.ask([], number) for number in range(4)]
    values = [(0.9, 30.0), (0.8, 10.0), (0.7, 20.0), (0.95, 40.0)]
    known = [stood(trial, *value) for trial, value in zip(trials, values, strict=True) if trial is not None]
    assert set(study.front(known)) == {0, 1, 3}


@pytest.mark.parametrize("pruner", ["hyperband", "halving", "median"])
def test_that_a_trial_that_lags_behind_is_stopped_and_one_that_leads_is_not(pruner: str) -> None:
    search = small_search(pruner=pruner)
    study, known = Study(search, CATALOGUE), list[Known]()
    for number in range(12):
        trial = study.ask(known, number)
        assert trial is not None
        for epoch in range(1, 10):  # each reports, and what Optuna notes on it is kept
            known = [*known[:number], stood(trial, 0.5 + 0.01 * number, epoch=epoch, state="running")]
            _, attrs = study.worse(known, number)
            trial = msgspec.structs.replace(trial, attrs=attrs)
        known[number] = stood(trial, 0.5 + 0.01 * number)
    trial = study.ask(known, 12)
    assert trial is not None
    assert study.worse([*known, stood(trial, 0.1, epoch=4, state="running")], 12)[0]
    assert not study.worse([*known, stood(trial, 0.99, epoch=4, state="running")], 12)[0]


def test_that_a_grid_is_gone_through_once_and_then_over() -> None:
    search = small_search(
        space={"momentum": {"low": 0.5, "high": 0.9, "step": 0.2}, "milestones": [[1], [1, 2]]},
        sampler="grid",
        trials=9,
    )
    study, known = Study(search, CATALOGUE), list[Known]()
    while (trial := study.ask(known, len(known))) is not None:
        known.append(stood(trial, 0.5))
    tried = {(round(each.trial.params["momentum"], 3), tuple(each.trial.params["milestones"])) for each in known}
    assert tried == {(m, s) for m in (0.5, 0.7, 0.9) for s in ((1,), (1, 2))}
    assert len(known) == 6


def test_that_a_trial_whose_run_was_deleted_leaves_the_others_their_numbers() -> None:
    search = small_search(trials=30)
    known = searched(search, 12)
    left = [each for each in known if each.trial.number not in (0, 4)]
    assert set(Study(search, CATALOGUE).front(left)) <= {each.trial.number for each in left}
