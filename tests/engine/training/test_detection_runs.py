"""Detection and instance segmentation under all strategies, from the folder to the checkpoint."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
import torchvision
from PIL import Image
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval
from torch import nn

from engine.contract.events import ClassMeasures, Planned, Predicted, StepMetrics, Validation
from engine.models.detection_models import HALF_STATISTICS
from tests.engine.training.task_jobs import task_job
from tests.support.boxed import NONE, ONE, TWO, coco
from tests.support.outlined import CLASSES, make_outlined
from tests.support.worker_group import WorkerGroup

Start = Callable[..., WorkerGroup]
SIDE = 64
LITE = "ssdlite320_mobilenet_v3_large"
SMALL = "tu-mobilenetv3_small_050"

job = partial(task_job, task="detection", model=LITE, image_size=SIDE)


@pytest.fixture(scope="module")
def discs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_outlined(tmp_path_factory.mktemp("discs"), {"train": 32, "val": 8}, SIDE)


def coco_mean(folder: Path, model: nn.Module) -> float:
    """Return the mAP of the plain torchvision model on the validation images, computed with pycocotools."""
    model.transform.image_mean, model.transform.image_std = HALF_STATISTICS
    model.transform.fixed_size = (SIDE, SIDE)
    with contextlib.redirect_stdout(io.StringIO()):
        truth = COCO(str(folder / "annotations/instances_val.json"))
        found = []
        for image in truth.dataset["images"]:
            pixels = np.asarray(Image.open(folder / "images/val" / image["file_name"])).copy()
            with torch.no_grad():
                (prediction,) = model.eval()([torch.from_numpy(pixels).permute(2, 0, 1) / 255])
            for box, score, label in zip(
                prediction["boxes"].tolist(), prediction["scores"].tolist(), prediction["labels"].tolist(), strict=True
            ):
                left, top, right, bottom = box
                sides = [left, top, right - left, bottom - top]
                found.append({"image_id": image["id"], "category_id": label, "score": score, "bbox": sides})
        evaluation = COCOeval(truth, truth.loadRes(found), "bbox")
        evaluation.evaluate()
        evaluation.accumulate()
        evaluation.summarize()
    return float(evaluation.stats[0])


@pytest.mark.long
def test_detector_learns(start: Start, discs: Path) -> None:
    group = start(job(discs, model="fasterrcnn", encoder=SMALL, learning_rate=0.001, epochs=16)).completed(170)
    measured = [event.measures for event in group.of(Validation)]
    assert max(measures["ap50"] for measures in measured) > 0.2  # 0.25 or more, depending on the CPU
    (plan,) = group.of(Planned)
    assert (plan.classes, plan.train_images, plan.val_images) == (CLASSES, 32, 8)
    assert {metrics.accuracy for metrics in group.of(StepMetrics)} == {None}
    assert len(group.of(ClassMeasures)[-1].measures["AP"]) == len(CLASSES)
    assert len(group.of(Predicted)[-1].samples) == 8


def test_predictions_are_saved_of_batches_with_different_numbers_of_boxes(start: Start, tmp_path: Path) -> None:
    splits = {"train": {"a": TWO, "b": ONE}, "val": {"c": ONE, "d": TWO, "e": NONE, "f": ONE}}
    group = start(job(coco(tmp_path / "set", splits), batch_size=2)).completed(150)
    truths = [sample.truth_words for sample in group.of(Predicted)[-1].samples]
    assert truths == ["1 cat", "1 cat, 1 dog", "nothing", "1 cat"]


@pytest.mark.parametrize("strategy", ["ddp", pytest.param("fsdp", marks=pytest.mark.long)])
def test_detection_matches_pycocotools(start: Start, discs: Path, strategy: str) -> None:
    group = start(job(discs, 2, strategy=strategy, batch_size=16), every_step=True).completed(150)
    assert len(group.of(StepMetrics)) == 2
    (validation,) = group.of(Validation)
    assert validation.images == 8
    assert set(validation.measures) == {"map", "ap50", "ap75"}
    state = group.checkpoint("best.pt")
    plain = torchvision.models.get_model(LITE, weights=None, weights_backbone=None, num_classes=1 + len(CLASSES))
    plain.load_state_dict(state)
    assert validation.measures["map"] > 0.0001
    assert coco_mean(discs, plain) == pytest.approx(validation.measures["map"], abs=1e-6)
