"""Saved predictions of validation samples, and their drawings."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from engine.contract.events import LegendEntry, Predicted, PredictedSample, Validation, Warned
from engine.data.datasets.images import UnreadableImage
from engine.data.decoding.mask_values import NO_CLASS
from engine.metrics.base import Metric
from engine.tasks.base import Visualization
from engine.tasks.classification.task import ClassificationMetric
from engine.training.callbacks import predictions
from engine.training.callbacks.predictions import PickedImages, PickedSamples, Predictions
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
    group = start(job(images, **CLASSIFICATION, epochs=1, predictions=6, val_crop=0.5)).completed(150)
    (predicted,) = group.of(Predicted)
    for sample in predicted.samples:
        with Image.open(group.folder / sample.truth_png) as image:
            assert image.size == (16, 16)  # the crop that the model sees
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


LEGEND = (LegendEntry("a", "#ff0000"),)


class _BoxesInTwoBatches:
    """Simulated strategy that evaluates two batches, whose targets are padded to 3 and 5 boxes."""

    def __init__(self) -> None:
        self.objective = SimpleNamespace(
            legend=LEGEND,
            show_truth=lambda image, boxes: Visualization(image, f"{len(boxes)} boxes", (1, 3)),
            show_prediction=lambda image, boxes: Visualization(image, f"{len(boxes)} predicted", (2, 3)),
        )
        self.collectives = SimpleNamespace(gather_objects=lambda rank_result: [rank_result])

    def evaluate(self, _batches: object, metric: Metric, _stop: object) -> None:
        for boxes in (3, 5):
            metric.update(torch.zeros(2, 7, 6), torch.zeros(2, boxes, 5))


def test_predictions_keep_batches_with_unequal_box_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(predictions, "MAX_SETS", 3)
    image = np.zeros((8, 8, 3), np.uint8)
    samples = SimpleNamespace(get_drawing_input=lambda position: image, path=lambda position: f"{position}.png")
    picked = SimpleNamespace(samples=samples, positions=range(4), split_loader=SimpleNamespace(epoch=lambda _: ()))
    sent: list[Predicted | Warned] = []
    callback = Predictions(tmp_path, _BoxesInTwoBatches(), lambda: picked, sent.append)  # type: ignore[arg-type]
    for step in (10, 20, 30, 40, 50):
        callback.on_validation_end(step // 10, step, ClassificationMetric(2), {})
    assert sorted(path.name for path in (tmp_path / "predictions").glob("0*")) == [f"{n:09}" for n in (10, 40, 50)]
    expected = [
        PredictedSample(
            name=f"{number}.png",
            truth_png=f"predictions/truth/{number:03}.png",
            prediction_png=f"predictions/000000020/{number:03}.png",
            truth_words=f"{boxes} boxes",
            prediction_words="7 predicted",
            legend=(1, 2, 3),
        )
        for number, boxes in enumerate((3, 3, 5, 5))
    ]
    assert sent[1] == Predicted(epoch=2, step=20, samples=tuple(expected), legend=LEGEND)


class _RampImages:
    """Dataset of ten one-channel images, whose pixels ascend from the index of the image. Image 4 can't be read.

    With `channels=0`, `load` returns a sample (index, size) in place of an image.
    """

    planes, mirror = 0, True

    def __len__(self) -> int:
        return 10

    def path(self, index: int) -> str:
        return f"{index}.png"

    def load(self, index: int, size: int, channels: int = 0) -> Any:
        if index == 4:
            raise UnreadableImage("4.png", "damaged")
        return torch.arange(index, index + size * size).view(1, size, size) if channels else (torch.tensor(index), size)


def test_picked_samples_can_be_read_by_every_rank() -> None:
    def agree(flags: Sequence[int]) -> list[int]:
        return [1, *flags[1:]]  # another rank can't read the first one

    samples = PickedSamples(_RampImages(), 5, all_reduce_max=agree)  # type: ignore[arg-type]
    images = PickedImages(_RampImages(), 5, 6, 1, middle=2, all_reduce_max=agree)  # type: ignore[arg-type]
    assert [samples.load(number, 9) for number in range(len(samples))] == [(2, 0), (6, 0), (8, 0)]
    assert [images.path(number) for number in range(len(images))] == ["2.png", "6.png", "8.png"]
    assert images.get_drawing_input(1)[..., 0].tolist() == [[20, 21], [26, 27]]
