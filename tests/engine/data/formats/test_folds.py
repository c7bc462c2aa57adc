"""Cross-validation folds. Each of them must hold out different training images."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from engine.contract.dataset import parse_fold
from engine.contract.job import Job
from engine.data.datasets.images import DatasetError, ImageSet
from engine.data.datasets.open_splits import open_splits
from engine.tasks.registry import TASKS
from tests.support.lines import make_lined
from tests.support.trained_runs import make_colors, make_labeled


def names(samples: object) -> list[str]:
    assert isinstance(samples, ImageSet)
    return [samples.path(index) for index in range(len(samples))]


@pytest.mark.parametrize("divided", [True, False])
@pytest.mark.parametrize("task", ["classification", "multilabel"])
def test_folds_hold_out_every_image_once(task: str, divided: bool, tmp_path: Path) -> None:
    make = make_colors if task == "classification" else make_labeled
    folder = make(tmp_path, {"train": 11, "val": 4} if divided else {"train": 11})
    folder = folder if divided else folder / "train"
    job = Job.from_fields(task=task, dataset=str(folder), val_fraction=0.3)
    plain = TASKS[task].open_splits(job)
    every = names(plain.train) + ([] if divided else names(plain.val))
    if not divided:
        assert abs(len(plain.val) - 0.3 * len(every)) < 2
        assert names(TASKS[task].open_splits(job.with_fields(seed=1)).val) != names(plain.val)
    with pytest.raises(DatasetError):
        TASKS[task].open_splits(job.with_fields(format="coco"))
    held_out: list[str] = []
    for number in range(1, 4):
        splits = TASKS[task].open_splits(Job.from_fields(task=task, dataset=str(folder), fold=f"{number}/3"))
        train, val = names(splits.train), names(splits.val)
        assert sorted(train + val) == sorted(every)
        held_out += val
        if task == "classification":
            assert isinstance(splits.val, ImageSet)
            assert np.bincount(splits.val.targets.numpy()).min() >= 3
    assert sorted(held_out) == sorted(every)


@pytest.mark.parametrize(
    ("text", "fold"),
    [("1/2", (1, 2)), ("2/2", (2, 2)), ("0/2", None), ("3/2", None), ("1/1", None), ("1/1000", None), ("a1/2", None)],
)
def test_fold_is_a_number_and_a_count(text: str, fold: tuple[int, int] | None) -> None:
    assert parse_fold(text) == fold


def test_undividable_dataset_is_reported(tmp_path: Path) -> None:
    lined = make_lined(tmp_path, {"train": 3, "val": 2})
    with pytest.raises(DatasetError, match="has no fold"):
        open_splits(str(lined), val_fraction=0.2, seed=0, kinds=("masks",), fold="1/3")
    few = make_colors(tmp_path / "few", {"train": 1, "val": 1})
    (few / "train/stray.png").touch()  # a warning doesn't prevent folds
    with pytest.raises(DatasetError, match="3 images can't be divided into 5 folds"):
        open_splits(str(few), val_fraction=0.2, seed=0, fold="5/5")
