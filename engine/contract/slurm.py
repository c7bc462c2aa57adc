"""A job for SLURM: what is asked of it, and the batch script that the run's folder keeps.

Which nodes and GPUs a run gets is not known before it starts. Until then its devices are "slurm:1:gpu0",
"slurm:1:cpu" and so on: as many on as many nodes as it asks for. Later a device of another node is
"slurm:NODE:GPU-…": srun reaches it, not ssh.
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
WARNED_S = 90
"""How long before the end of its time a run is warned, so that it can save a checkpoint."""
LEAST_S = 300
"""The shortest time limit: beside the start and the warning there has to be some for training."""
HEAD = "node --slurm"
"""What the script has to start: `footplate node --slurm FOLDER`."""
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.,@+-]*")
_TIME = re.compile(r"(?:(?P<days>\d{1,4})-)?(?P<parts>\d{1,6}(?::\d{1,2}){0,2})")
_END = f"""
# This node supervises the run, and starts its part on the other nodes through srun. {WARNED_S} s before the end of its time,
# SLURM warns it by SIGUSR1: the run saves a checkpoint, has the job requeued, and continues from there.
exec ${{FOOTPLATE:-footplate}} {HEAD} .
"""


class SlurmOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, kw_only=True):
    """What SLURM is asked for, as its own options; what is empty or 0 is left to the site, but without GPUs each node
    has one CPU worker. `setup` are lines of shell that come before the run; `host` is what ssh reaches SLURM by, ""
    where it is here.
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
        """All that is wrong, by the terminal's flags."""
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
        elif seconds is not None and seconds < LEAST_S:
            message = f"{self.time} is too short: the run is warned {WARNED_S} s before its end."
            found.append(Problem("--time", message, f"Ask for {LEAST_S // 60} minutes at least."))
        found += [
            Problem(f"--{name}", f"{value} is out of range.", f"Give {least} to {most:,}.")
            for name, value, least, most in (
                ("nodes", self.nodes, 1, 1000),
                ("gpus-per-node", self.gpus_per_node, 0, 64),
                ("cpus-per-task", self.cpus_per_task, 0, 4096),
            )
            if not least <= value <= most
        ]
        found += [
            Problem(
                "--setup", f"“{line}” is not a line of shell.", "Give one command a line, and no #SBATCH directive."
            )
            for line in self.setup
            if not line.strip()
            or not line.replace("\t", " ").isprintable()
            or line.lstrip().startswith(("-", "#SBATCH"))
        ]
        if self.host and (wrong := host_name_problem(self.host)):
            found.append(Problem("--slurm-host", wrong, "Name a host that `ssh HOST` reaches."))
        return found

    def script(self, name: str) -> str:
        """The batch script of a run that is called `name`. It holds no path of the run's folder, in which it is
        submitted.
        """
        asked = {
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
            "signal": f"B:USR1@{WARNED_S}",
        }
        lines = ["#!/bin/bash", *(f"#SBATCH --{option}={value}" for option, value in asked.items() if value)]
        lines += ["#SBATCH --requeue", "", f'export PATH={shlex.quote(str(Path(sys.executable).parent))}:"$PATH"']
        if home := os.environ.get("FOOTPLATE_HOME"):
            lines.append(f"export FOOTPLATE_HOME={shlex.quote(home)}")
        return "\n".join([*lines, *self.setup]) + "\n" + _END

    def job(self, job: Job) -> Job:
        """`job` on the devices that are asked for. It does not wait for other runs: SLURM has seen to that."""
        own = [f"gpu{number}" for number in range(self.gpus_per_node)] or [CPU]
        devices = tuple(f"{SLURM}{node}:{one}" for node in range(1, self.nodes + 1) for one in own)
        return job.with_fields(devices=devices, start="at_once")


def script_problems(text: str) -> list[Problem]:
    """What is wrong with a script that the user has written or changed."""
    found = []
    if not text.startswith("#!"):
        found.append(Problem("--script", "The script does not begin with #!.", "Begin it with #!/bin/bash."))
    if not any(HEAD in line and not line.lstrip().startswith("#") for line in text.splitlines()):
        message = "The script does not start the run."
        found.append(Problem("--script", message, f"It needs the line `exec footplate {HEAD} .`."))
    if "\0" in text:
        found.append(Problem("--script", "The script holds a NUL.", "Give a text file."))
    return found


def time_limit_s(text: str) -> int | None:
    """A time limit as sbatch takes it (minutes, m:s, h:m:s, d-h, d-h:m or d-h:m:s) in seconds; None for what is
    none.
    """
    found = _TIME.fullmatch(text)
    if found is None:
        return None
    parts = [int(part) for part in found["parts"].split(":")]
    if found["days"] is None:
        parts = [0] * (3 - len(parts)) + parts if len(parts) > 1 else [0, *parts, 0]
    hours, minutes, seconds = (*parts, 0, 0)[:3]
    return ((int(found["days"] or 0) * 24 + hours) * 60 + minutes) * 60 + seconds
