"""Values that fill the form: to resume, train further or fork a run, or from a path to open."""

from __future__ import annotations

import os
from collections.abc import Sequence, Set
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from engine.contract.catalogue import load_catalogue
from engine.contract.command import resume_line
from engine.contract.idle_fields import idle_fields
from engine.contract.job import Job, load_job
from gui.translation import tr

if TYPE_CHECKING:
    from engine.contract.problems import Problem
    from engine.runs.folder import RunFolder
    from engine.runs.resume import ResumableRun


@dataclass(frozen=True)
class Prefill:
    """Content of the form for a run based on another one.

    Attributes:
        text: Text above the form.
        job: Job of the resumed run, or of the new one.
        run: Run to resume in its folder, None for a new run.
        checkpoint: Path that the run resumes from, "" for its start.
        action: Text of the button.
        preset: Values that replace those of the job at first.
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
        """Fields that may be changed."""
        if self.run is None:
            return frozenset(self.job.values())
        from engine.runs.resume import CHANGEABLE

        return CHANGEABLE - {"name"}

    def values(self, edited: dict[str, Any], hidden: Set[str] = frozenset()) -> dict[str, Any]:
        """Return the job's values, updated by the values `edited` in changeable fields.

        Rounded numbers stay exact, and `hidden` fields without effect stay as they were.
        """
        job_values = self._plain()
        unchanged = hidden & idle_fields(job_values, load_catalogue()).keys()
        return job_values | {name: value for name, value in edited.items() if name in self.open_fields - unchanged}

    def to_check(self, job: Job) -> Job:
        """Return `job` as a new run that starts from the checkpoint, for validation."""
        return job if self.run is None else job.with_fields(resume_from=self.checkpoint)

    def changes(self, values: dict[str, Any]) -> dict[str, Any]:
        """Return the `values` that differ from the run's job."""
        job_values = self._plain()
        return {name: value for name, value in values.items() if job_values.get(name) != value}

    def _plain(self) -> dict[str, Any]:
        """Return the job's values in the form's types."""
        values: dict[str, Any] = msgspec.to_builtins(self.job.values())
        return {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}

    def command(self, values: dict[str, Any]) -> str:
        """Return the command that resumes the run with `values`, "" for a new run."""
        return resume_line(self.run.run_id, self.changes(values)) if self.run is not None else ""

    def problems(self, values: dict[str, Any], resumable: ResumableRun | None) -> list[Problem]:
        """Return the problems that prevent resuming with `values`; none for new runs or while the state is unknown."""
        if self.run is None or resumable is None:
            return []
        from engine.runs.resume import changed_job

        return changed_job(resumable, self.changes(values))[1]


@dataclass(frozen=True)
class Opened:
    """Dataset folder or job to open, else a `problem`."""

    folder: str = ""
    prefill: Prefill | None = None
    problem: str = ""


def read_paths(paths: Sequence[str]) -> Opened:
    """Read the first folder or job file (`*.toml`) among `paths`; may block on the disk."""
    folder_or_job = (path for path in paths if os.path.isdir(path) or path.endswith(".toml"))
    path = next(folder_or_job, "")
    if not path:
        names = " and ".join(filter(None, (os.path.basename(path) for path in paths[:2])))
        return Opened(
            problem=tr("{names} can't be opened: choose a dataset folder or a job file (*.toml).").format(names=names)
        )
    return Opened(folder=path) if os.path.isdir(path) else _read_job(Path(path))


def _read_job(path: Path) -> Opened:
    job, problems = load_job(path)
    if job is None:
        return Opened(problem=f"The job in {path} can't be used. {' '.join(map(str, problems))}")
    # The file may come from somebody else, and only the user may allow a model's code to run.
    job = job.with_fields(model_file_sha256="")
    return Opened(prefill=Prefill(text=tr("A new run with the job in {path}.").format(path=path), job=job))
