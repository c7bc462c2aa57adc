"""Classification of worker failures, with their cause and remedy in plain words."""

from __future__ import annotations

import re
import traceback
from pathlib import Path

import torch

from engine.contract.events import FailureKind
from engine.contract.worker import WorkerSpec
from engine.data.datasets.images import DatasetError, UnreadableImage
from engine.data.decoding.reading import lacks_memory
from engine.models.base import TaskError
from engine.processes.nccl_errors import NcclError, extract_description, find_known_error, is_nccl_error
from engine.processes.requests import RequestError
from engine.strategies.base import StrategyError, worker_device
from engine.strategies.memory import DoesNotFit, is_out_of_memory
from engine.system.paths import explain_full_disk
from engine.training.metric_buffer import NotFinite

_LOST_PEER = re.compile(
    r"connection (closed|reset|refused)|broken pipe|gloo|socket|timed out waiting|wait timeout", re.I
)
_FULL_GPU = re.compile(r"GPU (\d+) has a total capacity")
_FAILED_DEVICE = re.compile(
    r"(?:CUDA|NCCL|CUBLAS|CUDNN)(?: kernel)? error|cu(?:blas|dnn|fft|rand|solver|sparse) error|uncorrectable ECC|"
    r"unspecified launch failure|_STATUS_(?:EXECUTION_FAILED|INTERNAL_ERROR|NOT_INITIALIZED|MAPPING_ERROR)",
    re.I,
)
_FAILED_PROGRAM = re.compile(
    r"device-side assert|no kernel image|invalid device function|invalid (?:argument|configuration)|"
    r"unsupported toolchain|operation not supported",
    re.I,
)
"""Pattern for CUDA errors that are caused by the program or the installation, not by the GPU."""

_CHANGED_GRAPH = (
    "The model does not use the same parameters at every step, which Static graph requires. Turn Static graph off."
)
_RULES: tuple[tuple[str, str], ...] = (
    ("training graph has changed", _CHANGED_GRAPH),
    ("not compatible with static_graph", _CHANGED_GRAPH),
    (
        "Expected to have finished reduction",
        "Some parameters don't contribute to the model's output, which DistributedDataParallel does not "
        "allow. Remove them, or choose Single device.",
    ),
    (
        "mark a variable ready only once",
        "Some parameters are used several times in a step, which DistributedDataParallel allows only with "
        "a static graph. Turn Static graph on if every step is alike, or choose FSDP or Single device.",
    ),
    (
        "FSDP expects uniform original parameter dtype",
        "The model's parameters have different dtypes, which FSDP does not support. Give all of them the "
        "same dtype (float32), or choose DistributedDataParallel.",
    ),
    (
        "Expected more than 1 value per channel",
        "BatchNorm got a single value per channel: the model shrinks each image to one pixel, and a batch, or a "
        "device's part of it, has one image. Set a larger batch size, use fewer devices or less gradient accumulation, "
        "set a larger image size, or turn Freeze BatchNorm on.",
    ),
    (
        "SyncBatchNorm expected input tensor to be on",
        "SyncBatchNorm runs on GPUs only. Turn it off for CPU workers.",
    ),
)
"""Remedies for errors of PyTorch about unmet requirements of strategies and layers.

Each pair has a part of the error message, and the remedy.
"""


def classify(error: BaseException, spec: WorkerSpec) -> FailureKind:
    """Return the kind of a worker's exception, such as "out_of_memory", or "fault" if a restart may help."""
    if isinstance(error, NotFinite):
        return "not_finite"
    if isinstance(error, DoesNotFit) or is_out_of_memory(error):
        return "out_of_memory"
    nccl_error = _find_nccl_error(error)
    if nccl_error is not None:
        return "fault" if nccl_error.is_transient else "error"
    if _is_device_failure(error) or _is_lost_connection(error, spec):
        return "fault"
    return "error"


def find_field(error: BaseException) -> str:
    """Return the name of the job field that the user must change to avoid `error`, or "" if it is unknown."""
    if isinstance(error, RequestError):
        return error.problems[0].field
    return error.field if isinstance(error, TaskError) else ""


def explain(error: BaseException, spec: WorkerSpec, where: str) -> str:
    """Return the cause of a worker's failure, and the remedy if it is known.

    `where` describes the work in which it failed, such as "at step 7".
    """
    text = str(error).strip()
    if isinstance(error, NotFinite | StrategyError | TaskError | DatasetError | UnreadableImage | RequestError):
        return text
    explanation = (
        _explain_out_of_memory(error, spec, where)
        or _explain_nccl_error(error, where)
        or _explain_nondeterminism(text)
        or _explain_device_error(error, spec, where)
        or _explain_model_file_error(error, spec, where)
        or _explain_strategy_error(error, spec, where)
    )
    if explanation:
        return explanation
    if full := explain_full_disk(error):
        return full
    if isinstance(error, OSError) and error.filename:
        return f"{error.filename} can't be used: {error.strerror}."
    return f"{type(error).__name__} {where}: {_get_first_line(text)}"


def _is_device_failure(error: BaseException) -> bool:
    """Return True for a CUDA error whose cause is the GPU and not the program."""
    text = str(error)
    if not isinstance(error, RuntimeError) or _FAILED_PROGRAM.search(text):
        return False
    return isinstance(error, torch.AcceleratorError) or _FAILED_DEVICE.search(text) is not None


def _is_lost_connection(error: BaseException, spec: WorkerSpec) -> bool:
    """Return True if a rank failed because it lost the connection to another rank."""
    return spec.world_size > 1 and isinstance(error, RuntimeError) and _LOST_PEER.search(str(error)) is not None


def _explain_out_of_memory(error: BaseException, spec: WorkerSpec, where: str) -> str:
    """Explain that memory ran out, with a remedy. Returns "" if `error` has another cause.

    `where` describes the work that failed, such as "at step 7".
    """
    if isinstance(error, DoesNotFit):
        parts = "a single image" if error.images == 1 else f"the {error.images} images that BatchNorm needs"
        device = _describe_device(spec, str(error.__cause__))
        return (
            f"Out of memory on {device} {where}, even with {parts} at a time. Set a smaller image size, or "
            "choose bf16, activation checkpointing, a smaller model or a device with more memory."
        )
    if not is_out_of_memory(error):
        return ""
    if lacks_memory(error):
        return f"Out of system memory {where}. Set a smaller batch size or image size, or fewer workers."
    return f"Out of memory on {_describe_device(spec, str(error))} {where}. Set a smaller batch size or image size, or choose bf16."


def _find_nccl_error(error: BaseException) -> NcclError | None:
    """Return the entry for `error` in the table of known NCCL errors, or None if there is none."""
    return find_known_error(str(error)) if isinstance(error, RuntimeError) else None


def _explain_nccl_error(error: BaseException, where: str) -> str:
    """Explain an error of NCCL that occurred in the work `where`. Return "" for other errors."""
    text, known_error = str(error), _find_nccl_error(error)
    if known_error is None and not (isinstance(error, RuntimeError) and is_nccl_error(text)):
        return ""
    meaning = known_error.meaning if known_error is not None else "GPUs failed to communicate."
    return f"{meaning} The error {where}: {extract_description(text)}"


def _explain_device_error(error: BaseException, spec: WorkerSpec, where: str) -> str:
    """Explain a failure of the worker's GPU in the work `where`, with a remedy. Return "" for other errors."""
    if not _is_device_failure(error):
        return ""
    device = _describe_device(spec)
    return (
        f"{device[:1].upper()}{device[1:]} failed {where}: {_get_first_line(str(error)).rstrip('.')}. If it "
        "happens again, check the system log for Xid messages, restart the machine, or choose another GPU."
    )


def _explain_nondeterminism(text: str) -> str:
    """Explain the error message of an operation that can't be deterministic. Return "" for other messages."""
    operation, complaint, _ = text.partition(" does not have a deterministic implementation")
    if not complaint:
        return ""
    return (
        f"The model uses {operation}, which has no deterministic implementation. Turn Deterministic off, or "
        "choose another model."
    )


def _explain_strategy_error(error: BaseException, spec: WorkerSpec, where: str) -> str:
    """Explain an error about an unmet requirement of a strategy, or a lost connection. Return "" for other errors.

    `where` describes the work that failed, such as "at step 7".
    """
    text = str(error)
    for phrase, explanation in _RULES:
        if phrase in text:
            return explanation
    if _is_lost_connection(error, spec):
        return f"Lost the connection to another worker {where}: {_get_first_line(text)}"
    return ""


def _get_first_line(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[0] if lines else "no further details"


def _describe_device(spec: WorkerSpec, text: str = "") -> str:
    """Return the name of the worker's device.

    If the worker has several devices, return the one whose memory is full according to the error message `text`.
    """
    device = worker_device(spec)
    if device.type == "cpu":
        return "the CPU"
    named = _FULL_GPU.search(text)
    index = int(named[1]) if named else device.index
    try:
        return f"GPU {index} of the run ({torch.cuda.get_device_name(index)}, {spec.local_devices[index]})"
    except RuntimeError:  # the GPU has failed or was never initialized
        return f"GPU {index} of the run ({spec.local_devices[index]})"


def _explain_model_file_error(error: BaseException, spec: WorkerSpec, where: str) -> str:
    """Describe an error raised in the user's model file, with its line, or return "" if it was raised elsewhere."""
    if not spec.job.model_is_file:
        return ""
    name = Path(spec.job.model.name).name
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if Path(frame.filename).name == name]
    if not frames:
        return ""
    line = f"line {frames[-1].lineno} ({frames[-1].name})"
    return f"The model file raised {type(error).__name__} in {line} {where}: {_get_first_line(str(error))}"
