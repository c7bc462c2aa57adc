"""Commands that process a converted model with TensorRT, OpenVINO and the Hugging Face Hub."""

from __future__ import annotations

from engine.contract.inference.conversion import NextCommand
from engine.inference.conversion.exportable import Exportable
from engine.inference.trained_model import TrainedModel

BATCHES = (1, 8, 32)
"""Smallest, usual and largest batch of a TensorRT engine."""


def onnx_commands(model: TrainedModel, export: Exportable, names: list[str]) -> list[NextCommand]:
    """Return the commands for the ONNX files `names`, the first of them in fp32.

    TensorRT 11's trtexec has neither --fp16 nor --int8. It uses the types of the file; nvidia-modelopt converts it to
    fp16.
    """
    shapes = _shapes(model, export)
    commands = [
        NextCommand(purpose="TensorRT engine, fp32", command=_trtexec(names[0], "model.plan", shapes)),
        NextCommand(
            purpose="TensorRT engine, fp16: convert the file",
            command='pip install "nvidia-modelopt[onnx]" && python -m modelopt.onnx.autocast '
            f"--onnx_path {names[0]} --output_path model-fp16.onnx",
        ),
        NextCommand(
            purpose="TensorRT engine, fp16: build the engine",
            command=_trtexec("model-fp16.onnx", "model-fp16.plan", shapes),
        ),
    ]
    commands += [
        NextCommand(purpose="TensorRT engine, int8", command=_trtexec(name, "model-int8.plan", shapes))
        for name in names[1:]
    ]
    openvino = f"import openvino; openvino.save_model(openvino.convert_model('{names[0]}'), 'model.xml')"
    commands.append(NextCommand(purpose="OpenVINO model", command=f'pip install openvino && python -c "{openvino}"'))
    return commands


def upload_command() -> NextCommand:
    return NextCommand(
        purpose="Upload to the Hugging Face Hub, once README.md names a license",
        command="hf upload USER/NAME . .",
    )


def _trtexec(source: str, engine: str, shapes: str) -> str:
    return f"trtexec --onnx={source} --saveEngine={engine} {shapes}"


def _shapes(model: TrainedModel, export: Exportable) -> str:
    sample = _sample_shape(model, export)
    flags = []
    for flag, batch in zip(("--minShapes", "--optShapes", "--maxShapes"), BATCHES, strict=True):
        flags.append(f"{flag}={export.input_name}:{'x'.join(map(str, (batch, *sample)))}")
    return " ".join(flags)


def _sample_shape(model: TrainedModel, export: Exportable) -> tuple[int, ...]:
    if export.input_name == "images":
        return model.size, model.size, model.channels
    if export.input_name == "points":
        return model.job.data.points, model.channels
    return model.task.example_shape(model.job, model.channels)
