"""The commands by which others take a converted model on: TensorRT, OpenVINO, and the Hugging Face Hub."""

from __future__ import annotations

from engine.contract.inference.conversion import NextCommand
from engine.inference.conversion.exportable import Exportable
from engine.inference.trained_model import TrainedModel

BATCHES = (1, 8, 32)
"""The smallest, the usual and the largest batch that an engine of TensorRT is built for."""


def onnx_commands(model: TrainedModel, export: Exportable, names: list[str]) -> list[NextCommand]:
    """What to run with the ONNX files `names`, the one in fp32 first.

    TensorRT 11's trtexec has neither --fp16 nor --int8: the types are those of the file, which nvidia-modelopt makes
    fp16.
    """
    shapes = _shapes(model, export)
    found = [
        NextCommand(purpose="TensorRT engine, fp32", command=_trtexec(names[0], "model.plan", shapes)),
        NextCommand(
            purpose="TensorRT engine, fp16: first the file",
            command='pip install "nvidia-modelopt[onnx]" && python -m modelopt.onnx.autocast '
            f"--onnx_path {names[0]} --output_path model-fp16.onnx",
        ),
        NextCommand(
            purpose="TensorRT engine, fp16: then the engine",
            command=_trtexec("model-fp16.onnx", "model-fp16.plan", shapes),
        ),
    ]
    found += [
        NextCommand(purpose="TensorRT engine, int8", command=_trtexec(name, "model-int8.plan", shapes))
        for name in names[1:]
    ]
    openvino = f"import openvino; openvino.save_model(openvino.convert_model('{names[0]}'), 'model.xml')"
    found.append(NextCommand(purpose="OpenVINO model", command=f'pip install openvino && python -c "{openvino}"'))
    return found


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
