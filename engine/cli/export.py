"""``footplate export``: export a run as one file or folder, or as event files for TensorBoard."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from engine.cli import doctor
from engine.cli.arguments import RUN
from engine.cli.terminal import COMPLETED, print_error, print_lines
from engine.cli.watching import require_run
from engine.contract.events import AnyEvent, DevicesSampled, RunStarted, StepMetrics, Validation
from engine.contract.job import job_to_toml
from engine.runs.export import ExportRefused, check_target, export_folder, export_zip
from engine.runs.folder import RunFolder

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter

_STEP_FIELDS = ("loss", "accuracy", "learning_rate", "images_per_second", "data_wait_s", "compute_s")
_DEVICE_FIELDS = ("utilization_percent", "memory_used_bytes", "power_w", "temperature_c")


def add_export(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", help=RUN)
    parser.add_argument("--zip", metavar="FILE", type=Path, help="write one zip file; without any option RUN.zip here")
    parser.add_argument("--folder", metavar="FOLDER", type=Path, help="write a new folder instead")
    parser.set_defaults(command=export)
    parser.add_argument("--replace", action="store_true", help="overwrite an existing zip file")
    parser.add_argument("--checkpoints", action="store_true", help="include the checkpoints, which are large")
    parser.add_argument(
        "--tensorboard", metavar="FOLDER", type=Path, help="write TensorBoard event files into FOLDER/RUN"
    )


def export(options: argparse.Namespace) -> int:
    """Export a run as a zip file, a folder or event files for TensorBoard, and print their paths.

    Without options, a zip file is written in the current folder. Returns an exit code.
    """
    run = require_run(options.run)
    try:
        if options.tensorboard is not None:
            written = _write_tensorboard(run, options.tensorboard)
            print_lines(
                f"Wrote TensorBoard's event files to {written}. To view them: tensorboard --logdir {written.parent}"
            )
        if options.zip is not None or options.folder is not None or options.tensorboard is None:
            _write_export(run, options)
    except (ExportRefused, NoTensorBoard) as refused:
        return print_error(str(refused))
    return COMPLETED


def _write_export(run: RunFolder, options: argparse.Namespace) -> None:
    """Export the run and the output of ``footplate doctor`` to a zip file or a folder, and print its contents.

    Raises ExportRefused.
    """
    folder, zipped = options.folder, options.zip
    if folder is None and zipped is None:
        zipped = Path(f"{run.run_id}.zip")
    # Checked first, because the doctor takes seconds.
    if folder is not None:
        check_target(folder)
    if zipped is not None:
        check_target(zipped, replace=options.replace)
    texts, checkpoints = {"doctor.txt": doctor.capture_output()}, options.checkpoints
    if folder is not None:
        names = export_folder(run, folder, texts, checkpoints=checkpoints)
        print_lines(f"Wrote {folder}: {', '.join(names)}.")
    if zipped is not None:
        names = export_zip(run, zipped, texts, checkpoints=checkpoints, replace=options.replace)
        print_lines(f"Wrote {zipped}: {', '.join(names)}.")
    print_lines("Paths in your home folder are written as ~ in it. Check what it contains before you share it.")


class NoTensorBoard(Exception):  # noqa: N818  (named after the cause)
    """Raised when event files can't be written. The message includes the remedy."""


def _write_tensorboard(run: RunFolder, folder: Path) -> Path:
    """Write the run's metrics by step to a new subfolder of `folder`, and return its path. Raises NoTensorBoard.

    The tags are train/…, validation/…, and device/… for each device.
    """
    target = folder / run.run_id
    if target.exists():
        raise NoTensorBoard(f"{target} already exists. Choose another folder, or move it away.")
    writer = _open_writer(target)
    step = 0
    with writer:
        for event in run.events():
            if isinstance(event, StepMetrics):
                step = event.step
            _add_event(writer, event, step)
    return target


def _open_writer(target: Path) -> SummaryWriter:
    """Create TensorBoard's writer for a new folder. Raises NoTensorBoard."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ModuleNotFoundError as error:
        raise NoTensorBoard(
            "Writing TensorBoard's event files needs its package, which is not installed. "
            "Install it with: pip install tensorboard"
        ) from error
    try:
        return SummaryWriter(str(target))
    except OSError as error:
        raise NoTensorBoard(f"{target} can't be created: {error.strerror or error}. Choose another folder.") from error


def _add_event(writer: SummaryWriter, event: AnyEvent, step: int) -> None:
    """Add the values in a run's event to TensorBoard's event files."""
    scalars: dict[str, float | None] = {}
    match event:
        case RunStarted():
            writer.add_text("job", f"```\n{job_to_toml(event.job)}```", global_step=0, walltime=event.time)
        case StepMetrics():
            scalars = {f"train/{name}": getattr(event, name) for name in _STEP_FIELDS}
            scalars |= {f"train/losses/{name}": value for name, value in event.losses.items()}
        case Validation():
            scalars = {f"validation/{name}": value for name, value in event.measures.items()}
            step = event.step
        case DevicesSampled():
            scalars = {
                f"device/{sample.device}/{name}": getattr(sample, name)
                for sample in event.samples
                for name in _DEVICE_FIELDS
            }
    for tag, value in scalars.items():
        if value is not None:
            writer.add_scalar(tag, value, step, event.time)
