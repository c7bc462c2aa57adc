"""``footplate node --slurm FOLDER``: supervises a run in the batch step of its SLURM job, on the first of the job's
nodes.

The run's own devices are those of that node; the other nodes are reached by srun (see `nodes`). Where
SLURM warns by SIGUSR1 that the job is about to end, the run is paused, which saves a checkpoint, and the job
requeued: it comes back here, and the run continues.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import msgspec

from engine.checks.job_checks import problems
from engine.contract.catalogue import load_catalogue
from engine.contract.devices import CPU, Snapshot, is_gpu
from engine.contract.events import CommandReceived, RunFinished, RunStarted
from engine.contract.hosts import SLURM
from engine.contract.job import Job, load_job
from engine.contract.problems import errors
from engine.machines.devices import snapshot
from engine.processes.signals import PAUSING
from engine.runs.folder import RunFolder
from engine.runs.resume import save_next_job
from engine.runs.slurm_job import SlurmJob, read_slurm, write_slurm
from engine.supervisor.execution import close_unstarted, supervise
from engine.system import stdio
from engine.system.decode_errors import NOT_DECODED
from engine.system.slurm import SlurmFailed, ask_slurm, on_node

_REFUSED = 2
_LOOK_S = 60.0


class _CannotStart(Exception):  # noqa: N818  (it says what happened)
    """The text is why, in sentences."""


def lead(folder: Path) -> int:
    """Runs the job of `folder` until it ends or is requeued; the exit code."""
    run = RunFolder(folder.absolute())
    number, first = os.environ.get("SLURM_JOB_ID", ""), os.environ.get("SLURMD_NODENAME", "")
    if not number.isdecimal() or not first:
        print("footplate: SLURM did not start this process. See `footplate submit`.", file=sys.stderr)
        return _REFUSED
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)  # until the supervisor listens
    os.environ.pop("SSH_CONNECTION", None)  # of the shell that has submitted the job
    stdio.redirect(run.path / "supervisor.log")
    _note(run, number, "RUNNING")
    code = _supervise(run, first)
    if _was_warned(run):
        _note(run, number, "PENDING", "Requeued")
        if not subprocess.run(["scontrol", "requeue", number], check=False).returncode:
            return code
    _note(run, number, "FAILED" if code else "COMPLETED")
    return code


def _supervise(run: RunFolder, first: str) -> int:
    last = run.last_event()
    if isinstance(last, RunFinished) and last.outcome == "completed":
        return 0
    try:
        save_next_job(run, _job_here(run, first))
    except (_CannotStart, SlurmFailed, OSError, subprocess.SubprocessError) as error:
        close_unstarted(run, str(error))
        return 1
    return supervise(run.path)


def _note(run: RunFolder, number: str, state: str, reason: str = "") -> None:
    """Tells whoever looks at the folder what SLURM would say."""
    before = read_slurm(run.path)
    now = SlurmJob(job_id=int(number), host=before.host if before else "", state=state, reason=reason)
    try:
        write_slurm(run.path, now)
    except OSError as error:
        print(f"slurm.json can't be written: {error}", flush=True)


def _job_here(run: RunFolder, first: str) -> Job:
    """The run's job on the devices that it was given. Raises _CannotStart, SlurmFailed, OSError,
    subprocess.SubprocessError.
    """
    job, wrong = load_job(run.job_file)
    if job is None:
        raise _CannotStart(" ".join(map(str, wrong)))
    names = sorted(ask_slurm("", "scontrol", "show", "hostnames").split(), key=lambda name: name != first)
    if is_gpu(job.devices[0]):
        with ThreadPoolExecutor(max_workers=len(names)) as pool:
            own = list(pool.map(partial(_gpus, first), names))
    else:
        own = [(CPU,)] * len(names)
    devices = tuple(
        device if name == first else f"{SLURM}{name}:{device}"
        for name, there in zip(names, own, strict=True)
        for device in there
    )
    job = msgspec.structs.replace(job, devices=devices)
    if wrong := errors(problems(job, load_catalogue())):
        raise _CannotStart(" ".join(map(str, wrong)))
    return job


def _gpus(first: str, name: str) -> tuple[str, ...]:
    """The GPUs that the job has on a node, by CUDA's numbers. Raises _CannotStart, OSError,
    subprocess.SubprocessError.
    """
    if name == first:
        seen = snapshot()
    else:
        done = subprocess.run(
            on_node(name, ["gpus", "--json"]),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_LOOK_S,
            check=False,
        )
        try:
            seen = msgspec.json.decode(done.stdout, type=Snapshot)
        except NOT_DECODED:
            raise _CannotStart(f"{name} can't be looked at: {done.stderr.decode(errors='replace').strip()}") from None
    found = {gpu.cuda_index: gpu.uuid for gpu in seen.gpus if gpu.cuda_index is not None and not gpu.lost}
    if not found:
        raise _CannotStart(f"The job has no GPU on {name}. {seen.nvml.message} Ask for them with --gpus-per-node.")
    return tuple(found[number] for number in sorted(found))


def _was_warned(run: RunFolder) -> bool:
    """Whether the run has paused as SLURM has warned it."""
    warned, last = False, None
    for last in run.events():
        if isinstance(last, RunStarted):
            warned = False
        elif isinstance(last, CommandReceived):
            warned |= last.command == PAUSING
    return warned and isinstance(last, RunFinished) and last.outcome == "paused"
