"""Script that runs an ONNX file without Footplate, and an example input for it."""

from __future__ import annotations

import re
from contextlib import suppress
from importlib.resources import files
from pathlib import Path

import numpy as np
from PIL import Image

from engine.contract.catalogue import PredictionKind
from engine.data.datasets.images import ImageSet
from engine.data.datasets.samples import SampleSet
from engine.data.decoding.pixels import decode_pixels
from engine.data.decoding.reading import read_image
from engine.inference.conversion.comparison import ComparisonSamples
from engine.inference.conversion.exportable import Exportable
from engine.inference.trained_model import TrainedModel

SCRIPT = "predict.py"
EXAMPLE = "example"
EXAMPLE_SIDE = 1024
"""Maximum side length of the example image in pixels."""
_SCRIPTS: dict[PredictionKind, str] = {
    "class": "classification",
    "labels": "classification",
    "pixels": "pixels",
    "lines": "pixels",
    "objects": "detection",
    "points": "points",
    "raw": "arrays",
}
"""Names of the scripts in `resources.predict` for each kind of prediction."""
_HELPER_MODULE = "image_input"
_DOCSTRING = re.compile(r'\A"""(.*?)"""\n', re.DOTALL)
_IMPORT = re.compile(r"^(?:import|from) .*\n", re.MULTILINE)


def create_script_source(model: TrainedModel) -> str:
    """Create the source of the script that runs the ONNX file of a model.

    The script depends on the model's task. Scripts for images contain the code of a shared helper module.
    """
    code = _read_script(_SCRIPTS[model.task.entry.predicts])
    if f"from {_HELPER_MODULE} import" not in code:
        return code
    docstring, code = _split_docstring(code)
    _, helper = _split_docstring(_read_script(_HELPER_MODULE))
    code = re.sub(rf"^from {_HELPER_MODULE} import .*\n", "", code, flags=re.MULTILINE)
    body = [_IMPORT.sub("", source).strip("\n") for source in (helper, code)]
    return (
        f'"""{docstring}"""\n\n{_merge_imports({*_IMPORT.findall(helper), *_IMPORT.findall(code)})}\n'
        + "\n\n\n".join(body)
        + "\n"
    )


def _merge_imports(imports: set[str]) -> str:
    """Merge and sort import lines, with imports from the standard library first.

    A line is dropped if another line imports more from the same module.
    """
    lines = {line for line in imports if not any(other.startswith(f"{line.strip()},") for other in imports)}
    ordered = sorted(lines, key=_sort_key)
    groups = [[line for line in ordered if _is_third_party(line) == third_party] for third_party in (False, True)]
    return "\n".join("".join(group) for group in groups)


def _sort_key(line: str) -> tuple[bool, str]:
    """Return the sort key of an import line. Lines that begin with "import" come first."""
    return line.startswith("from "), line


def _split_docstring(text: str) -> tuple[str, str]:
    """Split the source of a Python module into its docstring and the code after it."""
    match = _DOCSTRING.match(text)
    assert match is not None
    return match[1], text[match.end() :]


def _is_third_party(line: str) -> bool:
    """Return True if an import line imports from a package that is not in the standard library."""
    return line.split()[1] in ("numpy", "onnxruntime", "PIL")


def _read_script(name: str) -> str:
    """Return the source of the script `name`, which is in the package `resources.predict`."""
    return files("resources.predict").joinpath(f"{name}.py").read_text(encoding="utf-8")


def write_example(folder: Path, model: TrainedModel, samples: ComparisonSamples, export: Exportable) -> Path | None:
    """Write a validation sample in the format that the example script reads, and return its path.

    Metadata such as the location of a photograph is removed. Returns None if the dataset can't be read. Raises OSError.
    """
    if samples.val is None:
        return None
    original = _read_first_image(samples.val, model.channels)
    if original is not None:
        return _write_png(folder, original)
    # Write other samples as the model receives them.
    sample = export.to_input(samples.inputs[:1])[0].numpy()
    # An input called "images" takes pixels [n, h, w, C].
    if export.input_name == "images" and sample.shape[2] in (1, 3):
        return _write_png(folder, sample[..., 0] if sample.shape[2] == 1 else sample)
    path = folder / f"{EXAMPLE}.npy"
    np.save(path, sample)
    return path


def _read_first_image(val: ImageSet | SampleSet, channels: int) -> np.ndarray | None:
    """Return the first validation image, reduced to `EXAMPLE_SIDE`, or None if it can't be converted to a PNG image.

    Images with selected bands can't be converted, since their values don't fit into a PNG image.
    """
    if not isinstance(val, ImageSet) or not val.files or val.bands is not None:
        return None
    with suppress(Exception):  # such as a damaged file, or a number of channels that Pillow doesn't know
        pixels = decode_pixels(read_image(val.files[0]), channels)
        image = Image.fromarray(pixels[:, :, 0] if channels == 1 else pixels)
        image.thumbnail((EXAMPLE_SIDE, EXAMPLE_SIDE))
        return np.asarray(image)
    return None


def _write_png(folder: Path, pixels: np.ndarray) -> Path:
    """Write the example as a PNG image, and return its path."""
    path = folder / f"{EXAMPLE}.png"
    Image.fromarray(pixels).save(path)
    return path
