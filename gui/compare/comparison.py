"""The rows of the comparison table: the runs' results, and the differences between their jobs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.contract.job import FIELDS, Job
from engine.runs.metrics import find_measure
from engine.system.format import NOT_KNOWN, duration
from gui.compare.compared_run import ComparedRun
from gui.format import localised, significant
from gui.titles import CHOICES, EMPTY, devices_words, model_title, option_fields, strategy_title

_PATHS = ("dataset", "resume_from", "weights_file")


@dataclass(frozen=True)
class Row:
    """`texts` has a cell for each run, none where the row is a heading; `best` the series of the best of them."""

    title: str
    texts: tuple[str, ...] = ()
    best: frozenset[int] = frozenset()
    help: str = ""
    tips: tuple[str, ...] = ()

    @property
    def heading(self) -> bool:
        return not self.texts


def rows(runs: Sequence[ComparedRun]) -> list[Row]:
    """The whole table, with a heading before each of its parts."""
    if not runs:
        return []
    differing = differences(runs)
    heading = Row("Differences between the jobs" if differing else "The jobs are identical" if len(runs) > 1 else "")
    return [Row("Results"), *results(runs), *([heading] if heading.title else []), *differing]


def results(runs: Sequence[ComparedRun]) -> list[Row]:
    """State and figures; the best of each row is marked where more than one run can be compared."""
    ended = [run.summary.state == "completed" for run in runs]
    seconds = [run.summary.seconds for run in runs]
    energy = [run.energy_wh for run in runs]
    return [
        Row(
            "State",
            tuple(run.summary.state.capitalize() for run in runs),
            tips=tuple(run.summary.cause for run in runs),
        ),
        Row("Steps", tuple(_steps(run) for run in runs), help="Completed and planned steps"),
        *(_measure_row(runs, name) for name in measures(runs)),
        _figures(
            "Images per second",
            [run.images_per_second for run in runs],
            lambda value: localised(value) if value >= 10 else significant(value, 2),
            higher=True,
            help_text="Median over the run, summed over its devices",
        ),
        _figures("Duration", seconds, duration, among=ended, help_text="The best of the completed runs is marked"),
        _figures(
            "Energy",
            energy,
            lambda value: f"{localised(value, 2)} Wh" if value < 100 else f"{localised(value)} Wh",
            among=ended,
            help_text="Energy used during the run by the devices that report power; the best of the completed runs is marked",
        ),
    ]


def differences(runs: Sequence[ComparedRun]) -> list[Row]:
    """The fields of the jobs, but their names, in which the runs are not all alike."""
    jobs = [run.job for run in runs]
    found = []
    for name, field in FIELDS.items():
        values = [job.value(name) if job is not None else None for job in jobs]
        if name != "name" and any(value != values[0] for value in values):
            texts = tuple(field_words(run, name) for run in runs)
            tips = tuple(str(value) if name in _PATHS else "" for value in values)
            found.append(Row(field.label, texts, help=field.help, tips=tips))
    return [*found, *_differing_options(jobs)]


def _differing_options(jobs: Sequence[Job | None]) -> list[Row]:
    """The options in which the jobs are not all alike; an option of another model, task or strategy is a dash."""
    fields = [option_fields(job) if job is not None else {} for job in jobs]
    values = [
        {name: field.default for name, field in known.items()} | (job.options if job is not None else {})
        for job, known in zip(jobs, fields, strict=True)
    ]
    found = []
    for name in dict.fromkeys(name for of_job in values for name in of_job):
        of_option = [of_job.get(name) for of_job in values]
        if any(value != of_option[0] for value in of_option):
            field = next((known[name] for known in fields if name in known), None)
            texts = tuple(NOT_KNOWN if value is None else _plain_words(value) for value in of_option)
            found.append(Row(field.label if field else name, texts, help=field.help if field else ""))
    return found


def measures(runs: Sequence[ComparedRun]) -> list[str]:
    """The validation measures that any of the runs told, in the order in which they were first told."""
    return list(dict.fromkeys(name for run in runs for name in run.data.validations.measures))


def measure_title(runs: Sequence[ComparedRun], name: str) -> str:
    known = next((m for run in runs if (m := find_measure(_task(run), name)) is not None), None)
    return known.title if known is not None else name


def field_words(run: ComparedRun, name: str) -> str:
    """The field's value in the run's job, written as in the form."""
    if run.job is None:
        return NOT_KNOWN
    value: Any = run.job.value(name)
    special: dict[str, Callable[[Job], str]] = {
        "model": lambda job: model_title(job.model.name),
        "strategy": lambda job: strategy_title(job.parallel.strategy),
        "devices": lambda job: devices_words(job.parallel.devices, run.data.device_names),
        "best_by": lambda job: measure_title([run], job.checkpoints.best_by),
    }
    return special[name](run.job) if name in special else _value_words(name, value)


def _value_words(name: str, value: Any) -> str:
    if value in (None, "", ()):
        return EMPTY.get(name, "automatic" if FIELDS[name].optional or name == "cuts" else "none")
    if isinstance(value, tuple):
        return ", ".join(value)
    if isinstance(value, str):
        return Path(value).name if name in _PATHS else CHOICES.get(value, value)
    return _plain_words(value)


def _plain_words(value: bool | int | float | str) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return localised(value)
    return significant(value) if isinstance(value, float) else value


def _measure_row(runs: Sequence[ComparedRun], name: str) -> Row:
    known = find_measure(_task(runs[0]), name)
    percent, higher = known is not None and known.percent, known is not None and known.higher_is_better
    found = [run.best(name) for run in runs]
    epochs = [best[1] if best is not None else 0 for best in found]
    row = _figures(
        f"Best {_lowered(measure_title(runs, name))}",
        [best[0] if best is not None else None for best in found],
        lambda value: f"{localised(100 * value, 2)} %" if percent else localised(value, 4),
        higher=higher,
        help_text="Best value over all validations, with its epoch",
    )
    texts = tuple(f"{text}  (epoch {epoch})" if epoch else text for text, epoch in zip(row.texts, epochs, strict=True))
    return Row(row.title, texts, row.best, row.help)


def _figures(
    title: str,
    values: Sequence[float | None],
    write: Callable[[float], str],
    *,
    higher: bool = False,
    among: Sequence[bool] | None = None,
    help_text: str = "",
) -> Row:
    """A row of figures. The best are those that no other `among` the runs that count is better than."""
    counted = {
        series: value for series, value in enumerate(values) if value is not None and (among is None or among[series])
    }
    best: frozenset[int] = frozenset()
    if len(set(counted.values())) > 1:
        top = max(counted.values()) if higher else min(counted.values())
        best = frozenset(series for series, value in counted.items() if value == top)
    return Row(title, tuple(NOT_KNOWN if value is None else write(value) for value in values), best, help_text)


def _steps(run: ComparedRun) -> str:
    told, plan = run.data.steps.step, run.data.plan
    if not len(told):
        return NOT_KNOWN
    return localised(told.last) + (f" of {localised(plan.epochs * plan.steps_per_epoch)}" if plan is not None else "")


def _task(run: ComparedRun) -> str:
    return run.job.task if run.job is not None else ""


def _lowered(title: str) -> str:
    """ "top-1 accuracy" for "Top-1 accuracy"."""
    return title[:1].lower() + title[1:]
