"""Small jobs for every task, on generated data."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import resources
from engine.contract.job import Job
from tests.engine.conftest import make_images
from tests.support.clouds import make_clouds
from tests.support.consent import permit_model_file
from tests.support.lines import make_lined
from tests.support.masks import make_masked
from tests.support.outlined import make_outlined
from tests.support.things import make_things
from tests.support.trained_runs import make_labeled

COUNTING = Path(resources.__path__[0]) / "examples/counting.py"

Fields = dict[str, Any]


def write_class_folders(folder: Path, counts: Mapping[str, int]) -> Path:
    return make_images(folder, {split: count // 3 for split, count in counts.items()})


def write_edge_dataset(folder: Path, counts: dict[str, int]) -> Path:
    """Write images of discs and their masks, with `counts[split]` images per split. Return `folder`."""
    return make_masked(folder, counts, 64)


def write_model_file(text: str, folder: Path) -> Fields:
    """Write a model file with the source `text` and return the job fields that select it and permit its execution."""
    file = folder / "model.py"
    file.write_text(text)
    return {"model": str(file), "model_file_sha256": permit_model_file(file)}


def write_custom_task(folder: Path, counts: dict[str, int]) -> Path:
    """Write the data of the custom task `COUNTING` and return `folder`.

    The data have no splits. There are so many samples that a run uses `counts["train"]` of them for training.
    """
    return make_things(folder, round(counts["train"] / (1 - Job().data.val_fraction)))


Make = Callable[[Path, dict[str, int]], Path]

TASKS: dict[str, tuple[Make, Fields]] = {
    "classification": (
        write_class_folders,
        {"model": "resnet18", "image_size": 32, "augmentation": "light", "mixup": 0.2, "cutmix": 1.0, "ema_decay": 0.9},
    ),
    "classification in fp16": (
        write_class_folders,
        {"model": "resnet18", "image_size": 32, "precision": "fp16", "clip_norm": 1.0},
    ),
    "multi-label classification": (
        partial(make_labeled, side=32),
        {"task": "multilabel", "model": "resnet18", "image_size": 32},
    ),
    "semantic segmentation": (
        lambda folder, counts: make_masked(folder, counts, 64),
        {"task": "segmentation", "model": "unet", "encoder": "resnet18", "image_size": 64, "augmentation": "light"},
    ),
    "road extraction": (
        lambda folder, counts: make_lined(folder, counts, 64),
        {"task": "road_extraction", "model": "linknet_mtl", "encoder": "resnet18", "image_size": 64},
    ),
    "edge detection": (write_edge_dataset, {"task": "edge_detection", "model": "hed_bn", "image_size": 64}),
    "object detection, SSDlite": (
        make_outlined,
        {"task": "detection", "model": "ssdlite320_mobilenet_v3_large", "image_size": 64, "augmentation": "light"},
    ),
    "object detection, Faster R-CNN": (
        make_outlined,
        {"task": "detection", "model": "fasterrcnn", "image_size": 64, "augmentation": "light"},
    ),
    "object detection, D-FINE": (make_outlined, {"task": "detection", "model": "dfine_n", "image_size": 128}),
    "object detection, RF-DETR": (make_outlined, {"task": "detection", "model": "rfdetr_nano", "image_size": 288}),
    "instance segmentation": (
        make_outlined,
        {
            "task": "instance_segmentation",
            "model": "maskrcnn",
            "image_size": 64,
            "learning_rate": 0.002,
            "augmentation": "light",
        },
    ),
    "point cloud segmentation": (
        make_clouds,
        {"task": "point_segmentation", "model": "pointcnn_x1", "points": 150, "augmentation": "light"},
    ),
    "a task of one's own": (
        write_custom_task,
        {
            "task": "custom",
            "model": str(COUNTING),
        },
    ),
}
"""Function that writes a dataset, and job fields, for each task."""

NEEDS = {
    "semantic segmentation": ("segmentation_models_pytorch", "timm"),
    "road extraction": ("scipy",),
    "edge detection": ("scipy",),
    "object detection, D-FINE": ("transformers",),
    "object detection, RF-DETR": ("transformers",),
    "point cloud segmentation": ("plyfile",),
}
"""Optional packages that the models of a task need."""


def make_job(task: str, folder: Path, gpu: str, *, train: int, batch: int, **fields: Any) -> Job:
    """Write the dataset for a task into `folder`, and return a job that trains on it for one epoch on the device `gpu`.

    Args:
        task: Key of `TASKS`.
        folder: Folder that gets the dataset "data".
        gpu: Device of the job.
        train: Number of training samples. There are eight validation samples.
        batch: Batch size.
        fields: Fields of the job, which override those of the task.
    """
    make, task_fields = TASKS[task]
    data = make(folder / "data", {"train": train, "val": 8})
    given: Fields = {
        "dataset": str(data), "devices": (gpu,), "batch_size": batch, "epochs": 1, "optimizer": "adam",
        "learning_rate": 0.0005, "predictions": 2, "compile": "off", "memory_format": "contiguous",
    }  # fmt: skip
    if task_fields.get("model") == str(COUNTING):
        given["model_file_sha256"] = permit_model_file(COUNTING)
    return Job.from_fields(**(given | task_fields | fields))


SMALL = """
from torch import nn

class Net(nn.Module):
    def __init__(self, num_classes):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(3, 16, 3), nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 16, 3), nn.BatchNorm2d(16), nn.ReLU(),
            nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 32), nn.Tanh())
        self.head = nn.Linear(32, num_classes)

    def forward(self, x):
        return self.head(self.layers(x))

def build_model(num_classes):
    return Net(num_classes)
"""
"""Source of a network with few layers.

It defines a forward method, because torch.compile of torch 2.11 skips models that inherit theirs.
"""
