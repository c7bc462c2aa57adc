"""Export a model to an ONNX file, and run the file with onnxruntime."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from engine.contract.inference.conversion import OnnxOptions
from engine.contract.problems import Problem
from engine.inference.conversion.comparison import ComparisonSamples, iterate_inputs
from engine.inference.conversion.exportable import WIDTH, Exportable, double_width
from engine.inference.conversion.failure import CannotConvert, describe_export_failure, get_first_line, suppress_output
from engine.inference.trained_model import TrainedModel
from engine.system.plugins import footplate_version

ONE_FILE_BYTES = 1_900_000_000
"""Maximum size of the weights in bytes for which they are stored in the ONNX file itself.

Larger ones are stored in a separate file, since protobuf is limited to 2 GiB.
"""
_ERROR_SEVERITY = 3
"""Log severity level of onnxruntime at which only errors are reported."""
EXAMPLE_SAMPLES = 2
"""Number of example samples for the export. With a single sample, the exporter would assume a fixed batch size."""


def write_onnx(
    path: Path, export: Exportable, inputs: Tensor, metadata: dict[str, str], options: OnnxOptions
) -> list[Path]:
    """Export a model to ONNX, and return the paths of the written files.

    `inputs` [n, ...] are inputs of the trained model that serve as examples. Raises CannotConvert and OSError.
    """
    from engine.inference.conversion.static_detectors import TRANSLATIONS

    samples = inputs[torch.arange(EXAMPLE_SAMPLES) % len(inputs)]
    # The exporter would treat an equal height and width as one dimension.
    example = export.to_input(double_width(samples) if WIDTH in export.axes.values() else samples)
    # The exporter recomputes attention, and other kernels return a different memory layout than the trace has.
    with suppress_output(), sdpa_kernel(SDPBackend.MATH):
        try:
            program = torch.onnx.export(
                export.module,
                (example,),
                dynamo=True,
                verbose=False,
                input_names=[export.input_name],
                output_names=[export.output_name],
                dynamic_shapes=(export.axes,),
                opset_version=options.opset,
                custom_translation_table=TRANSLATIONS,
            )
        except Exception as error:  # models fail in many ways
            raise CannotConvert(describe_export_failure(error)) from error
        assert program is not None
        program.model.metadata_props.update(metadata)
        weight_bytes = sum(each.numel() * each.element_size() for each in export.module.state_dict().values())
        program.save(str(path), external_data=weight_bytes > ONE_FILE_BYTES)
    return sorted(path.parent.glob(f"{path.name}*"))


def collect_metadata(model: TrainedModel, export: Exportable) -> dict[str, str]:
    """Return the metadata that other programs need to use the ONNX file.

    Values other than strings are encoded as JSON.
    """
    preprocessing, entry = model.preprocessing, model.task.entry
    metadata: dict[str, object] = {
        "task": entry.id,
        "classes": model.classes,
        "colors": [entry.color for entry in model.objective.legend],
        "size": model.size,
        "resized": model.resized_side,
        "channels": model.channels,
        "framing": preprocessing.framing,
        "mean": preprocessing.mean,
        "std": preprocessing.std,
        "normalized_in_file": export.input_name != "inputs",  # an input of another name takes unnormalized values
        "run": model.run.run_id,
        "model": model.job.model.name,
        "checkpoint": model.checkpoint,
        "checkpoint_sha256": model.sha256,
        "made_by": f"Footplate {footplate_version()}",
    }
    if preprocessing.low:
        metadata |= {"low": preprocessing.low, "high": preprocessing.high}
    if entry.predicts == "points":
        metadata["points"] = model.job.data.points
    if preprocessing.features:
        metadata["features"] = preprocessing.features
    if model.objective.score_threshold is not None:
        metadata["score_threshold"] = model.objective.score_threshold
    return {name: value if isinstance(value, str) else json.dumps(value) for name, value in metadata.items()}


class OnnxSession:
    """onnxruntime session on the CPU that uses as many threads as torch.

    Raises CannotConvert if onnxruntime can't open the file.
    """

    def __init__(self, path: Path) -> None:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = torch.get_num_threads()
        options.log_severity_level = _ERROR_SEVERITY
        try:
            self._session: Any = onnxruntime.InferenceSession(
                str(path), sess_options=options, providers=["CPUExecutionProvider"]
            )
        except Exception as error:  # onnxruntime's errors have no common base class
            raise CannotConvert(_create_runtime_problem("opened", error)) from error
        self._input = self._session.get_inputs()[0].name
        self.runtime = f"onnxruntime {onnxruntime.__version__}"

    def __call__(self, batch: Tensor) -> Tensor:
        """Run the ONNX file on a batch, and return its output. Raises CannotConvert."""
        try:
            (output,) = self._session.run(None, {self._input: batch.numpy()})
        except Exception as error:
            raise CannotConvert(_create_runtime_problem(f"run on {list(batch.shape)}", error)) from error
        return torch.from_numpy(output)


def _create_runtime_problem(action: str, error: Exception) -> Problem:
    """Create the problem for an error of onnxruntime. `action` is the participle of what failed, such as "opened"."""
    message = f"The written file can't be {action} in onnxruntime: {get_first_line(error)}"
    return Problem("model", message, "Convert into safetensors, or try another opset.")


CALIBRATION_SAMPLES, CALIBRATION_BATCH = 100, 4


def write_int8(path: Path, source: Path, model: TrainedModel, export: Exportable, samples: ComparisonSamples) -> None:
    """Write a copy of the ONNX file `source` to `path`, with weights and activations quantized to 8 bits.

    The activations are calibrated with the training samples in `samples`. The file has the QDQ format, which
    onnxruntime, TensorRT and OpenVINO can read. Quantization is symmetric because TensorRT requires it. Raises
    CannotConvert if there are no training samples or onnxruntime fails, and OSError if the file can't be written.
    """
    from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static
    from onnxruntime.quantization.shape_inference import quant_pre_process

    if samples.train is None:
        message = "Converting to int8 needs the run's dataset, which can't be read."
        raise CannotConvert(Problem("int8", message, "Restore the dataset, or leave int8 off."))
    batches = _iterate_calibration_inputs(model, export, samples)

    class Reader(CalibrationDataReader):
        def get_next(self) -> dict[str, Any] | None:
            return next(batches, None)

    prepared = path.with_name(f".{path.name}.prepared")
    try:
        with suppress_output():
            quant_pre_process(str(source), str(prepared), skip_symbolic_shape=True)
            quantize_static(
                str(prepared),
                str(path),
                Reader(),
                quant_format=QuantFormat.QDQ,
                per_channel=True,
                activation_type=QuantType.QInt8,
                weight_type=QuantType.QInt8,
                extra_options={"ActivationSymmetric": True, "WeightSymmetric": True},
            )
    except OSError:
        raise
    except Exception as error:  # graphs fail in many ways
        message = f"onnxruntime can't quantize the model: {get_first_line(error)}"
        raise CannotConvert(Problem("int8", message, "Leave int8 off.")) from error
    finally:
        prepared.unlink(missing_ok=True)


def _iterate_calibration_inputs(
    model: TrainedModel, export: Exportable, samples: ComparisonSamples
) -> Iterator[dict[str, Any]]:
    """Yield batches of training samples for the calibration, as inputs of the ONNX file keyed by name."""
    assert samples.train is not None
    inputs: Iterator[Tensor] = iterate_inputs(model, samples.train, CALIBRATION_BATCH)
    for each in itertools.islice(inputs, -(-CALIBRATION_SAMPLES // CALIBRATION_BATCH)):
        yield {export.input_name: export.to_input(each).numpy()}
