"""Worker of an evaluation: run the model on its partition of the samples, and save the results of each."""

from __future__ import annotations

import socket

import torch
from torch import Tensor

from engine.contract.inference.evaluation import EvaluateOrder
from engine.contract.worker import WorkerSpec
from engine.data.datasets.images import ImageSet
from engine.data.datasets.samples import SampleSet
from engine.data.formats.shared.boxes import upright_size
from engine.inference.evaluation.dataset import open_data
from engine.inference.evaluation.sample_states import Recorder
from engine.inference.evaluation.worker_results import WorkerResults
from engine.inference.sweep import BatchOutput, sweep
from engine.inference.trained_model import TrainedModel
from engine.inference.worker import Share, serve
from engine.models.base import TaskError
from engine.strategies.memory import run_in_parts
from engine.tasks.base import Objective
from engine.training.checkpointing.checkpoint_files import CheckpointError


def run(spec: WorkerSpec, channel: socket.socket) -> int:
    return serve(spec, channel, EvaluateOrder, _measure)


def results_file(rank: int) -> str:
    """Return the name of a worker's result file."""
    return f"results-{rank}.pt"


def _measure(order: EvaluateOrder, model: TrainedModel, share: Share) -> None:
    data = open_data(model, order.dataset, order.split)
    batch_size = order.batch_size or max(
        1, -(-model.job.training.batch_size // max(1, len(model.job.parallel.devices)))
    )
    worker = _Measurer(model, share)
    first = 0
    for _, samples in data.splits:
        for swept in sweep(model, samples, batch_size=batch_size, partition=share.partition, on_unreadable=worker.skip):
            worker.add(swept, samples, first)
            share.advance(len(swept.samples))
        first += len(samples)
    try:
        worker.results.write(share.folder / results_file(share.rank))
    except CheckpointError as error:
        raise TaskError("", error.why, "Free some space, or move the run to another disk.") from error


class _Measurer:
    """Collector of a worker's results."""

    def __init__(self, model: TrainedModel, share: Share) -> None:
        self.results = WorkerResults()
        self._model = model
        self._share = share
        self._analysis = model.objective.analysis(model.classes)
        self.results.recorders = {name: Recorder() for name in self._analysis.metrics(1.0)}

    def skip(self, path: str, reason: str) -> None:
        """Record a sample that can't be read."""
        self.results.skipped.append((path, reason))
        self._share.skip(path, reason)

    @torch.inference_mode()
    def add(self, swept: BatchOutput, samples: ImageSet | SampleSet, first: int) -> None:
        """Add a batch of `samples`, whose first sample has the overall number `first`."""
        outputs, targets = swept.outputs, swept.targets
        if outputs.dim() == 2:  # small, and slow to process one by one on a GPU
            outputs, targets = outputs.cpu(), targets.cpu()
        numbers: list[int] = swept.samples.tolist()
        columns = self._analysis.columns(outputs, targets)
        self.results.add(
            [first + number for number in numbers], _losses(self._model.objective, outputs, targets), columns
        )
        for number, output, target in zip(numbers, outputs.split(1), targets.split(1), strict=True):
            for name, metric in self._analysis.metrics(self._scale(samples, number)).items():
                metric.update(output, target)
                self.results.recorders[name].add(metric)

    def _scale(self, samples: ImageSet | SampleSet, number: int) -> float:
        """Return the number of an image's pixels per pixel of the model's input."""
        if not self._analysis.scaled or not isinstance(samples, ImageSet):
            return 1.0
        size = upright_size(samples.files[number])
        return max(size) / self._model.size if size is not None else 1.0


def _losses(objective: Objective, outputs: Tensor, targets: Tensor) -> Tensor | None:
    """Return the loss of each sample of a batch, [n]; None if only the model can compute it."""
    if objective.loss_in_model:
        return None
    losses, _ = run_in_parts(
        lambda parts: torch.cat(
            [
                objective.loss(output, target)
                for output, target in zip(outputs.tensor_split(parts), targets.tensor_split(parts), strict=True)
            ]
        ),
        1,
        len(outputs),
    )
    return losses
