"""Options that a task, a model or a strategy declares beside itself, in jobs, their files and their commands."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import pytest

from engine.checks.job_checks import problems
from engine.contract.catalogue import Catalogue, Supplement, load_catalogue
from engine.contract.command import command_arguments, resume_line
from engine.contract.job import Field, Job, job_from_values, job_to_toml, load_job, save_job
from engine.contract.options import declared, option, option_problems, options_of


class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    width: Annotated[int, option("Width", "Channels.", ge=1, le=64)] = 8
    slope: Annotated[float, option("Slope", "Below zero.", ge=0)] = 0.1
    pooling: Annotated[Literal["mean", "max"], option("Pooling", "What is pooled.")] = "mean"
    bias: Annotated[bool, option("Bias", "Whether there is one.", resume=True)] = True
    note: Annotated[str, option("Note", "Anything.")] = ""


FIELDS = declared(Options)


def catalogue() -> Catalogue:
    """The one that ships, with a model that has the options."""
    shipped = load_catalogue()
    resnet = shipped.model("resnet18")
    assert resnet is not None
    narrow = msgspec.structs.replace(resnet, id="narrow", title="Narrow", package="trees", options=FIELDS)
    return shipped.with_plugins(Supplement(models=(narrow,)))


def test_that_declarations_survive_the_catalogues_file() -> None:
    assert msgspec.json.decode(msgspec.json.encode(FIELDS), type=tuple[Field, ...]) == FIELDS
    assert [(field.name, field.kind, field.default, field.limits, "resume" in field.traits) for field in FIELDS] == [
        ("width", "int", 8, "from 1 to 64", False),
        ("slope", "float", 0.1, "of at least 0", False),
        ("pooling", "choice", "mean", "", False),
        ("bias", "bool", True, "", True),
        ("note", "text", "", "", False),
    ]


@pytest.mark.parametrize(
    ("annotated", "why"),
    [
        (int, "the option it is not annotated by option"),
        (Annotated[int | None, option("A", "b")], "neither an int"),
        (Annotated[tuple[int, ...], option("A", "b")], "neither an int"),
    ],
)
def test_that_what_is_no_option_is_refused(annotated: Any, why: str) -> None:
    with pytest.raises(TypeError, match=why):
        declared(msgspec.defstruct("Wrong", [("it", annotated, 0)]))


def test_that_an_option_has_a_name_of_its_own_and_a_default() -> None:
    whole = Annotated[int, option("A", "b")]
    with pytest.raises(TypeError, match="epochs is a field of every job"):
        declared(msgspec.defstruct("Wrong", [("epochs", whole, 0)]))
    with pytest.raises(TypeError, match="has no default"):
        declared(msgspec.defstruct("Wrong", [("it", whole)]))
    with pytest.raises(TypeError, match="no limits but ge and le: gt"):
        option("A", "b", gt=0)


def test_that_a_job_has_its_options_in_a_table_and_none_where_there_are_none(tmp_path: Path) -> None:
    job = Job.from_fields(options={"width": 16, "slope": 1, "pooling": "max", "bias": False})
    save_job(job, tmp_path / "job.toml")
    assert (
        (tmp_path / "job.toml")
        .read_text()
        .endswith('\n[options]\nwidth = 16\nslope = 1\npooling = "max"\nbias = false\n')
    )
    assert load_job(tmp_path / "job.toml") == (job, [])
    assert hash(job) == hash(job.with_fields())
    assert "options" not in job_to_toml(Job())
    assert options_of(job, Options) == Options(width=16, slope=1.0, pooling="max", bias=False)
    assert options_of(Job.from_fields(options={"other": 1}), Options) == Options()


@pytest.mark.parametrize("wrong", [3, [1], {"width": [3]}])
def test_that_options_are_a_table_of_single_values(wrong: object) -> None:
    job, (problem,) = job_from_values({"options": wrong})
    assert job is None
    assert (problem.field, problem.remedy) == ("options", "Write NAME = VALUE below [options].")


def test_that_all_that_is_wrong_is_told_each_at_its_option() -> None:
    assert option_problems({"width": 64, "slope": 2, "pooling": "max", "bias": True, "note": "x"}, FIELDS) == []
    values = {"width": 0, "slope": "steep", "pooling": "min", "bias": 1, "note": 3, "widht": 8}
    told = {problem.field: str(problem) for problem in option_problems(values, FIELDS)}
    assert told == {
        "options.width": "Width: 0 is out of range. Give a value from 1 to 64.",
        "options.slope": "Slope: 'steep' is not a number. Give a number of at least 0.",
        "options.pooling": "Pooling: 'min' is not one of its choices. Choose mean, max.",
        "options.bias": "Bias: 1 is not true or false. Give true or false.",
        "options.note": "Note: 3 is not text. Give text.",
        "options.widht": "Neither task, model nor strategy has an option “widht”. "
        "Available: width, slope, pooling, bias, note.",
    }


def test_that_a_job_is_checked_by_the_options_of_its_own_model(tmp_path: Path) -> None:
    def told(**fields: Any) -> list[str]:
        found = problems(Job.from_fields(dataset=str(tmp_path), options={"width": 0}, **fields), catalogue())
        return [problem.message for problem in found if problem.field == "options.width"]

    assert told(model="narrow") == ["Width: 0 is out of range."]
    assert told(model="resnet18") == ["Neither task, model nor strategy has an option “width”."]


def test_that_commands_name_options() -> None:
    job = Job.from_fields(dataset="d", options={"width": 16, "bias": False, "note": "two words"})
    words = command_arguments(job)
    assert words[words.index("--option") :] == [
        "--option", "width=16", "--option", "bias=false", "--option", "note=two words",
    ]  # fmt: skip
    assert resume_line("a-run", {"options": {"bias": True}}) == "footplate resume a-run --option bias=true"
    assert "--option" not in command_arguments(Job.from_fields(dataset="d"))


def test_that_what_plugins_leave_out_is_a_warning_of_every_job(tmp_path: Path) -> None:
    from engine.contract.catalogue import left_out_problem
    from engine.system.plugins import LeftOut

    told = left_out_problem(LeftOut("footplate.models", "trees", "ash", "it is a module"))
    found = problems(
        Job.from_fields(dataset=str(tmp_path)), load_catalogue().with_plugins(Supplement(problems=(told,)))
    )
    assert (told.field, told.severity, told.remedy) == ("model", "warning", "Correct, update or uninstall trees.")
    assert told in found
