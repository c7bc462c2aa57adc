"""The script that uses an ONNX file without Footplate, as it lies beside the file."""

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
    """The script of the model's task; those for images have the part in them that they share."""
    own = _read(_SCRIPTS[model.task.entry.predicts])
    if f"from {_HELPER} import" not in own:
        return own
    docstring, own = _parted(own)
    _, shared = _parted(_read(_HELPER))
    own = re.sub(rf"^from {_HELPER} import .*\n", "", own, flags=re.MULTILINE)
    body = [_IMPORT.sub("", part).strip("\n") for part in (shared, own)]
    return (
        f'"""{docstring}"""\n\n{_merged({*_IMPORT.findall(shared), *_IMPORT.findall(own)})}\n'
        + "\n\n\n".join(body)
        + "\n"
    )


def _merged(imports: set[str]) -> str:
    """The lines of both parts, the standard library's first; one that imports more of a module stands for one that
    imports less.
    """
    kept = {line for line in imports if not any(other.startswith(f"{line.strip()},") for other in imports)}
    groups = [sorted((line for line in kept if _third_party(line) == third), key=_order) for third in (False, True)]
    return "\n".join("".join(group) for group in groups)


def _order(line: str) -> tuple[bool, str]:
    return line.startswith("from "), line


def _parted(text: str) -> tuple[str, str]:
    """The docstring of a module, and what follows it."""
    found = _DOCSTRING.match(text)
    assert found is not None
    return found[1], text[found.end() :]


def _third_party(line: str) -> bool:
    return line.split()[1] in ("numpy", "onnxruntime", "PIL")


def _read(name: str) -> str:
    return files("resources.predict").joinpath(f"{name}.py").read_text(encoding="utf-8")
