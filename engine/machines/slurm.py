"""``footplate node --slurm FOLDER``: supervise a run in the batch step of a SLURM job, on the job's first node.

The run's local devices are those of this node; srun connects it to the other nodes (see `nodes`). When SLURM warns with
SIGUSR1 that the job's time is running out, the run is paused, which saves a checkpoint, and the job is requeued. When
SLURM starts the job again, the run continues.
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

from engine.checks.job_checks import problems as job_problems
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
from engine.supervisor.execution import log_failed_start, supervise
from engine.system import stdio
from engine.system.children import run_child
from engine.system.decode_errors import NOT_DECODED
from engine.system.slurm import SlurmFailed, run_slurm, srun_command

_REFUSED = 2
_TIMEOUT_S = 60.0
# Created before threads use it: msgspec crashes if two threads prepare the same type at once.
_SNAPSHOT = msgspec.json.Decoder(Snapshot)


class _CannotStart(Exception):  # noqa: N818 - describes the event
    """Raised when a run can't start. The message explains why in complete sentences."""


def supervise_slurm(folder: Path) -> int:
    """Supervise the run in `folder` until it ends or its SLURM job is requeued. Returns the exit code."""
    run = RunFolder(folder.absolute())
    job_id, this_node = os.environ.get("SLURM_JOB_ID", ""), os.environ.get("SLURMD_NODENAME", "")
    if not job_id.isdecimal() or not this_node:
        print("footplate: SLURM did not start this process. See `footplate submit`.", file=sys.stderr)
        return _REFUSED
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)  # until the supervisor handles it
    os.environ.pop("SSH_CONNECTION", None)  # inherited from the shell that submitted the job
    stdio.redirect_output(run.path / "supervisor.log")
    _record_state(run, job_id, "RUNNING")
    code = _supervise(run, this_node)
    is_requeued = _was_warned(run) and requeue(run, job_id)
    if not is_requeued:
        _record_state(run, job_id, "FAILED" if code else "COMPLETED")
    return code


def requeue(run: RunFolder, job_id: str) -> bool:
    """Record that the SLURM job `job_id` is pending, and requeue it. Return False if SLURM refuses that.

    When SLURM requeues a job, it ends the job's processes, and with them perhaps scontrol before it returns.
    """
    _record_state(run, job_id, "PENDING", "Requeued")
    code = subprocess.run(["scontrol", "requeue", job_id], check=False).returncode
    return code <= 0  # negative if it was ended by a signal


def _supervise(run: RunFolder, this_node: str) -> int:
    """Supervise the run with the devices that SLURM has allocated, unless it has completed. Returns the exit code.

    If the run can't start, this is written to its log. `this_node` is the name of this node.
    """
    last = run.last_event()
    if isinstance(last, RunFinished) and last.outcome == "completed":
        return 0
    try:
        save_next_job(run, _create_local_job(run, this_node))
    except (_CannotStart, SlurmFailed, OSError, subprocess.SubprocessError) as error:
        log_failed_start(run, str(error))
        return 1
    return supervise(run.path)


def _record_state(run: RunFolder, job_id: str, state: str, reason: str = "") -> None:
    """Record the `state` of the SLURM job `job_id`, and the `reason` for it, in the run folder.

    Prints a message if they can't be written.
    """
    before = read_slurm(run.path)
    now = SlurmJob(job_id=int(job_id), host=before.host if before else "", state=state, reason=reason)
    try:
        write_slurm(run.path, now)
    except OSError as error:
        print(f"slurm.json can't be written: {error}", flush=True)


def _create_local_job(run: RunFolder, this_node: str) -> Job:
    """Return the run's job with the devices that SLURM has allocated. `this_node` is the name of this node.

    Raises _CannotStart, SlurmFailed, OSError or subprocess.SubprocessError.
    """
    job, problems = load_job(run.job_file)
    if job is None:
        raise _CannotStart(" ".join(map(str, problems)))
    names = run_slurm("", "scontrol", "show", "hostnames").split()
    names.sort(key=lambda name: name != this_node)  # this node first, since it has rank 0
    if is_gpu(job.parallel.devices[0]):
        with ThreadPoolExecutor(max_workers=len(names)) as pool:
            node_devices = list(pool.map(partial(_read_gpu_uuids, this_node), names))
    else:
        node_devices = [(CPU,)] * len(names)
    devices = tuple(
        device if name == this_node else f"{SLURM}{name}:{device}"
        for name, local_devices in zip(names, node_devices, strict=True)
        for device in local_devices
    )
    job = job.with_fields(devices=devices)
    if blockers := errors(job_problems(job, load_catalogue())):
        raise _CannotStart(" ".join(map(str, blockers)))
    return job


def _read_gpu_uuids(this_node: str, name: str) -> tuple[str, ...]:
    """Return the UUIDs of the SLURM job's GPUs on the node `name`, sorted by CUDA index.

    `this_node` is the name of this node. Raises _CannotStart, OSError or subprocess.SubprocessError.
    """
    if name == this_node:
        state = snapshot()
    else:
        done = run_child(srun_command(name, ["gpus", "--json"]), timeout_s=_TIMEOUT_S)
        try:
            state = _SNAPSHOT.decode(done.stdout)
        except NOT_DECODED:
            raise _CannotStart(f"{name} can't be checked: {done.stderr.decode(errors='replace').strip()}") from None
    by_index = {gpu.cuda_index: gpu.uuid for gpu in state.gpus if gpu.cuda_index is not None and not gpu.lost}
    if not by_index:
        raise _CannotStart(f"The job has no GPU on {name}. {state.nvml.message} Ask for them with --gpus-per-node.")
    return tuple(by_index[index] for index in sorted(by_index))


def _was_warned(run: RunFolder) -> bool:
    """Return True if the run was paused because SLURM warned that the job's time is running out.

    SLURM warns with a signal, which the supervisor logs as a command. It must be among the commands of the last
    execution.
    """
    is_warned, event = False, None
    for event in run.events():
        if isinstance(event, RunStarted):
            is_warned = False
        elif isinstance(event, CommandReceived):
            is_warned |= event.command == PAUSING
    return is_warned and isinstance(event, RunFinished) and event.outcome == "paused"
