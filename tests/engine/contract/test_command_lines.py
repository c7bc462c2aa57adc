"""A job as a command: what the terminal makes of it is the same job."""

from __future__ import annotations

import argparse
import shlex
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.cli.arguments import add_train, gather
from engine.contract.checks import model_file_sha256
from engine.contract.command import command_line
from engine.contract.job import FIELDS, Job, job_from_values


def job_of(command: str) -> Job | None:
    """What the terminal's own parser makes of the command."""
    program, verb, *words = shlex.split(command)
    assert (program, verb) == ("footplate", "train")
    parser = argparse.ArgumentParser()
    add_train(parser)
    options, options_unknown = parser.parse_known_args(words)
    options.unknown = options_unknown
    values, problems = gather(options)
    assert problems == []
    return job_from_values(values)[0]


def values_of(name: str) -> st.SearchStrategy[Any]:
    field = FIELDS[name]
    if field.kind == "choice":
        return st.sampled_from(field.choices)
    if field.kind == "bool":
        return st.booleans()
    low, high = field.minimum, field.maximum
    if field.kind == "int":
        assert low is not None
        assert high is not None
        whole = st.integers(int(low), int(high))
        return st.none() | whole if field.optional else whole
    if field.kind == "float":
        return st.floats(low, high, exclude_min=True, exclude_max=True)
    return st.text(st.characters(codec="utf-8", exclude_categories=("Cc", "Cs")), max_size=20).map(str.strip)


CHANGEABLE = [
    name for name in FIELDS if name not in ("dataset", "model", "devices", "weights_file", "model_file_sha256")
]
JOBS = st.fixed_dictionaries({}, optional={name: values_of(name) for name in CHANGEABLE}).map(
    lambda values: Job(**values)
)


@given(job=JOBS, devices=st.sampled_from([("cpu",), ("cpu", "cpu"), ("GPU-1", "GPU-2")]))
def test_that_the_terminal_reads_the_same_job_from_the_command(job: Job, devices: tuple[str, ...]) -> None:
    whole = msgspec.structs.replace(job, dataset="/data/my flowers", devices=devices)
    assert job_of(command_line(whole)) == whole


@pytest.mark.parametrize("dataset", ["/data/it's here", "/data/-odd", '/data/"quoted" $HOME', "/data/新しい"])
def test_that_folders_with_odd_names_survive_the_shell(dataset: str) -> None:
    job = job_of(command_line(Job(dataset=dataset)))
    assert job is not None
    assert job.dataset == dataset


def test_that_the_command_says_that_the_model_file_is_trusted(tmp_path: Path) -> None:
    program = tmp_path / "net.py"
    program.write_text("def build_model(num_classes): ...\n")
    trusted = Job(dataset="/data", model=str(program), model_file_sha256=model_file_sha256(str(program)) or "")
    assert "--trust-model-file" in command_line(trusted)
    assert job_of(command_line(trusted)) == trusted
    assert "--trust-model-file" not in command_line(Job(dataset="/data", model=str(program)))
