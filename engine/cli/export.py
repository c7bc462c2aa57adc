"""``footplate export``: a run in one file or folder, or as TensorBoard's event files."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from engine.cli import doctor, tensorboard
from engine.cli.exit_codes import BAD_REQUEST, COMPLETED
from engine.cli.terminal import say
from engine.cli.watching import find_or_say
from engine.runs.export import ExportRefused, check_target, export_folder, export_zip
from engine.runs.folder import RunFolder


def add_export(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", help="a run's id, the beginning of one, its name, or “last”")
    parser.add_argument("--zip", metavar="FILE", type=Path, help="write one zip file; without any option RUN.zip here")
    parser.add_argument("--folder", metavar="FOLDER", type=Path, help="write a new folder instead")
    parser.add_argument("--replace", action="store_true", help="overwrite an existing zip file")
    parser.add_argument("--checkpoints", action="store_true", help="include the checkpoints, which are large")
    parser.add_argument(
        "--tensorboard", metavar="FOLDER", type=Path, help="write TensorBoard event files into FOLDER/RUN"
    )


def export(options: argparse.Namespace) -> int:
    """Writes what is asked for and says where it is."""
    run = find_or_say(options.run)
    if run is None:
        return BAD_REQUEST
    try:
        if options.tensorboard is not None:
            written = tensorboard.write(run, options.tensorboard)
            say(
                f"Wrote TensorBoard's event files to {written}. Look at them with: tensorboard --logdir "
                f"{written.parent}"
            )
        if options.zip is not None or options.folder is not None or options.tensorboard is None:
            _write(run, options)
    except (ExportRefused, tensorboard.NoTensorBoard) as refused:
        say(f"footplate: {refused}", to=sys.stderr)
        return BAD_REQUEST
    return COMPLETED


def _write(run: RunFolder, options: argparse.Namespace) -> None:
    folder, zipped = options.folder, options.zip
    if folder is None and zipped is None:
        zipped = Path(f"{run.run_id}.zip")
    # Before seconds are spent on looking at the machine.
    if folder is not None:
        check_target(folder)
    if zipped is not None:
        check_target(zipped, replace=options.replace)
    texts, checkpoints = {"doctor.txt": doctor.as_text()}, options.checkpoints
    if folder is not None:
        names = export_folder(run, folder, texts, checkpoints=checkpoints)
        say(f"Wrote {folder}: {', '.join(names)}.")
    if zipped is not None:
        names = export_zip(run, zipped, texts, checkpoints=checkpoints, replace=options.replace)
        say(f"Wrote {zipped}: {', '.join(names)}.")
    say("Paths in your home folder are written as ~ in it. Check what it contains before you share it.")
