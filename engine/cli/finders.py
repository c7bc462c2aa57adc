"""``footplate find-lr``, ``find-batch`` and ``find-split-points``: suggest settings for a job based on measurements."""

from __future__ import annotations

import argparse
import math
from typing import Any

import msgspec

from engine.checks.node_checks import remote_device_problems
from engine.cli import arguments, children, train
from engine.cli.terminal import BAD_REQUEST, COMPLETED, FAILED, format_table, print_lines, require_valid
from engine.contract.advice import BatchFound, BatchTrial, FinderRequest, RateFound, RatePoint
from engine.contract.catalogue import load_catalogue
from engine.contract.job import Job
from engine.contract.model_split import ModelSplit
from engine.parallel.split_points import Stage, compute_stages
from engine.system.format import counted, size

_WIDTH, _HEIGHT = 64, 12
_STAGE_HEAD = ("stage", "device", "from", "to", "layers", "parameters", "time", "memory", "sent per microbatch")


def add_finders(commands: Any) -> None:
    for name, function, text, json_text in (
        ("find-split-points", find_split_points, "show where a model would be split into stages", "the split and its stages"),
        ("find-lr", find_rate, "suggest a learning rate by training a few steps at a rising one", "the curve and the suggestion"),
        ("find-batch", find_batch, "find the largest batch size that fits, and the speed of each size", "all sizes tried, and the results,"),
    ):  # fmt: skip
        command = commands.add_parser(name, help=text, allow_abbrev=False)
        command.add_argument("--json", action="store_true", help=f"print {json_text} as one JSON object")
        arguments.add_field_flags(command)
        command.set_defaults(command=function)


def find_rate(options: argparse.Namespace) -> int:
    """Print the learning rate that a short range test suggests, with an explanation and a curve of the losses.

    Returns an exit code, which is `FAILED` without a suggestion.
    """
    found: RateFound = children.run_in_child(FinderRequest("rate", _require_valid_job(options)), refused=FAILED)
    print_lines(*([msgspec.json.encode(found).decode()] if options.json else _format_rate(found)))
    return COMPLETED if found.suggestion is not None else FAILED


def find_batch(options: argparse.Namespace) -> int:
    """Print the tried batch sizes with their memory and speed, and the largest one that fits.

    Returns an exit code, which is `FAILED` if no size fits.
    """
    found: BatchFound = children.run_in_child(FinderRequest("batch", _require_valid_job(options)), refused=FAILED)
    print_lines(*([msgspec.json.encode(found).decode()] if options.json else _format_batch_sizes(found)))
    return COMPLETED if found.largest is not None else FAILED


def find_split_points(options: argparse.Namespace) -> int:
    """Print how a strategy divides the job's model into stages. Returns an exit code.

    The strategy is the recommended pipeline, to which `options.strategy` is set, unless another one is requested.
    Without a dataset, 1,000 classes are assumed, or 10 for `mnist_cnn`.
    """
    if options.strategy is None and options.job is None:  # the strategy in a job file is kept
        options.strategy = load_catalogue().recommended_strategy("pipeline").id
    job = _require_valid_job(options, needs_dataset=False)
    split: ModelSplit = children.run_in_child(job, is_quiet=options.json, refused=BAD_REQUEST)
    result = {"model_split": split, "stages": compute_stages(split)}
    print_lines(*([msgspec.json.encode(result).decode()] if options.json else _format_split(split)))
    return COMPLETED


def _require_valid_job(options: argparse.Namespace, *, needs_dataset: bool = True) -> Job:
    """Validate the flags, and return the job to measure. Raises CommandError.

    If `needs_dataset` is False, the dataset may be missing.
    """
    job, problems = train.validate(options)
    if job is not None and not job.data.dataset and not needs_dataset:  # a dataset that is named must be usable
        problems = [problem for problem in problems if problem.field != "dataset"]
    if job is not None:
        problems += remote_device_problems(job.parallel.devices)
    return require_valid(job, problems)


def _format_rate(found: RateFound) -> list[str]:
    """Format the result of the learning rate finder, with its curve, as lines of text."""
    chart = draw_curve(found.points, found.suggestion) if found.points else []
    if found.suggestion is None:
        return [*chart, found.why, found.remedy]
    other_rates = f"Steepest descent: {_format_rate_value(found.steepest)}."
    if found.valley is not None:
        other_rates += f" fastai's valley: {_format_rate_value(found.valley)}."
    return [
        *chart,
        f"Suggested learning rate: {_format_rate_value(found.suggestion)}",
        found.why,
        f"{other_rates} The curve is smoothed by a Gaussian of {found.smoothing:g} decades.",
        f"To train with it: --learning-rate {_format_rate_value(found.suggestion)}",
    ]


def _format_batch_sizes(found: BatchFound) -> list[str]:
    """Format the result of the batch size finder as lines of text."""
    rows = [_format_batch_row(trial, found) for trial in found.trials]
    advice = found.remedy
    if found.largest is not None:
        advice = f"To train with the smallest of the fastest sizes: --batch-size {found.knee}"
    return [*format_table(("batch size", "memory", "of", "images/s", ""), rows), found.why, advice]


def _format_batch_row(trial: BatchTrial, found: BatchFound) -> tuple[str, ...]:
    """Return the cells of a tried batch size in the printed table."""
    if not trial.fits:
        return f"{trial.size:,}", "too much", "", "", ""
    marks = []
    if trial.size == found.knee:
        marks.append("knee")
    if trial.size == found.largest:
        marks.append("largest")
    return (
        f"{trial.size:,}",
        size(trial.memory_bytes),
        f"{size(trial.limit_bytes)} ({trial.limit})",
        f"{trial.images_per_second or 0:,.1f}",
        ", ".join(marks),
    )


def draw_curve(points: tuple[RatePoint, ...], suggestion: float | None) -> list[str]:
    """Draw the smoothed losses over the logarithm of the learning rate as lines of text.

    A vertical line marks the `suggestion`, if there is one. Losses above the first one are drawn at the upper edge.
    """
    lowest = min(point.smoothed for point in points)
    highest = max(points[0].smoothed, lowest + 1e-12)  # not equal, to avoid a division by zero
    first, last = math.log10(points[0].rate), math.log10(points[-1].rate)

    def compute_column(rate: float) -> int:
        """Return the index of the character in a line that shows a learning rate."""
        return round((math.log10(rate) - first) / max(last - first, 1e-12) * (_WIDTH - 1))

    rows = [[" "] * _WIDTH for _ in range(_HEIGHT)]
    if suggestion is not None:
        for row in rows:
            row[compute_column(suggestion)] = "│"
    for point in points:
        height = min(1.0, (point.smoothed - lowest) / (highest - lowest))
        rows[round((1 - height) * (_HEIGHT - 1))][compute_column(point.rate)] = "•"
    labels = [f"{highest:.4g}", *[""] * (_HEIGHT - 2), f"{lowest:.4g}"]
    margin = max(map(len, labels))
    lines = [f"{label:>{margin}} {''.join(row).rstrip()}" for label, row in zip(labels, rows, strict=True)]
    left, right = _format_rate_value(points[0].rate), _format_rate_value(points[-1].rate)
    return [*lines, f"{'':>{margin}} {left}{right:>{_WIDTH - len(left)}}"]


def _format_rate_value(rate: float | None) -> str:
    return "–" if rate is None else f"{rate:.2g}"


def _format_split(split: ModelSplit) -> list[str]:
    """Format the pipeline stages of a model as a table, with the flag that makes a run use the same stages."""
    rows = [_format_stage_row(number, stage) for number, stage in enumerate(compute_stages(split))]
    names = ",".join(split.split_points)
    origin = "Split by measurement" if split.chosen else "Split as given"
    batch = f"{counted(split.microbatches, 'microbatch')} of {split.microbatch_size}"
    return [*format_table(_STAGE_HEAD, rows), f"{origin}, for {batch}. To keep it: --split-points {names}"]


def _format_stage_row(number: int, stage: Stage) -> tuple[str, ...]:
    """Return the cells of a stage in the printed table, in the order of `_STAGE_HEAD`."""
    return (
        str(number),
        f"{stage.device} ({stage.group_rank})",
        stage.first_module,
        stage.last_module,
        str(stage.layers),
        f"{stage.parameters:,}",
        f"{100 * stage.share:.1f}%",
        size(stage.memory_bytes) + (" (too much)" if stage.over_memory else ""),
        size(stage.sent_bytes) if stage.sent_bytes else "–",
    )
