"""Options of tasks, models and strategies, in jobs, files and commands."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any, Literal

import msgspec
import pytest

from engine.checks.job_checks import problems
from engine.cli.doctor import check_plugins
from engine.contract.catalogue import (
    Catalogue,
    Measure,
    Supplement,
    create_plugin_warning,
    load_catalogue,
    load_supplement,
    supplement_file,
)
from engine.contract.command import command_arguments, resume_line
from engine.contract.job import Field, Job, job_from_values, job_to_toml, load_job, save_job
from engine.contract.options import list_options, option, option_problems, options_of
from engine.system.plugins import UnusablePlugin


class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    width: Annotated[int, option("Width", "Channels.", ge=1, le=64)] = 8
    slope: Annotated[float, option("Slope", "Below zero.", ge=0)] = 0.1
    pooling: Annotated[Literal["mean", "max"], option("Pooling", "What is pooled.")] = "mean"
    bias: Annotated[bool, option("Bias", "Whether there is one.", resume=True)] = True
    note: Annotated[str, option("Note", "Anything.")] = ""


FIELDS = list_options(Options)


def create_catalogue() -> Catalogue:
    """Return the built-in catalogue with an additional model that has options."""
    shipped = load_catalogue()
    resnet = shipped.model("resnet18")
    assert resnet is not None
    narrow = msgspec.structs.replace(resnet, id="narrow", title="Narrow", package="trees", options=FIELDS)
    return shipped.with_plugins(Supplement(models=(narrow,)))


def test_declared_options_survive_the_catalogue() -> None:
    assert msgspec.json.decode(msgspec.json.encode(FIELDS), type=tuple[Field, ...]) == FIELDS
    assert [(field.name, field.kind, field.default, field.limits, "resume" in field.traits) for field in FIELDS] == [
        ("width", "int", 8, "from 1 to 64", False),
        ("slope", "float", 0.1, "of at least 0", False),
        ("pooling", "choice", "mean", "", False),
        ("bias", "bool", True, "", True),
        ("note", "text", "", "", False),
    ]
    assert [(each.label, each.help, each.minimum, each.maximum) for each in FIELDS[:2]] == [
        ("Width", "Channels.", 1, 64),
        ("Slope", "Below zero.", 0, None),
    ]


@pytest.mark.parametrize(
    ("annotated", "why"),
    [
        (int, "the option it is not annotated by option"),
        (Annotated[int | None, option("A", "b")], "neither an int"),
        (Annotated[int, option("A", "b")] | None, "the option it is not annotated by option"),
        (Annotated[tuple[int, ...], option("A", "b")], "neither an int"),
    ],
)
def test_declared_refuses_other_fields(annotated: Any, why: str) -> None:
    with pytest.raises(TypeError, match=why):
        list_options(msgspec.defstruct("Wrong", [("it", annotated, 0)]))


def test_declared_requires_unique_name_and_default() -> None:
    integer = Annotated[int, option("A", "b")]
    with pytest.raises(TypeError, match="epochs is a field of every job"):
        list_options(msgspec.defstruct("Wrong", [("epochs", integer, 0)]))
    with pytest.raises(TypeError, match="has no default"):
        list_options(msgspec.defstruct("Wrong", [("it", integer)]))
    with pytest.raises(TypeError, match="no limits but ge and le: gt"):
        option("A", "b", gt=0)
    (at_most,) = list_options(msgspec.defstruct("Right", [("it", Annotated[int, option("A", "b", le=1000)], 0)]))
    assert at_most.limits == "of at most 1,000"


def test_job_file_has_an_options_table(tmp_path: Path) -> None:
    job = Job.from_fields(options={"width": 16, "slope": 1, "pooling": "max", "bias": False})
    save_job(job, tmp_path / "job.toml")
    text = (tmp_path / "job.toml").read_text()
    assert text.endswith('\n[options]\nwidth = 16\nslope = 1\npooling = "max"\nbias = false\n')
    assert load_job(tmp_path / "job.toml") == (job, [])
    assert hash(job) == hash(job.with_fields())
    assert "options" not in job_to_toml(Job())
    assert options_of(job, Options) == Options(width=16, slope=1.0, pooling="max", bias=False)
    assert options_of(Job.from_fields(options={"other": 1}), Options) == Options()


@pytest.mark.parametrize("wrong", [3, [1], {"width": [3]}])
def test_job_options_are_scalars(wrong: object) -> None:
    job, (problem,) = job_from_values({"options": wrong})
    assert job is None
    assert (problem.field, problem.remedy) == ("options", "Write NAME = VALUE below [options].")


def test_option_problems_name_each_option() -> None:
    assert option_problems({"width": 64, "slope": 2, "pooling": "max", "bias": True, "note": "x"}, FIELDS) == []
    values = {"width": 0, "slope": "steep", "pooling": "min", "bias": 1, "note": 3, "widht": 8}
    found = option_problems(values, FIELDS)
    assert [problem.field for problem in found] == [f"options.{name}" for name in values]
    assert all(problem.remedy for problem in found)
    (too_large, too_small) = option_problems({"width": 65, "slope": -0.1}, FIELDS)
    assert (too_large.remedy, too_small.remedy) == ("Give a value from 1 to 64.", "Give a value of at least 0.")
    (unknown,) = option_problems({"width": 8}, ())
    assert unknown.remedy == "Remove it: none of them has options."


def test_job_checks_use_the_models_options(tmp_path: Path) -> None:
    for model, has_width in (("narrow", True), ("resnet18", False)):
        job = Job.from_fields(dataset=str(tmp_path), options={"width": 0}, model=model)
        (problem,) = (problem for problem in problems(job, create_catalogue()) if problem.field == "options.width")
        assert ("out of range" in problem.message) == has_width


def test_command_line_contains_options() -> None:
    job = Job.from_fields(dataset="d", options={"width": 16, "bias": False, "note": "two words"})
    arguments = command_arguments(job)
    assert arguments[arguments.index("--option") :] == [
        "--option", "width=16", "--option", "bias=false", "--option", "note=two words",
    ]  # fmt: skip
    assert resume_line("a-run", {"options": {"bias": True}}) == "footplate resume a-run --option bias=true"
    assert "--option" not in command_arguments(Job.from_fields(dataset="d"))


def test_plugins_extend_tasks() -> None:
    shipped = load_catalogue()
    multilabel = shipped.task("multilabel")
    assert multilabel is not None
    measure = Measure("own", "Own", higher_is_better=False)
    custom_task = msgspec.structs.replace(multilabel, id="own", models="segmentation")
    added = Supplement(tasks=(custom_task,), annotations={"own": ("x",)}, metrics={"own": (measure,)})
    extended = shipped.with_plugins(added)
    assert extended.tasks[:-1] == shipped.tasks
    assert extended.tasks[-1].annotations == (*multilabel.annotations, "x")
    assert extended.tasks[-1].metrics == (*multilabel.metrics, measure)
    assert extended.models_of("own") == shipped.models_of("segmentation") != shipped.models
    assert extended.models_of("unknown") == shipped.models


def test_damaged_supplement_is_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.system.plugins.fingerprint", lambda: "0")
    file = supplement_file()
    assert file is not None
    assert load_supplement() is None
    file.parent.mkdir(parents=True)
    for content, expected in ((b"{", None), (msgspec.json.encode(Supplement()), Supplement())):
        file.write_bytes(content)
        assert load_supplement() == expected
    failed = SimpleNamespace(returncode=1, stderr=b"It is odd.")
    monkeypatch.setattr("engine.runs.plugins.run_child", lambda *_arguments, **_options: failed)
    assert ["It is odd" in finding.text for finding in check_plugins()] == [True]


def test_plugin_problems_warn_in_every_job(tmp_path: Path) -> None:
    warning = create_plugin_warning(UnusablePlugin("footplate.models", "trees", "ash", "it is a module"))
    found = problems(
        Job.from_fields(dataset=str(tmp_path)), load_catalogue().with_plugins(Supplement(problems=(warning,)))
    )
    assert (warning.field, warning.severity, warning.remedy) == (
        "model",
        "warning",
        "Correct, update or uninstall trees.",
    )
    assert warning in found
