"""Hooks that make ranks appear to be on different machines, and that record their collectives."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch.distributed as dist
from torch import Tensor

from engine.contract.worker import WorkerSpec
from engine.data.datasets.images import FileImages, UnreadableImage
from engine.strategies import tensor_parallel
from engine.strategies.speed import Rehearsal
from engine.tasks.classification.task import ClassificationMetric
from engine.training import autotune

_COLLECTIVES = (
    "all_gather", "all_gather_into_tensor", "all_gather_object", "all_reduce", "broadcast", "broadcast_object_list",
    "gather_object", "reduce_scatter_tensor",
)  # fmt: skip


def simulate_unequal_machines(spec: WorkerSpec) -> None:
    """Record this rank's collectives, and make the ranks differ as if they ran on different machines.

    The ranks report different types of GPUs. Rank 1 has no bf16, is slower, can't read the first image, and gets other
    validation metrics.
    """
    for name in _COLLECTIVES:
        setattr(dist, name, partial(_record, _file(Path(spec.run_folder), spec.rank), getattr(dist, name)))
    tensor_parallel.gpu_type = lambda _: f"GPU type {spec.rank}"
    autotune.TRIAL_FRACTION = 100.0  # try everything, however short the run is
    autotune.find_device_without_bf16 = lambda _: "Tesla T4" if spec.rank else ""
    if spec.rank == 0:
        return
    time_pass, compute, load = Rehearsal.time_pass, ClassificationMetric.compute, FileImages.load

    def time_slow_pass(rehearsal: Rehearsal) -> float:
        time.sleep(0.05)
        return time_pass(rehearsal) + 0.05

    validations = itertools.count(1)

    def compute_better(metric: ClassificationMetric) -> dict[str, float]:
        """Return metrics that improve with every validation, so that rank 1 alone would never stop early."""
        return dict.fromkeys(compute(metric), float(next(validations)))

    def load_some(images: Any, index: int, *arguments: Any) -> Any:
        if index == 0:
            raise UnreadableImage(images.path(index), "input/output error")
        return load(images, index, *arguments)

    Rehearsal.time_pass = time_slow_pass  # type: ignore[method-assign]
    ClassificationMetric.compute = compute_better  # type: ignore[method-assign]
    FileImages.load = load_some  # type: ignore[method-assign]


def read_collectives(folder: Path, rank: int) -> list[str]:
    """Return the collectives that a rank has called, in order, with the dtypes and shapes of their tensors."""
    return _file(folder, rank).read_text().splitlines()


def _file(folder: Path, rank: int) -> Path:
    return folder / f"collectives-{rank}.txt"


def _record(file: Path, collective: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    shapes = [f"{value.dtype}{list(value.shape)}" for value in arguments if isinstance(value, Tensor)]
    with file.open("a") as stream:
        stream.write(f"{collective.__name__} {' '.join(shapes)}\n")
    return collective(*arguments, **options)
