"""``footplate pause`` and ``resume``: a run lets go of its devices, and goes on later, maybe on others."""

from __future__ import annotations

import argparse
import os
import sys

import msgspec

from engine.checks.disk import model_file_sha256
from engine.checks.gpu_support import gpu_problems
from engine.checks.job_checks import problems
from engine.checks.torch_build import installed_torch
from engine.cli import arguments, children, train, watching
from engine.cli.exit_codes import BAD_REQUEST, COMPLETED
from engine.cli.terminal import say
from engine.contract.catalogue import load_catalogue
from engine.contract.devices import Snapshot
from engine.contract.job import Job, job_from_values
from engine.contract.problems import Problem, errors
from engine.contract.protocol import Pause
from engine.runs.folder import RunFolder
from engine.runs.launch import start_supervisor
from engine.runs.resume import checkpoint_of, job_to_resume, last_execution, save_next_job


def pause(options: argparse.Namespace) -> int:
    """Pauses a run and waits until its devices are free."""
    return watching.end(options, Pause())


def resume(options: argparse.Namespace) -> int:
    """Has a run go on in its own folder; the exit code tells how that execution went."""
    run = watching.find_or_say(options.run)
    if run is None:
        return BAD_REQUEST
    job, found = judge(run, options)
    train.tell(found)
    if job is None or errors(found):
        return BAD_REQUEST
    last = run.last_event()
    from_n, execution = last.n + 1 if last is not None else 1, last_execution(run) + 1
    checkpoint = checkpoint_of(run)
    try:
        save_next_job(run, job)
        start_supervisor(run)
    except OSError as error:
        return train.unwritable(error)
    if options.detach:
        say(run.run_id)
        return COMPLETED
    if not options.json:
        say(f"Resuming run {run.run_id} from {checkpoint or 'its start'}", to=sys.stderr)
    return watching.follow(run, json=options.json, stop_on_interrupt=True, execution=execution, from_n=from_n)


def judge(run: RunFolder, options: argparse.Namespace) -> tuple[Job | None, list[Problem]]:
    """The job that `run` is to go on with, and all that is wrong with it and worth a warning."""
    changes, found = arguments.gather(options)
    before = run.job()
    if before is not None and isinstance(changes.get("options"), dict):
        changes["options"] = before.options | changes["options"]
    machine: Snapshot | None = None
    if before is not None and options.trust_model_file:
        sha256 = model_file_sha256(before.model.name) or ""
        found += (
            arguments.trust(before.model.name, sha256) if sha256 else []
        )  # else the checks say that it can't be read
        changes["model_file_sha256"] = sha256
    if arguments.needs_gpus(changes) or (
        before is not None and arguments.needs_gpus({"devices": before.parallel.devices})
    ):
        try:
            machine = children.snapshot()
        except children.ChildFailed as error:
            found.append(Problem("devices", f"This machine's devices could not be read: {error}.", "Use cpu."))
        else:
            found += arguments.resolve_devices(changes, machine) if "devices" in changes else []
    job, wrong = job_to_resume(run, changes)
    found += wrong
    bad = {problem.field for problem in found}
    if before is None or "run" in bad:
        return None, found
    # What can be judged without the values that are wrong is judged too, so that all is told at once.
    values = {name: value for name, value in changes.items() if name not in bad}
    judged = job or job_from_values(msgspec.to_builtins(before.values()) | values)[0]
    if judged is not None:
        judged = judged.with_fields(resume_from=str(checkpoint_of(run) or ""))
        wrong = problems(judged, load_catalogue(), machine)
        wrong += gpu_problems(judged, machine, installed_torch(), os.environ)
        found += [problem for problem in wrong if problem.field not in bad]
    return job, found
