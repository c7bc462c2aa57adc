"""Resume a run in its own folder: the fields that may change, the next job, and the checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from engine.contract.catalogue import load_catalogue
from engine.contract.events import RunFinished
from engine.contract.job import FIELDS, Job, fields_with_trait, job_from_values, load_job, save_job
from engine.contract.job_fields import Field
from engine.contract.problems import Problem
from engine.runs.folder import ENDED, RunFolder, State
from engine.runs.index import machine_of
from engine.runs.notes import change_notes, read_notes
from engine.runs.slurm_job import SCRIPT, read_slurm
from engine.system.format import counted

CHANGEABLE = frozenset(fields_with_trait("resume"))
"""Job fields that may change when a run is resumed."""


@dataclass(frozen=True)
class ResumableRun:
    """Job and state of a run that may be resumed. `job` is None if it can't be read. `problems` then explain why."""

    run_id: str
    job: Job | None
    problems: tuple[Problem, ...]
    state: State


def read_resumable(run: RunFolder) -> ResumableRun:
    """Read the job and the state of a run from its folder."""
    job, problems = load_job(run.job_file)
    if job is not None and (machine := machine_of(run)):
        message = f"{run.run_id} is on {machine}, and can't be resumed from here."
        remedy = f"Resume it there: ssh -t {machine} footplate resume {run.run_id}"
        job, problems = None, [Problem("run", message, remedy)]
    return ResumableRun(run.run_id, job, tuple(problems), run.state())


def job_to_resume(run: RunFolder, changes: Mapping[str, Any]) -> tuple[Job | None, list[Problem]]:
    """Return the job with which a run on disk is resumed with `changes`, and the problems that prevent this.

    See `changed_job`. A run under SLURM is resumed only on devices given in `changes`.
    """
    job, problems = changed_job(read_resumable(run), changes)
    if "devices" not in changes and read_slurm(run.path) is not None:
        message = f"SLURM has chosen the devices of {run.run_id}."
        remedy = f"Submit it again (cd {run.path} && sbatch {SCRIPT}), or choose devices of this machine."
        return None, [*problems, Problem("devices", message, remedy)]
    return job, problems


def changed_job(run: ResumableRun, changes: Mapping[str, Any]) -> tuple[Job | None, list[Problem]]:
    """Return the run's job with `changes` (plain values by field name), and the problems that prevent resuming.

    The job is None if there are problems. Otherwise, the caller must set its `resume_from` to the result of
    `checkpoint_of`, and check with `job_checks.problems` if it can run on this machine.
    """
    before, problems, state = run.job, list(run.problems), run.state
    if state not in ENDED:
        message = f"{run.run_id} has not ended: it is {state}."
        problems.append(Problem("run", message, "Pause or stop it first."))
    if before is None:
        return None, problems
    values = msgspec.to_builtins(before.values())
    job, invalid = job_from_values(values | dict(changes))
    invalid_names = {problem.field for problem in invalid}
    problems += invalid
    for name in changes:
        is_fixed = name in FIELDS and name not in CHANGEABLE | invalid_names  # invalid fields have a problem already
        if is_fixed and not _are_equal(values[name], changes[name]):
            problems.append(_create_unchangeable_problem(name, FIELDS[name].label))
    if job is not None:
        problems += _find_option_problems(before, job)
    epochs = changes.get("epochs", before.training.epochs)
    if state == "completed" and "epochs" not in invalid_names and epochs <= before.training.epochs:
        message = f"{run.run_id} is completed: it has trained all of its {counted(before.training.epochs, 'epoch')}."
        remedy = f"Set more than {before.training.epochs} epochs to train it further."
        problems.append(Problem("epochs", message, remedy))
    return (None if problems else job), problems


def save_next_job(run: RunFolder, job: Job) -> None:
    """Save the job for the next execution of `run`, whose supervisor the caller must start. Raises OSError."""
    if read_notes(run.path).set_aside:
        change_notes(run.path, set_aside=False)  # show the next interruption again
    save_job(job, run.job_file)


def checkpoint_of(run: RunFolder) -> Path | None:
    """Return the checkpoint that would resume `run`, or None if it would start from scratch.

    This is last.pt, or else the newest older checkpoint, or else the job's `resume_from`.
    """
    if (last := run.last_checkpoint()) is not None:
        return last
    job = run.job()
    return Path(job.checkpoints.resume_from).expanduser() if job is not None and job.checkpoints.resume_from else None


def last_execution(run: RunFolder) -> int:
    """Return the number of the current or last execution of a run, or 0 if there was none."""
    supervisor, last = run.supervisor(), run.last_event()
    started = supervisor.execution if supervisor is not None else 0
    return max(started, last.execution) if isinstance(last, RunFinished) else started


def _are_equal(before: Any, after: Any) -> bool:
    """Compare two plain values of a job field. A list equals a tuple with the same items."""
    return list(before) == list(after) if isinstance(before, list | tuple) else bool(before == after)


def _find_option_problems(before: Job, after: Job) -> list[Problem]:
    """Return a problem for each changed option that must keep its value when a run is resumed."""
    options = {
        field.name: field
        for field in load_catalogue().options_of(before.task, before.model.name, before.resolved_strategy)
    }
    changed = {
        name
        for name in before.options.keys() | after.options.keys()
        if _get_option_value(before, name, options) != _get_option_value(after, name, options)
    }
    fixed = [options[name] for name in sorted(changed & options.keys()) if "resume" not in options[name].traits]
    return [_create_unchangeable_problem(f"options.{field.name}", field.label) for field in fixed]


def _get_option_value(job: Job, name: str, options: Mapping[str, Field]) -> Any:
    """Return the value of an option in a job, or its default, or None if it is neither set nor in `options`."""
    return job.options.get(name, options[name].default if name in options else None)


def _create_unchangeable_problem(name: str, label: str) -> Problem:
    """Create the problem that a field or option must keep its value when a run is resumed."""
    return Problem(
        name,
        f"{label} can't be changed when resuming: that would be a different training.",
        "Leave it as it is, or fork the run: start a new one from its checkpoint.",
    )
