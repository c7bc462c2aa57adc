"""SLURM's own commands, run here or through the user's ssh, and what runs `footplate` on another node of a job."""

from __future__ import annotations

import os
import shlex
import subprocess
from collections.abc import Sequence

from engine.system.ssh import in_english, ssh_command, why_it_ended

ANSWER_S = 30.0
_SSH_FAILED, _NOT_FOUND = 255, 127
_SRUN = ("srun", "--overlap", "--nodes=1", "--ntasks=1", "--cpu-bind=none")
"""A step beside the others of its job, which has all that the job has on its node."""


class SlurmFailed(Exception):  # noqa: N818  (it says what happened)
    """One of SLURM's commands did not do its work; the text is why, in sentences."""


def ask_slurm(host: str, *command: str) -> str:
    """What one of SLURM's commands prints. `host` is what ssh is given, "" for this machine. Raises SlurmFailed."""
    try:
        done = subprocess.run(
            ssh_command(host, command) if host else command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=ANSWER_S,
            check=False,
            env=in_english() if host else None,
        )
    except subprocess.TimeoutExpired:
        raise SlurmFailed(f"{command[0]} has not answered for {ANSWER_S:.0f} s.") from None
    except OSError as error:
        raise SlurmFailed(f"{command[0]} can't be started: {error.strerror}. Is SLURM installed here?") from None
    if not done.returncode:
        return done.stdout
    if host and done.returncode == _SSH_FAILED:
        raise SlurmFailed(why_it_ended(host, done.returncode, done.stderr))
    if done.returncode == _NOT_FOUND:
        raise SlurmFailed(f"SLURM's commands were not found{f' on {host}' if host else ''}.")
    raise SlurmFailed(_in_sentences(done.stderr) or f"{command[0]} has exited with code {done.returncode}.")


def _in_sentences(said: str) -> str:
    """What a command of SLURM complains of: "sbatch: error: …" a line."""
    lines = [line.rpartition("error: ")[2].strip().rstrip(".") for line in said.splitlines() if line.strip()]
    return " ".join(f"{line}." for line in dict.fromkeys(lines))


def on_node(node: str, arguments: Sequence[str]) -> list[str]:
    """What runs `footplate` with `arguments` on a node of the job that this process belongs to. The job's script may
    set FOOTPLATE to what `footplate` is called there, as in a container.
    """
    return [*_SRUN, f"--nodelist={node}", *shlex.split(os.environ.get("FOOTPLATE") or "footplate"), *arguments]
