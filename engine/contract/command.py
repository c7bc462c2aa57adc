"""Command lines that start a job, with or without PyTorch's launcher torchrun, or resume a run."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from itertools import groupby
from typing import Any

import msgspec

from engine.contract.catalogue import load_catalogue
from engine.contract.devices import host_of
from engine.contract.hosts import THIS, Host, host
from engine.contract.idle_fields import find_idle_fields
from engine.contract.job import FIELDS, Job, changed_fields
from engine.contract.problems import Problem
from engine.contract.recipes import load_recipes


def command_arguments(job: Job) -> list[str]:
    """Return arguments that make `footplate` create this job on any machine and in any current folder.

    Fields with default values are omitted. The exceptions are those for which `footplate train` would choose another
    value: the model, the devices, and the fields that the job's recipe may set.
    """
    recipe = load_recipes().get(job.recipe)
    included = {*changed_fields(job), "model", "devices", "recipe"}
    if recipe is not None:
        included |= recipe.settable_fields - find_idle_fields(job.values(), load_catalogue()).keys()
    values = {name: job.value(name) for name in FIELDS if name in included}
    if recipe is None:
        values["recipe"] = ""  # the recipe no longer exists
    if not job.model_is_file:
        values.pop("model_file_sha256", None)
    arguments = ["train"]
    if job.data.dataset:
        is_like_flag = job.data.dataset.startswith("-")
        arguments.append(f"./{job.data.dataset}" if is_like_flag else job.data.dataset)
    return [*arguments, *flags(values | {"options": job.options})]


def command_line(job: Job) -> str:
    """Return the shell command that starts a job."""
    return shlex.join(["footplate", *command_arguments(job)])


def resume_line(run_id: str, changes: Mapping[str, Any]) -> str:
    """Return the shell command that resumes a run with `changes`, given as plain values by field."""
    return shlex.join(["footplate", "resume", run_id, *flags(changes)])


def flags(values: Mapping[str, Any]) -> list[str]:
    """Return the command-line flags that set job fields, including `options`, to `values`. Empty values clear a field.

    The dataset is left out, since it is a positional argument. `model_file_sha256` becomes --trust-model-file.
    """
    arguments = []
    for name, value in values.items():
        if name == "options":
            arguments += _format_option_flags(value)
        elif name in ("dataset", "model_file_sha256"):
            continue
        elif FIELDS[name].kind == "bool":
            arguments.append(FIELDS[name].flag if value else f"--no-{FIELDS[name].flag[2:]}")
        elif isinstance(value, tuple | list):
            arguments += _format_flag(FIELDS[name].flag, ",".join(map(str, value)))
        else:
            arguments += _format_flag(FIELDS[name].flag, "" if value is None else str(value))
    return [*arguments, "--trust-model-file"] if "model_file_sha256" in values else arguments


def _format_option_flags(values: Mapping[str, Any]) -> list[str]:
    """Return a flag `--option NAME=VALUE` for each option of a job."""
    texts = {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in values.items()}
    return [argument for name, text in texts.items() for argument in ("--option", f"{name}={text}")]


def _format_flag(flag: str, value: str) -> list[str]:
    """Return a flag and its value, in one argument if the value could be mistaken for a flag."""
    return [f"{flag}={value}"] if value.startswith("-") else [flag, value]


WORKER = "engine.machines.torchrun"
"""Module that torchrun starts for each device of a run. It receives the job as JSON or as a job file."""
_ONE_MACHINE_OPTIONS = "--rdzv-backend c10d --rdzv-conf store_type=file"
"""Options of torchrun for a single machine, where the agent's store is a temporary file."""
_NO_SERVER_SETTING = "TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1"
"""Environment setting that prevents torchrun from opening a port on all interfaces.

It is used for a single machine, which needs no such port.
"""


def single_process_problem(job: Job) -> Problem | None:
    """Return a problem if a job has a single process and thus does not need torchrun, otherwise None."""
    strategy = load_catalogue().strategy(job.resolved_strategy)
    if strategy is not None and strategy.process_per_device and len(job.parallel.devices) > 1:
        return None
    message = "torchrun starts one process per device, and this job has a single process."
    return Problem("strategy", message, "Choose a strategy such as ddp, and several devices.")


def torchrun_lines(job: Job) -> tuple[dict[str, str], list[Problem]]:
    """Return the torchrun command for each machine by its title, or the problems that prevent the start.

    Machines are in the order of node ranks. Several machines use torchrun's static rendezvous at the address and port
    of the first one.
    """
    if problem := single_process_problem(job):
        return {}, [problem]
    # Machines with their numbers of devices. SLURM's machines are not in the user's list.
    machines = [
        (host(name) or Host(name=name), len(list(devices))) for name, devices in groupby(job.parallel.devices, host_of)
    ]
    titles = [machine.title for machine, _ in machines]
    if len(set(titles)) < len(titles):  # a machine occurs in several groups
        message = "The devices of a machine are not listed consecutively."
        return {}, [Problem("devices", message, "List each machine's devices together.")]
    job_json = msgspec.json.encode(changed_fields(job) | {"devices": job.parallel.devices}).decode()
    worker = f"-m {WORKER} {shlex.quote(job_json)}"
    if len(machines) == 1:
        machine, count = machines[0]
        program = f"{_NO_SERVER_SETTING} {_format_torchrun_program(machine)}"
        line = f"{program} --nproc-per-node {count} {_ONE_MACHINE_OPTIONS} {worker}"
        return {machine.title: line}, []
    first, _ = machines[0]
    address = first.address or first.ssh_destination.rpartition("@")[2]
    if not address:
        message = "The other machines don't know the address of this machine."
        return {}, [Problem("devices", message, f"Run `footplate hosts add {THIS} --address ADDRESS`.")]
    return {
        machine.title: f"{_format_torchrun_program(machine)} --nnodes {len(machines)} --node-rank {node_rank} "
        f"--nproc-per-node {count} --master-addr {shlex.quote(address)} --master-port {first.port} {worker}"
        for node_rank, (machine, count) in enumerate(machines)
    }, []


def torchrun_text(lines: dict[str, str]) -> str:
    """Format torchrun commands as a shell script, with a comment before each that names its machine."""
    return "\n".join(f"# On {title}:\n{line}" for title, line in lines.items())


def _format_torchrun_program(machine: Host) -> str:
    """Return the shell word that starts torchrun on a machine, from its virtual environment if that is known."""
    folder = machine.folder.rstrip("/")
    if not folder:
        return "torchrun"
    home = "~/" if folder.startswith("~/") else ""  # the shell expands it only without quotes
    return home + shlex.quote(f"{folder.removeprefix('~/')}/bin/torchrun")
