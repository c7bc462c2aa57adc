"""``footplate predict``: make predictions with a run's model for files, folders and cameras."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Any, get_args

from engine.cli.arguments import split_list
from engine.cli.inference import add_model_arguments, read_model_values, run_request
from engine.cli.terminal import COMPLETED, print_lines, report
from engine.contract.inference.prediction import CAMERA, PREDICTED, Format, Predicted, PredictRequest
from engine.contract.problems import Problem
from engine.system.files import MAX_RESULT_BYTES, read_file
from engine.system.format import counted, speed

MAX_ROWS, MAX_SKIPPED = 10, 5
"""Maximum number of results and maximum number of skipped files that are printed."""


def add_predict(commands: Any) -> None:
    parser = commands.add_parser("predict", help="predict with a run's model for images, videos or point clouds")
    parser.set_defaults(command=predict)
    add_model_arguments(parser)
    parser.add_argument(
        "paths",
        nargs="+",
        metavar="PATH",
        help="images, videos or point clouds, folders of them, or a camera such as camera:0",
    )
    parser.add_argument(
        "--out", metavar="FOLDER", help="where to write the results; by default predictions-RUN in the current folder"
    )
    parser.add_argument(
        "--format",
        metavar="LIST",
        help=f"formats of the results: one or more of {', '.join(get_args(Format))}; by default the task's usual one",
    )
    parser.add_argument("--overlays", action="store_true", help="also draw each result on its image or video")
    parser.add_argument(
        "--tile",
        metavar="SIDE",
        help="process larger images in tiles of SIDE pixels, or auto for the model's input size",
    )
    parser.add_argument(
        "--overlap",
        type=float,
        default=0.2,
        metavar="FRACTION",
        help="overlap of tiles, from 0 to 0.9 (default 0.2)",
    )
    parser.add_argument(
        "--threshold",
        type=float,
        default=0.5,
        metavar="P",
        help="minimum score of a detection, label or line (default 0.5)",
    )
    parser.add_argument("--max-frames", type=int, metavar="N", help="stop after N frames of each video or camera")


def predict(options: argparse.Namespace) -> int:
    """Make predictions for the given files, write them to a folder, and print the first ones. Returns an exit code."""
    values = read_model_values(options)
    tile = options.tile
    if tile not in (None, "auto"):
        if not tile.isdecimal():
            return report([Problem("--tile", f"“{tile}” is not a tile size.", "Give a number of pixels, or auto.")])
        tile = int(tile)
    formats: Any = tuple(split_list(options.format or ""))  # validated below
    unknown = [name for name in formats if name not in get_args(Format)]
    if unknown:
        message = f"There is no format “{unknown[0]}”."
        return report([Problem("--format", message, f"Choose among {', '.join(get_args(Format))}.")])
    request = PredictRequest(
        **values,
        paths=tuple(path if path.startswith(CAMERA) else os.path.abspath(path) for path in options.paths),
        out=os.path.abspath(options.out or f"predictions-{Path(values['run']).name}"),
        formats=formats,
        overlays=options.overlays,
        tile=tile,
        overlap=options.overlap,
        threshold=options.threshold,
        max_frames=options.max_frames,
    )
    path = run_request(request)
    if options.json:
        print_lines(read_file(path, MAX_RESULT_BYTES).decode().strip())
    else:
        _print_results(PREDICTED.decode(read_file(path, MAX_RESULT_BYTES)))
    return COMPLETED


def _print_results(result: Predicted) -> None:
    """Print the first results and skipped files, the speed, and the written files."""
    for row in result.rows[:MAX_ROWS]:
        print_lines(f"{row.path}: {row.text}")
    if result.predicted > MAX_ROWS:
        print_lines(f"… and {result.predicted - MAX_ROWS:,} more")
    for skipped in result.skipped[:MAX_SKIPPED]:
        print_lines(f"Skipped {skipped.path}: {skipped.reason}")
    if result.skipped_count > MAX_SKIPPED:
        print_lines(f"… and {result.skipped_count - MAX_SKIPPED:,} more skipped")
    rate = f", {speed(result.images_per_second)}" if result.images_per_second else ""
    print_lines(f"Predicted for {counted(result.predicted, 'sample')} in {result.seconds:.1f} s{rate}.")
    for written in result.files:
        count = f" ({counted(written.count, 'file')})" if written.count > 1 else ""
        print_lines(f"Written: {os.path.join(result.request.out, written.path)}{count}")
