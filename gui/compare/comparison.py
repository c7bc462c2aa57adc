"""Rows of the comparison table: results of the runs, and differences between their jobs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from engine.contract.catalogue import Measure
from engine.contract.job import FIELDS, Job
from engine.system.format import NOT_KNOWN, duration
from gui.compare.compared_run import ComparedRun
from gui.format import localized, metric_value, speed
from gui.titles import PATHS, describe_devices, format_job_value, option_fields, strategy_title
from gui.translation import tr


@dataclass(frozen=True)
class Row:
    """Row of the comparison table, with a cell for each run.

    Attributes:
        texts: A text for each run, or () for a heading.
        best: Indices of the runs with the best value.
        help: Tool tip of the title.
        tips: Tool tips of the cells.
    """

    title: str
    texts: tuple[str, ...] = ()
    best: frozenset[int] = frozenset()
    help: str = ""
    tips: tuple[str, ...] = ()

    @property
    def heading(self) -> bool:
        return not self.texts


def create_rows(runs: Sequence[ComparedRun]) -> list[Row]:
    """Return all rows of the comparison table, with a heading for each section."""
    if not runs:
        return []
    rows = [Row(tr("Results")), *create_result_rows(runs)]
    differences = create_difference_rows(runs)
    if differences:
        rows += [Row(tr("Differences between the jobs")), *differences]
    elif len(runs) > 1:
        rows.append(Row(tr("The jobs are identical")))
    return rows


def create_result_rows(runs: Sequence[ComparedRun]) -> list[Row]:
    """Return rows for the state, metrics, speed, duration and energy of the runs.

    The best values of a row are marked if at least two runs have one.
    """
    is_completed = [run.summary.state == "completed" for run in runs]
    measures = filter(None, (find_measure(runs, name) for name in list_measures(runs)))
    return [
        Row(
            tr("State"),
            tuple(run.summary.state.capitalize() for run in runs),
            tips=tuple(run.summary.cause for run in runs),
        ),
        Row(tr("Steps"), tuple(_format_steps(run) for run in runs), help=tr("Completed and planned steps")),
        *(_create_metric_row(runs, measure) for measure in measures),
        _create_figure_row(
            tr("Speed"),
            [run.images_per_second for run in runs],
            speed,
            is_higher_better=True,
            help_text=tr("Median over the run, summed over its devices"),
        ),
        _create_figure_row(
            tr("Duration"),
            [run.summary.seconds for run in runs],
            duration,
            can_be_best=is_completed,
            help_text=tr("The best of the completed runs is marked"),
        ),
        _create_figure_row(
            tr("Energy"),
            [run.energy_wh for run in runs],
            lambda value: f"{localized(value, 2 if value < 100 else 0)} Wh",
            can_be_best=is_completed,
            help_text=tr(
                "Energy used during the run by the devices that report power; the best of the completed runs is marked"
            ),
        ),
    ]


def create_difference_rows(runs: Sequence[ComparedRun]) -> list[Row]:
    """Return a row for each job field that differs between runs, except the name."""
    jobs = [run.job.with_fields(strategy=run.job.resolved_strategy) if run.job is not None else None for run in runs]
    found = []
    for name, field in FIELDS.items():
        values = [job.value(name) if job is not None else None for job in jobs]
        if name != "name" and any(value != values[0] for value in values):
            texts = tuple(format_field(run, name) for run in runs)
            tips = tuple(str(value) if name in PATHS else "" for value in values)
            found.append(Row(field.label, texts, help=field.help, tips=tips))
    return [*found, *_create_option_rows(jobs)]


def _create_option_rows(jobs: Sequence[Job | None]) -> list[Row]:
    """Return a row for each option of the model, task or strategy that differs between `jobs`, the jobs of the runs.

    Runs whose model, task or strategy doesn't have the option get a dash.
    """
    fields = [option_fields(job) if job is not None else {} for job in jobs]
    values = [
        {name: field.default for name, field in job_fields.items()} | (job.options if job is not None else {})
        for job, job_fields in zip(jobs, fields, strict=True)
    ]
    found = []
    for name in dict.fromkeys(name for job_values in values for name in job_values):
        option_values = [job_values.get(name) for job_values in values]
        if any(value != option_values[0] for value in option_values):
            field = next((job_fields[name] for job_fields in fields if name in job_fields), None)
            texts = tuple(NOT_KNOWN if value is None else format_job_value("", value) for value in option_values)
            found.append(Row(field.label if field else name, texts, help=field.help if field else ""))
    return found


def list_measures(runs: Sequence[ComparedRun]) -> list[str]:
    """Return the ids of the validation metrics of all runs, ordered by their first appearance."""
    return list(dict.fromkeys(name for run in runs for name in run.data.validations.measures))


def find_measure(runs: Sequence[ComparedRun], name: str) -> Measure | None:
    """Return the description of the metric with the id `name` from the first run that describes it, or None."""
    return next(filter(None, (run.data.find_measure(name) for run in runs)), None)


def find_measure_title(runs: Sequence[ComparedRun], name: str) -> str:
    """Return the title of a metric, or its id if no run describes it."""
    measure = find_measure(runs, name)
    return measure.title if measure is not None else name


def format_field(run: ComparedRun, name: str) -> str:
    """Format the value of the job field `name` as the form shows it, or return a dash if the job is unknown."""
    if run.job is None:
        return NOT_KNOWN
    value: Any = run.job.value(name)
    special: dict[str, Callable[[Job], str]] = {
        "strategy": lambda job: strategy_title(job.resolved_strategy),
        "devices": lambda job: describe_devices(job.parallel.devices, run.data.device_names),
        "best_by": lambda job: find_measure_title([run], job.checkpoints.best_by),
    }
    return special[name](run.job) if name in special else format_job_value(name, value)


def _create_metric_row(runs: Sequence[ComparedRun], measure: Measure) -> Row:
    """Return a row with each run's best value of a metric and its epoch. The best of all is marked."""
    best_values = [run.find_best(measure) for run in runs]
    row = _create_figure_row(
        tr("Best {lower_first}").format(lower_first=_lower_first(measure.title)),
        [best.value if best is not None else None for best in best_values],
        partial(metric_value, percent=measure.percent, decimals=2),
        is_higher_better=measure.higher_is_better,
        help_text=tr("Best value over all validations, with its epoch"),
    )
    texts = tuple(
        tr("{value}  (epoch {epoch})").format(value=text, epoch=best.epoch) if best is not None else text
        for text, best in zip(row.texts, best_values, strict=True)
    )
    return replace(row, texts=texts)


def _create_figure_row(
    title: str,
    values: Sequence[float | None],
    format_value: Callable[[float], str],
    *,
    is_higher_better: bool = False,
    can_be_best: Sequence[bool] | None = None,
    help_text: str,
) -> Row:
    """Return a row of figures in which the best one is marked.

    Args:
        title: Title of the row.
        values: Figure of each run, by series (the run's index), or None if it is unknown.
        format_value: Formats a figure.
        is_higher_better: True if the highest figure is the best one, otherwise the lowest is.
        can_be_best: For each run, True if it can be the best one. None if all can.
        help_text: Tool tip of the title.
    """
    candidates = {
        series: value
        for series, value in enumerate(values)
        if value is not None and (can_be_best is None or can_be_best[series])
    }
    best: frozenset[int] = frozenset()
    if len(set(candidates.values())) > 1:
        best_value = max(candidates.values()) if is_higher_better else min(candidates.values())
        best = frozenset(series for series, value in candidates.items() if value == best_value)
    texts = tuple(NOT_KNOWN if value is None else format_value(value) for value in values)
    return Row(title, texts, best, help_text)


def _format_steps(run: ComparedRun) -> str:
    """Return the completed and the planned steps of a run, or a dash before its first step."""
    steps, plan = run.data.steps.step, run.data.plan
    if not len(steps):
        return NOT_KNOWN
    if plan is None:
        return localized(steps.last)
    return tr("{steps} of {total}").format(
        steps=localized(steps.last), total=localized(plan.epochs * plan.steps_per_epoch)
    )


def _lower_first(title: str) -> str:
    """Return the title with its first letter in lower case."""
    return title[:1].lower() + title[1:]
