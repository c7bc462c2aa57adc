"""Values of flags, converted to the types of their fields, and jobs described by a file and flags."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args, get_type_hints

import msgspec
import pytest

from engine.checks.disk import model_file_sha256
from engine.cli import arguments
from engine.cli.arguments import parse_value, read_job_values
from engine.cli.main import EPILOG, create_parser
from engine.contract.catalogue import load_catalogue
from engine.contract.job import Job, save_job
from engine.contract.job_fields import Field
from engine.contract.problems import Problem

CASES: dict[str, dict[str | bool, Any]] = {
    "text": {"7": "7", "": ""},
    "choice": {"7": "7", "": ""},
    "bool": {True: True, False: False},
    "int": {"7": 7, "-7": -7, "7.5": "7.5", "many": "many", "": ""},
    "float": {"7": 7.0, "1e-3": 0.001, "much": "much", "": ""},
    "list": {"a, 7,,b c": ["a", "7", "b c"], "": []},
    "ints": {"1, 7,,": [1, 7], "1,-7,a": [1, "-7", "a"], "": []},
}


def test_parse_value_has_cases_for_every_kind() -> None:
    assert set(CASES) == set(get_args(get_type_hints(Field)["kind"]))


@pytest.mark.parametrize(("kind", "given"), [(kind, given) for kind, cases in CASES.items() for given in cases])
def test_parse_value_converts_valid_text(kind: Any, given: str | bool) -> None:
    field = Field(name="f", label="F", help="", group="main", kind=kind, default=None)
    assert _typed(parse_value(field, given)) == _typed(CASES[kind][given])


@pytest.mark.parametrize("kind", ["int", "float"])
def test_empty_text_unsets_optional_numbers(kind: Any) -> None:
    field = Field(name="f", label="F", help="", group="main", kind=kind, default=1, optional=True)
    assert (parse_value(field, ""), parse_value(field, "0")) == (None, 0)


def gather_from(*arguments: str) -> tuple[dict[str, Any], list[Problem]]:
    """Parse a command ``footplate train``, and return the values of its job and the problems."""
    options, options.unknown = create_parser().parse_known_args(["train", *arguments])
    return read_job_values(options)


def test_flags_override_the_job_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "job.toml"
    saved = {"dataset": "/data", "epochs": 7, "batch_size": 9, "model": "resnet18", "model_file_sha256": "0" * 64}
    save_job(Job.from_fields(**saved), file)
    values, problems = gather_from(
        "--job", str(file), "--epochs", "3", "--resume-from", "~/last.pt", "--weights-file", "w"
    )
    expected = {"dataset": "/data", "epochs": 3, "batch_size": 9, "model": "resnet18"}
    expected |= {"resume_from": str(tmp_path / "last.pt"), "weights_file": str(tmp_path / "w")}
    assert (expected.items() <= values.items(), problems) == (True, [])
    assert "model_file_sha256" not in values
    file.write_text("epochs = [")
    assert [problem.field for problem in gather_from("--job", str(file), "data", "--bad=1", "stray")[1]] == [
        "--bad",
        "stray",
        "--job",
    ]


def test_help_groups_flags_by_their_strategies(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        create_parser().parse_args(["train", "--help"])
    text = " ".join(capsys.readouterr().out.split())
    strategies = load_catalogue().strategies
    assert EPILOG in create_parser().format_help()
    for name in dict.fromkeys(name for strategy in strategies for name in strategy.fields):
        ids = [strategy.id for strategy in strategies if name in strategy.fields]
        assert text.count(f"options of {', '.join(ids)}: --") == 1


def test_model_file_needs_trust(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "net.py"
    file.write_text("one = 1\n")
    trusted = {"model": str(file), "model_file_sha256": model_file_sha256(str(file))}
    assert gather_from("--model", "net.py")[0] == {"model": str(file)}
    for flags in (("--trust-model-file",), ()):  # it stays trusted
        assert gather_from("--model", str(file), *flags) == (trusted, [])
    file.write_text("two = 2\n")
    assert gather_from("--model", str(file))[0] == {"model": str(file)}
    monkeypatch.setenv("FOOTPLATE_HOME", str(file))
    (problem,) = gather_from("--model", str(file), "--trust-model-file")[1]
    assert (problem.field, problem.severity) == ("model", "error")
    assert problem.message.startswith("Your consent to run the mode")


def test_option_flags_override_those_of_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fields = [
        Field(name=kind, label="F", help=f"50% {kind}.", group="main", kind=kind, default=None)
        for kind in ("bool", "int")
    ]  # type: ignore[arg-type]
    catalogue = load_catalogue()
    resnet = msgspec.structs.replace(catalogue.models[0], options=tuple(fields))
    monkeypatch.setattr(arguments, "load_catalogue", lambda: msgspec.structs.replace(catalogue, models=(resnet,)))
    save_job(Job.from_fields(options={"int": 1, "text": "a"}), tmp_path / "job.toml")
    flags = [f"--option={each}" for each in ("bool=TRUE", "int=5", "other=2", "alone")]
    values, (problem,) = gather_from("--job", str(tmp_path / "job.toml"), *flags)
    assert values["options"] == {"bool": True, "int": 5, "text": "a", "other": "2"}
    assert problem.field == "--option"
    with pytest.raises(SystemExit):
        create_parser().parse_args(["train", "--help"])
    text = " ".join(capsys.readouterr().out.split())
    assert f"repeatable. bool ({resnet.title}): 50% bool. int ({resnet.title}): 50% int." in text


def _typed(value: Any) -> tuple[type, Any]:
    return type(value), value
