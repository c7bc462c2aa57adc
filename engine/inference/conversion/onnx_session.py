"""Execution of an ONNX file with onnxruntime."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from engine.contract.problems import Problem
from engine.inference.conversion.failure import CannotConvert, first_line

_ERRORS = 3


class OnnxSession:
    """Session on the CPU with torch's number of threads. Raises CannotConvert if onnxruntime can't open the file."""

    def __init__(self, path: Path) -> None:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = torch.get_num_threads()
        options.log_severity_level = _ERRORS
        try:
            self._session: Any = onnxruntime.InferenceSession(
                str(path), sess_options=options, providers=["CPUExecutionProvider"]
            )
        except Exception as error:  # onnxruntime's errors have no common base class
            raise CannotConvert(_refused("opened", error)) from error
        self._input = self._session.get_inputs()[0].name
        self.runtime = f"onnxruntime {onnxruntime.__version__}"

    def __call__(self, batch: Tensor) -> Tensor:
        """Return the file's output for a batch. Raises CannotConvert."""
        try:
            (output,) = self._session.run(None, {self._input: batch.numpy()})
        except Exception as error:
            raise CannotConvert(_refused(f"run on {list(batch.shape)}", error)) from error
        return torch.from_numpy(output)


def _refused(action: str, error: Exception) -> Problem:
    message = f"The written file can't be {action} in onnxruntime: {first_line(error)}"
    return Problem("model", message, "Convert into safetensors, or try another opset.")
