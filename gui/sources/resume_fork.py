"""Content of the form for resuming or forking a run, created on worker threads."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from engine.contract.catalogue import load_catalogue
from engine.contract.command import resume_line
from engine.contract.idle_fields import find_idle_fields
from engine.contract.job import Job, load_job
from engine.contract.recipes import collect_facts, initial_recipe
from engine.runs.folder import RunFolder, RunSummary
from engine.runs.resume import CHANGEABLE, changed_job, checkpoint_of
from engine.system.format import listed
from gui.format import format_time_or_date
from gui.sources.checkpoints import checkpoints_of, choose_fork_checkpoint
from gui.titles import describe_job_changes, run_title
from gui.translation import tr

if TYPE_CHECKING:
    from engine.contract.problems import Problem
    from engine.runs.resume import ResumableRun

MORE_EPOCHS = 5
"""Default number of epochs to add when a completed run is trained further."""

_GRAY_FIELDS_NOTE = tr("Gray fields can't be changed when resuming.")

_MAX_NAME = 120
"""Maximum length of a run's name, as in a job."""


class CannotPrefill(Exception):  # noqa: N818  (a state of things more than an error)
    """Raised when a run can't be resumed or forked. The message is written for the user."""


def prefill_to_resume(summary: RunSummary) -> Prefill:
    """Return a prefill for resuming a run. Raises CannotPrefill.

    A completed run gets more epochs. An unfinished run without a checkpoint becomes a new run, whose settings can all be
    changed.
    """
    run, job = _read_run(summary)
    named = f"“{run_title(summary)}”"
    checkpoint = checkpoint_of(run)
    renamed = job.with_fields(name=summary.name)
    if checkpoint is None and summary.state != "completed":
        return Prefill(
            text=tr("A new run with the settings of {run}, which has no checkpoint.").format(run=named), job=renamed
        )
    checkpoint_path = str(checkpoint) if checkpoint is not None else ""
    start = _describe_start(run, checkpoint)
    if summary.state == "completed":
        text = tr("Trains {run} further {start}. {note}").format(run=named, start=start, note=_GRAY_FIELDS_NOTE)
        if job.schedule.name != "none":
            text += " " + tr("The learning rate's schedule now spans all epochs.")
        return Prefill(
            text=text,
            job=renamed,
            run=run,
            checkpoint=checkpoint_path,
            action=tr("Train further"),
            preset={"epochs": job.training.epochs + MORE_EPOCHS},
            focus="epochs",
        )
    return Prefill(
        text=tr("Resumes {run} {start}. {note}").format(run=named, start=start, note=_GRAY_FIELDS_NOTE),
        job=renamed,
        run=run,
        checkpoint=checkpoint_path,
        action=tr("Resume"),
    )


def prefill_to_fork(summary: RunSummary, checkpoint: Path | None = None) -> Prefill:
    """Return a prefill for a new run that starts from a checkpoint, by default the last one. Raises CannotPrefill."""
    run, job = _read_run(summary)
    checkpoints = checkpoints_of(run)
    chosen = (
        choose_fork_checkpoint(checkpoints)
        if checkpoint is None
        else next((each for each in checkpoints if each.path == checkpoint), None)
    )
    if chosen is None:
        reason = (
            tr("its {checkpoint} is gone").format(checkpoint=checkpoint.name)
            if checkpoint is not None
            else tr("it has no checkpoint yet")
        )
        raise CannotPrefill(tr("“{run}” can't be forked: {reason}.").format(run=run_title(summary), reason=reason))
    changes: dict[str, str] = {"name": summary.name[: _MAX_NAME - len(" fork")] + " fork" if summary.name else ""}
    title = f"“{run_title(summary)}”"
    written = ", ".join(filter(None, (chosen.name, chosen.position_text)))
    if chosen.has_only_weights:
        changes |= {"resume_from": "", "weights_file": str(chosen.path)}
        text = tr(
            "A new run with the best weights of {of} ({written}). It starts at its first epoch, without the optimizer state."
        ).format(of=title, written=written)
    else:
        changes |= {"resume_from": str(chosen.path)}
        text = tr(
            "A new run that continues from a checkpoint of {of} ({written}). The original stays unchanged."
        ).format(of=title, written=written)
    fork = Prefill(text=text, job=job.with_fields(**changes))
    is_trained = summary.state == "completed" and (chosen.epoch is None or chosen.epoch >= job.training.epochs)
    if is_trained and not chosen.has_only_weights:  # without more epochs, there would be nothing to train
        return replace(fork, preset={"epochs": job.training.epochs + MORE_EPOCHS}, focus="epochs")
    return fork


def prefill_with_changes(summary: RunSummary, changes: Mapping[str, Any], *, continues_run: bool) -> Prefill:
    """Return a prefill of the form with `changes` to the job.

    If `continues_run` is True, the prefill resumes the run. Otherwise, it starts a new run. If the old job uses the
    recipe that Footplate suggests for it, the new run uses the recipe that Footplate suggests for the changed job.

    Raises:
        CannotPrefill: The job of the run can't be read, or the run can't be trained further.
    """
    if continues_run:
        return replace(prefill_to_resume(summary), preset=dict(changes))
    _run, job = _read_run(summary)
    old_recipe, new_recipe = (_default_recipe(each) for each in (job, job.with_fields(**changes)))
    preset = dict(changes)
    if job.recipe == old_recipe and new_recipe != old_recipe:
        preset = {"recipe": new_recipe, **changes}
    return Prefill(
        text=tr("A new run like “{summary}”, but with {preset}.").format(
            summary=run_title(summary), preset=describe_job_changes(preset)
        ),
        job=job,
        preset=preset,
        focus=next(iter(changes)),
    )


def _default_recipe(job: Job) -> str:
    """Return the id of the recipe that the form suggests for a job."""
    return initial_recipe(collect_facts(job.values(), load_catalogue(), None, ("pretrained",)))


def _read_run(summary: RunSummary) -> tuple[RunFolder, Job]:
    """Return a run's folder and its job. Raises CannotPrefill if the job can't be read."""
    run = RunFolder(summary.folder)
    job = run.job()
    if job is None:
        raise CannotPrefill(
            tr("The job of “{summary}” can't be read: check {job_file}.").format(
                summary=run_title(summary), job_file=run.job_file
            )
        )
    return run, job


def _describe_start(run: RunFolder, path: Path | None) -> str:
    """Describe where a run starts, as in "from epoch 3, step 345 (last.pt, 14:05)" or "from /runs/other/last.pt".

    `path` is the checkpoint that it starts from, or None if it starts from the beginning.
    """
    if path is None:
        return tr("from the beginning, since it has no checkpoint")
    checkpoint = next((each for each in checkpoints_of(run) if each.path == path), None)
    if checkpoint is None:  # a checkpoint of another run
        return tr("from {path}").format(path=path)
    return tr("from {position} ({file}, {time})").format(
        position=checkpoint.position_text or tr("a checkpoint"),
        file=checkpoint.name,
        time=format_time_or_date(checkpoint.written),
    )


@dataclass(frozen=True)
class Prefill:
    """Content of the form for a run that is based on another run.

    Attributes:
        text: Text above the form.
        job: Job of the resumed run, or of the new one.
        run: Run to resume in its folder, or None for a new run.
        checkpoint: Path of the checkpoint to resume from, or "" to start from the beginning.
        action: Text of the button.
        preset: Initial values in the form that differ from the job.
        focus: Field that the user is likely to change first.
    """

    text: str
    job: Job
    run: RunFolder | None = None
    checkpoint: str = ""
    action: str = tr("Train")
    preset: dict[str, Any] = field(default_factory=dict)
    focus: str = "strategy"

    @property
    def open_fields(self) -> frozenset[str]:
        """Fields of the form that the user may change. The others are locked."""
        if self.run is None:
            return frozenset(self.job.values())
        return CHANGEABLE - {"name"}  # the Runs page renames a run

    def values(self, edited: dict[str, Any], hidden: Set[str] = frozenset()) -> dict[str, Any]:
        """Return the job's values, updated with the values in `edited` of the fields that the user may change.

        `hidden` are the fields that the form doesn't show. Those that have no effect keep the job's values.
        """
        job_values = self._form_values()
        unchanged = hidden & find_idle_fields(job_values, load_catalogue()).keys()
        return job_values | {name: value for name, value in edited.items() if name in self.open_fields - unchanged}

    def job_to_validate(self, job: Job) -> Job:
        """Return the job to validate. Resuming a run is validated like a new run from its checkpoint."""
        return job if self.run is None else job.with_fields(resume_from=self.checkpoint)

    def changes(self, values: dict[str, Any]) -> dict[str, Any]:
        """Return the entries of `values` that differ from the run's job."""
        job_values = self._form_values()
        return {name: value for name, value in values.items() if job_values.get(name) != value}

    def _form_values(self) -> dict[str, Any]:
        """Return the job's values in the types that the form uses."""
        values: dict[str, Any] = msgspec.to_builtins(self.job.values())
        return {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}

    def command(self, values: dict[str, Any]) -> str:
        """Return the terminal command that resumes the run with `values`, or "" for a new run."""
        return resume_line(self.run.run_id, self.changes(values)) if self.run is not None else ""

    def problems(self, values: dict[str, Any], resumable: ResumableRun | None) -> list[Problem]:
        """Return the problems that prevent resuming with `values`.

        Returns an empty list for a new run, or if `resumable` is None because the state of the run is unknown.
        """
        if self.run is None or resumable is None:
            return []
        return changed_job(resumable, self.changes(values))[1]


@dataclass(frozen=True)
class PathContent:
    """Dataset folder or job to open, or the `problem` that prevents opening it."""

    folder: str = ""
    prefill: Prefill | None = None
    problem: str = ""


def read_paths(paths: Sequence[str]) -> PathContent:
    """Read the first dataset folder or job file (`*.toml`) among `paths`.

    If there is none, the result has a `problem`. Blocks if the disk is slow.
    """
    folder_or_job = (path for path in paths if os.path.isdir(path) or path.endswith(".toml"))
    path = next(folder_or_job, "")
    if not path:
        names = [name for name in map(os.path.basename, paths[:2]) if name]
        return PathContent(
            problem=tr("{names} can't be opened: choose a dataset folder or a job file (*.toml).").format(
                names=listed(names) if names else ""
            )
        )
    return PathContent(folder=path) if os.path.isdir(path) else _read_job(Path(path))


def _read_job(path: Path) -> PathContent:
    """Read a job file, without its permission to execute a model file."""
    job, problems = load_job(path)
    if job is None:
        return PathContent(
            problem=tr("The job in {path} can't be used. {problems}").format(
                path=path, problems=" ".join(map(str, problems))
            )
        )
    # The file may come from somebody else, and only the user may allow a model's code to run.
    job = job.with_fields(model_file_sha256="")
    return PathContent(prefill=Prefill(text=tr("A new run with the job in {path}.").format(path=path), job=job))
