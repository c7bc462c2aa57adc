"""``footplate find-lr`` and ``find-batch``: try a job before it is trained, and say what to set."""

from __future__ import annotations

import argparse
import math
import sys
from typing import Any

import msgspec

from engine.checks.node_checks import here_only
from engine.cli import arguments, children, train
from engine.cli.exit_codes import BAD_REQUEST, COMPLETED, FAILED
from engine.cli.table import table
from engine.cli.terminal import Line, say
from engine.contract.finders import (
    BatchFound,
    BatchTrial,
    Finder,
    FinderFailed,
    FinderOrder,
    FinderProgress,
    RateFound,
    RatePoint,
)
from engine.contract.problems import Problem, errors
from engine.system.format import duration, size

_WIDTH, _HEIGHT = 64, 12


def add_finders(commands: Any) -> None:
    """Adds both commands, with the flags of ``footplate train``, to the parser's `commands`."""
    command = commands.add_parser(
        "find-lr", help="suggest a learning rate by training a few steps at a rising one", allow_abbrev=False
    )
    arguments.add_finder(command, "print the curve and the suggestion as one JSON object")
    command.set_defaults(command=find_rate)
    command = commands.add_parser(
        "find-batch", help="find the largest batch size that fits, and the speed of each size", allow_abbrev=False
    )
    arguments.add_finder(command, "print all sizes tried, and the results, as one JSON object")
    command.set_defaults(command=find_batch)


def find_rate(options: argparse.Namespace) -> int:
    """Prints the learning rate that a short training with a rising one suggests, why, and the curve of losses."""
    found = _find("rate", options)
    if not isinstance(found, RateFound):
        return found
    say(*([msgspec.json.encode(found).decode()] if options.json else _rate_shown(found)))
    return COMPLETED if found.suggestion is not None else FAILED


def find_batch(options: argparse.Namespace) -> int:
    """Prints the batch sizes that were tried, with their memory and speed, and the largest that fits."""
    found = _find("batch", options)
    if not isinstance(found, BatchFound):
        return found
    say(*([msgspec.json.encode(found).decode()] if options.json else _batch_shown(found)))
    return COMPLETED if found.largest is not None else FAILED


def _find(finder: Finder, options: argparse.Namespace) -> Any:
    """What the finder found, or the exit code where it could not be asked or failed, which has been told then."""
    job, problems = train.judge(options)
    problems += here_only(job.parallel.devices) if job is not None else []
    train.tell(problems)
    if job is None or errors(problems):
        return BAD_REQUEST
    line = Line(sys.stderr)

    def progress(message: FinderProgress) -> None:
        left = f", {duration(message.seconds_left)} left" if message.seconds_left is not None else ""
        line.show(f"{message.what}: {100 * message.fraction:.0f} %{left}")

    try:
        answer = children.find(FinderOrder(finder, job), progress)
    except children.ChildFailed as error:
        answer = FinderFailed(Problem("job", f"The trial ended early: {error}."))
    finally:
        line.clear()
    if isinstance(answer, FinderFailed):
        train.tell([answer.problem])
        return FAILED
    return answer


def _rate_shown(found: RateFound) -> list[str]:
    drawn = curve(found.points, found.suggestion) if found.points else []
    if found.suggestion is None:
        return [*drawn, found.why, found.remedy]
    marks = f"Steepest descent: {_rate(found.steepest)}."
    if found.valley is not None:
        marks += f" fastai's valley: {_rate(found.valley)}."
    return [
        *drawn,
        f"Suggested learning rate: {_rate(found.suggestion)}",
        found.why,
        f"{marks} The curve is smoothed by a Gaussian of {found.smoothing:g} decades.",
        f"To train with it: --learning-rate {_rate(found.suggestion)}",
    ]


def _batch_shown(found: BatchFound) -> list[str]:
    rows = [_row(trial, found) for trial in found.trials]
    rest = found.remedy
    if found.largest is not None:
        rest = f"To train with the smallest of the fastest sizes: --batch-size {found.knee}"
    return [*table(("batch size", "memory", "of", "images/s", ""), rows), found.why, rest]


def _row(trial: BatchTrial, found: BatchFound) -> tuple[str, ...]:
    if not trial.fits:
        return f"{trial.size:,}", "too much", "", "", ""
    marks = [word for word, at in (("knee", found.knee), ("largest", found.largest)) if at == trial.size]
    limit = f"{size(trial.limit_bytes)} ({trial.limit})"
    return f"{trial.size:,}", size(trial.memory_bytes), limit, f"{trial.images_per_second or 0:,.1f}", ", ".join(marks)


def curve(points: tuple[RatePoint, ...], suggestion: float | None) -> list[str]:
    """The smoothed losses over the learning rates, on a logarithmic axis, with a line at the `suggestion`. Those that
    are above the first one stand at the upper edge.
    """
    least = min(point.smoothed for point in points)
    most = max(points[0].smoothed, least + 1e-12)
    first, last = math.log10(points[0].rate), math.log10(points[-1].rate)

    def column(rate: float) -> int:
        return round((math.log10(rate) - first) / max(last - first, 1e-12) * (_WIDTH - 1))

    rows = [[" "] * _WIDTH for _ in range(_HEIGHT)]
    if suggestion is not None:
        for row in rows:
            row[column(suggestion)] = "│"
    for point in points:
        share = min(1.0, (point.smoothed - least) / (most - least))
        rows[round((1 - share) * (_HEIGHT - 1))][column(point.rate)] = "•"
    labels = [f"{most:.4g}", *[""] * (_HEIGHT - 2), f"{least:.4g}"]
    margin = max(map(len, labels))
    lines = [f"{label:>{margin}} {''.join(row).rstrip()}" for label, row in zip(labels, rows, strict=True)]
    ends = f"{_rate(points[0].rate)}{_rate(points[-1].rate):>{_WIDTH - len(_rate(points[0].rate))}}"
    return [*lines, f"{'':>{margin}} {ends}"]


def _rate(rate: float | None) -> str:
    return "–" if rate is None else f"{rate:.2g}"
