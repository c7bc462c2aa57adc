"""Trained models made of given networks, without a run, and workers that use them in the test process."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from engine.contract.images import Preprocessing
from engine.contract.job import Job
from engine.inference.trained_model import TrainedModel
from engine.inference.worker import Shard
from engine.runs.folder import RunFolder
from engine.tasks.base import DatasetInfo
from engine.tasks.registry import TASKS
from engine.training.report import Reporter
from tests.support.specs import make_worker_spec


class ChannelScores(nn.Module):
    """Network without parameters whose class scores are 10 times its input, with one channel per class.

    If `pooled`, the channels are averaged over all pixels. `inputs` collects the inputs of all calls. A batch of more
    than `max_images` images raises `torch.OutOfMemoryError`.
    """

    def __init__(self, *, pooled: bool = False, max_images: int = 100) -> None:
        super().__init__()
        self._pooled, self._max_images = pooled, max_images
        self.inputs: list[Tensor] = []

    def forward(self, inputs: Tensor) -> Tensor:
        if len(inputs) > self._max_images:
            raise torch.OutOfMemoryError
        self.inputs.append(inputs)
        return 10 * (inputs.mean((2, 3)) if self._pooled else inputs)


def make_trained_model(
    task: str, module: nn.Module, *, channels: int = 3, size: int = 16, **fields: Any
) -> TrainedModel:
    """Make a trained model of `module`, with the classes "a", "b" and "c", or "line" if the task predicts lines.

    Its inputs have `channels` channels and `size` x `size` pixels. A pixel value v of an image becomes the input v /
    255. `fields` override fields of the job.
    """
    job = Job.from_fields(**({"task": task, "devices": ("cpu",), "loader_workers": 1} | fields))
    classes = ("line",) if TASKS[task].entry.predicts == "lines" else ("a", "b", "c")
    return TrainedModel(
        run=RunFolder(Path("run")),
        job=job,
        task=TASKS[task],
        module=module.eval().requires_grad_(False),
        objective=TASKS[task].create_objective(job, DatasetInfo(classes, channels, lambda: [1.0] * len(classes))),
        classes=classes,
        channels=channels,
        size=size,
        preprocessing=Preprocessing(framing="letterbox", mean=(0.0,) * channels, std=(1.0,) * channels),
        checkpoint="last.pt",
        sha256="0",
        device=torch.device("cpu"),
    )


@contextmanager
def open_shard(model: TrainedModel, rank: int = 0, ranks: int = 1) -> Iterator[Shard]:
    """Yield the shard (the worker's part of a job) of worker `rank` out of `ranks`. Its reports are discarded."""
    channel, other_end = socket.socketpair()
    reporter = Reporter(channel, rank, on_end=lambda: None)
    try:
        yield Shard(make_worker_spec(model.job, rank=rank, world_size=ranks), reporter)
    finally:
        reporter.close()
        channel.close()
        other_end.close()
