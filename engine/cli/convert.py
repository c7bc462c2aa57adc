"""``footplate convert`` and ``handover``: convert a run's model to files for other programs."""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any, get_args

import msgspec

from engine.checks.conversion_checks import conversion_problems, out_problems
from engine.cli import inference
from engine.cli.terminal import COMPLETED, CommandError, print_lines, report
from engine.contract.catalogue import load_catalogue
from engine.contract.devices import CPU
from engine.contract.inference.conversion import (
    MAX_OPSET,
    MIN_OPSET,
    OPSET,
    ComparedFile,
    ConversionResult,
    ConvertRequest,
    OnnxOptions,
    Target,
    read_converted,
)
from engine.contract.job import Job
from engine.contract.problems import Problem, errors
from engine.runs.folder import RunFolder
from engine.runs.metrics import format_measure
from engine.system.format import duration, size


def add_commands(commands: Any) -> None:
    command = commands.add_parser("convert", help="convert a run's model into files for other programs, and check them")
    command.add_argument(
        "--to", nargs="+", choices=get_args(Target), default=["onnx"], help="the formats (default: onnx)"
    )
    command.add_argument(
        "--out", metavar="FOLDER", help="a new or empty folder; by default one under exports in the run's folder"
    )
    _add_shared(command)
    command.set_defaults(command=convert, packed=False)
    command = commands.add_parser(
        "handover", help="pack a run's model for others: weights, card, script and example in one zip file"
    )
    command.add_argument("--out", metavar="FILE.zip", help="the zip file; by default RUN-handover.zip here")
    _add_shared(command)
    command.set_defaults(command=convert, packed=True, to=list(get_args(Target)))


def _add_shared(parser: argparse.ArgumentParser) -> None:
    inference.add_run_arguments(parser)
    parser.add_argument(
        "--no-preprocessing",
        action="store_true",
        help="make the ONNX file take normalized float32 [n, c, h, w] instead of uint8 images [n, h, w, c]",
    )
    parser.add_argument("--dynamic-size", action="store_true", help="accept images of any size, if the model can")
    parser.add_argument("--int8", action="store_true", help="also write an 8-bit file, calibrated on training images")
    parser.add_argument(
        "--opset",
        type=int,
        default=OPSET,
        metavar="N",
        help=f"ONNX's opset, {MIN_OPSET} to {MAX_OPSET} (default: {OPSET})",
    )
    parser.add_argument("--json", action="store_true", help="print the result as one JSON object")


def convert(options: argparse.Namespace) -> int:
    """Convert a run's model, and print the files, their comparison with the model, and the next commands.

    ``handover`` is a conversion into all formats, packed into a zip file. Returns an exit code.
    """
    options.devices, options.batch_size = CPU, None  # read by `read_model_values`, but not flags of this command
    values = inference.read_model_values(options)
    run = RunFolder(values["run"])
    request = ConvertRequest(
        **values,
        to=tuple(dict.fromkeys(options.to)),
        out=str(Path(options.out).expanduser().absolute() if options.out else _choose_default_out(run, options)),
        packed=options.packed,
        onnx=OnnxOptions(
            preprocessing=not options.no_preprocessing,
            dynamic_size=options.dynamic_size,
            int8=options.int8,
            opset=options.opset,
        ),
    )
    job = run.job()
    assert job is not None  # checked by `read_model_values`
    _require_convertible(request, job)
    converted = read_converted(inference.run_request(request))
    print_lines(*([msgspec.json.encode(converted).decode()] if options.json else _format_lines(converted)))
    return COMPLETED


def _choose_default_out(run: RunFolder, options: argparse.Namespace) -> Path:
    """Return the default output path: for ``handover`` a zip file in the current folder, else a folder in the run's."""
    if options.packed:
        return Path(f"{run.run_id}-handover.zip").absolute()
    return run.path / "exports" / f"{time.strftime('%Y%m%d-%H%M%S')}-{'-'.join(options.to)}"


def _require_convertible(request: ConvertRequest, job: Job) -> None:
    """Check if a job's model can be converted as requested. Raises CommandError after reporting the problems."""
    found: list[Problem] = []
    for target in request.to:
        found += conversion_problems(job, target, request.onnx, load_catalogue())
    found += out_problems(request.out, packed=request.packed)
    if errors(found):  # the result of the conversion repeats the warnings
        raise CommandError(report(errors(found)))


def _format_lines(converted: ConversionResult) -> list[str]:
    """Format the result of a conversion as lines of text."""
    lines = [f"Wrote {converted.out} in {duration(converted.seconds)}:"]
    lines += [f"  {each.name}, {size(each.size_bytes)}: {each.what}" for each in converted.files]
    for each in converted.compared:
        lines += _format_comparison(converted.task, each)
    lines += [f"Note: {problem}" for problem in converted.problems]
    if converted.next_commands:
        lines.append("Next commands, to run in that folder:")
        for command in converted.next_commands:
            lines += [f"  {command.purpose}:", f"    {command.command}"]
    return lines


def _format_comparison(task: str, compared: ComparedFile) -> list[str]:
    """Format the comparison of a converted file with the model as lines of text."""
    lines = []
    file = f"{compared.name} in {compared.runtime}"
    if compared.differences:
        largest = max(each.difference for each in compared.differences)
        batches = " and ".join(str(each.batch_size) for each in compared.differences)
        lines.append(f"{file}: differs by at most {largest:.1e} (batches of {batches})")
    else:
        lines.append(f"{file}: loads")
    metrics = [
        f"{format_measure(task, name, value)} (PyTorch: {format_measure(task, name, compared.torch_measures[name])})"
        for name, value in compared.measures.items()
        if name in compared.torch_measures
    ]
    if metrics:
        lines += [f"  on {compared.samples} validation samples:", *(f"    {line}" for line in metrics)]
    milliseconds, torch_milliseconds = compared.milliseconds, compared.torch_milliseconds
    if milliseconds is not None and torch_milliseconds is not None:
        lines.append(f"  {milliseconds:.1f} ms per sample on the CPU (PyTorch: {torch_milliseconds:.1f} ms)")
    return lines
