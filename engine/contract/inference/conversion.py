"""Messages for converting a model to files for other programs."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import msgspec

from engine.contract.inference.messages import InferenceRequest
from engine.contract.problems import Problem
from engine.system.files import read_file

Target = Literal["onnx", "safetensors"]
CONVERTED_FILE = "conversion.json"
"""Name of the file that contains a `ConversionResult`.

It is stored next to the converted files. For a zip file, it is stored in a folder of the run's `exports`.
"""
MIN_OPSET, OPSET, MAX_OPSET = 18, 20, 23
"""ONNX opsets: the lowest that torch's exporter writes, the default, and the highest."""
QUALITY_SAMPLES = 200
TOLERANCE = 1e-4
"""Largest accepted difference between the outputs of an fp32 file and the model.

It is absolute, or relative to the largest output.
"""


class OnnxOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Options for ONNX files.

    Attributes:
        preprocessing: True if the file accepts images, uint8 [batch, height, width, channels], and normalizes them.
            False if it accepts the model's input.
        dynamic_size: True to accept any height and width, if the model supports that.
        int8: True to write an additional 8-bit file, calibrated on training samples.
    """

    preprocessing: bool = True
    dynamic_size: bool = False
    int8: bool = False
    opset: int = OPSET


class ConvertRequest(InferenceRequest, tag="convert", frozen=True, kw_only=True):
    """Request to write the model in the formats `to`, with a model card, a script that uses it, and an example.

    `out` is a new folder, or a zip file if `packed` is True.
    """

    to: tuple[Target, ...]
    out: str
    packed: bool = False
    onnx: OnnxOptions = OnnxOptions()


class WrittenFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Description of a converted file. `name` is relative to the folder, and `what` describes it in a few words."""

    name: str
    what: str
    size_bytes: int
    sha256: str


class Difference(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Largest difference between outputs of the file and the model for one batch.

    `largest_output` gives the scale. For a detector, only detections found by both are compared, with boxes relative to
    the image's side. `unmatched` counts the detections found by only one of them.
    """

    batch_size: int
    difference: float
    largest_output: float
    unmatched: int = 0


class ComparedFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Comparison of a converted file with the model. The program `runtime` has run the file.

    Attributes:
        compared_on: Kind of samples.
        measures: Metrics of the file. Empty if the dataset is unavailable.
        torch_measures: Metrics of the model on the same samples.
        milliseconds: Time per sample with the file, on the CPU of this machine.
        torch_milliseconds: Time per sample with the model and the same number of threads.
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
    """Shell command that the user can run next in the folder of converted files, and its purpose."""

    purpose: str
    command: str


class ConversionResult(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Result of a conversion to `out`, a folder or a zip file.

    `checkpoint_sha256` identifies the weights. `problems` describe skipped steps and other facts for the user.
    """

    run_id: str
    task: str
    model: str
    checkpoint: str
    checkpoint_sha256: str
    classes: tuple[str, ...]
    out: str
    created_at: float
    seconds: float
    files: tuple[WrittenFile, ...]
    compared: tuple[ComparedFile, ...] = ()
    problems: tuple[Problem, ...] = ()
    next_commands: tuple[NextCommand, ...] = ()
    environment: dict[str, str] = {}


_CONVERTED = msgspec.json.Decoder(ConversionResult)


def read_converted(file: Path) -> ConversionResult:
    """Read the file that describes a conversion. Raises OSError, and msgspec.DecodeError for other content."""
    return _CONVERTED.decode(read_file(file))
