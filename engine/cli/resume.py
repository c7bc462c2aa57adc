"""``footplate resume``: continue a run in its folder, possibly on other devices."""

from __future__ import annotations

import argparse
import os
import sys
from typing import Any

import msgspec

from engine.checks.disk import model_file_sha256
from engine.checks.gpu_checks import gpu_problems
from engine.checks.job_checks import problems
from engine.checks.torch_support import find_installed_torch
from engine.cli import arguments, train, watching
from engine.cli.terminal import COMPLETED, print_lines, report_unwritable, require_valid
from engine.contract.catalogue import load_catalogue
from engine.contract.devices import Snapshot
from engine.contract.job import Job, job_from_values
from engine.contract.problems import Problem
from engine.runs.folder import RunFolder
from engine.runs.launch import start_supervisor
from engine.runs.resume import checkpoint_of, job_to_resume, last_execution, save_next_job


def resume(options: argparse.Namespace) -> int:
    """Resume a run in its own folder, follow it, and return its exit code."""
    run = watching.require_run(options.run)
    job = require_valid(*_validate(run, options))
    last = run.last_event()
    first_new_event = last.n + 1 if last is not None else 1
    new_execution = last_execution(run) + 1
    checkpoint = checkpoint_of(run)
    with report_unwritable():
        save_next_job(run, job)
        start_supervisor(run)
    if options.detach:
        print_lines(run.run_id)
        return COMPLETED
    if not options.json:
        print_lines(f"Resuming run {run.run_id} from {checkpoint or 'its start'}", to=sys.stderr)
    return watching.follow(
        run, json=options.json, stop_on_interrupt=True, execution=new_execution, from_n=first_new_event
    )


def _validate(run: RunFolder, options: argparse.Namespace) -> tuple[Job | None, list[Problem]]:
    """Return the job that `run` would resume with, and all errors and warnings about it.

    The job is None if the changes are invalid or the run can't be resumed. It can have errors, for example because this
    machine can't train it. With `--trust-model-file`, the user's consent to the content of the model file is recorded.
    """
    previous = run.job()
    changes, machine, found = _read_changes(previous, options)
    job, change_problems = job_to_resume(run, changes)
    found += change_problems
    invalid_fields = {problem.field for problem in found}
    if previous is None or "run" in invalid_fields:  # no job can resume the run, so don't check this one
        return None, found
    job_to_check = job
    if job_to_check is None:  # without the invalid values, all other problems are found, too
        valid_changes = {name: value for name, value in changes.items() if name not in invalid_fields}
        job_to_check, _ = job_from_values(msgspec.to_builtins(previous.values()) | valid_changes)
    if job_to_check is not None:
        job_to_check = job_to_check.with_fields(resume_from=str(checkpoint_of(run) or ""))
        job_problems = problems(job_to_check, load_catalogue(), machine)
        job_problems += gpu_problems(job_to_check, machine, find_installed_torch(), os.environ)
        found += [problem for problem in job_problems if problem.field not in invalid_fields]
    return job, found


def _read_changes(
    previous: Job | None, options: argparse.Namespace
) -> tuple[dict[str, Any], Snapshot | None, list[Problem]]:
    """Read from the command line how to change `previous`, the job that the run had before.

    Returns their values by field, this machine's devices, and the problems found. The devices are None if neither job
    uses GPUs, or if they can't be read.
    """
    changes, found = arguments.read_job_values(options)
    if previous is not None and isinstance(changes.get("options"), dict):
        changes["options"] = previous.options | changes["options"]
    if previous is not None and options.trust_model_file:
        changes["model_file_sha256"], consent_problems = _trust_model_file(previous.model.name)
        found += consent_problems
    previous_devices = {"devices": previous.parallel.devices} if previous is not None else {}
    machine = None
    if arguments.needs_gpus(changes) or arguments.needs_gpus(previous_devices):
        machine = train.read_machine(found)  # appends a problem if this fails
        if machine is not None and "devices" in changes:
            found += arguments.resolve_devices(changes, machine)
    return changes, machine, found


def _trust_model_file(path: str) -> tuple[str, list[Problem]]:
    """Record the user's consent to the content of the model file at `path`.

    Returns the hash of the file, and the problems with saving the consent. The hash of an unreadable file is "", which
    the checks of the job report.
    """
    sha256 = model_file_sha256(path)
    return (sha256, arguments.trust_model(path, sha256)) if sha256 else ("", [])
