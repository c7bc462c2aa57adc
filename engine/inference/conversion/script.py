"""Script that runs an ONNX file without Footplate."""

from __future__ import annotations

import re
from importlib.resources import files

from engine.contract.catalogue import PredictionKind
from engine.inference.trained_model import TrainedModel

SCRIPT = "predict.py"
_SCRIPTS: dict[PredictionKind, str] = {
    "class": "classification",
    "labels": "classification",
    "pixels": "pixels",
    "lines": "pixels",
    "objects": "detection",
    "points": "points",
    "raw": "arrays",
}
"""Names of the scripts in `resources.predict` by what models predict."""
_HELPER = "image_input"
_DOCSTRING = re.compile(r'\A"""(.*?)"""\n', re.DOTALL)
_IMPORT = re.compile(r"^(?:import|from) .*\n", re.MULTILINE)


def script_for(model: TrainedModel) -> str:
    """Return the script for the model's task; scripts for images include the shared helper module."""
    code = _read(_SCRIPTS[model.task.entry.predicts])
    if f"from {_HELPER} import" not in code:
        return code
    docstring, code = _split_docstring(code)
    _, helper = _split_docstring(_read(_HELPER))
    code = re.sub(rf"^from {_HELPER} import .*\n", "", code, flags=re.MULTILINE)
    body = [_IMPORT.sub("", part).strip("\n") for part in (helper, code)]
    return (
        f'"""{docstring}"""\n\n{_merge_imports({*_IMPORT.findall(helper), *_IMPORT.findall(code)})}\n'
        + "\n\n\n".join(body)
        + "\n"
    )


def _merge_imports(imports: set[str]) -> str:
    """Merge import lines, the standard library's first; a line is dropped if another imports more from the same module."""
    lines = {line for line in imports if not any(other.startswith(f"{line.strip()},") for other in imports)}
    groups = [sorted((line for line in lines if _is_third_party(line) == third), key=_order) for third in (False, True)]
    return "\n".join("".join(group) for group in groups)


def _order(line: str) -> tuple[bool, str]:
    return line.startswith("from "), line


def _split_docstring(text: str) -> tuple[str, str]:
    """Split a module into its docstring and its code."""
    match = _DOCSTRING.match(text)
    assert match is not None
    return match[1], text[match.end() :]


def _is_third_party(line: str) -> bool:
    return line.split()[1] in ("numpy", "onnxruntime", "PIL")


def _read(name: str) -> str:
    return files("resources.predict").joinpath(f"{name}.py").read_text(encoding="utf-8")
