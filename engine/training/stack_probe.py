"""Inspection of a thread's stack: it waits for other ranks, reads images, or works."""

from __future__ import annotations

import sys
import sysconfig
from pathlib import Path
from types import FrameType

from engine.contract.worker import ThreadState

_OURS = Path(__file__).resolve().parents[1].as_posix()
_STDLIB = ("<frozen ", *(Path(sysconfig.get_path(name)).as_posix() + "/" for name in ("stdlib", "platstdlib")))
_READING = f"{_OURS}/data/"
_WAITING = (
    "/torch/distributed/", "/torch/nn/parallel/distributed.py", "/torch/cuda/",
    f"{_OURS}/optim/", f"{_OURS}/strategies/", f"{_OURS}/training/",
)  # fmt: skip
"""Files whose functions wait for other ranks: collectives, events and streams of GPUs, and callers of these in
Footplate."""
_BACKWARD = "_engine_run_backward"
"""PyTorch's backward pass, at whose end DistributedDataParallel waits for the gradients of the other ranks."""


def inspect_stack(thread: int) -> tuple[ThreadState, str]:
    """Return a thread's state and the code location that shows it; ("", "") if it has ended.

    The innermost frame outside the standard library decides, since everything that blocks ends up there.
    """
    frame = sys._current_frames().get(thread)
    while frame is not None and _is_standard(_file(frame)):
        frame = frame.f_back
    if frame is None:
        return "", ""
    file, function = _file(frame), frame.f_code.co_name
    location = f"{function} ({Path(file).name}, line {frame.f_lineno})"
    if file.startswith(_READING):
        return "reading", location
    if function == _BACKWARD or any(part in file for part in _WAITING):
        return "waiting", location
    return "working", location


def _file(frame: FrameType) -> str:
    return frame.f_code.co_filename.replace("\\", "/")


def _is_standard(file: str) -> bool:
    return file.startswith(_STDLIB) and "-packages/" not in file
