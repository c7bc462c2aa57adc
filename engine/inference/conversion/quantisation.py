"""Static int8 quantization of an ONNX file with onnxruntime, calibrated on training samples."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from torch import Tensor

from engine.contract.problems import Problem
from engine.inference.conversion.comparison import Samples, iterate_inputs
from engine.inference.conversion.exportable import Exportable
from engine.inference.conversion.failure import CannotConvert, first_line, suppress_output
from engine.inference.trained_model import TrainedModel

CALIBRATION_SAMPLES, CALIBRATION_BATCH = 100, 4


def write_int8(path: Path, source: Path, model: TrainedModel, export: Exportable, samples: Samples) -> None:
    """Quantize weights and activations of the ONNX file `source` to 8 bits. Raises CannotConvert, OSError.

    The QDQ format is read by onnxruntime, TensorRT and OpenVINO; it is symmetric, since TensorRT requires that.
    """
    from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static
    from onnxruntime.quantization.shape_inference import quant_pre_process

    if samples.train is None:
        message = "Converting to int8 needs the run's dataset, which can't be read."
        raise CannotConvert(Problem("int8", message, "Restore the dataset, or leave int8 off."))
    batches = _calibration(model, export, samples)

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
        message = f"onnxruntime can't quantize the model: {first_line(error)}"
        raise CannotConvert(Problem("int8", message, "Leave int8 off.")) from error
    finally:
        prepared.unlink(missing_ok=True)


def _calibration(model: TrainedModel, export: Exportable, samples: Samples) -> Iterator[dict[str, Any]]:
    assert samples.train is not None
    inputs: Iterator[Tensor] = iterate_inputs(model, samples.train, CALIBRATION_BATCH)
    for each in itertools.islice(inputs, -(-CALIBRATION_SAMPLES // CALIBRATION_BATCH)):
        yield {export.input_name: export.to_input(each).numpy()}
