"""Command ``footplate review``: reuse of the evaluations in a cross-validation."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from engine.cli import inference, review
from engine.contract.inference.evaluation import Evaluation
from engine.contract.job import Job
from engine.runs.evaluations import SavedEvaluation


class FakeRun:
    """Completed run of a fold."""

    def __init__(self, path: Path, job: Job) -> None:
        self.path, self._job = path, job

    def job(self) -> Job:
        return self._job

    def state(self) -> str:
        return "completed"


@pytest.mark.parametrize(
    ("changes", "is_reused"),
    [({}, True), ({"checkpoint": "best.pt"}, False), ({"split": "test"}, False), ({"dataset": "/other"}, False)],
)
def test_fold_reuses_only_evaluation_of_last_weights(
    changes: dict[str, Any], is_reused: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fold = Job.from_fields(dataset="/data", fold="1/2")
    facts: dict[str, Any] = {"checkpoint": "last.pt", "split": "val", "dataset": "/data"}
    evaluation = Evaluation(
        id="1", date="", run="run", task="classification", sha256="", classes=(), samples=1, **facts | changes
    )
    monkeypatch.setattr(review, "list_runs", lambda: [FakeRun(tmp_path, fold)])
    monkeypatch.setattr(review, "read_evaluations", lambda _path: [SavedEvaluation(tmp_path / "old", evaluation)])
    requests = []

    def run_request(request: Any) -> Path:
        requests.append(request)
        return tmp_path / "new" / "evaluation.json"

    monkeypatch.setattr(inference, "run_request", run_request)
    folder = review._evaluate_fold(fold, {"devices": ("cpu",)})
    assert folder == str(tmp_path / ("old" if is_reused else "new"))
    assert [(each.checkpoint, each.split) for each in requests] == ([] if is_reused else [("last", "val")])
