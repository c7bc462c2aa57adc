"""Values and file of a job, and problems with invalid values."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.contract.command import command_line
from engine.contract.job import (
    FIELDS,
    Job,
    changed_fields,
    field_path,
    job_from_values,
    job_to_toml,
    load_job,
    save_job,
    values_from_table,
)
from engine.contract.job_fields import ABOUT, Field

text = st.text(st.characters(codec="utf-8"), max_size=40)


def values_of(field: Field) -> st.SearchStrategy[Any]:
    if field.kind == "bool":
        strategy: st.SearchStrategy[Any] = st.booleans()
    elif field.kind == "choice":
        strategy = st.sampled_from(field.choices)
    elif field.kind == "list":
        strategy = st.lists(text, max_size=4).map(tuple)
    elif field.kind == "ints":
        strategy = st.lists(st.integers(-5, 2**40), max_size=4).map(tuple)
    elif field.kind == "text":
        strategy = text
    else:
        assert field.minimum is not None
        assert field.maximum is not None
        if field.kind == "int":
            strategy = st.integers(int(field.minimum), int(field.maximum))
        else:
            strategy = st.floats(field.minimum, field.maximum, exclude_min=True, exclude_max=True)
    return st.none() | strategy if field.optional else strategy


jobs = st.fixed_dictionaries({}, optional={name: values_of(field) for name, field in FIELDS.items()})
anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20) | st.binary(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


@given(jobs)
def test_job_survives_its_file(tmp_path_factory: pytest.TempPathFactory, values: dict[str, Any]) -> None:
    job, problems = job_from_values(values)
    assert problems == []
    assert job is not None
    path = tmp_path_factory.getbasetemp() / "job.toml"
    save_job(job, path)
    assert load_job(path) == (job, [])


@given(jobs)
def test_changed_fields_restore_the_job(values: dict[str, Any]) -> None:
    job = Job.from_fields(**values)
    assert job_from_values(changed_fields(job)) == (job, [])


@given(st.dictionaries(st.sampled_from([*FIELDS, "options"]) | st.text(max_size=12), anything, max_size=8))
def test_job_from_values_returns_job_or_problems(values: dict[str, Any]) -> None:
    job, problems = job_from_values(values)
    assert (job is None) == bool(problems)
    assert all(problem.message and problem.remedy for problem in problems)
    if job is not None:
        stored, misplaced = values_from_table(tomllib.loads(job_to_toml(job)))
        assert misplaced == []
        assert job_from_values(stored) == (job, [])


def test_job_from_values_reports_all_problems() -> None:
    job, problems = job_from_values({"epochs": "3", "precision": "fp61", "optimiser": "sgd", "batch_size": 0})
    assert job is None
    assert [problem.field for problem in problems] == ["epochs", "precision", "optimiser", "batch_size"]
    assert "Did you mean “optimizer”?" in problems[2].remedy


@pytest.mark.parametrize(
    ("values", "remedy"),
    [
        ({"epochs": True}, "whole number"),
        ({"epochs": 0}, "from 1 to 100,000"),
        ({"learning_rate": 0}, "above 0, up to 100"),
        ({"learning_rate": float("nan")}, "above 0, up to 100"),
        ({"devices": "cpu"}, "a list of strings"),
        ({"pretrained": "yes"}, "true or false"),
        ({"momentum": 1}, "from 0 to below 1"),
        ({"val_fraction": 1.5}, "above 0 and below 1"),
        ({"epochs": 2.5}, "a whole number"),
        ({"name": 3}, "is not text"),
        ({"schedule": "cosin"}, "Did you mean “cosine”?"),
        ({"dataset": "\udcff"}, "symbolic link"),
        ({"name": "n" * 121}, "120"),
        ({"options": 3}, "[options]"),
    ],
)
def test_job_from_values_reports_field_and_remedy(values: dict[str, Any], remedy: str) -> None:
    job, problems = job_from_values(values)
    assert job is None
    assert [problem.field for problem in problems] == list(values)
    assert remedy in str(problems[0])


def test_load_job_reports_invalid_toml(tmp_path: Path) -> None:
    path = tmp_path / "job.toml"
    invalid = (b"epochs = = 1", b"epochs = 1\nepochs = 2", b"epochs = " + b"1" * 5000, b"epochs = " + b"[" * 100_000)
    for content, keyword in (
        *((each, "is not valid TOML") for each in invalid),
        (b"\xff\xfe", "can't be read: 'utf-8'"),
    ):
        path.write_bytes(content)
        job, problems = load_job(path)
        assert job is None
        assert [problem.field for problem in problems] == ["job"]
        assert keyword in problems[0].message
    (problem,) = load_job(tmp_path / "nowhere.toml")[1]
    assert problem.field == "job"
    assert problem.message.endswith("nowhere.toml can't be read: No such file or directory.")


@pytest.mark.parametrize(
    ("content", "field", "keyword"),
    [
        ("version = 3", "version", "Update Footplate"),
        ('version = "one"', "version", "set version = 1"),
        ("epochs = 3", "epochs", "training.epochs"),
        ("[training]\nseeds = 3", "seeds", "“seed”"),
        ("[training]\nseed = 'x'", "seed", "a whole number"),
        ("[optimizer]\noptimizer = 'sgd'", "optimizer", "optimizer.name"),
        ("[data]\nname = 'x'", "data", "not a field"),
        ("model = 'resnet18'", "model", "[model]"),
    ],
)
def test_load_job_reports_misplaced_entries(tmp_path: Path, content: str, field: str, keyword: str) -> None:
    (tmp_path / "job.toml").write_text(content)
    job, (problem,) = load_job(tmp_path / "job.toml")
    assert (job, problem.field) == (None, field)
    assert keyword in str(problem)


def test_flat_names_reach_every_section() -> None:
    assert set(FIELDS) == set(ABOUT)
    assert field_path("optimizer") == "optimizer.name"
    assert field_path("task") == "task"
    job = Job.from_fields(optimizer="adamw", batch_size=8, task="segmentation", options={"width": 3})
    assert (job.optimizer.name, job.training.batch_size, job.task) == ("adamw", 8, "segmentation")
    assert job.with_fields(batch_size=4).values() == job.values() | {"batch_size": 4}
    assert job_from_values({"options": {"width": 3}}) == (Job.from_fields(options={"width": 3}), [])
    assert hash(job) == hash(job.with_fields(batch_size=8))
    with pytest.raises(KeyError):
        job.with_fields(batchsize=8)
    names = ("decay_norms", "nesterov", "ema_decay", "name", "epochs", "ema_ramp", "head_rate")
    assert [FIELDS[name].back_to_default for name in names] == [
        "Turn it on", "Turn it off", *["Leave it empty"] * 2, "Set it to 5", "Set it to 2000", "Set it to 1",
    ]  # fmt: skip


def test_integer_list_survives_file_and_command(tmp_path: Path) -> None:
    job = Job.from_fields(dataset="/images", milestones=(16, 22))
    save_job(job, tmp_path / "job.toml")
    assert load_job(tmp_path / "job.toml") == (job, [])
    assert "--milestones 16,22" in command_line(job)


@pytest.mark.parametrize(
    ("strategy", "devices", "resolved"),
    [
        ("auto", (), "single"),
        ("auto", ("cpu",), "single"),
        ("auto", ("cpu", "cpu"), "ddp"),
        ("auto", ("GPU-1", "GPU-2", "GPU-3"), "ddp"),
        ("auto", ("ws1:GPU-1", "ws2:GPU-2"), "ddp"),
        ("single", ("cpu", "cpu"), "single"),
        ("fsdp", ("cpu",), "fsdp"),
    ],
)
def test_automatic_strategy_depends_on_devices(strategy: str, devices: tuple[str, ...], resolved: str) -> None:
    assert Job.from_fields(strategy=strategy, devices=devices).resolved_strategy == resolved
