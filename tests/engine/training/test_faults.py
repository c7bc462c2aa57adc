"""Every fault has a cause in plain words."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from engine.contract.events import Failed
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
        (
            RuntimeError("Expected to have finished reduction ... not compatible with static_graph set to True"),
            "Switch Static graph off",
        ),
        (RuntimeError("Expected to mark a variable ready only once."), "Switch Static graph on"),
        (AssertionError("FSDP expects uniform original parameter dtype but got {...}"), "Give all of them one type"),
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


TWO_HEADS = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.heads = nn.ModuleList(nn.Linear(768, classes) for _ in range(2))
        self.calls = 0

    def forward(self, pictures):
        self.calls += self.training
        return self.heads[self.calls // 3 % 2](pictures.flatten(1))

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

    def forward(self, pictures):
        return self.head(self.stem(pictures.flatten(1).bfloat16()).float())

def build_model(num_classes):
    return Net(num_classes)
"""


DEMANDS: dict[str, tuple[dict[str, Any], str]] = {
    "Switch Static graph off": ({"strategy": "ddp", "static_graph": True}, TWO_HEADS),
    "Give all of them one type": ({"strategy": "fsdp"}, MIXED),
}


@pytest.mark.parametrize("words", list(DEMANDS))
def test_that_what_a_strategy_demands_of_a_model_is_told_in_words(
    job: Callable[..., Job], start: Callable[..., Any], model_file: Callable[[str], dict[str, str]], words: str
) -> None:
    fields, text = DEMANDS[words]
    group = start(job(cpus=2, **fields, **model_file(text)))
    assert any(group.finish())
    assert any(words in failed.cause for failed in group.of(Failed)), group.of(Failed)
