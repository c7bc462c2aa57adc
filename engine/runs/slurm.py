"""Submit, poll and stop runs under SLURM, directly or through ssh.

The run folder must have the same path on the SLURM nodes and on the submitting machine.
"""

from __future__ import annotations

import shlex
import shutil
from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from engine.contract.hosts import hosts
from engine.contract.job import Job
from engine.contract.protocol import Command, Stop
from engine.runs import connection
from engine.runs.connection import NotAnswering
from engine.runs.folder import RunFolder, create_run
from engine.runs.slurm_job import SCRIPT, SlurmJob, read_slurm, write_slurm
from engine.system import paths
from engine.system.files import read_file
from engine.system.slurm import SlurmFailed, run_slurm

POLL_S = 15.0
"""Minimum time in seconds between queries, since clusters ask users to limit the load on SLURM's controller."""
_HOSTS = "slurm-hosts"
"""Name of the file in Footplate's home that lists the hosts on which the user has submitted runs, one per line."""
_SEPARATOR = "|"
_SQUEUE = ("squeue", "--noheader", "--states=all", "--format=%i|%T|%r|%S|%P|%Q")
_SACCT = ("sacct", "--noheader", "--parsable2", "--allocations", "--format=JobIDRaw,State")


class _SqueueRow(NamedTuple):
    """Line of the output of squeue, whose columns `_SQUEUE` requests in the order of the fields."""

    job_id: str
    state: str
    reason: str
    start: str
    partition: str
    priority: str

    @property
    def queue_key(self) -> tuple[int, int]:
        """Key that sorts queued jobs, with the highest priority first, then the lowest id."""
        number = self.job_id.partition("_")[0]  # the id of a job array has a form such as "12_[1-9]"
        priority = int(self.priority) if self.priority.isdecimal() else 0
        return -priority, int(number) if number.isdecimal() else 0


def submit_new(job: Job, script: str, host: str) -> RunFolder:
    """Create a run of `job`, and submit it to SLURM on `host`. Raises SlurmFailed and OSError.

    `script` is the text of the batch script. If the submission fails, the run is removed.
    """
    run = create_run(job)
    try:
        paths.write_atomically(run.path / SCRIPT, script.encode())
        submit(run, host)
    except BaseException:
        shutil.rmtree(run.path, ignore_errors=True)
        raise
    return run


def submit(run: RunFolder, host: str) -> SlurmJob:
    """Submit the batch script in the run folder to SLURM on `host`. Raises SlurmFailed and OSError.

    The SLURM job is recorded in the run folder, and returned. `host` is recorded as one that the user has chosen.
    """
    _record_host(host)
    folder = shlex.quote(str(run.path))
    if host:
        check = (
            f"test -e {folder}/{SCRIPT} || {{ echo {shlex.quote(_explain_invisible_folder(run, host))} >&2; exit 1; }}"
        )
        run_slurm(host, "sh", "-c", check)
    output = run_slurm(host, "sh", "-c", f"cd {folder} && exec sbatch --parsable {SCRIPT}")
    number = (output.split() or [""])[-1].partition(";")[0]  # without the name of the cluster, see sbatch(1)
    if not number.isdecimal():
        raise SlurmFailed(f"sbatch has not printed the job's number: {output.strip() or 'no output'}.")
    job = SlurmJob(job_id=int(number), host=host)
    write_slurm(run.path, job)
    return job


def _record_host(host: str) -> None:
    """Record that the user has chosen `host` for submitting runs. Raises OSError."""
    recorded = _recorded_hosts()
    if host and host not in recorded:
        paths.write_atomically(paths.make_home() / _HOSTS, "".join(f"{each}\n" for each in [*recorded, host]).encode())


def _recorded_hosts() -> list[str]:
    """Return the hosts on which the user has submitted runs."""
    try:
        return read_file(paths.home() / _HOSTS).decode().split()
    except (OSError, ValueError):
        return []


def _run_on_known_host(host: str, *command: str) -> str:
    """Run a SLURM command on `host`, if the user has submitted runs there. Returns its output.

    The check is needed because run folders, which name the host, may come from other people.

    Raises:
        SlurmFailed: The host is unknown, or the command has failed.
    """
    if host and host not in _recorded_hosts() and host not in {each.ssh_destination for each in hosts()}:
        raise SlurmFailed(
            f"{host} is not among your hosts. If it is yours, run `footplate hosts add --no-check {host}`."
        )
    return run_slurm(host, *command)


def _explain_invisible_folder(run: RunFolder, host: str) -> str:
    return f"{host} does not see {run.path}. Set FOOTPLATE_HOME to a folder that both machines and the nodes share"


def refresh_slurm_states(runs: Iterable[RunFolder]) -> bool:
    """Query the states of all active SLURM jobs of `runs`, and record them in the run folders.

    Returns True if any state has changed. Raises OSError.
    """
    by_host: dict[str, dict[int, tuple[RunFolder, SlurmJob]]] = defaultdict(dict)
    for run in runs:
        job = read_slurm(run.path)
        if job is not None and job.is_active:
            by_host[job.host][job.job_id] = run, job
    has_changed = False
    for host, jobs in by_host.items():
        for number, now in _query_states(host, {number: job for number, (_, job) in jobs.items()}).items():
            run, before = jobs[number]
            if now != before:
                write_slurm(run.path, now)
                has_changed = True
    return has_changed


def _query_states(host: str, jobs: dict[int, SlurmJob]) -> dict[int, SlurmJob]:
    """Return the current states of SLURM jobs on a host by job id. `jobs` are their previous states, also by job id.

    If SLURM can't be queried, the states are the previous ones with the reason as `query_error`.
    """
    try:
        found = parse_squeue(_run_on_known_host(host, *_SQUEUE), jobs)
    except SlurmFailed as error:
        return {number: msgspec.structs.replace(job, query_error=str(error)) for number, job in jobs.items()}
    missing = {number: job for number, job in jobs.items() if number not in found}
    if missing:
        try:
            output = _run_on_known_host(host, *_SACCT, f"--jobs={','.join(map(str, missing))}")
        except SlurmFailed:
            output = ""  # many clusters have no accounting
        found |= parse_sacct(output, missing)
    return found


def parse_squeue(output: str, jobs: dict[int, SlurmJob]) -> dict[int, SlurmJob]:
    """Parse the output of squeue, and return the states of the `jobs` that it lists.

    The place of a pending job is its position among the pending jobs of its partition, sorted by priority.
    """
    split_lines = (line.split(_SEPARATOR) for line in output.splitlines())
    rows = [_SqueueRow(*columns) for columns in split_lines if len(columns) == len(_SqueueRow._fields)]
    found = {}
    for row in rows:
        if not row.job_id.isdecimal() or int(row.job_id) not in jobs:
            continue  # another job of the cluster
        before = jobs[int(row.job_id)]
        now = SlurmJob(job_id=before.job_id, host=before.host, state=row.state)
        if now.is_pending:
            pending = (other for other in rows if other.state == "PENDING" and other.partition == row.partition)
            now = msgspec.structs.replace(
                now,
                reason="" if row.reason in ("None", "(null)") else row.reason,
                place=1 + sum(other.queue_key < row.queue_key for other in pending),
                start=row.start if row.start[:1].isdecimal() else "",  # otherwise "N/A"
            )
        found[now.job_id] = now
    return found


def parse_sacct(output: str, jobs: dict[int, SlurmJob]) -> dict[int, SlurmJob]:
    """Parse the output of sacct, e.g. "12|CANCELLED by 1000", and return the states of `jobs`.

    The state of a job that is not listed is "".
    """
    rows = dict(line.split(_SEPARATOR, 1) for line in output.splitlines() if _SEPARATOR in line)
    return {
        number: SlurmJob(job_id=number, host=job.host, state=rows.get(str(number), "").partition(" ")[0])
        for number, job in jobs.items()
    }


def find_job_elsewhere(run: RunFolder) -> SlurmJob | None:
    """Return the active SLURM job of a run if no supervisor of the run is alive on this machine, otherwise None.

    Its supervisor is on a SLURM node or has not started.
    """
    job = read_slurm(run.path)
    return job if job is not None and job.is_active and not run.is_supervised() else None


def explain_no_pause(run: RunFolder) -> str:
    """Return a text which explains that a run under SLURM can only be stopped, not paused."""
    return f"SLURM has {run.run_id}, which can only be stopped from here; that saves a checkpoint."


def send(run: RunFolder, *commands: Command) -> bool:
    """Send commands to a run on this machine or under SLURM. Returns False if the run has not answered.

    A run under SLURM accepts only Stop, which cancels a pending job and sends a signal to a running one. Raises
    NotRunning and NotAnswering.
    """
    job = find_job_elsewhere(run)
    if job is None:
        return connection.send(run, *commands) is not None
    if not any(isinstance(command, Stop) for command in commands):
        raise NotAnswering(explain_no_pause(run))
    try:
        refresh_slurm_states([run])
        now = read_slurm(run.path) or job
        if now.is_pending:
            # If the job starts in the meantime, scancel must not kill it without a checkpoint.
            _run_on_known_host(job.host, "scancel", "--state=PENDING", str(job.job_id))
            refresh_slurm_states([run])
        elif now.is_active:
            _run_on_known_host(job.host, "scancel", "--batch", "--signal=TERM", str(job.job_id))
    except (SlurmFailed, OSError) as error:
        raise NotAnswering(str(error)) from error
    return True
