"""Drawings of the samples in an evaluation."""

from __future__ import annotations

import shutil
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from engine.contract.inference.messages import DRAWINGS_FILE, ShowRequest
from engine.inference.evaluation import bootstrap
from engine.inference.showing.show import draw_samples
from engine.inference.trained_model import CannotLoad, load
from engine.inference.worker import Shard
from engine.runs.evaluations import read_evaluation
from engine.training.report import Reporter
from tests.engine.inference.review.test_review import evaluate_run
from tests.support.specs import make_worker_spec
from tests.support.trained_runs import TrainedRun


def test_sample_that_is_gone_is_reported(
    trained: Callable[[str], TrainedRun], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bootstrap, "MAX_RESAMPLES", 2)
    of = trained("classification")
    run = Path(shutil.copytree(of.run.path, tmp_path / "run"))
    dataset = Path(shutil.copytree(of.job.data.dataset, tmp_path / "data"))
    evaluation = evaluate_run(run, dataset=str(dataset))
    samples = read_evaluation(evaluation).read_samples()
    last = len(samples.paths) - 1
    values = {"run": str(run), "checkpoint": "last", "evaluation": str(evaluation), "out": str(tmp_path)}
    request = ShowRequest(samples=(0, last), **values)
    worker_end, supervisor_end = socket.socketpair()
    reporter = Reporter(worker_end, 0, on_end=lambda: None)
    try:
        shard = Shard(make_worker_spec(of.job, run_folder=str(tmp_path)), reporter)
        model = load(of.run, "last")
        draw_samples(request, model, shard)
        assert (tmp_path / DRAWINGS_FILE).is_file()
        (dataset / samples.paths[last]).unlink()
        with pytest.raises(CannotLoad, match="has changed since the evaluation"):
            draw_samples(request, model, shard)
    finally:
        reporter.close()
        supervisor_end.close()
        worker_end.close()
