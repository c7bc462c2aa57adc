"""Ranks that find different data. All must fail with the same cause, which names the difference and the remedy."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from engine.contract.events import Failed, StepMetrics
from engine.contract.job import Job
from engine.data.loading.agreement import REMEDY
from tests.support.consent import permit_model_file

Start = Callable[..., Any]

TASK = """
import torch
from torch import nn
from pathlib import Path
from engine.tasks.custom.interface import CustomTask, SampleSet

class Numbers(SampleSet):
    def __init__(self, names):
        self.names = names

    def __len__(self):
        return len(self.names)

    def path(self, index):
        return self.names[index]

    def load(self, index, epoch):
        return torch.ones(1), torch.ones(1)

class Mine(CustomTask):
    def datasets(self):
        names = sorted(path.name for path in Path(self.job.data.dataset).iterdir())
        return Numbers(names), Numbers(names[:2])

    def build_model(self, classes, channels):
        return nn.Linear(1, 1)

    def loss(self, outputs, targets):
        return (outputs - targets).square().mean(1)
"""


def add(folder: Path) -> None:
    shutil.copy(folder / "train/green/5.png", folder / "train/green/50.png")


def rename(folder: Path) -> None:
    (folder / "train/red/7.png").rename(folder / "train/red/70.png")


def remove_from_validation(folder: Path) -> None:
    (folder / "val/blue/0.png").unlink()


@pytest.mark.parametrize(
    ("change", "cause"),
    [
        (
            add,
            "rank 0 finds 72 samples for training, rank 1 finds 73. They first differ where rank 0 finds "
            "train/green/6.png and rank 1 finds train/green/50.png.",
        ),
        (
            rename,
            "rank 0 finds 72 samples for training, rank 1 finds 72. They first differ where rank 0 finds "
            "train/red/7.png and rank 1 finds train/red/70.png.",
        ),
        (
            remove_from_validation,
            "rank 0 finds 21 samples for validation, rank 1 finds 20. They first differ where rank 0 finds "
            "val/blue/0.png and rank 1 finds val/blue/1.png.",
        ),
    ],
)
@pytest.mark.parametrize("strategy", ["ddp", pytest.param("pipeline", marks=pytest.mark.long)])
def test_ranks_with_other_images_fail(
    *,
    job: Callable[..., Job],
    start: Start,
    images: Path,
    tmp_path: Path,
    change: Callable[[Path], None],
    cause: str,
    strategy: str,
) -> None:
    other = tmp_path / "other"
    shutil.copytree(images, other)
    change(other)
    group = start(job(2, strategy=strategy), datasets={1: other})
    assert group.finish() == [1, 1]
    assert not group.of(StepMetrics)
    causes = {event.cause.partition(": ")[2] for event in group.of(Failed)}
    assert causes == {f"{cause} {REMEDY}"}
    assert len(group.of(Failed)) == 2


def test_ranks_with_other_labels_fail_with_image_name(job: Callable[..., Job], start: Start, tmp_path: Path) -> None:
    folders = [tmp_path / name for name in ("ours", "theirs")]
    for folder in folders:
        folder.mkdir()
        rows = ["name,cat,dog"]
        for number in range(12):
            Image.new("RGB", (16, 16), (20 * number, 0, 0)).save(folder / f"{number:02}.png")
            cat = number % 2 if (folder, number) != (folders[1], 5) else 0
            rows.append(f"{number:02}.png,{cat},{int(number % 3 == 0)}")
        (folder / "labels.csv").write_text("\n".join(rows))
    run_job = job(2, strategy="ddp", task="multilabel", dataset=str(folders[0]), batch_size=4, model="resnet18")
    group = start(run_job, datasets={1: folders[1]})
    assert group.finish() == [1, 1]
    (first, second) = (event.cause for event in group.of(Failed))
    assert first.partition(": ")[2] == second.partition(": ")[2]
    assert "05.png has one label on rank 0 and another on rank 1." in first


def test_ranks_of_custom_task_must_agree(job: Callable[..., Job], start: Start, tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(TASK)
    folders = [tmp_path / name for name in ("ours", "theirs")]
    for count, folder in enumerate(folders, 4):
        folder.mkdir()
        for number in range(count):
            (folder / f"{number}.txt").touch()
    fields = {"task": "custom", "model": str(file), "model_file_sha256": permit_model_file(file)}
    run_job = job(2, strategy="ddp", dataset=str(folders[0]), image_size=None, batch_size=2, **fields)
    assert start(run_job).finish() == [0, 0]
    group = start(run_job, datasets={1: folders[1]})
    assert group.finish() == [1, 1]
    for event in group.of(Failed):
        assert "rank 0 finds 4 samples for training, rank 1 finds 5." in event.cause
        assert "where rank 0 finds nothing more and rank 1 finds 4.txt." in event.cause
