"""What the form is filled with to resume another run, to train it further or to fork it."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec

from engine.contract.catalogue import load_catalogue
from engine.contract.command import resume_line
from engine.contract.idle_fields import idle_fields
from engine.contract.job import Job

if TYPE_CHECKING:
    from engine.contract.problems import Problem
    from engine.runs.folder import RunFolder
    from engine.runs.resume import ResumableRun


@dataclass(frozen=True)
class Prefill:
    """`said` tells what stands in the form, above it; `action` is what the button says that starts it.

    A prefill with a `run` resumes in that run's folder, from its `checkpoint` (a path, "" for the start), and its
    `job` is the run's own; one without is the job of a new run. `preset` holds values that the form begins with
    instead of the job's, and `focus` is the field where the user is likely to begin.
    """

    said: str
    job: Job
    run: RunFolder | None = None
    checkpoint: str = ""
    action: str = "Train"
    preset: dict[str, Any] = field(default_factory=dict)
    focus: str = "strategy"

    @property
    def open_fields(self) -> frozenset[str]:
        """The fields that may be changed."""
        if self.run is None:
            return frozenset(self.job.values())
        from engine.runs.resume import CHANGEABLE

        return CHANGEABLE - {"name"}

    def values(self, shown: dict[str, Any], hidden: Set[str] = frozenset()) -> dict[str, Any]:
        """The job's values with those that are `shown` in the form, where they may be changed.

        A number that the form shows rounded is thus left as it is, and so is what has no effect, in the job as it was
        and in the form, where it is `hidden`.
        """
        own = self._plain()
        kept = hidden & idle_fields(own, load_catalogue()).keys()
        return own | {name: value for name, value in shown.items() if name in self.open_fields - kept}

    def to_check(self, job: Job) -> Job:
        """`job` as what it would be for a run that begins now: one that continues from the checkpoint."""
        return job if self.run is None else job.with_fields(resume_from=self.checkpoint)

    def changes(self, values: dict[str, Any]) -> dict[str, Any]:
        """What `values` change of the run's job."""
        own = self._plain()
        return {name: value for name, value in values.items() if own.get(name) != value}

    def _plain(self) -> dict[str, Any]:
        """The job's values as the form gives its own."""
        values: dict[str, Any] = msgspec.to_builtins(self.job.values())
        return {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}

    def command(self, values: dict[str, Any]) -> str:
        """The command that has the run go on so, "" for a new run."""
        return resume_line(self.run.run_id, self.changes(values)) if self.run is not None else ""

    def problems(self, values: dict[str, Any], standing: ResumableRun | None) -> list[Problem]:
        """What keeps the run from going on so, at the fields that it is owed to; none for a new run, or where
        `standing`, how the run stands, is not known yet.
        """
        if self.run is None or standing is None:
            return []
        from engine.runs.resume import changed_job

        return changed_job(standing, self.changes(values))[1]
