"""Small runs of every task, trained once and shared by many tests."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from PIL import Image

from engine.contract.events import Planned, Validation
from engine.contract.job import Job, save_job
from engine.contract.protocol import ENCODE
from engine.runs.folder import RunFolder
from tests.support.boxed import SPLITS, voc
from tests.support.clouds import make_clouds
from tests.support.consent import permit_model_file
from tests.support.edges import make_edged
from tests.support.lines import make_lined
from tests.support.masks import make_masked
from tests.support.outlined import make_outlined
from tests.support.things import make_things
from tests.support.worker_group import ROOT, Forker, WorkerGroup

COUNTING = ROOT / "resources/examples/counting.py"
COUNTS = {"train": 8, "val": 5}
LABELS = ("red", "green", "blue")


@dataclass(frozen=True)
class TrainedRun:
    """Finished run with its job and the metrics of its last validation, by name."""

    run: RunFolder
    job: Job
    measures: dict[str, float]


def make_labeled(folder: Path, counts: dict[str, int], side: int = 16) -> Path:
    """Write images SPLIT/N.png, and SPLIT/labels.csv with three labels (0 or 1) for each image: red, green and blue.

    A label is 1 if the color's channel is bright. `counts` maps a split to its number of images.
    """
    random = np.random.default_rng(0)
    for split, count in counts.items():
        (folder / split).mkdir(parents=True)
        lines = ["filename," + ",".join(LABELS)]
        for number in range(count):
            bright = random.integers(0, 2, 3)
            bright[number % 3] = 1
            pixels = random.integers(0, 90, (side, side, 3), dtype=np.uint8) + 150 * bright.astype(np.uint8)
            Image.fromarray(pixels.astype(np.uint8)).save(folder / split / f"{number:03}.png")
            lines.append(f"{number:03}.png," + ",".join(map(str, bright)))
        (folder / split / "labels.csv").write_text("\n".join(lines))
    return folder


def make_colors(folder: Path, counts: dict[str, int]) -> Path:
    """Write images SPLIT/COLOR/N.png in landscape format: noise with a red, green or blue tint.

    `counts` maps a split to its number of images per color.
    """
    random = np.random.default_rng(0)
    for split, count in counts.items():
        for channel, name in enumerate(LABELS):
            place = folder / split / name
            place.mkdir(parents=True)
            for number in range(count):
                pixels = random.integers(0, 160, (20, 26, 3), dtype=np.uint8)
                pixels[..., channel] += 60
                Image.fromarray(pixels).save(place / f"{number}.png")
    return folder


Make = Callable[[Path], Path]
DATASETS: dict[str, Make] = {
    "classification": lambda folder: make_colors(folder, COUNTS),
    "multilabel": lambda folder: make_labeled(folder, COUNTS),
    "segmentation": lambda folder: make_masked(folder, COUNTS),
    "road_extraction": lambda folder: make_lined(folder, COUNTS),
    "edge_detection": lambda folder: make_edged(folder, COUNTS),
    "detection": lambda folder: voc(folder, SPLITS),
    "instance_segmentation": lambda folder: make_outlined(folder, COUNTS),
    "point_segmentation": lambda folder: make_clouds(folder, {"train": 2, "val": 1}),
    "custom": lambda folder: make_things(folder, 20),
}
"""Functions that write a small dataset, by task."""

_FIELDS: dict[str, dict[str, Any]] = {
    "classification": {"model": "mnist_cnn", "image_size": 16},
    "multilabel": {"model": "mnist_cnn", "image_size": 16},
    "segmentation": {"model": "unet", "encoder": "resnet18", "image_size": 32},
    "road_extraction": {"model": "linknet_mtl", "encoder": "resnet18", "image_size": 32},
    "edge_detection": {"model": "hed_bn", "image_size": 32},
    "detection": {"model": "fasterrcnn", "encoder": "tu-mobilenetv3_small_050", "image_size": 64, "batch_size": 2},
    "instance_segmentation": {
        "model": "maskrcnn",
        "encoder": "tu-mobilenetv3_small_050",
        "image_size": 64,
        "batch_size": 2,
    },
    "point_segmentation": {"model": "pointcnn_x1", "points": 256, "batch_size": 2},
    "custom": {},
}


def train_small_model(forker: Forker, folder: Path, task: str, *, prepare: str = "", **fields: Any) -> TrainedRun:
    """Train a small model on a small dataset of the task for one epoch. `fields` override fields of the job.

    `prepare` names a function ("module:name") that the workers call first.
    """
    values: dict[str, Any] = {"batch_size": 4, "epochs": 1, "learning_rate": 0.01, "predictions": 0}
    if task == "custom":
        values |= {"model": str(COUNTING), "model_file_sha256": permit_model_file(COUNTING)}
    values |= (
        {"task": task, "devices": ("cpu",), "loader_workers": 1, "memory_format": "contiguous"} | _FIELDS[task] | fields
    )
    if "dataset" not in values:
        values["dataset"] = str(DATASETS[task](folder / "dataset"))
    job = Job.from_fields(**values)
    run = RunFolder(folder / "run")
    group = WorkerGroup(forker, job, run.path, prepare=prepare).completed()
    save_job(job, run.job_file)
    (planned,) = group.of(Planned)
    run.events_file.write_bytes(ENCODE.encode(planned) + b"\n")
    return TrainedRun(run, job, group.of(Validation)[-1].measures)


def get_cached_run(forker: Forker, folder: Path, task: str) -> TrainedRun:
    """Return the run in `folder`. Train it first if it doesn't exist."""
    measures, run = folder / "measures.json", RunFolder(folder / "run")
    if not measures.exists():
        shutil.rmtree(folder, ignore_errors=True)
        measures.write_bytes(msgspec.json.encode(train_small_model(forker, folder, task).measures))
    job = run.job()
    assert job is not None
    return TrainedRun(run, job, msgspec.json.decode(measures.read_bytes()))
