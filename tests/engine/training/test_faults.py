"""Every fault has a cause in plain words."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from engine.contract.job import Job
from engine.contract.worker import WorkerSpec
from engine.tasks.base import TaskError
from engine.training.faults import cause
from engine.training.tally import NotFinite


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (torch.OutOfMemoryError("CUDA out of memory"), "Out of memory on the CPU at step 12. Set a smaller batch"),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory"), "Out of main memory at step 12"),
        (RuntimeError("[gloo] Connection closed by peer [127.0.0.1]:1"), "Lost touch with another worker at step 12"),
        (RuntimeError("Expected to have finished reduction in the prior iteration"), "choose Single device"),
        (NotFinite(5, "The loss", True), "The loss became NaN or infinite at step 5"),
        (TaskError("model", "No such weights.", "Train from scratch."), "No such weights. Train from scratch."),
        (PermissionError(13, "Permission denied", "/x/y"), "/x/y cannot be used: Permission denied"),
        (KeyError("gone"), "KeyError at step 12: 'gone'"),
        (RuntimeError(), "RuntimeError at step 12: no further details"),
    ],
)
def test_that_a_fault_is_told_in_words(job: Callable[..., Job], error: Exception, words: str) -> None:
    chosen = job(cpus=2, strategy="ddp")
    spec = WorkerSpec(run_folder="", job=chosen, rank=1, world_size=2, devices=chosen.devices, rendezvous="", threads=1)
    assert words in cause(error, spec, "at step 12")
