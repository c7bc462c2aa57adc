"""Metrics of a custom task, read from the text of its file, which is not run."""

from __future__ import annotations

import ast

import msgspec

from engine.contract.catalogue import Measure

BASE = "CustomTask"
"""Base class of custom tasks (`engine.tasks.custom.interface`)."""
MAX_BYTES = 1 << 20


def metrics_in(content: bytes) -> tuple[Measure, ...]:
    """Return the metrics of the class in a file of this content; empty if they aren't literals."""
    if len(content) > MAX_BYTES:
        return ()
    try:
        module = ast.parse(content)
        tasks = [each for each in module.body if isinstance(each, ast.ClassDef) and any(map(_is_base, each.bases))]
        return tuple(_measure(call) for task in tasks for call in _items(task))
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError, msgspec.MsgspecError):
        return ()


def _is_base(base: ast.expr) -> bool:
    return BASE in (getattr(base, "id", ""), getattr(base, "attr", ""))


def _items(task: ast.ClassDef) -> list[ast.expr]:
    """Return the items of the class's `metrics`. Raises TypeError if it is not a tuple or list."""
    for each in task.body:
        targets = each.targets if isinstance(each, ast.Assign) else [getattr(each, "target", None)]
        if any(isinstance(target, ast.Name) and target.id == "metrics" for target in targets):
            value = getattr(each, "value", None)
            if not isinstance(value, ast.Tuple | ast.List):
                raise TypeError
            return value.elts
    return []


def _measure(call: ast.expr) -> Measure:
    """Return the metric of a call with literals. Raises ValueError or TypeError for other expressions."""
    if not isinstance(call, ast.Call):
        raise TypeError
    positional = dict(zip(Measure.__struct_fields__, map(ast.literal_eval, call.args), strict=False))
    named = {str(keyword.arg): ast.literal_eval(keyword.value) for keyword in call.keywords}
    return msgspec.convert(positional | named, Measure)
