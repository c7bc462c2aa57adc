"""What a worker of an evaluation does: the model goes over its share of the samples, and what came of each is kept."""

from __future__ import annotations

import socket

import torch
from torch import Tensor

from engine.contract.inference.evaluation import EvaluateOrder
from engine.contract.worker import WorkerSpec
from engine.data.datasets.images import ImageSet
from engine.data.datasets.samples import SampleSet
from engine.data.formats.shared.boxes import upright_size
from engine.inference.evaluation.analyses import analysis_of
from engine.inference.evaluation.dataset import open_data
from engine.inference.evaluation.parts import Part
from engine.inference.evaluation.sample_states import Recorder
from engine.inference.sweep import Swept, sweep
from engine.inference.trained_model import TrainedModel
from engine.inference.worker import Share, serve
from engine.models.base import TaskError
from engine.strategies.memory import run_in_parts
from engine.tasks.analysis import Analysis
from engine.tasks.base import Objective
from engine.training.checkpointing.checkpoint_files import CheckpointError


def run(spec: WorkerSpec, channel: socket.socket) -> int:
    return serve(spec, channel, EvaluateOrder, _measure)


def part_name(rank: int) -> str:
    """The file of a worker's part, in the folder where it works."""
    return f"part-{rank}.pt"


def _measure(order: EvaluateOrder, model: TrainedModel, share: Share) -> None:
    data = open_data(model, order.dataset, order.split)
    batch_size = order.batch_size or max(
        1, -(-model.job.training.batch_size // max(1, len(model.job.parallel.devices)))
    )
    worker = _Measurer(model, share)
    first = 0
    for _, samples in data.parts:
        for swept in sweep(model, samples, batch_size=batch_size, part=share.part, on_unreadable=worker.skip):
            worker.add(swept, samples, first)
            share.progressed(len(swept.samples))
        first += len(samples)
    try:
        worker.part.write(share.folder / part_name(share.rank))
    except CheckpointError as error:
        raise TaskError("", error.why, "Free some space, or move the run to another disk.") from error


class _Measurer:
    """Adds batches to a worker's part."""

    def __init__(self, model: TrainedModel, share: Share) -> None:
        self.part = Part()
        self._model = model
        self._share = share
        self._analysis: Analysis = analysis_of(model.objective, model.classes)
        self.part.recorders = {name: Recorder() for name in self._analysis.metrics(1.0)}

    def skip(self, path: str, reason: str) -> None:
        """Takes note of a sample that can't be read."""
        self.part.skipped.append((path, reason))
        self._share.skip(path, reason)

    @torch.inference_mode()
    def add(self, swept: Swept, samples: ImageSet | SampleSet, first: int) -> None:
        """Adds a batch of `samples`, the first of which is the `first` of all."""
        outputs, targets = swept.outputs, swept.targets
        if outputs.dim() == 2:  # small, and slow to be looked at one by one on a GPU
            outputs, targets = outputs.cpu(), targets.cpu()
        numbers: list[int] = swept.samples.tolist()
        columns = self._analysis.columns(outputs, targets)
        self.part.add([first + number for number in numbers], _losses(self._model.objective, outputs, targets), columns)
        for number, output, target in zip(numbers, outputs.split(1), targets.split(1), strict=True):
            for name, metric in self._analysis.metrics(self._scale(samples, number)).items():
                metric.update(output, target)
                self.part.recorders[name].add(metric)

    def _scale(self, samples: ImageSet | SampleSet, number: int) -> float:
        """How many of its own pixels an image has for each of those that the model was given."""
        if not self._analysis.scaled or not isinstance(samples, ImageSet):
            return 1.0
        size = upright_size(samples.files[number])
        return max(size) / self._model.size if size is not None else 1.0


def _losses(objective: Objective, outputs: Tensor, targets: Tensor) -> Tensor | None:
    """The loss of each sample of a batch, [n]; None where only the model itself can tell it."""
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
