"""``footplate predict``: what a run's model predicts for files and folders."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Any, get_args

from engine.cli.exit_codes import BAD_REQUEST, COMPLETED
from engine.cli.inference import add_model, done, model_values
from engine.cli.terminal import say
from engine.cli.train import tell
from engine.contract.inference.prediction import CAMERA, PREDICTED, Format, Predicted, PredictOrder
from engine.contract.problems import Problem
from engine.system.format import counted

TOLD_ROWS, TOLD_SKIPS = 10, 5
"""Results, and files that were left out, that are shown."""


def add_predict(commands: Any) -> None:
    """Adds the command to the subparsers of the whole command line."""
    parser = commands.add_parser("predict", help="predict with a run's model for images, videos or point clouds")
    parser.set_defaults(command=predict)
    add_model(parser)
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
        help=f"how to write the results: one or more of {', '.join(get_args(Format))}; by default the usual one of the task",
    )
    parser.add_argument("--overlays", action="store_true", help="also draw each result on its image or video")
    parser.add_argument(
        "--tile",
        metavar="SIDE",
        help="look at larger images in tiles with a side of so many pixels, or auto for the model's own size",
    )
    parser.add_argument(
        "--overlap",
        type=float,
        default=0.2,
        metavar="SHARE",
        help="how much tiles overlap, from 0 to 0.9 (default 0.2)",
    )
    parser.add_argument(
        "--threshold",
        type=float,
        default=0.5,
        metavar="P",
        help="the score from which a detection, a label or a line counts (default 0.5)",
    )
    parser.add_argument("--max-frames", type=int, metavar="N", help="stop after N frames of each video or camera")


def predict(options: argparse.Namespace) -> int:
    values = model_values(options)
    if values is None:
        return BAD_REQUEST
    tile = options.tile
    if tile not in (None, "auto"):
        if not tile.isdecimal():
            tell([Problem("tile", f"“{tile}” is not a tile size.", "Give a number of pixels, or auto.")])
            return BAD_REQUEST
        tile = int(tile)
    formats = tuple(options.format.split(",")) if options.format else ()
    unknown = [name for name in formats if name not in get_args(Format)]
    if unknown:
        message = f"There is no format “{unknown[0]}”."
        tell([Problem("formats", message, f"Choose among {', '.join(get_args(Format))}.")])
        return BAD_REQUEST
    order = PredictOrder(
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
    path = done(order)
    if isinstance(path, int):
        return path
    if options.json:
        say(path.read_text(encoding="utf-8").strip())
    else:
        _tell(PREDICTED.decode(path.read_bytes()))
    return COMPLETED


def _tell(found: Predicted) -> None:
    for row in found.rows[:TOLD_ROWS]:
        say(f"{row.path}: {row.words}")
    if found.predicted > TOLD_ROWS:
        say(f"… and {found.predicted - TOLD_ROWS:,} more")
    for skipped in found.skipped[:TOLD_SKIPS]:
        say(f"Skipped {skipped.path}: {skipped.reason}")
    if found.skipped_count > TOLD_SKIPS:
        say(f"… and {found.skipped_count - TOLD_SKIPS:,} more skipped")
    rate = f", {found.images_per_second:,.1f} images/s" if found.images_per_second else ""
    say(f"Predicted for {counted(found.predicted, 'sample')} in {found.seconds:.1f} s{rate}.")
    for written in found.files:
        count = f" ({counted(written.count, 'file')})" if written.count > 1 else ""
        say(f"Written: {os.path.join(found.order.out, written.path)}{count}")
