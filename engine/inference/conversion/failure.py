"""Explain failed conversions, and suppress the messages of exporters."""

from __future__ import annotations

import logging
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

from engine.contract.problems import Problem

_UNSUPPORTED_OPERATION = (
    re.compile(r"No ONNX function found for <OpOverload\(op='([^']+)'"),
    re.compile(r"No decompositions registered for.*?(?:op=|OpOverload\(op=)'([^']+)'"),
)
"""Patterns for the errors of torch's exporter about an operation that ONNX lacks. The group is its name."""
_CODE_LINE = re.compile(r'File "([^"]+)", line (\d+), in (\w+)')


class CannotConvert(Exception):  # noqa: N818
    """Raised when a model can't be converted to one of the formats."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(str(problem))
        self.problem = problem


def describe_export_failure(error: BaseException) -> Problem:
    """Return a problem that explains why torch's exporter failed.

    It names the unsupported operation, or the line in the model's code.
    """
    chain = _list_causes(error)
    text = "\n".join(map(str, chain))
    for pattern in _UNSUPPORTED_OPERATION:
        match = pattern.search(text)
        if match:
            message = f"The model can't be converted: ONNX has no operation for {match[1]}."
            return Problem("model", message, "Replace this operation in the model, or convert into safetensors.")
    cause = get_first_line(chain[-1])
    frames = _CODE_LINE.findall(text)
    file, line, _ = frames[-1] if frames else ("", "", "")
    location = f" ({file}, line {line})" if frames else ""
    if "data-dependent" in text.lower() or "GuardOnDataDependent" in text:
        message = f"The model can't be converted: what it computes depends on values in its input{location}."
        remedy = "Replace the condition by torch.where, or convert into safetensors."
        return Problem("model", message, remedy)
    if "Constraints violated" in text or "specialized" in text:
        message = f"The model can't be converted: it is built for a fixed number of images or a fixed size: {cause}"
        return Problem("model", message, "Use the sizes of tensors in its code rather than numbers.")
    return Problem(
        "model",
        f"The model can't be converted: {cause.removesuffix('.')}{location}.",
        "Convert into safetensors, or change the model.",
    )


def _list_causes(error: BaseException) -> list[BaseException]:
    """Return an error followed by the errors that caused it. The original cause comes last."""
    chain: list[BaseException] = []
    current: BaseException | None = error
    while current is not None and current not in chain:
        chain.append(current)
        current = current.__cause__ or current.__context__
    return chain


def get_first_line(error: BaseException) -> str:
    """Return the first line of an error message as a sentence."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    line = lines[0][:300] if lines else type(error).__name__
    return line if line.endswith(".") else f"{line}."


@contextmanager
def suppress_output() -> Iterator[None]:
    """Suppress warnings and log messages of exporters and loaders inside the context.

    Users don't need them, since the exported or loaded model is verified afterwards.
    """
    disabled = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(disabled)
