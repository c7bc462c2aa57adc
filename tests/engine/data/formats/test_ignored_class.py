"""Masks and point labels with a value to ignore, as the inspector reports them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from engine.contract.catalogue import load_catalogue
from engine.contract.dataset import DatasetReport, inspector_options
from engine.contract.job import Job
from engine.contract.problems import errors
from engine.data.datasets.open_splits import open_splits
from engine.data.inspection.inspector import inspect
from engine.tasks.registry import TASKS
from tests.support.masks import make_masked


def inspect_points(folder: Path, ignored: int | None, *formats: str) -> DatasetReport:
    return inspect(
        str(folder), val_fraction=0.2, seed=0, kinds=formats, ignored=ignored, progress=lambda done, total: None
    )


def test_ignored_value_removes_its_class(tmp_path: Path) -> None:
    folder = make_masked(tmp_path, {"train": 4, "val": 2})
    assert inspect_points(folder, None, "masks").classes == ("class 0", "class 1", "class 2")
    report = inspect_points(folder, 0, "masks")
    assert report.classes == tuple(report.splits[0].shares) == ("class 1", "class 2")
    assert [entry.name for entry in report.legend] == list(report.classes)
    assert sum(report.splits[0].shares.values()) == pytest.approx(1)
    (folder / "masks/classes.txt").write_text("sky\nroad\ncar\n")
    assert inspect_points(folder, 0, "masks").classes == ("road", "car")
    splits = open_splits(str(folder), val_fraction=0.2, seed=0, kinds=("masks",))
    job = Job.from_fields(task="segmentation", ignore_value=0)
    assert TASKS["segmentation"].prepare_splits(job, splits).classes == ("road", "car")


def test_ignoring_must_leave_two_classes(tmp_path: Path) -> None:
    for kind in ("images", "masks"):
        (tmp_path / kind).mkdir()
        for number in range(4):
            Image.fromarray(np.eye(32, dtype=np.uint8) * 255).save(tmp_path / kind / f"{number}.png")
    (problem,) = errors(inspect_points(tmp_path, 255, "masks").problems)
    assert problem.field == "ignore_value"
    assert (
        "Without the mask value 255, there are no two classes left to distinguish: the only class is background"
        in problem.message
    )


def test_inspector_receives_ignored_value() -> None:
    catalogue = load_catalogue()
    job = Job.from_fields(task="segmentation", val_fraction=0.3, seed=4, ignore_value=0, format="masks")
    assert inspector_options(job, catalogue, samples=7) == [
        "--val-fraction", "0.3", "--seed", "4", "--kinds", "masks", "--format", "masks", "--samples", "7",
        "--ignore-value", "0",
    ]  # fmt: skip
    assert "--samples" not in inspector_options(job, catalogue)
    assert "--ignore-value" not in inspector_options(Job(), catalogue)
    assert "--kinds" not in inspector_options(Job.from_fields(task="none"), catalogue)
