"""How a model is converted into files for other programs, and what is kept of it."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import msgspec

from engine.contract.inference.messages import Order
from engine.contract.problems import Problem

Target = Literal["onnx", "safetensors"]
CONVERTED_FILE = "conversion.json"
"""Holds a `Converted`, beside the files that it tells of; of a zip file in a folder of the run's `exports`."""
MIN_OPSET, OPSET, MAX_OPSET = 18, 20, 23
"""Of ONNX: the lowest that torch's exporter writes, the usual one, and the highest."""
QUALITY_SAMPLES = 200
TOLERANCE = 1e-4
"""The most that an output of a file in fp32 may differ from the model's, absolutely or as a share of the largest
output."""


class OnnxOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """`preprocessing`: the file takes images, uint8 [batch, height, width, channels], and normalises them itself;
    else it takes what the model takes. `dynamic_size`: any height and width, where the model can. `int8`: a second
    file of 8 bits is written, calibrated on training samples.
    """

    preprocessing: bool = True
    dynamic_size: bool = False
    int8: bool = False
    opset: int = OPSET


class ConvertOrder(Order, tag="convert", frozen=True, kw_only=True):
    """Writes the model in the formats `to` into `out`, with its card, a script that uses it and an example: a new
    folder, or where `packed` one zip file.
    """

    to: tuple[Target, ...]
    out: str
    packed: bool = False
    onnx: OnnxOptions = OnnxOptions()


class WrittenFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A file by its `name` in the folder; `what` it is in a few words."""

    name: str
    what: str
    size_bytes: int
    sha256: str


class Difference(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How far the file's outputs are at most from the model's, for a batch of so many samples; `largest_output` is
    what to compare it with. Of a detector it is over detections that both found, with boxes as shares of the image's
    side, and `unmatched` counts those of one alone.
    """

    batch_size: int
    difference: float
    largest_output: float
    unmatched: int = 0


class ComparedFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What was found when a file was opened again, in the program `runtime`, and compared with the model.

    `compared_on` says on what samples. `measures` are the task's, of the file, `torch_measures` of the model, both of
    the same `samples`; empty where the dataset is gone. `milliseconds` and `torch_milliseconds` are those of one
    sample, on this machine's CPU with as many threads.
    """

    name: str
    runtime: str
    compared_on: Literal["validation", "random"]
    differences: tuple[Difference, ...]
    samples: int = 0
    measures: dict[str, float] = {}
    torch_measures: dict[str, float] = {}
    milliseconds: float | None = None
    torch_milliseconds: float | None = None


class NextCommand(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A command to run next, in the folder, in a shell; `purpose` says what it makes."""

    purpose: str
    command: str


class Converted(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What a conversion left in `out`, a folder or a zip file. `checkpoint_sha256` tells the weights from others.
    `problems` are what could not be done beside the rest, and what the user should know.
    """

    run_id: str
    task: str
    model: str
    checkpoint: str
    checkpoint_sha256: str
    classes: tuple[str, ...]
    out: str
    made: float
    seconds: float
    files: tuple[WrittenFile, ...]
    compared: tuple[ComparedFile, ...] = ()
    problems: tuple[Problem, ...] = ()
    next_commands: tuple[NextCommand, ...] = ()
    environment: dict[str, str] = {}


def read_converted(file: Path) -> Converted:
    """What a conversion's file says. Raises OSError, and msgspec.DecodeError for a file that says something else."""
    return msgspec.json.decode(file.read_bytes(), type=Converted)
