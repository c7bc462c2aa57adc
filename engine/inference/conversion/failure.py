"""Why a model can't be converted, in words."""

from __future__ import annotations

import re

from engine.contract.problems import Problem

_OPERATION = (
    re.compile(r"No ONNX function found for <OpOverload\(op='([^']+)'"),
    re.compile(r"No decompositions registered for.*?(?:op=|OpOverload\(op=)'([^']+)'"),
    re.compile(r"Could not guard on data-dependent expression .*? caused by:?\s*\(?([^)\n]+)", re.IGNORECASE),
)
_LINE = re.compile(r'File "([^"]+)", line (\d+), in (\w+)')


class CannotConvert(Exception):  # noqa: N818 - the text says why
    """A model can't be written in one of the formats; `problem` says why and what would help."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(str(problem))
        self.problem = problem


def not_exported(error: BaseException) -> Problem:
    """What made torch's exporter give up: the operation, or the line of the model's code."""
    chain = _chain(error)
    whole = "\n".join(map(str, chain))
    for pattern in _OPERATION[:2]:
        found = pattern.search(whole)
        if found:
            message = f"The model can't be converted: ONNX has no operation for {found[1]}."
            return Problem("model", message, "Replace this operation in the model, or convert into safetensors.")
    cause = first_line(chain[-1])
    where = _LINE.findall(whole)
    at = f" ({where[-1][0]}, line {where[-1][1]})" if where else ""
    if "data-dependent" in whole.lower() or "GuardOnDataDependent" in whole:
        message = f"The model can't be converted: what it computes depends on values in its input{at}."
        remedy = "Replace the condition by torch.where, or convert into safetensors."
        return Problem("model", message, remedy)
    if "Constraints violated" in whole or "specialized" in whole:
        message = f"The model can't be converted: it is built for a fixed number of images or a fixed size: {cause}"
        return Problem("model", message, "Use the sizes of tensors in its code rather than numbers.")
    return Problem(
        "model", f"The model can't be converted: {cause}{at}", "Convert into safetensors, or change the model."
    )


def _chain(error: BaseException) -> list[BaseException]:
    """The error and its causes, the first cause last."""
    found: list[BaseException] = []
    each: BaseException | None = error
    while each is not None and each not in found:
        found.append(each)
        each = each.__cause__ or each.__context__
    return found


def first_line(error: BaseException) -> str:
    """What an error says, in one line that ends as a sentence."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    line = lines[0][:300] if lines else type(error).__name__
    return line if line.endswith(".") else f"{line}."
