"""Image classification with regularization and class balancing: learning, and exact resuming."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from engine.contract.events import ClassMeasures, EpochStarted, LogLine, Validation
from engine.contract.job import Job
from tests.engine.conftest import make_images
from tests.support.worker_group import WorkerGroup

Make = Callable[..., Job]
Start = Callable[..., WorkerGroup]


def test_early_stopped_run_resumes_with_more_patience(job: Make, start: Start) -> None:
    fields = {"epochs": 6, "learning_rate": 1e-12, "best_by": "loss", "schedule": "none", "checkpoint_steps": 6}
    first = start(job(**fields, patience=2, optimizer="sgd")).completed()
    assert [event.epoch for event in first.of(Validation)] == [1, 2, 3]
    assert any(line.text.endswith("for 2 epochs") for line in first.of(LogLine))
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
