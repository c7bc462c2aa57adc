"""Flags, progress and errors shared by the commands that work with a run's model."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from engine.checks.node_checks import remote_device_problems
from engine.cli import arguments, children, train
from engine.cli.terminal import CommandError, report
from engine.cli.watching import require_run
from engine.contract.devices import CPU, host_of
from engine.contract.inference.messages import InferenceRequest
from engine.contract.problems import Problem
from engine.runs.folder import run_at


def add_run_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the argument RUN and the flag for its checkpoint."""
    parser.add_argument("run", help="a run's id, its beginning or its last part, its name, its folder, or “last”")
    parser.add_argument(
        "--checkpoint", default="best", metavar="NAME", help="best (default), last, or the number of an epoch"
    )


def add_model_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the argument RUN, and the flags for its checkpoint, devices and batch size."""
    add_run_arguments(parser)
    parser.add_argument("--devices", metavar="LIST", help="as for train; by default the run's")
    parser.add_argument("--batch-size", type=int, metavar="N", help="images per device and step")
    parser.add_argument("--json", action="store_true", help="print the result as one JSON object")


def read_model_values(options: argparse.Namespace) -> dict[str, Any]:
    """Return run, checkpoint, devices and batch size from the flags, as fields of a request.

    Without `--devices`, these are the run's devices on this machine, or the CPU if there are none. GPUs by index are
    resolved to UUIDs. Raises CommandError after printing the problems.
    """
    run = run_at(options.run) or require_run(options.run)
    job = run.job()
    if job is None:
        raise CommandError(report([Problem("run", f"The job of {run.run_id} can't be read.", "Choose another run.")]))
    local_devices = tuple(device for device in job.parallel.devices if not host_of(device)) or (CPU,)
    devices = tuple(arguments.split_list(options.devices or "")) or local_devices
    found = remote_device_problems(devices)
    values: dict[str, Any] = {"devices": devices}
    if not found and any(device != CPU for device in devices):
        machine = train.read_machine(found)  # adds a problem if it fails
        if machine is not None:
            found += arguments.resolve_devices(values, machine)  # also replaces the devices in `values`
    if options.batch_size is not None and options.batch_size < 1:
        found.append(Problem("batch_size", "The batch size must be at least 1.", "Leave it out for the run's own."))
    if found:
        raise CommandError(report(found))
    return {
        "run": str(run.path.absolute()),
        "checkpoint": options.checkpoint,
        "devices": tuple(values["devices"]),
        "batch_size": options.batch_size,
    }


def run_request(request: InferenceRequest) -> Path:
    """Run inference as `request` describes in a child process, and return the path of the result. Raises CommandError."""
    return Path(children.run_in_child(request))
