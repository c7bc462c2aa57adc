"""Runs in SLURM: how they are submitted, seen and stopped, from here or through ssh.

A run's folder has to be on a file system that SLURM's nodes see at the same path, as does the machine that submits it.
"""

from __future__ import annotations

import shlex
import shutil
from collections import defaultdict
from collections.abc import Iterable

import msgspec

from engine.contract.job import Job
from engine.contract.protocol import Command, Stop
from engine.runs import connection
from engine.runs.connection import NotAnswering
from engine.runs.folder import RunFolder, create_run
from engine.runs.slurm_job import SCRIPT, SlurmJob, read_slurm, write_slurm
from engine.system import paths
from engine.system.slurm import SlurmFailed, run_slurm

LOOK_S = 15.0
"""How often SLURM is asked at most: sites ask their users to spare its controller."""
_SEPARATOR = "|"
_SQUEUE = ("squeue", "--noheader", "--states=all", "--format=%i|%T|%r|%S|%P|%Q")
_SACCT = ("sacct", "--noheader", "--parsable2", "--allocations", "--format=JobIDRaw,State")


def submit_new(job: Job, script: str, host: str) -> RunFolder:
    """Makes a run of `job` and submits it. Raises SlurmFailed, OSError, with nothing left of it."""
    run = create_run(job)
    try:
        paths.write_atomically(run.path / SCRIPT, script.encode())
        submit(run, host)
    except BaseException:
        shutil.rmtree(run.path, ignore_errors=True)
        raise
    return run


def submit(run: RunFolder, host: str) -> SlurmJob:
    """Submits the script in the run's folder. Raises SlurmFailed, OSError."""
    folder = shlex.quote(str(run.path))
    if host:
        seen = f"test -e {folder}/{SCRIPT} || {{ echo {shlex.quote(_not_seen(run, host))} >&2; exit 1; }}"
        run_slurm(host, "sh", "-c", seen)
    said = run_slurm(host, "sh", "-c", f"cd {folder} && exec sbatch --parsable {SCRIPT}")
    number = (said.split() or [""])[-1].partition(";")[0]
    if not number.isdecimal():
        raise SlurmFailed(f"sbatch has not told the job's number: {said.strip() or 'it said nothing'}.")
    job = SlurmJob(job_id=int(number), host=host)
    write_slurm(run.path, job)
    return job


def _not_seen(run: RunFolder, host: str) -> str:
    return f"{host} does not see {run.path}. Set FOOTPLATE_HOME to a folder that both machines and the nodes share"


def look(runs: Iterable[RunFolder]) -> bool:
    """Asks SLURM for the jobs of `runs` that go on, and notes what it says in their folders; whether anything has
    changed. Raises OSError.
    """
    known: dict[str, dict[int, tuple[RunFolder, SlurmJob]]] = defaultdict(dict)
    for run in runs:
        job = read_slurm(run.path)
        if job is not None and job.goes_on:
            known[job.host][job.job_id] = run, job
    changed = False
    for host, jobs in known.items():
        for number, now in _seen(host, {number: job for number, (_, job) in jobs.items()}).items():
            run, before = jobs[number]
            if now != before:
                write_slurm(run.path, now)
                changed = True
    return changed


def _seen(host: str, jobs: dict[int, SlurmJob]) -> dict[int, SlurmJob]:
    """The jobs as SLURM tells of them now."""
    try:
        found = in_queue(run_slurm(host, *_SQUEUE), jobs)
    except SlurmFailed as error:
        return {number: msgspec.structs.replace(job, trouble=str(error)) for number, job in jobs.items()}
    gone = {number: job for number, job in jobs.items() if number not in found}
    if gone:
        try:
            said = run_slurm(host, *_SACCT, f"--jobs={','.join(map(str, gone))}")
        except SlurmFailed:
            said = ""  # many sites keep no accounts
        found |= in_accounts(said, gone)
    return found


def in_queue(said: str, jobs: dict[int, SlurmJob]) -> dict[int, SlurmJob]:
    """Those of `jobs` that squeue lists, as it does. The place counts those that are pending in the partition with a
    higher priority.
    """
    rows = [row for line in said.splitlines() if len(row := line.split(_SEPARATOR)) == 6]
    found = {}
    for own in rows:
        number, state, reason, start = own[:4]
        if not number.isdecimal() or int(number) not in jobs:
            continue
        before = jobs[int(number)]
        now = SlurmJob(job_id=before.job_id, host=before.host, state=state)
        if now.pending:
            now = msgspec.structs.replace(
                now,
                reason="" if reason in ("None", "(null)") else reason,
                place=1 + sum(_rank(row) < _rank(own) for row in rows if (row[1], row[4]) == ("PENDING", own[4])),
                start=start if start[:1].isdecimal() else "",
            )
        found[now.job_id] = now
    return found


def _rank(row: list[str]) -> tuple[int, int]:
    """What the queue is sorted by: the highest priority first, then the earliest job. An array is "12_[1-9]"."""
    number, priority = row[0].partition("_")[0], row[-1]
    return -int(priority) if priority.isdecimal() else 0, int(number) if number.isdecimal() else 0


def in_accounts(said: str, jobs: dict[int, SlurmJob]) -> dict[int, SlurmJob]:
    """`jobs` as sacct tells of them ("12|CANCELLED by 1000"), without a state where it does not."""
    rows = dict(line.split(_SEPARATOR, 1) for line in said.splitlines() if _SEPARATOR in line)
    return {
        number: SlurmJob(job_id=number, host=job.host, state=rows.get(str(number), "").partition(" ")[0])
        for number, job in jobs.items()
    }


def supervised_elsewhere(run: RunFolder) -> SlurmJob | None:
    """The job of a run that SLURM has, where its supervisor is not on this machine or has not begun."""
    job, supervisor = read_slurm(run.path), run.supervisor()
    here = supervisor is not None and supervisor.alive()
    return job if job is not None and job.goes_on and not here else None


def no_pause(run: RunFolder) -> str:
    """What to tell of commands that a run in SLURM does not take."""
    return f"SLURM has {run.run_id}, which can only be stopped from here; that saves a checkpoint."


def send(run: RunFolder, *commands: Command) -> bool:
    """Has a run take commands, wherever its supervisor is; False where it has not answered. A run that SLURM has
    takes Stop alone: its job is cancelled while it is pending, else the run is told by a signal. Raises NotRunning,
    NotAnswering.
    """
    job = supervised_elsewhere(run)
    if job is None:
        return connection.send(run, *commands) is not None
    if not any(isinstance(command, Stop) for command in commands):
        raise NotAnswering(no_pause(run))
    try:
        look([run])
        now = read_slurm(run.path) or job
        if now.pending:
            run_slurm(job.host, "scancel", "--state=PENDING", str(job.job_id))
            look([run])
        elif now.goes_on:
            run_slurm(job.host, "scancel", "--batch", "--signal=TERM", str(job.job_id))
    except (SlurmFailed, OSError) as error:
        raise NotAnswering(str(error)) from error
    return True
