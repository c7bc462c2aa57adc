"""Options and batch script for a run under SLURM.

Before a run starts, its nodes and GPUs are unknown. Until then its devices are placeholders, "slurm:1:gpu0" or
"slurm:1:cpu", that state the requested numbers of nodes and devices. Later, a device on another node is
"slurm:NODE:GPU-…", and srun instead of ssh connects to that node.
"""

from __future__ import annotations

import os
import re
import shlex
import sys
from pathlib import Path

import msgspec

from engine.contract.devices import CPU
from engine.contract.hosts import SLURM
from engine.contract.job import Job
from engine.contract.problems import Problem
from engine.system.ssh import host_name_problem

LOG = "slurm.log"
WARNING_S = 90
"""Time between the warning of a run and its time limit, in seconds. The run saves a checkpoint in this time."""
MIN_TIME_S = 300
"""Minimum time limit in seconds. It is enough for the start, the warning and some training."""
START_COMMAND = "node --slurm"
"""Arguments of `footplate` with which every batch script must start its run, followed by the run folder."""
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.,@+-]*")
_TIME = re.compile(r"(?:(?P<days>\d{1,4})-)?(?P<numbers>\d{1,6}(?::\d{1,2}){0,2})")
_SCRIPT_END = f"""
# This node supervises the run, and starts its part on the other nodes through srun. {WARNING_S} s before the end of its time,
# SLURM sends it SIGUSR1: the run saves a checkpoint, requeues the job, and continues from there.
exec ${{FOOTPLATE:-footplate}} {START_COMMAND} .
"""


class SlurmOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, kw_only=True):
    """Options for sbatch.

    An empty value or 0 leaves an option to the cluster's defaults. Without GPUs, each node has one CPU worker.

    Attributes:
        setup: Shell commands before the run.
        host: Machine with SLURM's commands that ssh connects to, or "" for this machine.
    """

    partition: str = ""
    account: str = ""
    time: str = ""
    nodes: int = 1
    gpus_per_node: int = 1
    cpus_per_task: int = 0
    setup: tuple[str, ...] = ()
    host: str = ""

    def problems(self) -> list[Problem]:
        """Return the problems with the sbatch options. The field of each problem is a command-line flag."""
        found = [
            Problem(f"--{field}", f"“{value}” is not the name of {article} {field}.", remedy)
            for field, article, value, remedy in (
                ("partition", "a", self.partition, "`sinfo` lists them."),
                ("account", "an", self.account, "`sacctmgr show associations` lists yours."),
            )
            if value and not _NAME.fullmatch(value)
        ]
        seconds = time_limit_s(self.time)
        if self.time and seconds is None:
            remedy = "Write it as 8:00:00 (h:m:s), 90 (minutes) or 2-12 (days-hours)."
            found.append(Problem("--time", f"“{self.time}” is not a time limit.", remedy))
        elif seconds is not None and seconds < MIN_TIME_S:
            message = f"{self.time} is too short: the run needs the last {WARNING_S} s to save a checkpoint."
            found.append(Problem("--time", message, f"Request at least {MIN_TIME_S // 60} minutes."))
        found += [
            Problem(f"--{name}", f"{value} is out of range.", f"Give {minimum} to {maximum:,}.")
            for name, value, minimum, maximum in (
                ("nodes", self.nodes, 1, 1000),
                ("gpus-per-node", self.gpus_per_node, 0, 64),
                ("cpus-per-task", self.cpus_per_task, 0, 4096),
            )
            if not minimum <= value <= maximum
        ]
        remedy = "Give one command per line, without #SBATCH directives."
        found += [
            Problem("--setup", f"“{line}” is not a shell command.", remedy)
            for line in self.setup
            if not _is_shell_command(line)
        ]
        if self.host and (wrong := host_name_problem(self.host)):
            found.append(Problem("--slurm-host", wrong, "Name a host that `ssh HOST` reaches."))
        return found

    def create_script(self, name: str) -> str:
        """Return the batch script for a run called `name`, which must be submitted in the folder of the run.

        The script starts this installation of Footplate, with the environment variable FOOTPLATE_HOME of this process.
        """
        options = {
            "job-name": re.sub(r"[^A-Za-z0-9_.-]+", "-", name).strip("-.") or "footplate",
            "partition": self.partition,
            "account": self.account,
            "time": self.time,
            "nodes": self.nodes,
            "ntasks-per-node": 1,
            "gpus-per-node": self.gpus_per_node,
            "cpus-per-task": self.cpus_per_task,
            "output": LOG,
            "open-mode": "append",
            "signal": f"B:USR1@{WARNING_S}",  # to the shell, some seconds before the time limit
        }
        # Empty and zero options are left to Slurm.
        lines = ["#!/bin/bash", *(f"#SBATCH --{option}={value}" for option, value in options.items() if value)]
        programs = shlex.quote(str(Path(sys.executable).parent))  # the folder with the command `footplate`
        lines += ["#SBATCH --requeue", "", f'export PATH={programs}:"$PATH"']
        if home := os.environ.get("FOOTPLATE_HOME"):
            lines.append(f"export FOOTPLATE_HOME={shlex.quote(home)}")
        return "\n".join([*lines, *self.setup]) + "\n" + _SCRIPT_END

    def create_job(self, job: Job) -> Job:
        """Return a copy of `job` that trains on the devices that these options request from SLURM.

        The job starts without waiting for other runs, since SLURM has a queue of its own.
        """
        names = [f"gpu{number}" for number in range(self.gpus_per_node)] or [CPU]
        devices = tuple(f"{SLURM}{node}:{name}" for node in range(1, self.nodes + 1) for name in names)
        return job.with_fields(devices=devices, start="at_once")


def _is_shell_command(line: str) -> bool:
    """Return True if a line can be a single shell command. One that begins with "-" is a flag of Footplate or sbatch."""
    is_single_line = line.replace("\t", " ").isprintable()
    return bool(line.strip()) and is_single_line and not line.lstrip().startswith(("-", "#SBATCH"))


def script_problems(text: str) -> list[Problem]:
    """Return the problems with a SLURM batch script that the user has written or changed."""
    found = []
    if not text.startswith("#!"):
        found.append(Problem("--script", "The script doesn't begin with #!.", "Begin it with #!/bin/bash."))
    if not any(START_COMMAND in line and not line.lstrip().startswith("#") for line in text.splitlines()):
        message = "The script doesn't start the run."
        found.append(Problem("--script", message, f"It needs the line `exec footplate {START_COMMAND} .`."))
    if "\0" in text:
        found.append(Problem("--script", "The script contains a NUL byte.", "Give a text file."))
    return found


def time_limit_s(text: str) -> int | None:
    """Convert a time limit of sbatch (minutes, m:s, h:m:s, d-h, d-h:m, d-h:m:s) to seconds.

    Returns None for other text.
    """
    match = _TIME.fullmatch(text)
    if match is None:
        return None
    numbers = [int(digits) for digits in match["numbers"].split(":")]
    if match["days"] is not None:  # d-h, d-h:m or d-h:m:s
        hours, minutes, seconds = (*numbers, 0, 0)[:3]
    elif len(numbers) == 1:
        hours, minutes, seconds = 0, numbers[0], 0
    else:  # m:s or h:m:s
        hours, minutes, seconds = (0, *numbers)[-3:]
    return ((int(match["days"] or 0) * 24 + hours) * 60 + minutes) * 60 + seconds
