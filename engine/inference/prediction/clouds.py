"""Point clouds with a predicted class per point; everything else in them is preserved."""

from __future__ import annotations

import numpy as np

from engine.data.datasets.images import UnreadableImage
from engine.data.decoding.masks import NO_CLASS
from engine.inference.sweep import sweep
from engine.inference.trained_model import TrainedModel
from engine.tasks.predictions import PointClasses, PointScores


def predict_cloud(model: TrainedModel, file: str, batch_size: int) -> PointClasses:
    """Return the class of each point of a file; each point is processed once. Raises UnreadableImage."""
    files = model.task.files
    assert files is not None
    samples, count = files.open(file, model.preprocessing, model.job)
    numbers, probability = np.full(count, NO_CLASS, np.uint8), np.zeros(count, np.float32)
    failed: list[str] = []
    for swept in sweep(model, samples, batch_size=batch_size, on_unreadable=lambda path, reason: failed.append(reason)):
        for sample, output in zip(swept.samples.tolist(), swept.outputs.cpu(), strict=True):
            scores = model.objective.scores(output, 0)
            assert isinstance(scores, PointScores)
            best = scores.probabilities.max(0)
            rows, own = samples.points_of(sample)
            numbers[rows[own]] = best.indices.numpy()[own]
            probability[rows[own]] = best.values.numpy()[own]
    if failed:
        raise UnreadableImage(file, failed[0])
    return PointClasses(classes=model.classes, numbers=numbers, probability=probability)
