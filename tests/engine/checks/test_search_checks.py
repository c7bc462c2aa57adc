"""Validation of searches."""

from __future__ import annotations

from typing import Any

import pytest

from engine.checks.search_checks import name_problems, room_problems, validate_search
from engine.contract.catalogue import load_catalogue
from engine.contract.job import Job
from engine.contract.search import Budget, Choices, Range
from engine.runs.searches import create_search
from engine.system import paths
from tests.support.searches import SPACE, small_job, small_search


def search_problems(job: Job | None = None, **values: Any) -> dict[str, str]:
    """Return the problems with a search, by field."""
    given = {"name": "a", "space": SPACE} | values
    search, problems = validate_search(given, job or small_job(), load_catalogue())
    assert (search is None) == bool(problems)
    return {problem.field: str(problem) for problem in problems}


def test_space_values_have_the_fields_types() -> None:
    search = small_search(space={"batch_size": {"low": 8, "high": 64, "log": True}, "clip_norm": ["none", 1]})
    assert search.space["batch_size"] == Range(low=8, high=64, log=True)
    assert search.space["clip_norm"] == Choices(values=(None, 1.0))
    assert search.goals[0].measure == "top1"
    assert search.job.checkpoints.best_by == "top1"
    assert (search.pruner, search.sampler, search.budget) == ("hyperband", "tpe", Budget(trials=4))
    several = small_search(goals=["top1", "seconds", "parameters"])
    assert (several.sampler, several.pruner) == ("nsgaii", "none")
    grid = small_search(
        space={"momentum": {"low": 0.5, "high": 0.9, "step": 0.2}, "nesterov": [False, True]},
        sampler="grid",
        trials=None,
    )
    assert grid.budget == Budget(trials=6)


def test_validate_search_reports_field_and_remedy() -> None:
    wrong = search_problems(
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
    assert wrong.keys() == {
        "name", "space.learning_rate", "space.weight_decay", "space.momentum", "space.optimizer", "space.batch_size",
        "space.mixup", "space.final_rate", "space.epochs", "space.dataset", "space.learing_rate", "space.options.width",
        "goals", "trials", "hours", "pruner", "devices", "devices_per_trial", "confirm", "seed", "hurs",
    }  # fmt: skip
    for field, name in (("space.learing_rate", "learning_rate"), ("pruner", "hyperband"), ("hurs", "hours")):
        assert f"Did you mean “{name}”" in wrong[field]


@pytest.mark.parametrize(
    ("values", "field"),
    [
        ({"goals": ["top1", "seconds"], "pruner": "halving"}, "pruner"),
        ({"goals": ["seconds"], "pruner": "halving"}, "pruner"),
        ({"goals": ["top1", "seconds"], "confirm": 1}, "confirm"),
        ({"goals": ["parameters"], "confirm": 1}, "confirm"),
        ({"space": {"seed": [0, 1]}, "confirm": 2}, "confirm"),
        ({"confirm": True}, "confirm"),
        ({"sampler": "grid"}, "space.learning_rate"),
        ({"devices": []}, "devices"),
        ({"best_epochs": 0}, "best_epochs"),
        ({"space": {}}, "space"),
        ({"space": {"model": ["mnist_cnn", "resnet81"]}}, "space.model"),
        ({"space": {"loss": ["cross_entropy", "dice"]}}, "space.loss"),
        ({"space": {"precision": ["fp32", "fp16"]}}, "space.precision"),
    ],
)
def test_validate_search_checks_each_value_of_the_space(values: Any, field: str) -> None:
    assert list(search_problems(**values)) == [field]


@pytest.mark.parametrize(
    ("values", "confirm"),
    [({}, 1), ({"goals": ["top1", "seconds"]}, 0), ({"goals": ["seconds"]}, 0), ({"space": {"seed": [0, 1]}}, 0)],
)
def test_confirm_defaults_to_one_if_possible(values: Any, confirm: int) -> None:
    search, problems = validate_search({"name": "a", "space": SPACE} | values, small_job(), load_catalogue())
    assert search is not None, problems
    assert search.confirm == confirm


def test_name_problems_allows_changing_confirm() -> None:
    create_search(small_search(confirm=1))
    assert name_problems(small_search(confirm=3, trials=9)) == []
    assert name_problems(small_search(confirm=3, seed=9)) != []


def test_room_problems_of_a_full_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    search = small_search()
    assert room_problems(search, load_catalogue(), paths.home()) == []
    usage = type("Usage", (), {"free": 1 << 20})
    monkeypatch.setattr("shutil.disk_usage", lambda _folder: usage)
    (problem,) = room_problems(search, load_catalogue(), paths.home())
    assert problem.field == "disk"


def test_validate_search_without_optuna(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.checks.search_checks.find_spec", lambda _name: None)
    assert 'pip install "footplate[search]"' in search_problems()["search"]
