"""Validation of searches."""

from __future__ import annotations

import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from engine.checks.search_checks import USUAL_TRIALS, name_problems, room_problems, validate_search
from engine.checks.space_checks import field_of
from engine.contract.catalogue import load_catalogue
from engine.contract.devices import Snapshot
from engine.contract.job import FIELDS, Job
from engine.contract.problems import Problem
from engine.contract.search import MAX_REPEATS, Budget, Choices, Range
from engine.runs.searches import create_search
from tests.engine.checks.machines import gpu, machine
from tests.support.golden import check_problems
from tests.support.searches import SPACE, make_small_job, make_small_search

GOLDEN = Path(__file__).with_name("golden_problems.txt")


def find_search_problems(job: Job | None = None, snapshot: Snapshot | None = None, **values: Any) -> list[Problem]:
    """Validate a search with the fields `values` and return its problems.

    It varies `SPACE` of a small job by default. Without a `snapshot`, devices aren't checked.
    """
    given = {"name": "a", "space": SPACE} | values
    search, problems = validate_search(given, job or make_small_job(), load_catalogue(), machine=snapshot)
    assert (search is None) == bool(problems)
    return problems


def test_search_dimension_can_be_an_option_of_the_chosen_strategy() -> None:
    catalogue = load_catalogue()
    bits = msgspec.structs.replace(FIELDS["momentum"], name="bits")
    strategies = [
        msgspec.structs.replace(each, options=(bits,) if each.id == "single" else ()) for each in catalogue.strategies
    ]
    catalogue = msgspec.structs.replace(catalogue, strategies=tuple(strategies))
    job = make_small_job(strategy="auto")
    assert field_of(job, "options.bits", catalogue) is bits
    assert field_of(job, "options.momentum", catalogue) is None
    assert field_of(job, "momentum", catalogue) is FIELDS["momentum"]


def test_space_values_have_the_fields_types() -> None:
    search = make_small_search(space={"batch_size": {"low": 8, "high": 64, "log": True}, "clip_norm": ["none", 1]})
    assert search.space["batch_size"] == Range(low=8, high=64, log=True)
    assert search.space["clip_norm"] == Choices(values=(None, 1.0))
    assert (search.pruner, search.sampler, search.budget) == ("hyperband", "tpe", Budget(trials=4))
    several = make_small_search(goals=["top1", "seconds", "parameters"])
    assert (several.sampler, several.pruner) == ("nsgaii", "none")
    assert make_small_search(goals=["seconds"]).pruner == "none"
    assert make_small_search(trials=None).budget == Budget(trials=USUAL_TRIALS)
    assert make_small_search(trials=None, hours=2).budget == Budget(hours=2)
    of_two = make_small_search(devices=["cpu"] * 4, devices_per_trial=2, confirm=MAX_REPEATS)
    assert (of_two.devices, of_two.job.parallel.devices, of_two.confirm) == (("cpu",) * 4, ("cpu",) * 2, MAX_REPEATS)
    assert make_small_search(best_epochs=7).best_epochs == 7
    grid = make_small_search(
        space={"momentum": {"low": 0.1, "high": 0.3, "step": 0.1}, "nesterov": [False, True]},
        sampler="grid",
        trials=None,
    )
    assert grid.budget == Budget(trials=6)
    integers = {"epochs": {"low": 2, "high": 4}, "momentum": {"low": 0.5, "high": 0.9, "step": 0.4}}
    assert make_small_search(space=integers, sampler="grid", trials=None).budget == Budget(trials=6)
    full = {"epochs": {"low": 1, "high": 50_000}, "batch_size": [8, 16]}
    assert make_small_search(space=full, sampler="grid", trials=None).budget == Budget(trials=100_000)


@pytest.mark.parametrize(
    ("best_by", "values", "goal", "checkpoint_by"),
    [
        ("", {}, "top1", "top1"),
        ("loss", {}, "loss", "loss"),
        ("loss", {"goals": "top5"}, "top5", "loss"),
        ("", {"goals": ["seconds"]}, "seconds", ""),
        ("", {"goals": ["loss", "top1"]}, "loss", "loss"),
    ],
)
def test_goal_selects_the_best_checkpoint(best_by: str, values: Any, goal: str, checkpoint_by: str) -> None:
    search = make_small_search(make_small_job(best_by=best_by), **values)
    assert (search.goals[0].measure, search.job.checkpoints.best_by) == (goal, checkpoint_by)


EVERYTHING_WRONG: dict[str, Any] = {
    "name": "../a",
    "space": {
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
        "resume": [1, 2],
    },
    "goals": ["top1", "mious"],
    "trials": 0,
    "hours": "long",
    "pruner": "hyperbnad",
    "devices": ["GPU-1", "GPU-1", "GPU-2"],
    "devices_per_trial": 2,
    "confirm": 11,
    "seed": -1,
    "hurs": 1,
}
REFUSED: list[dict[str, Any]] = [
    EVERYTHING_WRONG,
    {"goals": ["top1", "seconds"], "pruner": "halving"},
    {"goals": ["seconds"], "pruner": "halving"},
    {"goals": ["top1", "seconds"], "confirm": 1},
    {"goals": ["parameters"], "confirm": 1},
    {"space": {"seed": [0, 1]}, "confirm": 2},
    {"confirm": True},
    {"sampler": "grid"},
    {"devices": []},
    {"best_epochs": 0},
    {"space": {}},
    {"space": {"model": ["mnist_cnn", "resnet81"]}},
    {"space": {"loss": ["cross_entropy", "dice"]}},
    {"space": {"precision": ["fp32", "fp16"]}},
    {"space": {"accumulation": {"low": 2, "high": 64}}},
    {"space": {"epochs": {"low": 3, "high": 3}}},
    {"space": {"epochs": {"low": 1, "high": 9, "step": 1.5}}},
    {"space": {"momentum": {"low": 0.25, "high": 0.5, "step": 0.5}}},
    {"space": {"learning_rate": {"low": 0.1, "high": 1, "log": True, "step": 0.1}}},
    {"space": {"learning_rate": {"low": 0.1, "high": 1, "log": 1, "stp": 0.1}}},
    {"space": {"learning_rate": {"low": 0.1, "high": 1, "log": 1}}},
    {"space": {"learning_rate": {"low": 0.1, "high": math.inf}}},
    {"space": {"nesterov": {"low": 0, "high": 1}}},
    {"space": {"batch_size": [8, 16, 8]}},
    {"space": {"batch_size": [8, "none"]}},
    {"space": {"epochs": {"low": 1, "high": 100_001}, "batch_size": [8, 16]}, "sampler": "grid"},
    {"space": {"epochs": {"low": 1, "high": 50_001}, "batch_size": [8, 16]}, "sampler": "grid"},
    {"name": ""},
    {"sampler": "", "pruner": ""},
    {"goals": 3},
    {"goals": ["top1", "top1"]},
    {"devices": "cpu"},
    {"devices": ["cpu"] * 3, "devices_per_trial": 2},
    {"devices_per_trial": 0},
    {"keep_checkpoints": 1},
]


def test_texts_of_search_problems(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cases = {str(values): find_search_problems(**values) for values in REFUSED}
    gpus = [gpu(0), gpu(1, lost=True), gpu(2)]
    names = [each.uuid for each in gpus]
    cases["lost and unknown GPUs"] = find_search_problems(snapshot=machine(*gpus), devices=[*names, "GPU-9"])
    cases["problem of the job"] = find_search_problems(make_small_job(Path("/nowhere")))
    create_search(make_small_search(confirm=1))
    changed = {"confirm": 3, "trials": 9, "devices": ["cpu"] * 3, "devices_per_trial": 3, "pruner": "none"}
    cases["search of the same name"] = name_problems(make_small_search(**changed))
    cases["other search of the same name"] = name_problems(make_small_search(sampler="random", seed=9))
    monkeypatch.setattr("shutil.disk_usage", lambda _folder: SimpleNamespace(free=1 << 20))
    for values in (
        {}, {"confirm": 2}, {"confirm": 2, "trials": 2}, {"keep_checkpoints": True}, {"trials": None, "hours": 1},
        {"space": {"model": ["resnet18", "resnet50"]}},
    ):  # fmt: skip
        search = make_small_search(make_small_job(model="resnet18", image_size=32), **values)
        cases[f"full disk, {values}"] = room_problems(search, load_catalogue(), tmp_path / "new")
    monkeypatch.setattr("engine.checks.search_checks.find_spec", lambda _name: None)
    cases["without Optuna"] = find_search_problems()
    check_problems(GOLDEN, "search checks", cases, tmp_path)


@pytest.mark.parametrize(
    ("values", "confirm"),
    [({}, 1), ({"goals": ["top1", "seconds"]}, 0), ({"goals": ["seconds"]}, 0), ({"space": {"seed": [0, 1]}}, 0)],
)
def test_confirm_defaults_to_one_if_possible(values: Any, confirm: int) -> None:
    search, problems = validate_search({"name": "a", "space": SPACE} | values, make_small_job(), load_catalogue())
    assert search is not None, problems
    assert search.confirm == confirm


def test_room_problems_of_a_disk_with_space(tmp_path: Path) -> None:
    assert room_problems(make_small_search(), load_catalogue(), tmp_path) == []
