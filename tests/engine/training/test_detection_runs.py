"""Detection and instance segmentation from a folder to a checkpoint, under the strategies."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torchvision
from PIL import Image
from pycocotools import mask as coding
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval
from torch import nn

from engine.contract.events import ClassMeasures, Planned, Predicted, StepMetrics, Validation
from engine.contract.job import Job
from engine.tasks.detection_models import HALVES, IMAGENET
from engine.tasks.instance_segmentation import LIKELY
from tests.support.outlined import CLASSES, make_outlined
from tests.support.worker_group import WorkerGroup

Start = Callable[..., WorkerGroup]
SIDE = 64
LITE, MASK = "ssdlite320_mobilenet_v3_large", "maskrcnn_resnet50_fpn"


@pytest.fixture(scope="module")
def discs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_outlined(tmp_path_factory.mktemp("discs"), {"train": 32, "val": 8}, SIDE)


def job(folder: Path, cpus: int = 1, **fields: Any) -> Job:
    given: dict[str, Any] = {
        "dataset": str(folder), "task": "detection", "model": LITE, "image_size": SIDE,
        "batch_size": 8, "epochs": 1, "optimizer": "adam", "learning_rate": 0.002, "loader_workers": 1,
        "memory_format": "contiguous", "devices": ("cpu",) * cpus,
    }  # fmt: skip
    return Job(**(given | fields))


def coco_mean(folder: Path, model: nn.Module, statistics: Any, kind: str) -> float:
    """pycocotools' mAP of the plain library's model on the validation pictures, of its own normalisation and sizes."""
    mean, std = statistics
    model.transform.image_mean, model.transform.image_std = mean, std
    model.transform.min_size, model.transform.max_size = (SIDE,), SIDE
    model.transform.fixed_size = (SIDE, SIDE) if model.transform.fixed_size else None
    with contextlib.redirect_stdout(io.StringIO()):
        truth = COCO(str(folder / "annotations/instances_val.json"))
        found = []
        for image in truth.dataset["images"]:
            pixels = np.asarray(Image.open(folder / "images/val" / image["file_name"])).copy()
            with torch.no_grad():
                (made,) = model.eval()([torch.from_numpy(pixels).permute(2, 0, 1) / 255])
            for number, (left, top, right, bottom) in enumerate(made["boxes"].double().tolist()):
                score, label = float(made["scores"][number]), int(made["labels"][number])
                entry = {"image_id": image["id"], "category_id": label, "score": score}
                if kind == "bbox":
                    entry["bbox"] = [left, top, right - left, bottom - top]
                else:
                    mask = (made["masks"][number, 0] >= LIKELY).numpy()
                    entry["segmentation"] = coding.encode(np.asfortranarray(mask.astype(np.uint8)))
                found.append(entry)
        evaluation = COCOeval(truth, truth.loadRes(found), kind)
        evaluation.evaluate()
        evaluation.accumulate()
        evaluation.summarize()
    return float(evaluation.stats[0])


@pytest.mark.long
def test_that_a_detector_learns_to_find_discs(start: Start, discs: Path) -> None:
    group = start(job(discs, model="fasterrcnn_mobilenet_light", epochs=25, augmentation="light")).completed(600)
    measured = [event.measures for event in group.of(Validation)]
    assert max(measures["ap50"] for measures in measured) > 0.3
    (plan,) = group.of(Planned)
    assert (plan.classes, plan.train_pictures, plan.val_pictures) == (CLASSES, 32, 8)
    assert {metrics.accuracy for metrics in group.of(StepMetrics)} == {None}
    assert len(group.of(ClassMeasures)[-1].measures["AP"]) == len(CLASSES)
    assert len(group.of(Predicted)[-1].samples) == 8


@pytest.mark.parametrize(
    ("strategy", "fields"),
    [("ddp", {}), pytest.param("fsdp", {}, marks=pytest.mark.long)],
)
def test_that_it_trains_under_every_strategy_and_measures_every_picture_once(
    start: Start, discs: Path, strategy: str, fields: dict[str, Any]
) -> None:
    given = {"seed": 3, "epochs": 1, "batch_size": 16} | fields
    whole = start(job(discs, **given), every_step=True).completed(150)
    group = start(job(discs, 2, strategy=strategy, **given), every_step=True).completed(150)
    # The first step's loss is taken before any weight has changed; BatchNorm, and what a detector divides by, see parts.
    first, same = (each.of(StepMetrics)[0].loss for each in (group, whole))
    assert first == pytest.approx(same, rel=0.2)
    (validation,) = group.of(Validation)
    assert validation.pictures == 8
    assert set(validation.measures) == {"map", "ap50", "ap75"}
    state = torch.load(group.folder / "checkpoints/best.pt", weights_only=True)
    plain = torchvision.models.get_model(LITE, weights=None, weights_backbone=None, num_classes=1 + len(CLASSES))
    plain.load_state_dict(state)
    assert coco_mean(discs, plain, HALVES, "bbox") == pytest.approx(validation.measures["map"], abs=1e-6)


@pytest.mark.long
@pytest.mark.parametrize(("strategy", "cpus"), [("single", 1), ("ddp", 2), ("fsdp", 2)])
def test_that_masks_are_learnt_under_the_strategies(start: Start, discs: Path, strategy: str, cpus: int) -> None:
    given = {"task": "instance_segmentation", "model": "maskrcnn_mobilenet_light", "epochs": 2}
    group = start(job(discs, cpus, strategy=strategy, **given), every_step=True).completed(300)
    losses = [event.loss for event in group.of(StepMetrics)]
    assert losses[-1] < losses[0]
    assert [event.pictures for event in group.of(Validation)] == [8, 8]
    assert set(group.of(Validation)[-1].measures) == {
        f"{kind}_{id}" for kind in ("mask", "box") for id in ("map", "ap50", "ap75")
    }


@pytest.mark.long
def test_that_masks_are_as_good_in_the_plain_library(start: Start, discs: Path) -> None:
    given = {"task": "instance_segmentation", "model": MASK, "epochs": 1}
    group = start(job(discs, **given)).completed(300)
    (validation,) = group.of(Validation)
    plain = torchvision.models.get_model(MASK, weights=None, weights_backbone=None, num_classes=1 + len(CLASSES))
    plain.load_state_dict(torch.load(group.folder / "checkpoints/best.pt", weights_only=True))
    for kind, name in (("bbox", "box_map"), ("segm", "mask_map")):
        # The planes hold whole pixels, and their boxes are around those; COCO's are as they were drawn.
        assert coco_mean(discs, plain, IMAGENET, kind) == pytest.approx(validation.measures[name], abs=0.02)
