"""Segmentation of point clouds under all strategies, from the folder to the checkpoint."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from engine.contract.events import Chosen, ClassMeasures, Planned, Predicted, Validation, Warned
from engine.contract.job import Job
from engine.data.datasets.open_splits import open_splits
from engine.data.datasets.samples import SampleSet
from engine.data.decoding.mask_values import NO_CLASS
from engine.tasks.points.drawing import BACKGROUND
from engine.tasks.points.networks import PointCNN
from engine.tasks.registry import TASKS
from tests.engine.training.task_jobs import task_job
from tests.support.clouds import make_clouds
from tests.support.worker_group import WorkerGroup

Start = Callable[..., WorkerGroup]
POINTS = 150

job = partial(
    task_job,
    task="point_segmentation",
    model="pointcnn_x1",
    points=POINTS,
    batch_size=6,
    learning_rate=0.01,
    predictions=2,
)


@pytest.fixture(scope="module")
def scenes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_clouds(tmp_path_factory.mktemp("scenes"), {"train": 12, "val": 3})


def mean_iou(job: Job, state: dict[str, torch.Tensor]) -> float:
    """Return the mean IoU of a plain PointCNN with these weights over all validation points."""
    model = PointCNN(3, 2, 1)
    model.load_state_dict(state)
    model.eval()
    splits = TASKS[job.task].prepare_splits(
        job, open_splits(job.data.dataset, val_fraction=0.2, seed=0, kinds=("points",))
    )
    assert isinstance(splits.val, SampleSet)
    found, true = [], []
    for index in range(len(splits.val)):
        given, target = splits.val.load(index, 0)
        with torch.no_grad():
            found.append(model(given[None])[0].argmax(0)[target != NO_CLASS].numpy())
        true.append(target[target != NO_CLASS].numpy())
    all_found, all_true = np.concatenate(found), np.concatenate(true)
    assert len(all_true) == 3 * 600
    both = [np.sum((all_found == number) & (all_true == number)) for number in range(2)]
    either = [np.sum((all_found == number) | (all_true == number)) for number in range(2)]
    return float(np.mean(np.divide(both, either)))


def test_pointcnn_learns_and_loads_plainly(start: Start, scenes: Path) -> None:
    given = job(scenes, epochs=2, augmentation="light", memory_format="channels_last", seed=2)
    group = start(given).completed(150)
    measured = [event.measures for event in group.of(Validation)]
    assert measured[-1]["miou"] > 0.75  # predicting only floor gives 0.25
    best = max(measures["miou"] for measures in measured)
    state = group.checkpoint("best.pt")
    assert mean_iou(given, state) == pytest.approx(best, abs=1e-6)
    (plan,) = group.of(Planned)
    assert (plan.classes, plan.train_images, plan.val_images, plan.channels) == (("class 0", "class 1"), 48, 12, 3)
    assert {event.field: event.choice for event in group.of(Chosen)}["memory_format"] == "contiguous"
    assert set(group.of(ClassMeasures)[-1].measures) == {"IoU", "Precision", "Recall", "F1"}
    samples = group.of(Predicted)[-1].samples
    assert [sample.name for sample in samples] == ["val/00.ply", "val/01.ply"]
    for sample in samples:
        truth, found = (
            np.asarray(Image.open(group.folder / path)) for path in (sample.truth_png, sample.prediction_png)
        )
        drawn = (truth != BACKGROUND).any(2)
        assert np.array_equal((found != BACKGROUND).any(2), drawn)
        assert (truth == found).all(2)[drawn].mean() > 0.7  # predicting only floor gives about half


def test_broken_cloud_is_reported_and_replaced(start: Start, tmp_path: Path) -> None:
    folder = make_clouds(tmp_path / "data", {"train": 3, "val": 1}, 300)
    (folder / "train/01.ply").write_bytes((folder / "train/01.ply").read_bytes()[:-100])
    group = start(job(folder, points=64)).completed(150)
    (message,) = [event.message for event in group.of(Warned) if event.code == "unreadable_picture"]
    assert message.startswith("Skipping train/01.ply: it is")
