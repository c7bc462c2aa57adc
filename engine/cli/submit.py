"""``footplate submit`` and ``torchrun``: train a job with SLURM or torchrun as the launcher."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from engine.cli import arguments
from engine.cli.terminal import (
    BAD_REQUEST,
    COMPLETED,
    print_error,
    print_lines,
    report,
    report_unwritable,
    require_valid,
)
from engine.cli.train import validate
from engine.contract.command import torchrun_lines, torchrun_text
from engine.contract.job import Job
from engine.contract.problems import Problem, errors
from engine.contract.slurm import SlurmOptions, script_problems
from engine.runs.slurm import submit_new
from engine.runs.slurm_job import SCRIPT, read_slurm
from engine.system.files import read_file
from engine.system.slurm import SlurmFailed


def add_submit(commands: Any) -> None:
    parser = commands.add_parser("submit", help="train a model in SLURM", allow_abbrev=False)
    group = parser.add_argument_group("SLURM")
    group.add_argument("--partition", default="", help="the partition")
    group.add_argument("--account", default="", help="the account to charge")
    group.add_argument("--time", default="", help="the time limit, such as 8:00:00; by default the partition's")
    group.add_argument("--nodes", type=int, default=1, help="number of nodes. Default: 1.")
    group.add_argument(
        "--gpus-per-node", type=int, default=1, help="GPUs per node; 0 for a CPU worker on each. Default: 1."
    )
    group.add_argument("--cpus-per-task", type=int, default=0, help="CPUs per node")
    group.add_argument(
        "--setup",
        action="append",
        default=[],
        metavar="LINE",
        help="a line of the script before the run, such as “module load cuda”; repeatable",
    )
    group.add_argument(
        "--slurm-host",
        default="",
        metavar="HOST",
        help="the machine with SLURM's commands, reached by `ssh HOST`; by default this one",
    )
    group.add_argument("--script", metavar="FILE", help="submit this script, for example an edited one from --print")
    group.add_argument("--print", action="store_true", help="print the script without submitting it")
    arguments.add_field_flags(parser)
    parser.set_defaults(command=submit, json=False)  # `validate` reads `json`, but this command has no flag --json


def add_torchrun(commands: Any) -> None:
    parser = commands.add_parser(
        "torchrun", help="print the commands of PyTorch's launcher that train a job", allow_abbrev=False
    )
    arguments.add_field_flags(parser)
    parser.set_defaults(command=torchrun, json=False)  # as for `submit`


def torchrun(options: argparse.Namespace) -> int:
    """Print, for each machine, the torchrun command that the user must run there to train the job.

    Returns an exit code.
    """
    job, found = validate(options)
    lines: dict[str, str] = {}
    if job is not None and not errors(found):
        lines, wrong = torchrun_lines(job)
        found += wrong
    report(found)
    print_lines(*torchrun_text(lines).splitlines())
    return COMPLETED if lines else BAD_REQUEST


def submit(options: argparse.Namespace) -> int:
    """Submit a new run to SLURM, and print its run id and its SLURM job id. Returns an exit code.

    With `--print`, print the script instead. `options.devices` is set to the devices that the other flags request.
    """
    slurm = SlurmOptions(
        partition=options.partition,
        account=options.account,
        time=options.time,
        nodes=options.nodes,
        gpus_per_node=options.gpus_per_node,
        cpus_per_task=options.cpus_per_task,
        setup=tuple(options.setup),
        host=options.slurm_host,
    )
    found = slurm.problems()
    script = _read_script(options.script, found)
    if options.devices is not None:
        found.append(
            Problem("devices", "SLURM chooses the devices.", "Set their number with --nodes and --gpus-per-node.")
        )
    # The job is validated with the devices in SLURM's nodes, which do not depend on its other fields.
    options.devices = None if errors(found) else ",".join(slurm.create_job(Job()).parallel.devices)
    job, wrong = validate(options)
    job = require_valid(job, [*found, *wrong])
    script = script or slurm.create_script(job.name or Path(job.model.name).stem)
    if options.print:
        print_lines(*script.splitlines())
        return COMPLETED
    try:
        with report_unwritable():
            run = submit_new(slurm.create_job(job), script, slurm.host)
    except SlurmFailed as error:
        return print_error(str(error))
    slurm_job = read_slurm(run.path)
    print_lines(f"Job {slurm_job.job_id if slurm_job else '?'}, run {run.run_id}")
    print_lines(f"Its script is {run.path / SCRIPT}. Follow it with `footplate attach {run.run_id}`.", to=sys.stderr)
    return COMPLETED


def _read_script(file: str | None, found: list[Problem]) -> str:
    """Read a script file and return its text, or "" if `file` is None. Problems with it are appended to `found`."""
    if file is None:
        return ""
    try:
        text = read_file(Path(file)).decode()
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        found.append(Problem("--script", f"{file} can't be read: {reason}.", "Give a text file."))
        return ""
    found += script_problems(text)
    return text
