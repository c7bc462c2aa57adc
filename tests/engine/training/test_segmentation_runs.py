"""Semantic segmentation under all strategies, from the folder to the checkpoint."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import segmentation_models_pytorch as smp
import torch
from PIL import Image

from engine.contract.events import ClassMeasures, Failed, Planned, Predicted, Validation, Warned
from engine.data.decoding.mask_values import NO_CLASS
from engine.models.encoders import IMAGENET
from tests.engine.training.task_jobs import task_job
from tests.support.masks import make_masked
from tests.support.worker_group import WorkerGroup

Start = Callable[..., WorkerGroup]
SIDE = 32

job = partial(task_job, task="segmentation", model="unet", encoder="resnet18", image_size=SIDE)
small_job = partial(job, encoder="tu-mobilenetv3_small_050")


@pytest.fixture(scope="module")
def discs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_masked(tmp_path_factory.mktemp("discs"), {"train": 40, "val": 10}, SIDE)


def mean_iou(folder: Path, state: dict[str, torch.Tensor]) -> float:
    """Return the mean IoU of the plain library model with these weights over all pixels of the validation images."""
    model = smp.Unet("resnet18", encoder_weights=None, classes=3)
    model.load_state_dict(state)
    model.eval()
    mean, std = (torch.tensor(each)[:, None, None] for each in IMAGENET)
    found, true = [], []
    for path in sorted((folder / "images/val").iterdir()):
        image = torch.from_numpy(np.asarray(Image.open(path)).copy()).permute(2, 0, 1) / 255
        with torch.no_grad():
            found.append(model(((image - mean) / std)[None])[0].argmax(0).numpy())
        true.append(np.asarray(Image.open(folder / "masks/val" / path.name)))
    all_found, all_true = np.stack(found), np.stack(true)
    counted = all_true != NO_CLASS
    shares = []
    for number in range(3):
        both = np.sum((all_found == number) & (all_true == number) & counted)
        either = np.sum(((all_found == number) | (all_true == number)) & counted)
        if either:
            shares.append(both / either)
    return float(np.mean(shares))


@pytest.mark.long
def test_unet_learns_and_loads_plainly(start: Start, discs: Path) -> None:
    group = start(job(discs, epochs=6, augmentation="light")).completed(150)
    measured = [event.measures for event in group.of(Validation)]
    assert measured[-1]["miou"] > 0.6  # predicting only background gives at most 0.3
    best = max(measures["miou"] for measures in measured)
    state = group.checkpoint("best.pt")
    assert mean_iou(discs, state) == pytest.approx(best, abs=1e-6)
    (plan,) = group.of(Planned)
    assert (plan.classes, plan.train_images, plan.val_images) == (("class 0", "class 1", "class 2"), 40, 10)


def test_invalid_mask_is_reported_and_skipped(start: Start, tmp_path: Path) -> None:
    folder = make_masked(tmp_path / "data", {"train": 10, "val": 4}, SIDE)
    Image.fromarray(np.zeros((8, 8), np.uint8)).save(folder / "masks/train/004.png")
    group = start(small_job(folder)).completed(150)
    (message,) = [event.message for event in group.of(Warned) if event.code == "unreadable_picture"]
    assert "004.png: its mask has a different size" in message


def test_ignored_value_is_not_a_class(start: Start, discs: Path) -> None:
    group = start(small_job(discs, epochs=2, ignore_value=0, class_weights="balanced")).completed(150)
    (plan,) = group.of(Planned)
    assert plan.classes == ("class 1", "class 2")
    measures = group.of(ClassMeasures)[-1]
    assert set(measures.measures) == {"IoU", "Precision", "Recall", "F1"}
    true = sum(np.sum(np.asarray(Image.open(path)) == 1) for path in (discs / "masks/val").iterdir())
    assert sum(measures.confusion[0]) == true
    last = group.of(Predicted)[-1]
    assert [entry.name for entry in last.legend] == list(plan.classes)
    samples = last.samples
    assert samples
    assert {place for sample in samples for place in sample.legend} <= {0, 1}
    assert samples[0].legend
    assert (group.folder / samples[0].prediction_png).exists()


def test_ignored_value_must_leave_two_classes(start: Start, tmp_path: Path) -> None:
    folder = tmp_path / "two"
    for kind in ("images", "masks"):
        for number in range(4):
            place = folder / kind / f"{number}.png"
            place.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(np.eye(32, dtype=np.uint8) * 255).save(place)
    group = start(job(folder, ignore_value=255))
    assert group.finish(150) == [1]
    (failed,) = group.of(Failed)
    assert "Without the mask value 255, there are no two classes left to distinguish" in failed.cause
