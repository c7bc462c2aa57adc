"""What the commands share that work with a run's model: their flags, their progress and their errors."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from engine.checks.node_checks import here_only
from engine.cli import arguments, children, train
from engine.cli.exit_codes import BAD_REQUEST, FAILED
from engine.cli.terminal import Line, say
from engine.cli.watching import find_or_say
from engine.contract.devices import CPU, host_of
from engine.contract.inference.messages import Order, Progress, Refused
from engine.contract.problems import Problem
from engine.runs.folder import RunFolder
from engine.system.format import duration


def add_model(parser: argparse.ArgumentParser) -> None:
    """Adds RUN, and the flags for its checkpoint and for what its model works on."""
    parser.add_argument("run", help="a run's id, the beginning of one, its name, its folder, or “last”")
    parser.add_argument(
        "--checkpoint", default="best", metavar="NAME", help="best (default), last, or the number of an epoch"
    )
    parser.add_argument("--devices", metavar="LIST", help="as for train; by default those of the run")
    parser.add_argument("--batch-size", type=int, metavar="N", help="images per device and step")
    parser.add_argument("--json", action="store_true", help="print the result as one JSON object")


def model_values(options: argparse.Namespace) -> dict[str, Any] | None:
    """The fields of an `Order` that the flags of `add_model` give; None once it has been said what is wrong with
    them.
    """
    folder = Path(options.run).expanduser()
    run = RunFolder(folder.absolute()) if (folder / "job.toml").is_file() else find_or_say(options.run)
    if run is None:
        return None
    job = run.job()
    if job is None:
        train.tell([Problem("run", f"The job of {run.run_id} can't be read.", "Choose another run.")])
        return None
    here = tuple(device for device in job.parallel.devices if not host_of(device)) or (CPU,)
    devices = tuple(options.devices.split(",")) if options.devices else here
    found = here_only(devices)
    values: dict[str, Any] = {"devices": devices}
    if not found and any(device != CPU for device in devices):
        try:
            found += arguments.resolve_devices(values, children.snapshot())
        except children.ChildFailed as error:
            found.append(Problem("devices", f"This machine's devices could not be read: {error}.", "Use cpu."))
    if options.batch_size is not None and options.batch_size < 1:
        found.append(Problem("batch_size", "The batch size must be at least 1.", "Leave it out for the run's own."))
    if found:
        train.tell(found)
        return None
    return {
        "run": str(run.path.absolute()),
        "checkpoint": options.checkpoint,
        "devices": tuple(values["devices"]),
        "batch_size": options.batch_size,
    }


def done(order: Order) -> Path | int:
    """Has `order` done, with progress; the file that tells what came of it, or the exit code once it has been said
    why nothing did.
    """
    line = Line(sys.stderr)

    def progress(message: Progress) -> None:
        for warning in message.warnings:
            line.clear()
            say(f"footplate: {warning}", to=sys.stderr)
        rate = f", {message.images_per_second:,.1f} images/s" if message.images_per_second else ""
        left = f", {duration(message.seconds_left)} left" if message.seconds_left is not None else ""
        line.show(f"{message.what}: {100 * message.fraction:.0f} %{rate}{left}")

    try:
        answer = children.infer(order, progress)
    except children.ChildFailed as error:
        answer = Refused(problems=(Problem("", f"The work ended early: {error}.", "Run `footplate doctor`."),))
    finally:
        line.clear()
    if isinstance(answer, Refused):
        train.tell(list(answer.problems))
        return BAD_REQUEST if any(problem.field for problem in answer.problems) else FAILED
    return Path(answer.path)
