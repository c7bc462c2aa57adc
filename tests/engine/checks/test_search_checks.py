"""Whether a search can be made: what is told of one that can't, all at once."""

from __future__ import annotations

from typing import Any

import pytest

from engine.checks.search_checks import judge_search, name_problems, room_problems
from engine.contract.catalogue import load_catalogue
from engine.contract.job import Job
from engine.contract.search import Budget, Choices, Range
from engine.runs.searches import create_search
from engine.system import paths
from tests.support.searches import SPACE, small_job, small_search


def told(job: Job | None = None, **values: Any) -> dict[str, str]:
    """All that is wrong with a search, by field."""
    given = {"name": "a", "space": SPACE} | values
    search, problems = judge_search(given, job or small_job(), load_catalogue())
    assert (search is None) == bool(problems)
    return {problem.field: str(problem) for problem in problems}


def test_that_a_space_is_taken_as_the_jobs_fields_are_typed() -> None:
    search = small_search(space={"batch_size": {"low": 8, "high": 64, "log": True}, "clip_norm": ["none", 1]})
    assert search.space["batch_size"] == Range(low=8, high=64, log=True)
    assert search.space["clip_norm"] == Choices(values=(None, 1.0))
    assert search.goals[0].measure == "top1"
    assert search.job.checkpoints.best_by == "top1", "the best checkpoint is the one that the search goes by"
    assert (search.pruner, search.sampler, search.budget) == ("hyperband", "tpe", Budget(trials=4))
    several = small_search(goals=["top1", "seconds", "parameters"])
    assert (several.sampler, several.pruner) == ("nsgaii", "none"), "what several goals are searched by"
    grid = small_search(
        space={"momentum": {"low": 0.5, "high": 0.9, "step": 0.2}, "nesterov": [False, True]},
        sampler="grid",
        trials=None,
    )
    assert grid.budget == Budget(trials=6), "the whole grid, where no budget is given"


def test_that_all_problems_are_told_at_once_with_their_fields_and_remedies() -> None:
    wrong = told(
        name="../a",
        space={
            "learning_rate": {"low": 0.1, "high": 1e-4, "log": True},
            "weight_decay": {"low": 0, "high": 1, "log": True},
            "momentum": {"low": 0.5, "high": 2},
            "optimizer": {"low": 1, "high": 2},
            "batch_size": [8, "x"],
            "mixup": [0.1],
            "final_rate": {"low": 0.1, "hihg": 0.2},
            "epochs": 3,
            "dataset": ["a", "b"],
            "learing_rate": [1, 2],
            "options.width": [1, 2],
        },
        goals=["top1", "mious"],
        trials=0,
        hours="long",
        pruner="hyperbnad",
        devices=["GPU-1", "GPU-1", "GPU-2"],
        devices_per_trial=2,
        confirm=11,
        seed=-1,
        hurs=1,
    )
    expected = {
        "name": "can't be the name",
        "space.learning_rate": "low that is below high",
        "space.weight_decay": "can't begin at 0",
        "space.momentum": "2 is out of range",
        "space.optimizer": 'optimizer = ["sgd"',
        "space.batch_size": "'x' is not a whole number",
        "space.mixup": "at least two different values",
        "space.final_rate": "no “high”",
        "space.epochs": "neither a list nor a range",
        "space.dataset": "Set it in the job",
        "space.learing_rate": "Did you mean “learning_rate”",
        "space.options.width": "not a field of this job",
        "goals": "“mious” is not a metric of this task",
        "trials": "0 can't be",
        "hours": "'long' can't be",
        "pruner": "Did you mean “hyperband”",
        "devices": "two trials never share one",
        "devices_per_trial": "3 devices can't be divided into groups of 2",
        "confirm": "11 is not a number from 0 to 10",
        "seed": "-1",
        "hurs": "Did you mean “hours”",
    }
    assert wrong.keys() == expected.keys()
    for field, words in expected.items():
        assert words in wrong[field], field


@pytest.mark.parametrize(
    ("values", "field", "words"),
    [
        ({"goals": ["top1", "seconds"], "pruner": "halving"}, "pruner", "several goals"),
        ({"goals": ["seconds"], "pruner": "halving"}, "pruner", "validations do not measure it"),
        ({"goals": ["top1", "seconds"], "confirm": 1}, "confirm", "several goals"),
        ({"goals": ["parameters"], "confirm": 1}, "confirm", "does not depend on the seed"),
        ({"space": {"seed": [0, 1]}, "confirm": 2}, "confirm", "where the seed itself varies"),
        ({"confirm": True}, "confirm", "not a number"),
        ({"sampler": "grid"}, "space.learning_rate", "a grid needs single values"),
        ({"devices": []}, "devices", "no device is chosen"),
        ({"space": {}}, "space", "nothing to vary"),
        ({"space": {"model": ["mnist_cnn", "resnet81"]}}, "space.model", "did you mean “resnet18”"),
        ({"space": {"loss": ["cross_entropy", "dice"]}}, "space.loss", "has no loss “dice”"),
        ({"space": {"precision": ["fp32", "fp16"]}}, "space.precision", "fp16 needs a gpu"),
    ],
)
def test_that_what_would_fail_later_is_told_before_anything_starts(values: Any, field: str, words: str) -> None:
    wrong = told(**values)
    assert list(wrong) == [field]
    assert words in wrong[field].lower()


@pytest.mark.parametrize(
    ("values", "confirm"),
    [({}, 1), ({"goals": ["top1", "seconds"]}, 0), ({"goals": ["seconds"]}, 0), ({"space": {"seed": [0, 1]}}, 0)],
)
def test_that_the_best_are_confirmed_once_where_that_can_be_asked_for(values: Any, confirm: int) -> None:
    search, problems = judge_search({"name": "a", "space": SPACE} | values, small_job(), load_catalogue())
    assert search is not None, problems
    assert search.confirm == confirm


def test_that_a_search_that_goes_on_may_confirm_more() -> None:
    create_search(small_search(confirm=1))
    assert name_problems(small_search(confirm=3, trials=9)) == []
    assert name_problems(small_search(confirm=3, seed=9)) != []


def test_that_a_disk_without_room_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    search = small_search()
    assert room_problems(search, load_catalogue(), paths.home()) == []
    usage = type("Usage", (), {"free": 1 << 20})
    monkeypatch.setattr("shutil.disk_usage", lambda _folder: usage)
    (problem,) = room_problems(search, load_catalogue(), paths.home())
    assert problem.field == "disk"
    assert "has 1.0 MiB free" in problem.message


def test_that_a_search_without_optuna_is_told_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.checks.search_checks.find_spec", lambda _name: None)
    assert 'pip install "footplate[search]"' in told()["search"]
