"""``footplate advise``: run short trials to find the fastest strategy, devices and settings for a job."""

from __future__ import annotations

import argparse
import re
import shlex
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec

from engine.cli import arguments, children, train
from engine.cli.terminal import COMPLETED, FAILED, format_table, print_lines, report, require_valid, require_writable
from engine.contract.advice import BUDGET_S, Advice, AdviceRequest, Candidate, Network, apply_candidate
from engine.contract.command import flags
from engine.contract.job import FIELDS, Job, save_job
from engine.contract.problems import Problem
from engine.system.format import NOT_KNOWN, counted, duration, listed, size

MIN_SECONDS = 5.0
_NETWORK = re.compile(
    r"(?P<rate>\d+(\.\d+)?)\s*(?P<unit>[MG])bit(/s)?(,\s*(?P<latency>\d+(\.\d+)?)\s*(?P<latency_unit>us|ms))?", re.I
)
_CHOSEN_FIELDS = {name for name, field in FIELDS.items() if field.group == "parallel"} | {"strategy"}
"""Fields whose values the advisor chooses itself, so that problems with given values are ignored."""


def add_advise(commands: Any) -> None:
    command = commands.add_parser(
        "advise", help="find the fastest strategy, number of devices and settings for a job", allow_abbrev=False
    )
    command.add_argument("--json", action="store_true", help="print the answer as one JSON object")
    arguments.add_field_flags(command)
    command.add_argument(
        "--seconds", type=float, default=BUDGET_S, metavar="N", help="time for the trials (default 60)"
    )
    command.add_argument("--again", action="store_true", help="measure again, even if a cached answer fits")
    command.add_argument(
        "--machines", type=int, default=1, metavar="N", help="also predict the speed of N such machines"
    )
    command.add_argument(
        "--network",
        metavar="RATE[,LATENCY]",
        help="the network between machines, such as 10Gbit or 10Gbit,50us (default 10Gbit)",
    )
    command.add_argument(
        "--save", "--apply", metavar="FILE", type=Path, help="write the job with the first row's settings as TOML"
    )
    command.set_defaults(command=advise)


def advise(options: argparse.Namespace) -> int:
    """Find the fastest settings for a job by short trials, and print the tried candidates, fastest first.

    With `--save`, also write the job with the fastest settings to a file. Returns an exit code.
    """
    require_writable("--save", options.save)
    job, found = train.validate(options)
    found = [problem for problem in found if problem.field not in _CHOSEN_FIELDS]
    network, flag_problems = _parse_network(options)
    job = require_valid(job, [*found, *flag_problems])
    request = AdviceRequest(
        job=job, seconds=options.seconds, remeasure=options.again, machines=options.machines, network=network
    )
    answer: Advice = children.run_in_child(request, refused=FAILED)
    print_lines(*([msgspec.json.encode(answer).decode()] if options.json else _format_lines(answer)))
    if options.save is not None and answer.fits:
        return _save_job(apply_candidate(job, answer.table[0]), options.save, quiet=options.json)
    return COMPLETED if answer.fits else FAILED


def _parse_network(options: argparse.Namespace) -> tuple[Network | None, list[Problem]]:
    """Parse the network from the flags, and return it with all problems of this command's flags.

    The network is None if it is not given or invalid.
    """
    wrong = []
    is_long_enough = options.seconds >= MIN_SECONDS  # False for NaN
    if not is_long_enough:
        message = f"{options.seconds:g} s are too short for a trial."
        wrong.append(Problem("--seconds", message, f"Give {MIN_SECONDS:g} or more."))
    if not 1 <= options.machines <= 10_000:
        message = f"{options.machines} is not a valid number of machines."
        wrong.append(Problem("--machines", message, "Give 1 to 10,000."))
    if options.network is None:
        return None, wrong
    match = _NETWORK.fullmatch(options.network.strip())
    if match is None or not float(match["rate"]):
        remedy = "Write it as 10Gbit, or 10Gbit,50us with its latency."
        return None, [*wrong, Problem("--network", f"“{options.network}” is not a network.", remedy)]
    if options.machines == 1:
        wrong.append(Problem("--network", "It has no effect with one machine.", "Add --machines N.", "warning"))
    rate = float(match["rate"]) * (1e9 if match["unit"].upper() == "G" else 1e6)
    if match["latency"] is None:
        return Network(rate), wrong
    latency_s = float(match["latency"]) * (1e-3 if match["latency_unit"].lower() == "ms" else 1e-6)
    return Network(rate, latency_s), wrong


def _format_lines(answer: Advice) -> list[str]:
    """Format the advisor's answer as lines of text: table of candidates, explanations and flags."""
    lines = format_table(_HEAD, [_format_cells(row) for row in answer.table]) if answer.table else []
    lines += [answer.sentence, *answer.remedies, *answer.what_would_change]
    lines += [prediction.sentence for prediction in answer.machines]
    if answer.fits:
        first = answer.table[0]
        if first.time is not None:
            lines.append(_describe_duration(first))
        settings = shlex.join(flags(first.changes))
        lines.append(f"To train with these settings: {settings}" if settings else "The job already has these settings.")
    lines += [f"Left out: {counted(len(out.names), 'candidate')}. {out.why}" for out in answer.left_out]
    lines.append(_summarize(answer))
    return lines


_HEAD = ("", "images/s", "memory", "estimated", "efficiency", "J/1,000 images", "full job", "")


def _format_cells(row: Candidate) -> tuple[str, ...]:
    """Return the cells of a candidate in the printed table, in the order of `_HEAD`."""
    margin = (row.high - row.low) / 2 if row.high is not None and row.low is not None else None
    speed = f"{row.images_per_second:,.1f} ± {margin:,.1f}" if row.images_per_second is not None else NOT_KNOWN
    return (
        row.name + (" (the job)" if row.is_requested else ""),
        speed,
        size(row.memory_bytes),
        size(row.estimated_bytes),
        f"{100 * row.efficiency:.0f}%" if row.efficiency is not None else NOT_KNOWN,
        f"{row.joules_per_thousand_images:,.0f}" if row.joules_per_thousand_images is not None else NOT_KNOWN,
        duration(row.time.total_s) if row.time is not None else NOT_KNOWN,
        row.why,
    )


def _describe_duration(first: Candidate) -> str:
    """Describe the predicted duration of the job with the settings of `first`, whose `time` must not be None."""
    assert first.time is not None
    time = first.time
    text = (
        f"The full job: {duration(time.total_s)}, of {counted(time.epochs, 'epoch')} with {counted(time.steps, 'step')} of "
        f"{1000 * time.step_s:,.1f} ms and a validation of {time.validation_s:,.1f} s each. Measured: {listed(time.measured)}."
    )
    return text + (f" Estimated: {listed(time.estimated)}." if time.estimated else "")


def _summarize(answer: Advice) -> str:
    """Return sentences with the number of tried candidates, the certainty of the ranking, and the hardware.

    For a cached answer, the date of the measurement is added.
    """
    tried = f"{len(answer.table)} of {counted(answer.considered, 'candidate')} tried"
    equal_count = len(answer.equally_fast)
    if answer.ended_by == "time":
        certainty = "the time ran out before the order was certain"
    elif answer.ended_by == "stopped":
        certainty = "stopped before the order was certain"
    elif equal_count > 1:
        certainty = f"the first {equal_count} are about equally fast"
    else:
        certainty = f"the first place is certain at {100 * answer.confidence:.0f}% confidence"
    memory = {
        "one_device": "; memory estimated from one device's trial",
        "fake_tensors": "; memory estimated by fake tensors",
        "none": "",
    }[answer.memory_by]
    text = f"{tried} in {duration(answer.took_s)}; {certainty}{memory}. On {', '.join(answer.hardware)}."
    if answer.is_cached:
        date = datetime.fromtimestamp(answer.measured_at)
        text += f" Cached from {date:%d %B %Y, %H:%M}; --again measures again."
    return text


def _save_job(job: Job, file: Path, *, quiet: bool) -> int:
    """Write the job to `file` and report that unless `quiet` is True. Returns an exit code."""
    try:
        save_job(job, file)
    except OSError as error:
        return report([Problem("--save", f"{file} can't be written: {error.strerror}.", "Choose another file.")])
    if not quiet:
        print_lines(f"Written: {file}")
    return COMPLETED
