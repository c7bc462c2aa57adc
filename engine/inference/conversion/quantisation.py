"""An ONNX file in 8 bits: static quantisation with onnxruntime, calibrated on training samples."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from torch import Tensor

from engine.contract.problems import Problem
from engine.inference.conversion.comparison import Samples, inputs_of
from engine.inference.conversion.exportable import Exportable
from engine.inference.conversion.failure import CannotConvert, first_line
from engine.inference.conversion.quiet import quietly
from engine.inference.trained_model import TrainedModel

CALIBRATION_SAMPLES, CALIBRATION_BATCH = 100, 4


def write_int8(path: Path, source: Path, model: TrainedModel, export: Exportable, samples: Samples) -> None:
    """Writes the ONNX file `source` with weights and activations in 8 bits, in the QDQ form that onnxruntime,
    TensorRT and OpenVINO read: symmetric, since TensorRT takes nothing else. Raises CannotConvert, OSError.
    """
    from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static
    from onnxruntime.quantization.shape_inference import quant_pre_process

    if samples.train is None:
        message = "Converting to int8 needs the run's dataset, which can't be read."
        raise CannotConvert(Problem("int8", message, "Restore the dataset, or leave int8 off."))
    given = _calibration(model, export, samples)

    class Reader(CalibrationDataReader):
        def get_next(self) -> dict[str, Any] | None:
            return next(given, None)

    prepared = path.with_name(f".{path.name}.prepared")
    try:
        with quietly():
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
    except Exception as error:  # it fails in as many ways as there are graphs
        message = f"onnxruntime can't quantise the model: {first_line(error)}"
        raise CannotConvert(Problem("int8", message, "Leave int8 off.")) from error
    finally:
        prepared.unlink(missing_ok=True)


def _calibration(model: TrainedModel, export: Exportable, samples: Samples) -> Iterator[dict[str, Any]]:
    assert samples.train is not None
    inputs: Iterator[Tensor] = inputs_of(model, samples.train, CALIBRATION_BATCH)
    for each in itertools.islice(inputs, -(-CALIBRATION_SAMPLES // CALIBRATION_BATCH)):
        yield {export.input_name: export.given(each).numpy()}
