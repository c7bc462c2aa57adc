"""``footplate evaluate``: how good a run's model is on a split of a dataset, and beside another's."""

from __future__ import annotations

import argparse
import io
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import msgspec

from engine.cli.exit_codes import BAD_REQUEST, COMPLETED, FAILED
from engine.cli.inference import add_model, done, model_values
from engine.cli.table import table
from engine.cli.terminal import say
from engine.contract.inference.evaluation import Comparison, EvaluateOrder, Evaluation, EvaluationSplit, Interval
from engine.runs.comparison import NotComparable, compare
from engine.runs.evaluations import DamagedEvaluation, KeptEvaluation, read_evaluation
from engine.system import paths
from engine.system.csv_writer import CsvWriter
from engine.system.format import NOT_KNOWN, counted

WORST = 10
"""Classes that are shown where there are more."""


def add_evaluate(parser: argparse.ArgumentParser) -> None:
    add_model(parser)
    parser.add_argument("folder", nargs="?", default="", help="a dataset to evaluate on; by default that of the run")
    parser.add_argument(
        "--split",
        choices=get_args(EvaluationSplit),
        help="by default val of the run's own dataset; of another folder test, else val, else all",
    )
    parser.add_argument("--against", metavar="RUN", help="compare it with the best model of another run")
    parser.add_argument("--csv", metavar="FILE", type=Path, help="also write the measures as a table")
    parser.set_defaults(command=evaluate)


def evaluate(options: argparse.Namespace) -> int:
    """Evaluates what is asked for and prints what came of it."""
    kept = _evaluated(options)
    if isinstance(kept, int):
        return kept
    if options.against is not None:
        return _beside(kept, options)
    if not _wrote_csv(options.csv, _rows(kept.evaluation)):
        return FAILED
    if options.json:
        told = msgspec.to_builtins(kept.evaluation) | {"path": str(kept.folder)}
        say(msgspec.json.encode(told).decode())
    else:
        say(*_told(kept))
    return COMPLETED


def _beside(kept: KeptEvaluation, options: argparse.Namespace) -> int:
    """Evaluates the other run's model on the same samples, and prints both."""
    options.run, options.checkpoint = options.against, "best"
    options.folder, options.split = kept.evaluation.dataset, kept.evaluation.split
    other = _evaluated(options)
    if isinstance(other, int):
        return other
    try:
        comparison = compare(kept, other)
    except (NotComparable, DamagedEvaluation) as error:
        say(f"footplate: {error}", to=sys.stderr)
        return BAD_REQUEST
    if not _wrote_csv(options.csv, _rows_of_both(comparison)):
        return FAILED
    if options.json:
        say(msgspec.json.encode(comparison).decode())
    else:
        say(*_compared(comparison), f"Kept in {kept.folder} and {other.folder}.")
    return COMPLETED


def _evaluated(options: argparse.Namespace) -> KeptEvaluation | int:
    """The evaluation of the run in the options; or the exit code once it has been said why there is none."""
    values = model_values(options)
    if values is None:
        return BAD_REQUEST
    folder = str(Path(options.folder).expanduser().absolute()) if options.folder else ""
    path = done(EvaluateOrder(**values, dataset=folder, split=options.split))
    if isinstance(path, int):
        return path
    try:
        return read_evaluation(path.parent)
    except DamagedEvaluation as error:
        say(f"footplate: {error}", to=sys.stderr)
        return FAILED


def _told(kept: KeptEvaluation) -> Iterator[str]:
    """What came of it, for people."""
    evaluation = kept.evaluation
    yield (
        f"{evaluation.run}, {evaluation.checkpoint}: {counted(evaluation.samples, 'sample')} of "
        f"{evaluation.dataset} ({evaluation.split})"
    )
    if evaluation.skipped:
        yield f"Skipped {counted(len(evaluation.skipped), 'file')} that can't be read."
    yield ""
    rows = [
        (entry.title, _value(each.value, percent=entry.percent), _range(each, percent=entry.percent))
        for entry in evaluation.entries
        for each in [evaluation.measures[entry.id]]
    ]
    yield from table(("Measure", "Value", f"95 % interval ({counted(evaluation.resamples, 'resample')})"), rows)
    yield from _classes(evaluation)
    yield from _errors(evaluation)
    if evaluation.calibration is not None and evaluation.calibration.temperature is not None:
        known = evaluation.calibration
        yield ""
        yield (
            f"Temperature {known.temperature:.2f} would bring the calibration error from "
            f"{_value(known.ece_before, percent=True)} to {_value(known.ece_after, percent=True)}."
        )
    yield ""
    yield f"Kept in {kept.folder}."


def _classes(evaluation: Evaluation) -> Iterator[str]:
    """A table of the classes, the worst first, with the interval of what decides which these are."""
    if not evaluation.per_class or not evaluation.classes:
        return
    titles = list(evaluation.per_class)
    titles.sort(key=lambda title: title != "F1")
    decides = evaluation.per_class[titles[0]]
    order = sorted(range(len(evaluation.classes)), key=lambda index: _rank(decides[index]))
    yield ""
    rows = [
        (
            evaluation.classes[index],
            _of_class(decides[index], with_range=True),
            *(_of_class(evaluation.per_class[title][index]) for title in titles[1:]),
        )
        for index in order[:WORST]
    ]
    yield from table(("Class", *titles), rows)
    if len(order) > WORST:
        yield f"The {WORST} worst of {len(order):,} classes."


def _errors(evaluation: Evaluation) -> Iterator[str]:
    """A table of what a detector does wrong."""
    if not evaluation.box_errors:
        return
    yield ""
    rows = [
        (each.kind, f"{each.count:,}", f"{100 * each.ap_loss:.1f}")
        for each in sorted(evaluation.box_errors, key=lambda each: -each.ap_loss)
    ]
    yield from table(("Kind of error", "Count", "AP50 lost, points"), rows)


def _compared(comparison: Comparison) -> Iterator[str]:
    """Both models, for people."""
    first, second = comparison.first, comparison.second
    yield (
        f"{first.run} ({first.checkpoint}) and {second.run} ({second.checkpoint}): "
        f"{counted(comparison.samples, 'sample')} of {first.dataset} ({first.split})"
    )
    yield ""
    rows = [
        (
            each.entry.title,
            _value(each.first, percent=each.entry.percent),
            _value(each.second, percent=each.entry.percent),
            _value(each.difference.value, percent=each.entry.percent, signed=True),
            _range(each.difference, percent=each.entry.percent, signed=True),
        )
        for each in comparison.differences
    ]
    yield from table(("Measure", "First", "Second", "Difference", "95 % interval"), rows)
    if comparison.samples < max(first.samples, second.samples):
        yield "The two have not seen the same samples, so the differences have no intervals."
    if comparison.mcnemar is not None:
        found = comparison.mcnemar
        yield ""
        yield (
            f"Only the first has {found.only_first:,} right, only the second {found.only_second:,}: "
            f"p = {found.p:.3g} (McNemar's exact test)."
        )


def _rank(value: Interval | None) -> float:
    return value.value if value is not None else float("inf")


def _of_class(value: Interval | None, *, with_range: bool = False) -> str:
    if value is None:
        return NOT_KNOWN
    interval = f" ({_range(value, percent=True)})" if with_range and value.low is not None else ""
    return f"{_value(value.value, percent=True)}{interval}"


def _value(value: float | None, *, percent: bool, signed: bool = False) -> str:
    if value is None:
        return NOT_KNOWN
    sign = "+" if signed else ""
    return f"{100 * value:{sign}.1f} %" if percent else f"{value:{sign}.4g}"


def _range(value: Interval, *, percent: bool, signed: bool = False) -> str:
    if value.low is None or value.high is None:
        return NOT_KNOWN
    low, high = (_value(end, percent=percent, signed=signed) for end in (value.low, value.high))
    return f"{low.removesuffix(' %')} to {high}"


def _rows(evaluation: Evaluation) -> Iterator[tuple[Any, ...]]:
    """Measures, then those of classes, as a table for other programs."""
    yield "measure", "class", "value", "low", "high"
    for name, each in evaluation.measures.items():
        yield name, "", each.value, each.low, each.high
    for title, values in evaluation.per_class.items():
        for name, value in zip(evaluation.classes, values, strict=True):
            if value is not None:
                yield title, name, value.value, value.low, value.high


def _rows_of_both(comparison: Comparison) -> Iterator[tuple[Any, ...]]:
    yield "measure", "first", "second", "difference", "low", "high"
    for each in comparison.differences:
        yield each.entry.id, each.first, each.second, each.difference.value, each.difference.low, each.difference.high


def _wrote_csv(file: Path | None, rows: Iterator[tuple[Any, ...]]) -> bool:
    """Writes the rows where a file is asked for; whether that went well."""
    if file is None:
        return True
    text = io.StringIO()
    writer = CsvWriter(text, line_end="\n")
    for row in rows:
        writer.row(row)
    try:
        paths.write_atomically(file.expanduser(), text.getvalue().encode())
    except OSError as error:
        say(f"footplate: {file} can't be written: {error.strerror}. Choose another file.", to=sys.stderr)
        return False
    return True
