"""How an evaluation is written: its measures with their intervals, its title, its classes."""

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


def value_words(value: float | None, percent: bool = True) -> str:
    """ "93.4 %" or "0.2134"."""
    if value is None:
        return NOT_KNOWN
    return f"{localised(100 * value, 1)} %" if percent else localised(value, 4)


def interval_words(interval: Interval, percent: bool = True) -> str:
    """ "91.8 – 94.9 %", "" where there is none."""
    if interval.low is None or interval.high is None:
        return ""
    if percent:
        return f"{localised(100 * interval.low, 1)} – {localised(100 * interval.high, 1)} %"
    return f"{localised(interval.low, 4)} – {localised(interval.high, 4)}"


def with_interval(interval: Interval | None, percent: bool = True) -> str:
    """ "93.4 % (91.8 – 94.9 %)"."""
    if interval is None:
        return NOT_KNOWN
    within = interval_words(interval, percent)
    return value_words(interval.value, percent) + (f" ({within})" if within else "")


def measures_of(evaluation: Evaluation) -> list[tuple[Measure, Interval]]:
    """The measures that it has, in their order, those that nobody describes last."""
    described = {entry.id: entry for entry in evaluation.entries}
    others = (Measure(name, name, True) for name in evaluation.measures if name not in described)
    return [
        (entry, evaluation.measures[entry.id])
        for entry in (*evaluation.entries, *others)
        if entry.id in evaluation.measures
    ]


def seconds_of(date: str) -> float:
    """A date as 2026-11-24T13:33:49Z in seconds since the epoch; 0 where it is written otherwise."""
    try:
        return datetime.fromisoformat(date.replace("Z", "+00:00")).astimezone(UTC).timestamp()
    except ValueError:
        return 0.0


def evaluation_title(evaluation: Evaluation) -> str:
    """ "14:05 · test · flowers · best.pt"."""
    folder = shortened(Path(evaluation.dataset).name)
    when = lately(seconds_of(evaluation.date))
    return " · ".join((when, SPLITS[evaluation.split], folder, shortened(evaluation.checkpoint)))


def sample_count(evaluation: Evaluation) -> str:
    """ "1,200 samples of test in /data/flowers"."""
    return f"{counted(evaluation.samples, 'sample')} of {SPLITS[evaluation.split]} in {evaluation.dataset}"


def class_words(classes: Sequence[str], of: Sequence[int], nothing: str = "none") -> str:
    """The names of the classes at the indices `of`; of a class that occurs several times, how often."""
    counts: dict[int, int] = {}
    for index in of:
        counts[index] = counts.get(index, 0) + 1
    names = (f"{_name(classes, index)}{f' × {count}' if count > 1 else ''}" for index, count in counts.items())
    return ", ".join(names) or nothing


def _name(classes: Sequence[str], index: int) -> str:
    return classes[index] if 0 <= index < len(classes) else "none of them"
