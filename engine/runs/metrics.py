"""Find and format the metrics of runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain

from engine.contract.catalogue import Measure, load_catalogue
from engine.runs.folder import RunSummary
from engine.system.format import metric_value


def find_measure(task: str, name: str, described: Sequence[Measure] = ()) -> Measure | None:
    """Find a metric by its id. Return None if it is unknown.

    Metrics in `described`, which the run itself declares, take precedence over the catalogue's metrics of `task`. If
    `task` is "", the metrics of all tasks are searched.
    """
    catalogue = (entry.metrics for entry in load_catalogue().tasks if task in ("", entry.id))
    return next((measure for measure in chain(described, *catalogue) if measure.id == name), None)


def format_measure(
    task: str,
    name: str,
    value: float,
    write: Callable[..., str] = metric_value,
    *,
    described: Sequence[Measure] = (),
) -> str:
    """Format a metric of a run with its title and value, e.g. "Top-1 accuracy 93.4%".

    `write` formats the value and has the arguments of `metric_value`. See `find_measure` for the other arguments.
    """
    measure = find_measure(task, name, described)
    title = measure.title if measure is not None else name
    return f"{title} {write(value, percent=measure is not None and measure.percent)}"


def headline_metric(run: RunSummary) -> tuple[str, float] | None:
    """Return the id and the best value of the run's headline metric, or None if the run has no metrics.

    It is the first metric that is a percentage, or else the first metric.
    """
    measures = {name: find_measure("", name) for name in run.best}
    percentages = (name for name, measure in measures.items() if measure is not None and measure.percent)
    headline = next(percentages, None) or next(iter(run.best), None)
    return (headline, run.best[headline]) if headline is not None else None


def format_best_metric(run: RunSummary, write: Callable[..., str] = metric_value) -> str:
    """Format a run's headline metric without the word "accuracy", e.g. "Top-1 93.4%", or return "–" if it has none.

    See `format_measure` for `write`.
    """
    best = headline_metric(run)
    return format_measure("", *best, write).replace(" accuracy", "") if best is not None else "–"
