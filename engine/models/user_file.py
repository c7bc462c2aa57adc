"""Models in users' Python files. A file runs only with the user's consent, which holds only for its current content."""

from __future__ import annotations

import hashlib
import sys
import traceback
import types
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from engine.checks.disk import MODEL_FILE_BYTES
from engine.data.datasets.images import DatasetError, UnreadableImage
from engine.models.base import TaskError
from engine.runs.consent import has_consent
from engine.system.format import counted
from engine.system.regular_files import UnusableFile, read_regular

MODULE = "footplate_model_file"
"""Name under which a user's Python file is imported as a module."""


def build(path: str, agreed_sha256: str, classes: int) -> nn.Module:
    """Return the model that `build_model(classes)` in the file at `path` returns.

    Raises TaskError. See `load_module` for `agreed_sha256`.
    """
    file, module = load_module(path, agreed_sha256)
    function = getattr(module, "build_model", None)
    if not callable(function):
        remedy = "Define build_model(num_classes), returning a torch.nn.Module."
        raise TaskError("model", f"{file.name} has no function build_model.", remedy)
    model = call_user_code(file, "in build_model", function, classes)
    if not isinstance(model, nn.Module):
        kind = type(model).__name__
        message = f"build_model of {file.name} returned {'nothing' if model is None else f'a {kind}'}, not a model."
        raise TaskError("model", message, "Return a torch.nn.Module from build_model.")
    return model


def load_module(path: str, agreed_sha256: str) -> tuple[Path, types.ModuleType]:
    """Run a Python file, and return its path and its module.

    The file is read only once, so that the code that runs is the code that was hashed. Raises TaskError if its hash is
    not `agreed_sha256`, the hash when the job was created, or if the user has not allowed this content to run.
    """
    file = Path(path).expanduser()
    try:
        source = read_regular(file, MODEL_FILE_BYTES)
    except UnusableFile as error:
        raise TaskError("model", f"The model file {path} {error.reason}.", "Choose a Python file.") from error
    except OSError as error:
        message = f"The model file {path} can't be read ({error.strerror})."
        raise TaskError("model", message, "Check the path and its permissions.") from error
    sha256 = hashlib.sha256(source).hexdigest()
    if sha256 != agreed_sha256 or not has_consent(path, sha256):
        changed = " It has changed since you allowed it." if agreed_sha256 not in ("", sha256) else ""
        message = f"{file.name} contains code that you have not allowed to run yet.{changed}"
        raise TaskError("model", message, "Review the code, then allow it again.")
    return file, _run_file(file, source)


def try_out(path: str, model: nn.Module, example: Tensor, expected: tuple[int, ...], remedy: str) -> None:
    """Run a model from a file on an example, to detect a wrong shape before the training. Raises TaskError.

    The example consists of two images, [2, channels, size, size], or two samples of points, [2, channels, points].
    `expected` is the shape of the result for one sample, and `remedy` the advice about another shape. The model is in
    training mode afterwards.
    """
    if example.ndim == 4:
        setting = "image size"
        example_text = f"images of {example.shape[-1]} px with {counted(example.shape[1], 'channel')}"
    else:
        setting, example_text = "number of points", f"points {list(example.shape)}"
    model.eval()
    try:
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            outputs = model(example)
    except Exception as error:
        message = f"The model of {path} fails on {example_text}: {type(error).__name__}: {error}."
        raise TaskError("model", message, f"Fix the file, or set another {setting}.") from error
    finally:
        model.train()
    if not isinstance(outputs, Tensor) or tuple(outputs.shape) != (2, *expected):
        returned = f"tensor of {list(outputs.shape)}" if isinstance(outputs, Tensor) else type(outputs).__name__
        message = (
            f"For {example_text}, the model of {path} returns a {returned}; expected a tensor of {[2, *expected]}."
        )
        raise TaskError("model", message, remedy)


def _run_file(file: Path, source: bytes) -> types.ModuleType:
    """Run the source of the user's file as the module `MODULE`, and return the module, which is added to `sys.modules`.

    Raises TaskError if the code fails.
    """
    module = types.ModuleType(MODULE)
    module.__file__ = str(file)
    sys.modules[MODULE] = module  # dataclasses and pickling look the module up by its name
    call_user_code(file, "when it is imported", lambda: exec(compile(source, str(file), "exec"), module.__dict__))
    return module


def call_user_code(file: Path, when: str, function: Any, *args: Any) -> Any:
    """Call `function`, which is from the user's file `file`, and return its result.

    An exception is converted to a TaskError that names the failing line of the file. `when` describes the call in the
    message, such as "in loss". Errors that already explain a problem with the dataset or the file are not changed.
    """
    try:
        return function(*args)
    except (TaskError, DatasetError, UnreadableImage):
        raise
    except (Exception, SystemExit) as error:
        if isinstance(error, SyntaxError) and error.filename == str(file):
            message = f"{file.name}, line {error.lineno}: {error.msg}."
        else:
            lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(file)]
            position = f", line {lines[-1]}" if lines else ""
            reason = f": {error}" if str(error) else ""
            message = f"{file.name}{position}, fails {when}: {type(error).__name__}{reason}."
        raise TaskError("model", message, "Fix the file, then allow it again.") from error
