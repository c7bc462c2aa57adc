"""Checks of the conversion of a trained model to another format."""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path

from engine.contract.catalogue import Catalogue, predictions_of
from engine.contract.inference.conversion import MAX_OPSET, MIN_OPSET, OnnxOptions, Target
from engine.contract.job import Job
from engine.contract.problems import Problem
from engine.system.plugins import install_command

PACKAGES = ("onnx", "onnxscript", "onnxruntime")
_ONE_SIZE = ("Hourglass",)
"""Families of models with dense outputs that accept only images of a single size."""


def conversion_problems(job: Job, target: Target, options: OnnxOptions, catalogue: Catalogue) -> list[Problem]:
    """Return the problems with a conversion of the job's model to the format `target`.

    Warnings state limitations of the resulting file. `options` are those for ONNX.
    """
    if target == "safetensors":
        return _safetensors_problems(job, catalogue)
    missing = [name for name in PACKAGES if find_spec(name) is None]
    found = []
    if missing:
        message = f"Converting into ONNX needs packages that are not installed: {', '.join(missing)}."
        found.append(Problem("to", message, f"Run: {install_command('convert')}"))
    if not MIN_OPSET <= options.opset <= MAX_OPSET:
        message = f"Opset {options.opset} can't be written."
        found.append(Problem("opset", message, f"Set {MIN_OPSET} to {MAX_OPSET}."))
    if options.dynamic_size and not may_accept_any_size(job, catalogue):
        message = "This model takes images of one size only."
        remedy = "Turn it off, and resize images to the size of the training images."
        found.append(Problem("dynamic_size", message, remedy))
    if options.int8 and predictions_of(job.task) in ("objects", "points", "raw"):
        message = "Converting to int8 is not supported for this task."
        found.append(Problem("int8", message, "Turn it off, and use fp16 in the program that runs the file."))
    if job.model_is_file:
        message = "Footplate can't tell in advance if a custom model file can be converted."
        found.append(Problem("model", message, "", "warning"))
    return found


def may_accept_any_size(job: Job, catalogue: Catalogue) -> bool:
    """Return True if the job's model may accept images of any size, as convolutional models with dense outputs do.

    Also returns True for unknown models of tasks with dense outputs, so that a conversion is attempted.
    """
    model = catalogue.model(job.model.name)
    if model is not None and model.family in _ONE_SIZE:
        return False
    return predictions_of(job.task) in ("pixels", "lines")


def out_problems(out: str, *, packed: bool) -> list[Problem]:
    """Return the problems with the destination `out` of a conversion.

    The destination must be a new or empty folder, or a new zip file if `packed` is True.
    """
    path = Path(out).expanduser().absolute()
    if packed and path.suffix != ".zip":
        return [Problem("out", f"{path} is not the name of a zip file.", "Choose a name that ends in .zip.")]
    try:
        is_taken = path.exists() and (packed or not path.is_dir() or any(path.iterdir()))
    except OSError as error:
        return [Problem("out", f"{path} can't be read: {error.strerror}.", "Choose another.")]
    if is_taken:
        reason = "already exists" if packed or not path.is_dir() else "contains other files"
        return [Problem("out", f"{path} {reason}.", "Choose another name, or move it.")]
    parent = next(folder for folder in path.parents if folder.exists())
    if not parent.is_dir():
        return [Problem("out", f"{parent} is a file, not a folder.", "Choose another folder.")]
    if not os.access(parent, os.W_OK | os.X_OK):
        return [Problem("out", f"You have no permission to write to {parent}.", "Choose another folder.")]
    return []


def _safetensors_problems(job: Job, catalogue: Catalogue) -> list[Problem]:
    """Return a warning for a model from the user's file or a plug-in, which can't be rebuilt without that code."""
    model = catalogue.model(job.model.name)
    is_from_plugin = model is not None and model.package
    if job.model_is_file or is_from_plugin:
        message = "The weights can be loaded only with the code that builds the model."
        return [Problem("model", message, "Keep that code together with the file.", "warning")]
    return []
