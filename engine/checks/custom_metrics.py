"""The measures that a Python file with a task of one's own names, read from its text: the file is not run."""

from __future__ import annotations

import ast

import msgspec

from engine.contract.catalogue import Measure

BASE = "OwnTask"
"""What the file's class is derived from (`engine.tasks.custom_file`)."""
MOST_BYTES = 1 << 20


def measures_in(content: bytes) -> tuple[Measure, ...]:
    """What `measures` of the class in a file of this content holds; none where that is not written out there."""
    if len(content) > MOST_BYTES:
        return ()
    try:
        module = ast.parse(content)
        made = [each for each in module.body if isinstance(each, ast.ClassDef) and any(map(_is_base, each.bases))]
        return tuple(_measure(call) for each in made for call in _listed(each))
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError, msgspec.MsgspecError):
        return ()


def _is_base(base: ast.expr) -> bool:
    return BASE in (getattr(base, "id", ""), getattr(base, "attr", ""))


def _listed(made: ast.ClassDef) -> list[ast.expr]:
    """The parts of the value that the class gives to `measures`. Raises TypeError where it is no tuple or list of
    them.
    """
    for each in made.body:
        targets = each.targets if isinstance(each, ast.Assign) else [getattr(each, "target", None)]
        if any(isinstance(target, ast.Name) and target.id == "measures" for target in targets):
            value = getattr(each, "value", None)
            if not isinstance(value, ast.Tuple | ast.List):
                raise TypeError
            return value.elts
    return []


def _measure(call: ast.expr) -> Measure:
    """Raises ValueError or TypeError where it is not one that is written out."""
    if not isinstance(call, ast.Call):
        raise TypeError
    given = dict(zip(Measure.__struct_fields__, map(ast.literal_eval, call.args), strict=False))
    named = {str(word.arg): ast.literal_eval(word.value) for word in call.keywords}
    return msgspec.convert(given | named, Measure)
