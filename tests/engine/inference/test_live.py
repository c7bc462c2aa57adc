"""Models and video sources that live prediction rejects."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.contract.inference.messages import LiveRequest
from engine.contract.job import Job
from engine.inference.live import live
from engine.inference.trained_model import CannotLoad
from engine.runs.folder import create_run


@pytest.mark.parametrize(
    ("task", "checkpoint", "expected"),
    [
        ("classification", "last", "checkpoint"),
        ("classification", "best", "source"),
        ("edge_detection", "best", "source"),
        ("detection", "best", "source"),
        ("point_segmentation", "best", "run"),
        ("custom", "best", "run"),
    ],
)
def test_live_refuses_other_models_and_sources(task: str, checkpoint: str, expected: str, tmp_path: Path) -> None:
    run = create_run(Job.from_fields(task=task))
    run.checkpoints.mkdir(exist_ok=True)
    (run.checkpoints / "best.pt").touch()
    request = LiveRequest(
        run=str(run.path), checkpoint=checkpoint, devices=("cpu",), source=str(tmp_path / "no.mp4"), out=str(tmp_path / "out")
    )  # fmt: skip
    with pytest.raises(CannotLoad) as refused:
        live(request, lambda _progress: None)
    assert [problem.field for problem in refused.value.problems] == [expected]
    assert not (tmp_path / "out").exists()
