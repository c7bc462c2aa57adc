"""Worker for evaluations.

It runs the model on a part of the samples and saves the results. `merge_results` merges the results of all workers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from engine.contract.inference.evaluation import EvaluateRequest, SkippedSample
from engine.data.datasets.images import ImageSet
from engine.data.datasets.samples import SampleSet
from engine.data.formats.shared.boxes import read_upright_size
from engine.inference.evaluation.dataset import open_data
from engine.inference.evaluation.sample_states import PackedStates, SampleStates, StateRecorder
from engine.inference.sweep import BatchOutput, predict_batches
from engine.inference.trained_model import TrainedModel
from engine.inference.worker import Shard
from engine.models.base import TaskError
from engine.strategies.memory import run_in_parts
from engine.tasks.analysis import SampleColumns
from engine.tasks.base import Objective
from engine.training.checkpointing.checkpoint_files import CheckpointError, read_checkpoint, write_checkpoint

_LIST_COLUMNS = ("correct", "true", "predicted", "confidence")


@dataclass
class WorkerResults:
    """Results for the samples of one worker, in the order of processing.

    Samples are identified by consecutive indices over all splits.
    """

    samples: list[int] = field(default_factory=list)
    losses: list[float] | None = field(default_factory=list)
    columns: SampleColumns = field(default_factory=SampleColumns)
    recorders: dict[str, StateRecorder] = field(default_factory=dict)
    skipped: list[tuple[str, str]] = field(default_factory=list)
    _probabilities: list[npt.NDArray[np.float32]] = field(default_factory=list)

    def add(self, samples: Sequence[int], losses: Tensor | None, columns: SampleColumns) -> None:
        """Add the losses and other results (`columns`) of the given samples, which form a batch.

        If `losses` is None, the losses of all batches are dropped. The caller adds the metric states of the samples to
        `recorders`.
        """
        self.samples += samples
        if losses is None:
            self.losses = None
        elif self.losses is not None:
            self.losses += losses.double().tolist()
        for name in _LIST_COLUMNS:
            values = getattr(columns, name)
            if values is not None:
                setattr(self.columns, name, [*(getattr(self.columns, name) or []), *values])
        if columns.probabilities is not None:
            self._probabilities.append(columns.probabilities)

    def write(self, path: Path) -> None:
        """Write the evaluation results of this worker to a file. Raises CheckpointError."""
        content: dict[str, Any] = {
            "samples": self.samples,
            "losses": self.losses,
            "skipped": self.skipped,
            "columns": {name: getattr(self.columns, name) for name in _LIST_COLUMNS},
            "probabilities": torch.from_numpy(np.concatenate(self._probabilities)) if self._probabilities else None,
            "states": {name: tuple(recorder.pack()) for name, recorder in self.recorders.items()},
        }
        write_checkpoint(content, path)


@dataclass(frozen=True)
class MergedResults:
    """Evaluation results of all samples, merged from all workers, in the order of the split.

    `samples` holds the indices of the samples that were not skipped.
    """

    samples: npt.NDArray[np.int64]
    losses: list[float] | None
    columns: SampleColumns
    states: dict[str, SampleStates]
    skipped: tuple[SkippedSample, ...]


def merge_results(paths: Sequence[Path]) -> MergedResults:
    """Merge the result files of several workers. Raises OSError and DamagedCheckpoint."""
    results: list[dict[str, Any]] = []
    for path in paths:
        content, _ = read_checkpoint(path)
        results.append(content)
    nonempty = [result for result in results if result["samples"]]
    numbers = np.array([number for result in nonempty for number in result["samples"]], np.int64)
    order = np.argsort(numbers, kind="stable")
    probabilities = [result["probabilities"].numpy() for result in nonempty if result["probabilities"] is not None]
    columns = {name: _merge_lists([result["columns"][name] for result in nonempty], order) for name in _LIST_COLUMNS}
    names = list(nonempty[0]["states"]) if nonempty else []  # of the metrics
    return MergedResults(
        numbers[order],
        _merge_lists([result["losses"] for result in nonempty], order),
        SampleColumns(**columns, probabilities=np.concatenate(probabilities)[order] if probabilities else None),
        {name: SampleStates([PackedStates(*result["states"][name]) for result in nonempty], order) for name in names},
        tuple(SkippedSample(path=path, reason=reason) for result in results for path, reason in result["skipped"]),
    )


def _merge_lists(lists: Sequence[list[Any] | None], order: npt.NDArray[np.int64]) -> list[Any] | None:
    """Concatenate lists and put the values in the given order. Returns None if one of the lists is missing."""
    if any(each is None for each in lists):
        return None
    merged = [value for values in lists for value in values or ()]
    return [merged[index] for index in order.tolist()]


def name_results_file(rank: int) -> str:
    """Return the name of the file with the results of the evaluation worker with this rank."""
    return f"results-{rank}.pt"


def evaluate_shard(request: EvaluateRequest, model: TrainedModel, shard: Shard) -> None:
    """Evaluate the model on this worker's samples, and write the results to the folder that all workers share."""
    data = open_data(model, request.dataset, request.split)
    device_count = max(1, len(model.job.parallel.devices))
    # By default, the part of the training's batch that each device had.
    batch_size = request.batch_size or max(1, math.ceil(model.job.training.batch_size / device_count))
    recorder = _SampleRecorder(model, shard)
    first_number = 0
    for _, samples in data.splits:
        for batch in predict_batches(
            model, samples, batch_size=batch_size, partition=shard.partition, on_unreadable=recorder.skip
        ):
            recorder.add(batch, samples, first_number)
            shard.advance(len(batch.samples))
        first_number += len(samples)
    try:
        recorder.results.write(shard.folder / name_results_file(shard.rank))
    except CheckpointError as error:
        raise TaskError("", error.why, "Free some space, or move the run to another disk.") from error


class _SampleRecorder:
    """Recorder for the results of one worker. It computes the metrics of each sample."""

    def __init__(self, model: TrainedModel, shard: Shard) -> None:
        self.results = WorkerResults()
        self._model = model
        self._shard = shard
        self._analysis = model.objective.create_analysis(model.classes)
        self.results.recorders = {name: StateRecorder() for name in self._analysis.create_metrics(1.0)}  # any scale

    def skip(self, path: str, reason: str) -> None:
        """Record the path of a sample that can't be read, with the reason, and warn the user about it."""
        self.results.skipped.append((path, reason))
        self._shard.warn_unreadable(path, reason)

    @torch.inference_mode()
    def add(self, batch: BatchOutput, samples: ImageSet | SampleSet, first_number: int) -> None:
        """Record the results of a batch of a split.

        `first_number` is the number of the split's first sample, counted over all splits.
        """
        outputs, targets = batch.outputs, batch.targets
        if outputs.dim() == 2:  # small, and slow to process one by one on a GPU
            outputs, targets = outputs.cpu(), targets.cpu()
        numbers: list[int] = batch.samples.tolist()
        columns = self._analysis.compute_columns(outputs, targets)
        self.results.add(
            [first_number + number for number in numbers],
            _compute_sample_losses(self._model.objective, outputs, targets),
            columns,
        )
        for number, output, target in zip(numbers, outputs.split(1), targets.split(1), strict=True):
            for name, metric in self._analysis.create_metrics(self._compute_scale(samples, number)).items():
                metric.update(output, target)
                self.results.recorders[name].add(metric)

    def _compute_scale(self, samples: ImageSet | SampleSet, number: int) -> float:
        """Return the longer side of the original image divided by the side of the model's input.

        Returns 1 if the metrics don't depend on the image's original size in pixels, or if this size is unknown.
        """
        if not self._analysis.depends_on_file_size or not isinstance(samples, ImageSet):
            return 1.0
        size = read_upright_size(samples.files[number])
        return max(size) / self._model.size if size is not None else 1.0


def _compute_sample_losses(objective: Objective, outputs: Tensor, targets: Tensor) -> Tensor | None:
    """Return the loss of each sample in a batch, [n], or None if only the model itself can compute losses.

    If memory runs out, the losses are computed in several parts.
    """
    if objective.loss_in_model:
        return None
    losses, _ = run_in_parts(
        lambda parts: torch.cat(
            [
                objective.loss(output, target)
                for output, target in zip(outputs.tensor_split(parts), targets.tensor_split(parts), strict=True)
            ]
        ),
        parts=1,
        images=len(outputs),
    )
    return losses
