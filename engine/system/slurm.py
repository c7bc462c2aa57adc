"""Execution of SLURM's commands, directly or through ssh.

This module also starts Footplate on another node of a SLURM job.
"""

from __future__ import annotations

import os
import shlex
import subprocess
from collections.abc import Sequence

from engine.system.children import OutputTooLong, run_child
from engine.system.ssh import create_english_environment, explain_ssh_exit, ssh_command

ANSWER_S = 30.0
_SSH_FAILED, _NOT_FOUND = 255, 127
_SRUN = ("srun", "--overlap", "--nodes=1", "--ntasks=1", "--cpu-bind=none")
"""Beginning of a command line that runs a step on one node of a SLURM job.

The step runs in parallel to other steps of the job, with all resources that the job has on the node.
"""


class SlurmFailed(Exception):  # noqa: N818 - describes the event
    """Raised when a SLURM command fails. The message is in complete sentences."""


def run_slurm(host: str, *command: str) -> str:
    """Run a SLURM command and return its output.

    The command runs on `host` through ssh, or on this machine if `host` is "".

    Raises:
        SlurmFailed: The command has failed or has not answered.
    """
    try:
        done = run_child(
            ssh_command(host, command) if host else command,
            timeout_s=ANSWER_S,
            env=create_english_environment() if host else None,
        )
    except subprocess.TimeoutExpired:
        raise SlurmFailed(f"{command[0]} has not answered for {ANSWER_S:.0f} s.") from None
    except OutputTooLong as error:
        raise SlurmFailed(f"{command[0]} failed: {error.strerror}.") from None
    except OSError as error:
        raise SlurmFailed(f"{command[0]} can't be started: {error.strerror}. Is SLURM installed here?") from None
    output, errors = (text.decode(errors="replace") for text in (done.stdout, done.stderr))
    if not done.returncode:
        return output
    if host and done.returncode == _SSH_FAILED:
        raise SlurmFailed(explain_ssh_exit(host, done.returncode, errors))
    if done.returncode == _NOT_FOUND:
        raise SlurmFailed(f"SLURM's commands were not found{f' on {host}' if host else ''}.")
    raise SlurmFailed(_convert_to_sentences(errors) or f"{command[0]} has exited with code {done.returncode}.")


def _convert_to_sentences(errors: str) -> str:
    """Convert lines of error messages ("sbatch: error: …") to sentences."""
    lines = [line.rpartition("error: ")[2].strip().rstrip(".") for line in errors.splitlines() if line.strip()]
    return " ".join(f"{line}." for line in dict.fromkeys(lines))


def srun_command(node: str, arguments: Sequence[str]) -> list[str]:
    """Return a command line that runs `footplate` with `arguments` on a node of the SLURM job of this process.

    The job's script may set FOOTPLATE to another command that starts Footplate there, for example in a container.
    """
    return [*_SRUN, f"--nodelist={node}", *shlex.split(os.environ.get("FOOTPLATE") or "footplate"), *arguments]
