"""``footplate explain``: draw heat maps that show which parts of images support a class."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import get_args

import msgspec

from engine.cli import inference
from engine.cli.arguments import split_list
from engine.cli.terminal import COMPLETED, print_lines
from engine.contract.inference.explanation import ExplainRequest, Explanation, Method, decode_explanation
from engine.system.files import MAX_RESULT_BYTES, read_file
from engine.system.format import counted


def add_explain(parser: argparse.ArgumentParser) -> None:
    inference.add_model_arguments(parser)
    parser.add_argument("images", nargs="+", metavar="IMAGE", help="image files, or folders of them")
    parser.add_argument(
        "--class",
        dest="classes",
        default="",
        metavar="NAME[,NAME]",
        help="the classes to explain; the maps of several are also written side by side; by default the predicted ones",
    )
    parser.add_argument(
        "--method",
        choices=get_args(Method),
        default="grad-cam",
        help="grad-cam (default) for a class; eigen-cam for the model's strongest features of any class",
    )
    parser.add_argument(
        "--out", metavar="FOLDER", type=Path, help="folder of the maps; by default explained-RUN in this folder"
    )
    parser.set_defaults(command=explain)


def explain(options: argparse.Namespace) -> int:
    """Write heat maps for the images and print their paths. Returns an exit code."""
    values = inference.read_model_values(options)
    out = options.out or Path(f"explained-{Path(values['run']).name}")
    request = ExplainRequest(
        paths=tuple(os.path.abspath(os.path.expanduser(path)) for path in options.images),
        out=str(out.expanduser().absolute()),
        classes=tuple(split_list(options.classes)),
        method=options.method,
        **values,
    )
    file = inference.run_request(request)
    explanation = decode_explanation(read_file(file, MAX_RESULT_BYTES))
    if options.json:
        print_lines(msgspec.json.encode(explanation).decode())
        return COMPLETED
    _print_images(explanation, file.parent)
    print_lines(_summarize(explanation, file.parent))
    return COMPLETED


def _print_images(explanation: Explanation, folder: Path) -> None:
    """Print the prediction for each image, and the paths of its heat maps, which are in `folder`."""
    for image in explanation.images:
        print_lines(f"{image.path}: {image.reason or image.predicted}")
        for each in image.maps:
            score = f" ({100 * each.score:.0f}%)" if each.score is not None else ""
            nothing = " Nothing speaks for it: the map is empty." if each.empty else ""
            print_lines(f"  {each.class_name}{score}: {folder / each.overlay}{nothing} {each.note}".rstrip())
        if image.side_by_side:
            print_lines(f"  side by side: {folder / image.side_by_side}")


def _summarize(explanation: Explanation, folder: Path) -> str:
    rows, columns = explanation.grid
    return (
        f"Explained {counted(len(explanation.images), 'image')} by {explanation.method} at the layer {explanation.layer} "
        f"(a map of {rows} x {columns} cells), in {folder}."
    )
