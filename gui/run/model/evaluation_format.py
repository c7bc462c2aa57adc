"""Texts of an evaluation: metrics with intervals, titles and classes."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from engine.contract.catalogue import Measure
from engine.contract.inference.evaluation import Evaluation, Interval
from engine.system.format import NOT_KNOWN
from engine.system.plain_text import shortened
from gui.format import counted, lately, localised

SPLITS = {"val": "validation", "test": "test", "train": "training", "all": "all samples"}


def format_value(value: float | None, percent: bool = True) -> str:
    """Format a metric such as "93.4 %" or "0.2134"."""
    if value is None:
        return NOT_KNOWN
    return f"{localised(100 * value, 1)} %" if percent else localised(value, 4)


def format_interval(interval: Interval, percent: bool = True) -> str:
    """Format an interval such as "91.8 – 94.9 %", "" without one."""
    if interval.low is None or interval.high is None:
        return ""
    if percent:
        return f"{localised(100 * interval.low, 1)} – {localised(100 * interval.high, 1)} %"
    return f"{localised(interval.low, 4)} – {localised(interval.high, 4)}"


def format_with_interval(interval: Interval | None, percent: bool = True) -> str:
    """Format a metric with its interval, such as "93.4 % (91.8 – 94.9 %)"."""
    if interval is None:
        return NOT_KNOWN
    bounds = format_interval(interval, percent)
    return format_value(interval.value, percent) + (f" ({bounds})" if bounds else "")


def list_metrics(evaluation: Evaluation) -> list[tuple[Measure, Interval]]:
    """Return the metrics of the evaluation in their order, those without a description last."""
    described = {entry.id: entry for entry in evaluation.entries}
    others = (Measure(name, name, True) for name in evaluation.measures if name not in described)
    return [
        (entry, evaluation.measures[entry.id])
        for entry in (*evaluation.entries, *others)
        if entry.id in evaluation.measures
    ]


def parse_date(date: str) -> float:
    """Parse a date such as 2026-11-24T13:33:49Z as seconds since the epoch; 0 if it is invalid."""
    try:
        return datetime.fromisoformat(date.replace("Z", "+00:00")).astimezone(UTC).timestamp()
    except ValueError:
        return 0.0


def evaluation_title(evaluation: Evaluation) -> str:
    """Return a title such as "14:05 · test · flowers · best.pt"."""
    folder = shortened(Path(evaluation.dataset).name)
    when = lately(parse_date(evaluation.date))
    return " · ".join((when, SPLITS[evaluation.split], folder, shortened(evaluation.checkpoint)))


def describe_samples(evaluation: Evaluation) -> str:
    """Describe the samples, such as "1,200 samples of test in /data/flowers"."""
    return f"{counted(evaluation.samples, 'sample')} of {SPLITS[evaluation.split]} in {evaluation.dataset}"


def format_classes(classes: Sequence[str], indices: Sequence[int], nothing: str = "none") -> str:
    """Join the names of the classes at `indices`, with their number if repeated; `nothing` without any."""
    counts: dict[int, int] = {}
    for index in indices:
        counts[index] = counts.get(index, 0) + 1
    names = (f"{_name(classes, index)}{f' × {count}' if count > 1 else ''}" for index, count in counts.items())
    return ", ".join(names) or nothing


def _name(classes: Sequence[str], index: int) -> str:
    return classes[index] if 0 <= index < len(classes) else "none of them"
