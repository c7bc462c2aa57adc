"""Inspection of a thread's stack to find out if it waits for other ranks, reads data, or works."""

from __future__ import annotations

import sys
import sysconfig
from pathlib import Path
from types import FrameType

import torch

from engine.contract.worker import ThreadState

_PACKAGE = Path(__file__).resolve().parents[1].as_posix()
_STDLIB = ("<frozen ", *(Path(sysconfig.get_path(name)).as_posix() + "/" for name in ("stdlib", "platstdlib")))
_READING = f"{_PACKAGE}/data/"
_WRITING = f"{_PACKAGE}/training/checkpointing/"
"""Folder with functions that wait for the disk.

While they wait for other ranks, the innermost frame is in torch instead.
"""
_WAITING = (
    "/torch/distributed/", "/torch/nn/parallel/distributed.py", "/torch/cuda/",
    f"{_PACKAGE}/optim/", f"{_PACKAGE}/strategies/", f"{_PACKAGE}/training/",
)  # fmt: skip
"""Parts of paths of files whose functions wait for other ranks or for GPU events and streams."""
_ON_DEVICE = (
    "/torch/nn/", "/torch/optim/", "/torch/functional.py", "/torch/_tensor.py", "/torchvision/", "/timm/",
    "/segmentation_models_pytorch/", f"{_PACKAGE}/models/",
)  # fmt: skip
"""Parts of paths of files with models and layers.

On a GPU, functions in these files only queue work. If they take long, they wait for the device, which may itself wait
for other ranks. SyncBatchNorm and detectors do that.
"""
_METRICS = (f"{_PACKAGE}/tasks/", f"{_PACKAGE}/metrics/")
_METRICS_ON_DEVICE = {"update", "loss", "correct"}
"""Names of the functions in task and metric files that use the device. All others compute on the CPU."""
_BACKWARD = "_engine_run_backward"
"""Name of the function that runs PyTorch's backward pass.

DistributedDataParallel also waits for the gradients of other ranks in it.
"""


def inspect_stack(thread: int) -> tuple[ThreadState, str]:
    """Return the state of a thread, and the code location that reveals it. Return ("", "") if the thread has ended.

    The state is determined from the innermost stack frame outside of the standard library, because all blocking calls
    end in the standard library.
    """
    frame = sys._current_frames().get(thread)
    while frame is not None and _is_standard(_get_path(frame)):
        frame = frame.f_back
    if frame is None:
        return "", ""
    file, function = _get_path(frame), frame.f_code.co_name
    location = f"{function} ({Path(file).name}, line {frame.f_lineno})"
    if file.startswith(_READING):
        return "reading", location
    is_waiting = function == _BACKWARD or any(part in file for part in _WAITING)
    if torch.cuda.is_initialized():
        is_waiting |= any(part in file for part in _ON_DEVICE)
        is_waiting |= file.startswith(_METRICS) and function in _METRICS_ON_DEVICE
    # `_WAITING` includes the folder of `_WRITING`, whose functions wait only for the disk.
    return "waiting" if is_waiting and not file.startswith(_WRITING) else "working", location


def _get_path(frame: FrameType) -> str:
    """Return the path of the source file of a frame, with forward slashes on all systems."""
    return frame.f_code.co_filename.replace("\\", "/")


def _is_standard(file: str) -> bool:
    """Return True if a file is part of the standard library, not of an installed package."""
    return file.startswith(_STDLIB) and "-packages/" not in file
