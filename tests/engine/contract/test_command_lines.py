"""Command line that creates a given job. Parsing it must give the same job."""

from __future__ import annotations

import argparse
import shlex
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.checks.disk import model_file_sha256
from engine.cli.arguments import add_resume_flags, add_train_flags, read_job_values
from engine.contract.catalogue import load_catalogue
from engine.contract.command import command_arguments, command_line, flags, resume_line
from engine.contract.job import FIELDS, Job, job_from_values
from engine.contract.recipes import SHIPPED
from engine.runs.resume import CHANGEABLE as OF_A_RUN


def job_of(command: str) -> Job | None:
    """Parse a command as the terminal does. Return its job, or None if its values are invalid."""
    program, verb, *flags = shlex.split(command)
    assert (program, verb) == ("footplate", "train")
    parser = argparse.ArgumentParser()
    add_train_flags(parser)
    options, options_unknown = parser.parse_known_args(flags)
    options.unknown = options_unknown
    values, problems = read_job_values(options)
    assert problems == []
    return job_from_values(values)[0]


def values_of(name: str) -> st.SearchStrategy[Any]:
    field = FIELDS[name]
    choices = ("", *SHIPPED) if name == "recipe" else field.choices
    if choices:
        return st.sampled_from(choices)
    if field.kind == "bool":
        return st.booleans()
    low, high = field.minimum, field.maximum
    if field.kind == "int":
        assert low is not None
        assert high is not None
        complete = st.integers(int(low), int(high))
        return st.none() | complete if field.optional else complete
    if field.kind == "float":
        numbers = st.floats(low, high, exclude_min=True, exclude_max=True)
        return st.none() | numbers if field.optional else numbers
    if field.kind in ("list", "ints"):
        texts = st.from_regex(r"[a-z][a-z0-9_.]{0,8}", fullmatch=True)
        return st.lists(texts if field.kind == "list" else st.integers(0, 2**40), max_size=3).map(tuple)
    return st.text(st.characters(codec="utf-8", exclude_categories=("Cc", "Cs")), max_size=20).map(str.strip)


PATHS = ("dataset", "model", "weights_file", "resume_from")
CHANGEABLE = [name for name in FIELDS if name not in (*PATHS, "devices", "model_file_sha256")]
JOBS = st.fixed_dictionaries({}, optional={name: values_of(name) for name in CHANGEABLE}).map(
    lambda values: Job.from_fields(**values)
)


@given(job=JOBS, devices=st.sampled_from([("cpu",), ("cpu", "cpu"), ("GPU-1", "GPU-2")]))
def test_command_line_makes_the_same_job(job: Job, devices: tuple[str, ...]) -> None:
    complete = job.with_fields(dataset="/data/my flowers", devices=devices)
    assert job_of(command_line(complete)) == complete


@pytest.mark.parametrize(("recipe", "named"), [("fine-tune", "fine-tune"), ("timm-a1", "timm-a1"), ("gone", "")])
def test_command_line_keeps_defaults_that_the_recipe_would_change(recipe: str, named: str) -> None:
    job = Job.from_fields(dataset="/data", recipe=recipe, model_file_sha256="0")
    assert job_of(command_line(job)) == job.with_fields(recipe=named, model_file_sha256="")
    arguments = set(command_arguments(job))
    assert {"--model", "--devices", "--recipe"} <= arguments, "the terminal would choose other values"
    assert "--transforms" not in arguments, "they have no effect without the augmentation “own”"
    assert "--trust-model-file" not in arguments, "the model is no file"


def test_split_points_flag_is_a_comma_list() -> None:
    job = Job.from_fields(dataset="/data", split_points=("relu", "layer2_0_relu"))
    assert "--split-points relu,layer2_0_relu" in command_line(job)
    job = job_of("footplate train /data --split-points ''")
    assert job is not None
    assert job.parallel.split_points == ()
    spaced = job_of("footplate train /data --split-points 'relu, layer2_0_relu'")
    assert spaced is not None
    assert spaced.parallel.split_points == ("relu", "layer2_0_relu")


def test_optional_number_flag_may_be_empty() -> None:
    job = job_of("footplate train /data --clip-norm 0.5 --ema-decay '' --stages-per-device ''")
    assert job is not None
    assert (job.training.clip_norm, job.training.ema_decay, job.parallel.stages_per_device) == (0.5, None, None)


@pytest.mark.parametrize("name", ["weights_file", "resume_from"])
def test_dataset_path_is_relative_to_the_working_folder(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    job = job_of(f"footplate train /data {FIELDS[name].flag} checkpoints/last.pt")
    assert job is not None
    assert job.value(name) == str(tmp_path / "checkpoints" / "last.pt")


def test_train_help_groups_options_by_strategy(capsys: pytest.CaptureFixture[str]) -> None:
    parser = argparse.ArgumentParser()
    add_train_flags(parser)
    parser.print_help()
    sections = {
        section.split(":", 1)[0]: section
        for section in capsys.readouterr().out.split("\n\n")
        if section.startswith("options of")
    }
    for strategy in load_catalogue().strategies:
        for name in strategy.fields:
            flag = FIELDS[name].flag
            (title,) = [title for title, section in sections.items() if f"{flag} " in section or f"{flag}," in section]
            assert strategy.id in title.removeprefix("options of ").split(", ")
    assert "--activation-checkpointing" in sections["options of every strategy"]


@pytest.mark.parametrize("dataset", ["/data/it's here", "-odd", "/data/-odd", '/data/"quoted" $HOME', "/data/新しい"])
def test_command_line_quotes_odd_folder_names(dataset: str) -> None:
    job = job_of(command_line(Job.from_fields(dataset=dataset)))
    assert job is not None
    assert job.data.dataset == (dataset if dataset.startswith("/") else str(Path(dataset).absolute()))


def test_command_line_trusts_the_model_file(tmp_path: Path) -> None:
    program = tmp_path / "net.py"
    program.write_text("def build_model(num_classes): ...\n")
    trusted = Job.from_fields(
        dataset="/data", model=str(program), model_file_sha256=model_file_sha256(str(program)) or ""
    )
    assert "--trust-model-file" in command_line(trusted)
    assert job_of(command_line(trusted)) == trusted
    assert "--trust-model-file" not in command_line(Job.from_fields(dataset="/data", model=str(program)))


def test_flags_of_each_kind_of_value() -> None:
    values = {"devices": ["cpu", "GPU-1"], "epochs": None, "pretrained": False, "name": "-x", "options": {"a": True}}
    assert flags({"dataset": "/data"} | values) == [
        "--devices", "cpu,GPU-1", "--epochs", "", "--no-pretrained", "--name=-x", "--option", "a=true",
    ]  # fmt: skip


@given(st.fixed_dictionaries({}, optional={name: values_of(name) for name in OF_A_RUN.intersection(CHANGEABLE)}))
def test_resume_line_contains_the_changes(changes: dict[str, Any]) -> None:
    program, verb, run, *flags = shlex.split(resume_line("20261121-1405-resnet18-beef", changes))
    assert (program, verb, run) == ("footplate", "resume", "20261121-1405-resnet18-beef")
    parser = argparse.ArgumentParser()
    add_resume_flags(parser)
    options, options.unknown = parser.parse_known_args(flags)
    values, problems = read_job_values(options)
    assert problems == []
    plain = {name: list(value) if isinstance(value, tuple) else value for name, value in changes.items()}
    assert values == plain
