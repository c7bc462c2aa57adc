"""Details that are read when a run is selected: changed fields of its job, checkpoints and disk usage."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.contract.job import FIELDS, changed_fields
from engine.runs.folder import RunFolder
from engine.runs.holding import Holding, holding
from gui.format import significant, size
from gui.sources.checkpoints import Checkpoint, checkpoints_of
from gui.titles import SCHEDULES, devices_words, model_title, option_fields, strategy_title
from gui.translation import tr


@dataclass(frozen=True)
class DetailFields:
    """Details of a run.

    Attributes:
        changed: Fields of the job that differ from their defaults; None if the job is unreadable.
        options: Options that are set, by label.
    """

    run_id: str
    changed: dict[str, Any] | None
    options: dict[str, Any]
    checkpoints: tuple[Checkpoint, ...]
    held: Holding


def read_details(folder: Path) -> DetailFields:
    """Read the details of a run from its folder. Raises OSError."""
    run = RunFolder(folder)
    job = run.job()
    labels = (
        {name: field.label for name, field in option_fields(job).items()} if job is not None and job.options else {}
    )
    return DetailFields(
        run_id=run.run_id,
        changed=changed_fields(job) if job is not None else None,
        options={labels.get(name, name): value for name, value in job.options.items()} if job is not None else {},
        checkpoints=checkpoints_of(run),
        held=holding(folder),
    )


Lines = list[tuple[str, str]]


def job_lines(details: DetailFields) -> Lines:
    """Return the labels and values of changed fields."""
    if details.changed is None:
        return [("job.toml", "can't be read")]
    fields = [(FIELDS[name].label, _value(name, value)) for name, value in details.changed.items()]
    return [*fields, *((label, _value("", value)) for label, value in details.options.items())]


def disk_lines(details: DetailFields) -> Lines:
    """Return the size of the folder, after a line that reports missing checkpoints."""
    missing = [] if details.checkpoints else [(tr("Checkpoints"), "none yet")]
    return [*missing, (tr("Folder"), size(details.held.bytes))]


_TITLES: dict[str, Callable[[Any], str]] = {
    "model": model_title,
    "strategy": strategy_title,
    "devices": devices_words,
    "pipeline_schedule": SCHEDULES.__getitem__,
}


def _value(name: str, value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return significant(value)
    if name in _TITLES:
        return _TITLES[name](value)
    return ", ".join(map(str, value)) if isinstance(value, tuple) else f"{value}"
