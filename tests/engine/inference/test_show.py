"""Drawings of the samples in an evaluation."""

from __future__ import annotations

import shutil
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs
from PIL import Image

from engine.contract.inference.evaluation import EVALUATION_FILE, SAMPLES_FILE
from engine.contract.inference.messages import DRAWINGS_FILE, ShowRequest, decode_drawings
from engine.inference.evaluation import bootstrap
from engine.inference.showing import show as show_module
from engine.inference.showing.show import draw_samples, show
from engine.inference.trained_model import CannotLoad, load
from engine.inference.worker import Shard
from engine.runs.evaluations import read_evaluation
from engine.training.report import Reporter
from tests.engine.inference.review.test_review import evaluate_run
from tests.support.specs import make_worker_spec
from tests.support.trained_runs import TrainedRun


def test_drawings_are_those_of_the_requested_samples(
    trained: Callable[[str], TrainedRun], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bootstrap, "MAX_RESAMPLES", 2)
    of = trained("classification")
    run = Path(shutil.copytree(of.run.path, tmp_path / "run"))
    dataset = Path(shutil.copytree(of.job.data.dataset, tmp_path / "data"))
    evaluation = evaluate_run(run, dataset=str(dataset), split="all")
    saved = read_evaluation(evaluation)
    classes, samples = saved.evaluation.classes, saved.read_samples()
    assert set(samples.splits) == {"train", "val"}
    assert samples.true is not None
    assert samples.predicted is not None
    # The path of each sample names its split and its class.
    assert [Path(path).parts[:2] for path in samples.paths] == [
        (split, classes[numbers[0]]) for split, numbers in zip(samples.splits, samples.true, strict=True)
    ]
    last = len(samples.paths) - 1
    values = {"run": str(run), "checkpoint": "last", "evaluation": str(evaluation), "out": str(tmp_path)}
    calls: list[tuple[ShowRequest, dict[str, Any]]] = []
    monkeypatch.setattr(
        show_module, "run_on_devices", lambda request, folder, report, **options: calls.append((request, options))
    )
    request = ShowRequest(samples=(last, 0), devices=("cpu", "cuda:0"), **values)
    assert show(request, print) == tmp_path / DRAWINGS_FILE
    ((sent, options),) = calls
    assert (sent.devices, sent.samples, options["total"]) == (("cpu",), (last, 0), 2)
    for numbers in ((), (-1,), (0, last + 1)):
        with pytest.raises(CannotLoad, match=f"The evaluation has {last + 1} samples"):
            show(structs.replace(request, samples=numbers), print)
    damaged = Path(shutil.copytree(evaluation, tmp_path / "damaged"))
    for file in (SAMPLES_FILE, EVALUATION_FILE):
        (damaged / file).write_bytes(b"{")
        with pytest.raises(CannotLoad) as refused:
            show(structs.replace(request, evaluation=str(damaged)), print)
        assert [problem.field for problem in refused.value.problems] == ["evaluation"]
    request = ShowRequest(samples=(last, 1, 0), **values)
    worker_end, supervisor_end = socket.socketpair()
    reporter = Reporter(worker_end, 0, on_end=lambda: None)
    try:
        shard = Shard(make_worker_spec(of.job, run_folder=str(tmp_path)), reporter)
        model = load(of.run, "last")
        draw_samples(request, model, shard)
        drawings = decode_drawings((tmp_path / DRAWINGS_FILE).read_bytes()).samples
        assert sorted(each.number for each in drawings) == [0, 1, last]
        for each in drawings:
            assert each.truth_words == classes[samples.true[each.number][0]]
            assert each.prediction_words.startswith(f"{classes[samples.predicted[each.number][0]]} (")
            for name in (each.truth_png, each.prediction_png):
                with Image.open(tmp_path / name) as drawing:
                    assert drawing.size == (model.size, model.size)
        (dataset / samples.paths[last]).unlink()
        with pytest.raises(CannotLoad, match="has changed since the evaluation"):
            draw_samples(request, model, shard)
    finally:
        reporter.close()
        supervisor_end.close()
        worker_end.close()
