"""Every task on a GPU of the CUDA stand-in: no step waits for the GPU but where a model of torchvision does by itself."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import resources
from engine.contract.job import Job
from tests.support.clouds import make_clouds
from tests.support.edges import make_edged
from tests.support.lines import make_lined
from tests.support.masks import make_masked
from tests.support.outlined import make_outlined
from tests.support.things import make_things

from .conftest import Machine, Start

Make = Callable[..., Job]
EXAMPLE = Path(resources.__path__[0]) / "examples/counting.py"
COUNTS = {"train": 24, "val": 4}

TASKS: dict[str, tuple[Callable[[Path], Path], dict[str, Any]]] = {
    "segmentation": (
        lambda folder: make_masked(folder, COUNTS, 32),
        {"model": "unet", "encoder": "resnet18", "image_size": 32, "augmentation": "light"},
    ),
    "detection": (
        lambda folder: make_outlined(folder, COUNTS, 64),
        {"model": "ssdlite320_mobilenet_v3_large", "image_size": 64, "augmentation": "light"},
    ),
    "instance_segmentation": (
        lambda folder: make_outlined(folder, COUNTS, 64),
        {"model": "maskrcnn_mobilenet_light", "image_size": 64, "augmentation": "light"},
    ),
    "edge_detection": (lambda folder: make_edged(folder, COUNTS, 32), {"model": "hed_bn", "image_size": 32}),
    "road_extraction": (lambda folder: make_lined(folder, COUNTS, 32), {"model": "linknet18_mtl", "image_size": 32}),
    "point_segmentation": (
        lambda folder: make_clouds(folder, {"train": 12, "val": 2}), {"model": "pointcnn_x1", "points": 150},
    ),
    "custom": (
        lambda folder: make_things(folder, 60),
        {"model": str(EXAMPLE), "model_file_sha256": hashlib.sha256(EXAMPLE.read_bytes()).hexdigest()},
    ),
}  # fmt: skip


# Torchvision's detectors take a list of as many boxes as each image has, and go back through what they chose by it.
OF_DETECTORS = {"tasks/detectors.py", "training/optimizers.py"}


@pytest.mark.parametrize("task", TASKS)
def test_that_no_step_of_a_task_waits_for_the_gpu(
    machine: Machine, job: Make, start: Start, tmp_path: Path, task: str
) -> None:
    make, fields = TASKS[task]
    host = machine()
    given = {"dataset": str(make(tmp_path / "data")), "task": task, "batch_size": 6, "image_size": None} | fields
    group = start(host, job(host, **given), prepare="tests.cuda.watching:note_synchronisation")
    group.read_steps(2 if task == "point_segmentation" else 4)  # detectors cannot validate what was not computed
    waits = {line.split(":")[0] for line in (group.folder / "waits-0").read_text().splitlines()}
    assert {wait for wait in waits if "/torchvision/" not in wait} <= (
        OF_DETECTORS if task in ("detection", "instance_segmentation") else set()
    )


@pytest.mark.parametrize(("task", "searches"), [("classification", True), ("detection", False)])
def test_that_cudnn_searches_where_shapes_come_again_alone(
    machine: Machine, job: Make, start: Start, tmp_path: Path, *, task: str, searches: bool
) -> None:
    host = machine()
    fields: dict[str, Any] = {"precision": "fp32"}  # bf16 is for cuDNN's newer interface alone
    if task in TASKS:
        make, given = TASKS[task]
        fields |= given | {"dataset": str(make(tmp_path / "data")), "task": task, "batch_size": 6}
    start(host, job(host, **fields)).read_steps(4)
    assert bool(host.notes("search")) == searches
