"""Fixtures: workers as real processes, and a small synthetic dataset that a network learns within a few steps."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from engine.contract.job import Job
from tests.support.consent import permit_model_file
from tests.support.worker_group import Forker, WorkerGroup

CLASSES = ("blue", "green", "red")
SIDE = 16


def make_images(folder: Path, per_class: dict[str, int]) -> Path:
    """Write an ImageFolder of noisy images, and return `folder`. The images of a class have the same tint.

    `per_class` maps the name of each split to its number of images per class.
    """
    random = np.random.default_rng(0)
    for split, count in per_class.items():
        for number, name in enumerate(CLASSES):
            place = folder / split / name
            place.mkdir(parents=True)
            for index in range(count):
                pixels = random.integers(0, 160, (SIDE, SIDE, 3), dtype=np.uint8)
                pixels[..., 2 - number] += 60
                Image.fromarray(pixels).save(place / f"{index}.png")
    return folder


@pytest.fixture(scope="session")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Create an ImageFolder of 72 training and 21 validation images, and return it."""
    return make_images(tmp_path_factory.mktemp("images"), {"train": 24, "val": 7})


@pytest.fixture
def job(images: Path) -> Callable[..., Job]:
    """Return a function that builds a small job on `cpus` CPU workers. Keyword arguments override fields of the job."""

    def make(cpus: int = 1, **fields: Any) -> Job:
        values: dict[str, Any] = {
            "dataset": str(images),
            "model": "mnist_cnn",
            "image_size": SIDE,
            "batch_size": 12,
            "epochs": 1,
            "loader_workers": 1,
            "learning_rate": 0.02,
            "memory_format": "contiguous",  # the other format changes the order of sums
        }
        return Job.from_fields(**(values | {"devices": ("cpu",) * cpus} | fields))

    return make


@pytest.fixture
def model_file(tmp_path: Path) -> Callable[[str], dict[str, str]]:
    """Return a function that writes a model file and returns the job fields that select it and permit its execution."""

    def write(text: str) -> dict[str, str]:
        path = tmp_path / "model.py"
        path.write_text(text)
        return {"model": str(path), "model_file_sha256": permit_model_file(path)}

    return write


@pytest.fixture
def start(forker: Forker, tmp_path: Path) -> Iterator[Callable[..., WorkerGroup]]:
    """Return a function that starts a job's workers. They are terminated after the test."""
    groups: list[WorkerGroup] = []

    def launch(job: Job, **options: Any) -> WorkerGroup:
        groups.append(WorkerGroup(forker, job, tmp_path / f"run-{len(groups)}", **options))
        return groups[-1]

    yield launch
    for group in groups:
        group.close()
