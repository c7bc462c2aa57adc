"""``footplate evaluate``: evaluate a run's model on a split of a dataset, optionally compared with another run."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import msgspec

from engine.cli.inference import add_model_arguments, read_model_values, run_request
from engine.cli.terminal import (
    COMPLETED,
    FAILED,
    CommandError,
    format_table,
    print_error,
    print_lines,
    require_writable,
    write_csv,
)
from engine.contract.inference.evaluation import Comparison, EvaluateRequest, Evaluation, EvaluationSplit, Interval
from engine.runs.evaluations import DamagedEvaluation, NotComparable, SavedEvaluation, compare, read_evaluation
from engine.system.format import NOT_KNOWN, counted, metric_value

MAX_CLASSES = 10
"""Maximum number of classes in the printed table of classes."""


def add_evaluate(parser: argparse.ArgumentParser) -> None:
    add_model_arguments(parser)
    parser.add_argument("folder", nargs="?", default="", help="a dataset to evaluate on; by default the run's")
    parser.add_argument(
        "--split",
        choices=get_args(EvaluationSplit),
        help="by default val of the run's dataset; of another folder test, else val, else all",
    )
    parser.add_argument("--against", metavar="RUN", help="compare it with the best model of another run")
    parser.add_argument("--csv", metavar="FILE", type=Path, help="also write the metrics as a table")
    parser.set_defaults(command=evaluate)


def evaluate(options: argparse.Namespace) -> int:
    """Evaluate a run's model, and print its metrics or the comparison with another run. Returns an exit code."""
    require_writable("--csv", options.csv)
    saved = _evaluate_run(options)
    if options.against is not None:
        return _compare_with_run(saved, options)
    if options.csv is not None:
        write_csv(options.csv, _list_csv_rows(saved.evaluation))
    if options.json:
        result = msgspec.to_builtins(saved.evaluation) | {"path": str(saved.folder)}
        print_lines(msgspec.json.encode(result).decode())
    else:
        print_lines(*_format_lines(saved))
    return COMPLETED


def _compare_with_run(saved: SavedEvaluation, options: argparse.Namespace) -> int:
    """Evaluate the model of the run `options.against` on the samples of `saved`, and print the comparison.

    The run, the checkpoint, the folder and the split in `options` are replaced. Returns an exit code.
    """
    options.run, options.checkpoint = options.against, "best"
    options.folder, options.split = saved.evaluation.dataset, saved.evaluation.split
    other = _evaluate_run(options)
    try:
        comparison = compare(saved, other)
    except (NotComparable, DamagedEvaluation) as error:
        return print_error(str(error))
    if options.csv is not None:
        write_csv(options.csv, _list_comparison_csv_rows(comparison))
    if options.json:
        print_lines(msgspec.json.encode(comparison).decode())
    else:
        print_lines(*format_comparison(comparison), f"Saved in {saved.folder} and {other.folder}.")
    return COMPLETED


def _evaluate_run(options: argparse.Namespace) -> SavedEvaluation:
    """Evaluate the model of the run that the flags name, and read the saved result. Raises CommandError."""
    values = read_model_values(options)
    folder = str(Path(options.folder).expanduser().absolute()) if options.folder else ""
    path = run_request(EvaluateRequest(**values, dataset=folder, split=options.split))
    try:
        return read_evaluation(path.parent)
    except DamagedEvaluation as error:
        raise CommandError(print_error(str(error), FAILED)) from error


def _format_lines(saved: SavedEvaluation) -> Iterator[str]:
    """Yield the lines of text that describe an evaluation: metrics, classes, box errors and calibration."""
    evaluation = saved.evaluation
    yield (
        f"{evaluation.run}, {evaluation.checkpoint}: {counted(evaluation.samples, 'sample')} of "
        f"{evaluation.dataset} ({evaluation.split})"
    )
    if evaluation.skipped:
        yield f"Skipped {counted(len(evaluation.skipped), 'file')} that can't be read."
    yield ""
    rows = []
    for entry in evaluation.entries:
        measure = evaluation.measures[entry.id]
        value = _format_metric(measure.value, percent=entry.percent)
        rows.append((entry.title, value, _format_interval(measure, percent=entry.percent)))
    yield from format_table(("Metric", "Value", f"95% interval ({counted(evaluation.resamples, 'resample')})"), rows)
    yield from _format_classes(evaluation)
    yield from _format_box_errors(evaluation)
    if evaluation.calibration is not None and evaluation.calibration.temperature is not None:
        calibration = evaluation.calibration
        yield ""
        yield (
            f"Temperature {calibration.temperature:.2f} would bring the calibration error from "
            f"{_format_metric(calibration.ece_before, percent=True)} to {_format_metric(calibration.ece_after, percent=True)}."
        )
    yield ""
    yield f"Saved in {saved.folder}."


def _format_classes(evaluation: Evaluation) -> Iterator[str]:
    """Yield the lines of a table of the classes, worst first.

    The classes are sorted by F1 or, without F1, by their first metric, which is shown with its confidence interval.
    """
    if not evaluation.per_class or not evaluation.classes:
        return
    first, *others = sorted(
        evaluation.per_class, key=lambda title: title != "F1"
    )  # F1 first, the others in their order
    first_values = evaluation.per_class[first]
    worst_first = sorted(range(len(evaluation.classes)), key=lambda index: _get_sort_key(first_values[index]))
    yield ""
    rows = [
        (
            evaluation.classes[index],
            _format_class_value(first_values[index], with_interval=True),
            *(_format_class_value(evaluation.per_class[title][index]) for title in others),
        )
        for index in worst_first[:MAX_CLASSES]
    ]
    yield from format_table(("Class", first, *others), rows)
    if len(worst_first) > MAX_CLASSES:
        yield f"The {MAX_CLASSES} worst of {len(worst_first):,} classes."


def _format_box_errors(evaluation: Evaluation) -> Iterator[str]:
    """Yield the lines of a table of a detector's errors by their kind, or nothing for other models."""
    if not evaluation.box_errors:
        return
    yield ""
    rows = [
        (each.kind, f"{each.count:,}", f"{100 * each.ap_loss:.1f}")
        for each in sorted(evaluation.box_errors, key=lambda each: -each.ap_loss)
    ]
    yield from format_table(("Kind of error", "Count", "AP50 lost, points"), rows)


def format_comparison(comparison: Comparison) -> Iterator[str]:
    """Yield the lines of text that describe the comparison of two evaluations."""
    first, second = comparison.first, comparison.second
    yield (
        f"{first.run} ({first.checkpoint}) and {second.run} ({second.checkpoint}): "
        f"{counted(comparison.samples, 'sample')} of {first.dataset} ({first.split})"
    )
    yield ""
    rows = [
        (
            each.entry.title,
            _format_metric(each.first, percent=each.entry.percent),
            _format_metric(each.second, percent=each.entry.percent),
            _format_metric(each.difference.value, percent=each.entry.percent, signed=True),
            _format_interval(each.difference, percent=each.entry.percent, signed=True),
        )
        for each in comparison.differences
    ]
    yield from format_table(("Metric", "First", "Second", "Difference", "95% interval"), rows)
    if comparison.samples < max(first.samples, second.samples):
        yield "The two runs have not seen the same samples, so the differences have no intervals."
    if comparison.mcnemar is not None:
        mcnemar = comparison.mcnemar
        yield ""
        yield (
            f"Only the first is right about {mcnemar.only_first:,} samples, only the second about {mcnemar.only_second:,}: "
            f"p = {mcnemar.p:.3g} (McNemar's exact test)."
        )


def _get_sort_key(value: Interval | None) -> float:
    """Return the value of a class's metric, or infinity if it has none, so that the class comes last."""
    return value.value if value is not None else float("inf")


def _format_class_value(value: Interval | None, *, with_interval: bool = False) -> str:
    """Format a metric of a class as a percentage, or return a dash for None.

    If `with_interval` is True, the metric's confidence interval is added, if it has one.
    """
    if value is None:
        return NOT_KNOWN
    interval = f" ({_format_interval(value, percent=True)})" if with_interval and value.low is not None else ""
    return f"{_format_metric(value.value, percent=True)}{interval}"


def _format_metric(value: float | None, *, percent: bool, signed: bool = False) -> str:
    """Format a metric, as a percentage if `percent` is True, or return a dash for None.

    If `signed` is True, as for differences, positive values get a plus sign.
    """
    return NOT_KNOWN if value is None else metric_value(value, percent=percent, sign="+" if signed else "")


def _format_interval(value: Interval, *, percent: bool, signed: bool = False) -> str:
    """Format the interval of a metric, as in "71.2 to 75.0%". See `_format_metric` for the arguments."""
    if value.low is None or value.high is None:
        return NOT_KNOWN
    low, high = (_format_metric(end, percent=percent, signed=signed) for end in (value.low, value.high))
    return f"{low.removesuffix('%')} to {high}"


def _list_csv_rows(evaluation: Evaluation) -> Iterator[tuple[Any, ...]]:
    """Yield the rows of a CSV file: a header, the metrics, and the metrics of each class."""
    yield "measure", "class", "value", "low", "high"
    for name, each in evaluation.measures.items():
        yield name, "", each.value, each.low, each.high
    for title, values in evaluation.per_class.items():
        for name, value in zip(evaluation.classes, values, strict=True):
            if value is not None:
                yield title, name, value.value, value.low, value.high


def _list_comparison_csv_rows(comparison: Comparison) -> Iterator[tuple[Any, ...]]:
    yield "measure", "first", "second", "difference", "low", "high"
    for each in comparison.differences:
        yield each.entry.id, each.first, each.second, each.difference.value, each.difference.low, each.difference.high
