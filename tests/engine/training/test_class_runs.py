"""Image classification with measures against overfitting and rare classes: learning and exact resumption."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from engine.contract.events import ClassMeasures, EpochStarted, LogLine, StepMetrics, Validation
from engine.contract.job import Job
from tests.engine.conftest import make_images
from tests.support.same_states import differences
from tests.support.worker_group import WorkerGroup

Make = Callable[..., Job]
Start = Callable[..., WorkerGroup]
ALL: dict[str, Any] = {
    "epochs": 3, "batch_size": 24, "checkpoint_steps": 1, "keep_checkpoints": 100, "mixup": 0.3, "cutmix": 0.7,
    "label_smoothing": 0.1, "class_weights": "balanced", "oversample": True, "freeze_epochs": 1,
    "augmentation": "light",
}  # fmt: skip


def content(group: WorkerGroup, name: str = "last.pt") -> dict[str, Any]:
    found: dict[str, Any] = torch.load(group.folder / "checkpoints" / name, weights_only=True)
    return found


@pytest.mark.parametrize(
    ("strategy", "cpus", "fields"),
    [
        ("single", 1, {"model": "mnist_cnn"}),
        pytest.param("ddp", 2, {"model": "resnet18", "image_size": 32}, marks=pytest.mark.long),
        pytest.param("fsdp", 2, {"model": "resnet18", "image_size": 32}, marks=pytest.mark.long),
        pytest.param("pipeline", 2, {"model": "resnet18", "image_size": 32, "microbatches": 2}, marks=pytest.mark.long),
    ],
)
def test_resume_is_exact_around_unfreezing(
    job: Make, start: Start, strategy: str, cpus: int, fields: dict[str, Any]
) -> None:
    given = ALL | {"cpus": cpus, "strategy": strategy} | fields
    uninterrupted = start(job(**given), every_step=True).completed(300)
    assert any("All layers are trained from epoch 2 on" in line.text for line in uninterrupted.of(LogLine))
    first = content(uninterrupted, "epoch-1-step-1.pt")["model"]
    frozen = content(uninterrupted, "epoch-1-step-3.pt")["model"]
    ended = content(uninterrupted)["model"]
    head = differences(first, frozen)
    assert 1 <= len(head) <= 2
    assert len(differences(first, ended)) == len(first)
    for name in ("epoch-1-step-2.pt", "epoch-2-step-5.pt"):
        step = int(name.partition("step-")[2].partition(".")[0])
        rest = start(
            job(**given, resume_from=str(uninterrupted.folder / "checkpoints" / name)), every_step=True
        ).completed(300)
        assert [metrics.step for metrics in rest.of(StepMetrics)] == list(range(step + 1, 10))
        assert rest.losses == uninterrupted.losses[step:]
        actual, expected = content(rest), content(uninterrupted)
        for each in (actual, expected):
            each["job"].pop("resume_from")
        assert not differences(actual, expected)


def test_early_stopped_run_resumes_with_more_patience(job: Make, start: Start) -> None:
    fields = {"epochs": 6, "learning_rate": 1e-12, "best_by": "loss", "schedule": "none", "checkpoint_steps": 6}
    first = start(job(**fields, patience=2, optimizer="sgd")).completed()
    assert [event.epoch for event in first.of(Validation)] == [1, 2, 3]
    assert any("has not improved for 2 epochs" in line.text for line in first.of(LogLine))
    last = str(first.folder / "checkpoints/last.pt")
    again = start(job(**fields, patience=2, optimizer="sgd", resume_from=last)).completed()
    assert again.of(EpochStarted) == []
    more = start(job(**fields, patience=4, optimizer="sgd", resume_from=last)).completed()
    assert [event.epoch for event in more.of(Validation)] == [4, 5]


def test_rare_classes_are_learned_with_mixing(start: Start, job: Make, tmp_path: Path) -> None:
    folder = make_images(tmp_path / "data", {"train": 24, "val": 7})
    for number in range(4, 24):
        (folder / f"train/red/{number}.png").unlink()
    fields = {"epochs": 8, "optimizer": "adam", "learning_rate": 0.01, "mixup": 0.2, "oversample": True}
    group = start(job(dataset=str(folder), **fields)).completed()
    last = group.of(ClassMeasures)[-1]
    assert group.of(Validation)[-1].measures["top1"] > 0.9
    assert set(last.measures) == {"Precision", "Recall", "F1"}
    assert all(sum(row) == 7 for row in last.confusion)
    assert last.measures["Recall"][2] == last.confusion[2][2] / 7 > 0.5
