"""A job as the command line that starts it."""

from __future__ import annotations

import shlex

from engine.contract.job import FIELDS, Job, changed_fields


def command_arguments(job: Job) -> list[str]:
    """The arguments of `footplate` that make this job; fields at their default are left away, but for the devices."""
    arguments = ["train", *_positional(job.dataset)]
    trusted = False
    for name, value in {**changed_fields(job), "devices": job.devices}.items():
        flag = FIELDS[name].flag
        if name == "dataset" or value is None:
            continue
        if name == "model_file_sha256":
            trusted = job.model_is_file
        elif FIELDS[name].kind == "bool":
            arguments.append(flag if value else f"--no-{flag[2:]}")
        else:
            arguments += _option(flag, ",".join(value) if isinstance(value, tuple) else str(value))
    if trusted:
        arguments.append("--trust-model-file")
    return arguments


def command_line(job: Job) -> str:
    """The job as a command to paste into a shell."""
    return shlex.join(["footplate", *command_arguments(job)])


def _positional(dataset: str) -> list[str]:
    return [f"./{dataset}" if dataset.startswith("-") else dataset] if dataset else []


def _option(flag: str, value: str) -> list[str]:
    return [f"{flag}={value}"] if value.startswith("-") else [flag, value]
