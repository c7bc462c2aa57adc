"""What went wrong, in plain words."""

from __future__ import annotations

import re
import traceback

import torch

from engine.contract.worker import WorkerSpec
from engine.strategies.base import StrategyError, worker_device
from engine.training.tally import NotFinite

_LOST_PEER = re.compile(r"connection (closed|reset|refused)|broken pipe|gloo|nccl|socket|timed out waiting", re.I)


def cause(error: BaseException, spec: WorkerSpec, where: str) -> str:
    """The cause of a worker's end and, where there is one, the remedy. `where` says where the worker was."""
    from engine.data.pictures import DatasetError, UnreadablePicture
    from engine.tasks.base import TaskError

    if isinstance(error, NotFinite | StrategyError | TaskError | DatasetError | UnreadablePicture):
        return str(error)
    text = str(error).strip()
    if isinstance(error, torch.OutOfMemoryError):
        return f"Out of memory on {_device(spec)} {where}. Set a smaller batch or image size, or choose bf16."
    if isinstance(error, MemoryError) or "DefaultCPUAllocator" in text:
        return f"Out of main memory {where}. Set a smaller batch or image size, or fewer workers."
    own = _in_model_file(error, spec)
    if own:
        return f"The model file raised {type(error).__name__} in {own} {where}: {text}"
    if "Expected to have finished reduction" in text:
        return (
            "Parts of the model do not take part in its output, which DistributedDataParallel does not allow. "
            "Remove them, or choose Single device."
        )
    if spec.world_size > 1 and isinstance(error, RuntimeError) and _LOST_PEER.search(text):
        return f"Lost touch with another worker {where}: {_first_line(text)}"
    if isinstance(error, OSError) and error.filename:
        return f"{error.filename} cannot be used: {error.strerror}."
    return f"{type(error).__name__} {where}: {_first_line(text)}"


def _first_line(text: str) -> str:
    return text.splitlines()[0] if text else "no further details"


def _device(spec: WorkerSpec) -> str:
    device = worker_device(spec)
    if device.type == "cpu":
        return "the CPU"
    return f"GPU {device.index} of the run ({torch.cuda.get_device_name(device)}, {spec.devices[device.index or 0]})"


def _in_model_file(error: BaseException, spec: WorkerSpec) -> str:
    """The place in the user's model file where `error` was raised, if it was there."""
    if not spec.job.model_is_file:
        return ""
    frames = traceback.extract_tb(error.__traceback__)
    inside = [frame for frame in frames if frame.filename.endswith(spec.job.model.rsplit("/", 1)[-1])]
    return f"line {inside[-1].lineno} ({inside[-1].name})" if inside else ""
