"""Verdicts at the end of real runs on the sample dataset."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from engine.checks.findings.history import History
from engine.checks.findings.run_end import find_verdict
from engine.contract.events import Verdict
from engine.contract.job import Job
from engine.system import paths
from tests.support.worker_group import Forker, WorkerGroup

FindVerdict = Callable[..., Verdict | None]


@pytest.fixture
def verdict_of(forker: Forker, tmp_path: Path) -> FindVerdict:
    """Return a function that trains a small network on the sample dataset and returns the verdict on the run."""

    def train(**fields: Any) -> Verdict | None:
        job = Job.from_fields(dataset=str(paths.sample_dataset()), model="mnist_cnn", image_size=28, **fields)
        group = WorkerGroup(forker, job, tmp_path).completed()
        history = History()
        for message in group.of(object, rank=0):
            history.add(message)
        return find_verdict(history, job, "completed")

    return train


@pytest.mark.long
def test_tiny_learning_rate_is_reported(verdict_of: FindVerdict) -> None:
    found = verdict_of(epochs=3, learning_rate=1e-8)
    assert found is not None
    assert found.code == "not_fitted"
    assert "the learning rate of 1e-08 is too low" in found.sentence
    assert found.changes == {"learning_rate": 0.01}


def test_early_end_is_reported(verdict_of: FindVerdict) -> None:
    found = verdict_of(epochs=5, learning_rate=0.003, schedule="none")
    assert found is not None
    assert found.code == "falling"
    assert 5 < found.changes["epochs"] <= 10


@pytest.mark.long
def test_overfitting_is_reported(verdict_of: FindVerdict) -> None:
    found = verdict_of(epochs=12, learning_rate=0.003, optimizer="adam", weight_decay=0.0, schedule="none")
    assert found is not None
    assert found.code == "overfitted"
    assert found.figures["training"] < 0.1 < found.figures["training_before"]
    assert found.changes == {"augmentation": "light"}
