"""Command lines that start a job or resume a run."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

from engine.contract.catalogue import load_catalogue
from engine.contract.idle_fields import idle_fields
from engine.contract.job import FIELDS, Job, changed_fields
from engine.contract.recipes import load_recipes


def command_arguments(job: Job) -> list[str]:
    """Return the arguments of `footplate` that make this job, on any machine and for any content of the folder.

    Fields at their default are omitted, except those that `footplate train` would choose: the model, the devices, and
    the fields that the job's recipe may set.
    """
    recipe = load_recipes().get(job.recipe)
    named = {*changed_fields(job), "model", "devices", "recipe"}
    if recipe is not None:
        named |= recipe.mentioned - idle_fields(job.values(), load_catalogue()).keys()
    values = {name: job.value(name) for name in FIELDS if name in named}
    if recipe is None:
        values["recipe"] = ""  # the recipe no longer exists
    if not job.model_is_file:
        values.pop("model_file_sha256", None)
    return ["train", *_positional(job.data.dataset), *flags(values | {"options": job.options})]


def command_line(job: Job) -> str:
    """Return the command that starts the job, for a shell."""
    return shlex.join(["footplate", *command_arguments(job)])


def resume_line(run_id: str, changes: Mapping[str, Any]) -> str:
    """Return the command that resumes a run with `changes`, plain values by field, for a shell."""
    return shlex.join(["footplate", "resume", run_id, *flags(changes)])


def flags(values: Mapping[str, Any]) -> list[str]:
    """Return the flags for values by field; an empty value clears the field."""
    arguments = []
    for name, value in values.items():
        if name == "options":
            arguments += _options(value)
            continue
        flag = FIELDS[name].flag
        if name in ("dataset", "model_file_sha256"):
            continue
        if FIELDS[name].kind == "bool":
            arguments.append(flag if value else f"--no-{flag[2:]}")
        else:
            text = ",".join(map(str, value)) if isinstance(value, tuple | list) else value
            arguments += _option(flag, "" if text is None else str(text))
    return [*arguments, "--trust-model-file"] if "model_file_sha256" in values else arguments


def _positional(dataset: str) -> list[str]:
    return [f"./{dataset}" if dataset.startswith("-") else dataset] if dataset else []


def _options(values: Mapping[str, Any]) -> list[str]:
    written = (str(value).lower() if isinstance(value, bool) else str(value) for value in values.values())
    return [argument for name, text in zip(values, written, strict=True) for argument in ("--option", f"{name}={text}")]


def _option(flag: str, value: str) -> list[str]:
    return [f"{flag}={value}"] if value.startswith("-") else [flag, value]
