"""Causes and kinds of failures."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from engine.contract.events import Failed
from engine.contract.job import Job
from engine.contract.problems import Problem
from engine.contract.worker import WorkerSpec
from engine.data.datasets.images import DatasetError, UnreadableImage
from engine.models.base import TaskError
from engine.processes.requests import RequestError
from engine.strategies.base import StrategyError
from engine.strategies.memory import DoesNotFit
from engine.training.faults import classify, explain
from engine.training.metric_buffer import NotFinite
from tests.support.specs import make_worker_spec


def _spec(job: Job) -> WorkerSpec:
    """Return the specification of rank 1 in a run of two workers."""
    return make_worker_spec(job, rank=1)


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (torch.OutOfMemoryError("CUDA out of memory"), "Out of memory on the CPU at step 12. Set a smaller batch"),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory"), "Out of system memory at step 12"),
        (
            RuntimeError("[gloo] Connection closed by peer [127.0.0.1]:1\nsecond line"),
            "Lost the connection to another worker at step 12",
        ),
        (RuntimeError("Expected to have finished reduction in the prior iteration"), "choose Single device"),
        (
            RuntimeError("Expected to have finished reduction ... not compatible with static_graph set to True"),
            "Turn Static graph off",
        ),
        (RuntimeError("Expected to mark a variable ready only once."), "Turn Static graph on"),
        (
            AssertionError("FSDP expects uniform original parameter dtype but got {...}"),
            "Give all of them the same dtype",
        ),
        (PermissionError(13, "Permission denied", "/x/y"), "/x/y can't be used: Permission denied"),
        (OSError(28, "No space left on device", "/x/y"), "The disk of /x/y is full"),
        (DoesNotFit(1), "even with a single image at a time"),
        (DoesNotFit(2), "even with the 2 images that BatchNorm needs at a time"),
        (RuntimeError("NCCL error: unhandled\nLast error:\nno GID index"), "The error at step 12: no GID index"),
        (
            RuntimeError("NCCL error: a new one"),
            "GPUs failed to communicate. The error at step 12: NCCL error: a new one",
        ),
        (KeyError("gone"), "KeyError at step 12: 'gone'"),
        (RuntimeError(), "RuntimeError at step 12: no further details"),
        (RuntimeError("\nfirst line\nsecond line"), "RuntimeError at step 12: first line"),
    ],
)
def test_cause_describes_errors(job: Callable[..., Job], error: Exception, text: str) -> None:
    cause = explain(error, _spec(job(cpus=2, strategy="ddp")), "at step 12")
    assert text in cause
    assert "second line" not in cause


@pytest.mark.parametrize(
    "error",
    [
        NotFinite(5, "The loss", has_checkpoint=True), TaskError("model", "No such weights.", "Train from scratch."),
        DatasetError([Problem("dataset", "No images.", "Add some.")]), StrategyError("It needs two GPUs."),
        UnreadableImage("train/a.png", "it is truncated"), RequestError(Problem("", "No model.", "Choose one.")),
    ],
)  # fmt: skip
def test_cause_keeps_messages_that_explain_themselves(job: Callable[..., Job], error: Exception) -> None:
    assert explain(error, _spec(job()), "at step 12") == str(error)


TWO_HEADS = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.heads = nn.ModuleList(nn.Linear(768, classes) for _ in range(2))
        self.calls = 0

    def forward(self, images):
        self.calls += self.training
        return self.heads[self.calls // 3 % 2](images.flatten(1))

def build_model(num_classes):
    return Net(num_classes)
"""

MIXED = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.stem = nn.Linear(768, 16).bfloat16()
        self.head = nn.Linear(16, classes)

    def forward(self, images):
        return self.head(self.stem(images.flatten(1).bfloat16()).float())

def build_model(num_classes):
    return Net(num_classes)
"""


LONE = """
from torch import nn

def build_model(num_classes):
    return nn.Sequential(nn.Flatten(), nn.Linear(768, 16), nn.BatchNorm1d(16), nn.Linear(16, num_classes))
"""


DEMANDS: dict[str, tuple[dict[str, Any], str]] = {
    "Set a larger batch size": ({"strategy": "ddp", "batch_size": 2}, LONE),
    "Turn Static graph off": ({"strategy": "ddp", "static_graph": True}, TWO_HEADS),
    "Give all of them the same dtype": ({"strategy": "fsdp"}, MIXED),
}


@pytest.mark.parametrize("message", list(DEMANDS))
def test_cause_describes_strategy_errors(
    job: Callable[..., Job], start: Callable[..., Any], model_file: Callable[[str], dict[str, str]], message: str
) -> None:
    fields, text = DEMANDS[message]
    group = start(job(cpus=2, **fields, **model_file(text)))
    assert any(group.finish())
    assert any(message in failed.cause for failed in group.of(Failed)), group.of(Failed)


KINDS: list[tuple[Exception, str]] = [
    (NotFinite(5, "The loss", has_checkpoint=True), "not_finite"),
    (torch.OutOfMemoryError("CUDA out of memory"), "out_of_memory"),
    (MemoryError(), "out_of_memory"),
    (RuntimeError("DefaultCPUAllocator: can't allocate memory"), "out_of_memory"),
    (torch.AcceleratorError("CUDA error: out of memory"), "out_of_memory"),
    (DoesNotFit(1), "out_of_memory"),
    (torch.AcceleratorError("CUDA error: unspecified launch failure"), "fault"),
    (torch.AcceleratorError("CUDA error: uncorrectable ECC error encountered"), "fault"),
    (RuntimeError("CUDA error: an illegal memory access was encountered"), "fault"),
    (RuntimeError("cuDNN error: CUDNN_STATUS_EXECUTION_FAILED"), "fault"),
    (torch.distributed.DistBackendError("NCCL error in: ProcessGroupNCCL.cpp, unhandled cuda error"), "fault"),
    (RuntimeError("[gloo] Connection closed by peer [127.0.0.1]:1"), "fault"),
    (RuntimeError("NCCL error: too many open files"), "error"),
    (torch.AcceleratorError("CUDA error: device-side assert triggered"), "error"),
    (torch.AcceleratorError("CUDA error: no kernel image is available for execution on the device"), "error"),
    (RuntimeError("Expected to have finished reduction in the prior iteration"), "error"),
    (TaskError("model", "No such weights.", "Train from scratch."), "error"),
    (PermissionError(13, "Permission denied", "/x/y"), "error"),
]


@pytest.mark.parametrize(("error", "expected"), KINDS)
def test_kind_classifies_errors(job: Callable[..., Job], error: Exception, expected: str) -> None:
    assert classify(error, _spec(job(cpus=2, strategy="ddp"))) == expected
    assert classify(RuntimeError("Connection reset"), make_worker_spec(job(), world_size=1)) == "error"


def test_cause_names_failed_gpu(job: Callable[..., Job]) -> None:
    chosen = job(devices=("GPU-1", "GPU-2"), strategy="ddp")
    error = torch.AcceleratorError("CUDA error: uncorrectable ECC error encountered\nCUDA kernel errors might be ...")
    assert explain(error, _spec(chosen), "at step 12").startswith(
        "GPU 1 of the run (GPU-2) failed at step 12: CUDA error: uncorrectable ECC error encountered. "
    )
    full = torch.OutOfMemoryError("CUDA out of memory. GPU 1 has a total capacity of 8 GiB")
    spec = make_worker_spec(job(devices=("GPU-1", "GPU-2"), strategy="dp"), world_size=1)
    does_not_fit = DoesNotFit(1)
    does_not_fit.__cause__ = full
    for shortage in (full, does_not_fit):
        assert "GPU 1 of the run (GPU-2)" in explain(shortage, spec, "at step 12")


def test_kind_of_lost_peer_is_fault(job: Callable[..., Job], start: Callable[..., Any]) -> None:
    group = start(job(cpus=2, strategy="ddp", epochs=100_000))
    group.read_steps(3)
    group.sockets[1].shutdown(2)  # the worker appears to be gone
    assert group.finish() == [1, None]
    (failed,) = group.of(Failed)
    assert failed.kind == "fault"
    assert failed.cause.startswith("Lost the connection to another worker ")


def test_kind_of_job_errors(job: Callable[..., Job], start: Callable[..., Any], tmp_path: Path) -> None:
    group = start(job(dataset=str(tmp_path / "nowhere")))
    assert group.finish() == [1]
    assert group.of(Failed)[0].kind == "error"


def test_failure_of_a_task_error_names_the_field(job: Callable[..., Job], start: Callable[..., Any]) -> None:
    group = start(job(model="resnet18", pretrained=True))
    assert group.finish() == [1]
    (failed,) = group.of(Failed)
    assert failed.field == "pretrained"
    assert "are not on this machine" in failed.cause
