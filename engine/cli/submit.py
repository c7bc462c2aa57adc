"""``footplate submit``: a run that SLURM starts on nodes of its own."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from engine.cli import arguments
from engine.cli.exit_codes import BAD_REQUEST, COMPLETED
from engine.cli.terminal import say
from engine.cli.train import judge, tell, unwritable
from engine.contract.job import Job
from engine.contract.problems import Problem, errors
from engine.contract.slurm import SlurmOptions, script_problems
from engine.runs.slurm import submit_new
from engine.runs.slurm_job import SCRIPT, read_slurm
from engine.system.slurm import SlurmFailed


def add_submit(commands: Any) -> None:
    parser = commands.add_parser("submit", help="train a model in SLURM", allow_abbrev=False)
    group = parser.add_argument_group("SLURM")
    group.add_argument("--partition", default="", help="the partition")
    group.add_argument("--account", default="", help="the account that is charged")
    group.add_argument("--time", default="", help="the time limit, as 8:00:00; without one, the partition's")
    group.add_argument("--nodes", type=int, default=1, help="how many nodes. Default: 1.")
    group.add_argument(
        "--gpus-per-node", type=int, default=1, help="GPUs of each node; 0 for a CPU worker on each. Default: 1."
    )
    group.add_argument("--cpus-per-task", type=int, default=0, help="CPUs of each node")
    group.add_argument(
        "--setup",
        action="append",
        default=[],
        metavar="LINE",
        help="a line of the script that comes before the run, as “module load cuda”; may be given several times",
    )
    group.add_argument(
        "--slurm-host", default="", metavar="HOST", help="where SLURM's commands are, through `ssh HOST`; else here"
    )
    group.add_argument(
        "--script", metavar="FILE", help="submit this script, as --print has made it and you have changed it"
    )
    group.add_argument("--print", action="store_true", help="print the script, and submit nothing")
    arguments.add_torchrun(parser)
    parser.set_defaults(command=submit)


def submit(options: argparse.Namespace) -> int:
    """Submits a new run, and tells its id and its job's."""
    asked = SlurmOptions(
        partition=options.partition,
        account=options.account,
        time=options.time,
        nodes=options.nodes,
        gpus_per_node=options.gpus_per_node,
        cpus_per_task=options.cpus_per_task,
        setup=tuple(options.setup),
        host=options.slurm_host,
    )
    found = asked.problems()
    text = _script(options.script, found)
    if options.devices is not None:
        found.append(Problem("devices", "SLURM chooses the devices.", "Say how many with --nodes and --gpus-per-node."))
    options.devices = None if errors(found) else ",".join(asked.job(Job()).parallel.devices)
    job, judged = judge(options)
    found += judged
    tell(found)
    if job is None or errors(found):
        return BAD_REQUEST
    text = text or asked.script(job.name or Path(job.model.name).stem)
    if options.print:
        say(*text.splitlines())
        return COMPLETED
    try:
        run = submit_new(asked.job(job), text, asked.host)
    except SlurmFailed as error:
        say(f"footplate: {error}", to=sys.stderr)
        return BAD_REQUEST
    except OSError as error:
        return unwritable(error)
    known = read_slurm(run.path)
    say(f"Job {known.job_id if known else '?'}, run {run.run_id}")
    say(f"Its script is {run.path / SCRIPT}. Follow it with `footplate attach {run.run_id}`.", to=sys.stderr)
    return COMPLETED


def _script(file: str | None, found: list[Problem]) -> str:
    """The user's own script, "" without one; what is wrong with it is `found`."""
    if file is None:
        return ""
    try:
        text = Path(file).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        found.append(Problem("--script", f"{file} can't be read: {error}.", "Give a text file."))
        return ""
    found += script_problems(text)
    return text
