"""Saved predictions of validation samples, and their drawings."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

from engine.contract.events import Predicted, Validation, Warned
from engine.data.decoding.mask_values import NO_CLASS
from engine.metrics.base import Metric
from engine.tasks.base import Visualization
from engine.tasks.classification.task import ClassificationMetric
from engine.training.callbacks.predictions import Predictions
from tests.engine.training.task_jobs import task_job
from tests.support.masks import make_masked
from tests.support.worker_group import WorkerGroup

Start = Callable[..., WorkerGroup]
SIDE = 32

job = partial(task_job, epochs=2, predictions=5)
SEGMENTATION: dict[str, Any] = {
    "task": "segmentation", "model": "unet", "encoder": "tu-mobilenetv3_small_050", "image_size": SIDE,
}  # fmt: skip
CLASSIFICATION: dict[str, Any] = {"task": "classification", "model": "mnist_cnn", "image_size": 16}


@pytest.fixture(scope="module")
def discs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_masked(tmp_path_factory.mktemp("discs"), {"train": 16, "val": 10}, SIDE)


@pytest.mark.parametrize(
    ("strategy", "cpus", "fields"),
    [
        ("ddp", 2, {}),
        pytest.param("fsdp", 2, {}, marks=pytest.mark.long),
        pytest.param("pipeline", 2, {"microbatches": 2}, marks=pytest.mark.long),
    ],
)
def test_predictions_overlay_masks_on_the_same_images(
    start: Start, discs: Path, strategy: str, cpus: int, fields: dict[str, Any]
) -> None:
    group = start(job(discs, cpus, strategy=strategy, **SEGMENTATION, **fields)).completed(150)
    first, second = group.of(Predicted)
    assert (first.epoch, second.epoch) == (1, 2)
    names = [sample.name for sample in first.samples]
    assert names == [f"images/val/{number:03d}.png" for number in range(0, 10, 2)]
    assert [sample.truth_png for sample in first.samples] == [sample.truth_png for sample in second.samples]
    for sample in (*first.samples, *second.samples):
        for path in (sample.truth_png, sample.prediction_png):
            with Image.open(group.folder / path) as image:
                assert (image.mode, image.size) == ("RGB", (SIDE, SIDE))
    for sample in first.samples:
        image = np.asarray(Image.open(discs / sample.name)).astype(int)
        mask = np.asarray(Image.open(discs / "masks/val" / Path(sample.name).name))
        pixels = np.asarray(Image.open(group.folder / sample.truth_png)).astype(int)
        bare = mask == 0
        assert np.array_equal(pixels[bare], image[bare])
        marked = (mask != 0) & (mask != NO_CLASS)
        assert (pixels[marked] != image[marked]).any()


def test_predictions_name_classes(start: Start, images: Path) -> None:
    group = start(job(images, **CLASSIFICATION, epochs=1, predictions=6)).completed(150)
    (predicted,) = group.of(Predicted)
    assert [sample.truth_words for sample in predicted.samples] == ["blue", "blue", "green", "green", "red", "red"]
    assert all(sample.prediction_words.split(" (")[0] in ("blue", "green", "red") for sample in predicted.samples)


def test_predictions_can_be_disabled(start: Start, images: Path) -> None:
    group = start(job(images, **CLASSIFICATION, epochs=1, predictions=0)).completed(150)
    assert not group.of(Predicted)
    assert not (group.folder / "predictions").exists()


def test_predictions_end_on_full_disk(start: Start, images: Path, tmp_path: Path) -> None:
    (tmp_path / "run-0").mkdir()  # the first that is started here
    (tmp_path / "run-0/predictions").write_text("in the way")
    group = start(job(images, **CLASSIFICATION)).completed(150)
    (warning,) = [event for event in group.of(Warned) if event.code == "predictions_failed"]
    assert "no longer saved" in warning.message
    assert not group.of(Predicted)
    assert len(group.of(Validation)) == 2


class _BoxesInTwoBatches:
    """Simulated strategy that evaluates two batches, whose targets are padded to 3 and 5 boxes."""

    def __init__(self) -> None:
        def show(image: Any, boxes: Tensor) -> Visualization:
            return Visualization(image, f"{len(boxes)} boxes")

        self.objective = SimpleNamespace(legend=(), show_truth=show, show_prediction=show)
        self.collectives = SimpleNamespace(gather_objects=lambda part: [part])

    def evaluate(self, _batches: object, metric: Metric, _stop: object) -> None:
        for boxes in (3, 5):
            metric.update(torch.zeros(2, 7, 6), torch.zeros(2, boxes, 5))


def test_predictions_keep_batches_with_unequal_box_counts(tmp_path: Path) -> None:
    image = np.zeros((8, 8, 3), np.uint8)
    samples = SimpleNamespace(visible_input=lambda position: image, path=lambda position: f"{position}.png")
    picked = SimpleNamespace(samples=samples, positions=range(4), split_loader=SimpleNamespace(epoch=lambda _: ()))
    sent: list[Predicted | Warned] = []
    callback = Predictions(tmp_path, _BoxesInTwoBatches(), lambda: picked, sent.append)  # type: ignore[arg-type]
    callback.on_validation_end(1, 10, ClassificationMetric(2), {})
    (predicted,) = sent
    assert isinstance(predicted, Predicted)
    assert [sample.name for sample in predicted.samples] == ["0.png", "1.png", "2.png", "3.png"]
    assert [sample.truth_words for sample in predicted.samples] == ["3 boxes"] * 2 + ["5 boxes"] * 2
