"""Prefills of the form with the jobs of existing runs, made on worker threads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from engine.contract.catalogue import load_catalogue
from engine.contract.job import Job
from engine.contract.recipes import collect_facts, initial_recipe
from engine.runs.folder import RunFolder, RunSummary
from engine.runs.resume import checkpoint_of
from gui.format import lately
from gui.sources.checkpoints import Checkpoint, checkpoints_of, to_fork_from
from gui.sources.prefill import Prefill
from gui.titles import changes_words, run_title
from gui.translation import tr

MORE_EPOCHS = 5
"""Epochs that training a completed run further adds by default."""

_GREY = tr("Grey fields can't be changed when resuming.")

_MAX_NAME = 120
"""Longest name of a run, as in a job."""


class CannotPrefill(Exception):  # noqa: N818  (a state of things more than an error)
    """The run can be neither resumed nor forked; the text tells the user why."""


def to_resume(summary: RunSummary) -> Prefill:
    """Return the run's job to resume with changes, with more epochs if it has completed. Raises CannotPrefill."""
    run, job = _read(summary)
    named = f"“{run_title(summary)}”"
    checkpoint = checkpoint_of(run)
    renamed = job.with_fields(name=summary.name)
    checkpoint_path = str(checkpoint) if checkpoint is not None else ""
    begins = _from(run, checkpoint)
    if summary.state == "completed":
        schedule_note = " The learning rate's schedule now spans all epochs." if job.schedule.name != "none" else ""
        return Prefill(
            text=f"Trains {named} further {begins}. {_GREY}{schedule_note}",
            job=renamed,
            run=run,
            checkpoint=checkpoint_path,
            action=tr("Train further"),
            preset={"epochs": job.training.epochs + MORE_EPOCHS},
            focus="epochs",
        )
    return Prefill(
        text=f"Resumes {named} {begins}. {_GREY}",
        job=renamed,
        run=run,
        checkpoint=checkpoint_path,
        action=tr("Resume"),
    )


def to_fork(summary: RunSummary, checkpoint: Path | None = None) -> Prefill:
    """Return the job of a new run that starts from a checkpoint of this one, by default its last.

    Raises CannotPrefill.
    """
    run, job = _read(summary)
    found = checkpoints_of(run)
    chosen = to_fork_from(found) if checkpoint is None else next((c for c in found if c.path == checkpoint), None)
    if chosen is None:
        reason = f"its {checkpoint.name} is gone" if checkpoint is not None else "it has no checkpoint yet"
        raise CannotPrefill(f"“{run_title(summary)}” can't be forked: {reason}.")
    changes: dict[str, str] = {"name": f"{summary.name[: _MAX_NAME - 5]} fork" if summary.name else ""}
    of = f"“{run_title(summary)}”"
    written = ", ".join(filter(None, (chosen.name, chosen.location)))
    if chosen.weights_alone:
        changes |= {"resume_from": "", "weights_file": str(chosen.path)}
        text = tr(
            "A new run with the best weights of {of} ({written}). It starts at its first epoch, without the optimizer state."
        ).format(of=of, written=written)
    else:
        changes |= {"resume_from": str(chosen.path)}
        text = tr(
            "A new run that continues from a checkpoint of {of} ({written}). The original stays unchanged."
        ).format(of=of, written=written)
    fork = Prefill(text=text, job=job.with_fields(**changes))
    over = summary.state == "completed" and (chosen.epoch is None or chosen.epoch >= job.training.epochs)
    if over and not chosen.weights_alone:  # else there would be nothing left to train
        return replace(fork, preset={"epochs": job.training.epochs + MORE_EPOCHS}, focus="epochs")
    return fork


def to_follow(summary: RunSummary, changes: Mapping[str, Any], *, further: bool) -> Prefill:
    """Return the run's job with `changes`: to train the run `further`, or as a new run with the recipe that fits then.

    Raises:
        CannotPrefill: The run's job can't be read, or the run can't be trained further.
    """
    if further:
        return replace(to_resume(summary), preset=dict(changes))
    job = _read(summary)[1]
    before, after = (_fitting_recipe(each) for each in (job, job.with_fields(**changes)))
    preset = {"recipe": after, **changes} if before == job.recipe != after else dict(changes)
    return Prefill(
        text=tr("A new run like “{summary}”, but with {preset}.").format(
            summary=run_title(summary), preset=changes_words(preset)
        ),
        job=job,
        preset=preset,
        focus=next(iter(changes)),
    )


def _fitting_recipe(job: Job) -> str:
    return initial_recipe(collect_facts(job.values(), load_catalogue(), None, ("pretrained",)))


def _read(summary: RunSummary) -> tuple[RunFolder, Job]:
    run = RunFolder(summary.folder)
    job = run.job()
    if job is None:
        raise CannotPrefill(
            tr("The job of “{summary}” can't be read: check {job_file}.").format(
                summary=run_title(summary), job_file=run.job_file
            )
        )
    return run, job


def _from(run: RunFolder, path: Path | None) -> str:
    """Return words such as "from epoch 3, step 345 (last.pt, 14:05)" or "from /runs/other/last.pt"."""
    known: Checkpoint | None = next((each for each in checkpoints_of(run) if each.path == path), None)
    if known is not None:
        of = f"{known.name}, {lately(known.written)}"
        return f"from {known.location} ({of})" if known.location else f"from a checkpoint ({of})"
    return f"from {path}" if path is not None else "from the beginning, since it has no checkpoint"
