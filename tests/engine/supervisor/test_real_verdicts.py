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


@pytest.mark.parametrize(
    ("fields", "code", "changes"),
    [
        ({"epochs": 5, "schedule": "none"}, "falling", {"epochs"}),
        pytest.param({"epochs": 3, "learning_rate": 1e-8}, "not_fitted", {"learning_rate"}, marks=pytest.mark.long),
        pytest.param(
            {"epochs": 12, "optimizer": "adam", "weight_decay": 0.0, "schedule": "none"}, "overfitted", {"augmentation"},
            marks=pytest.mark.long,
        ),
    ],
)  # fmt: skip
def test_verdict_names_what_to_change(
    verdict_of: FindVerdict, fields: dict[str, Any], code: str, changes: set[str]
) -> None:
    found = verdict_of(**{"learning_rate": 0.003} | fields)
    assert found is not None
    assert (found.code, set(found.changes)) == (code, changes)
    expected = {"learning_rate": 0.01, "augmentation": "light"}
    assert all(expected.get(name, value) == value for name, value in found.changes.items())
    if code == "falling":
        assert 5 < found.changes["epochs"] <= 10
