"""Evaluation of every task. Metrics must equal those of the last validation, and saved evaluations must be loadable."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import msgspec
import numpy as np
import pytest

from engine.contract.inference.evaluation import RESAMPLES_FILE, EvaluateRequest, Resamples
from engine.contract.messages import Progress
from engine.inference.evaluation import bootstrap
from engine.inference.evaluation import evaluate as evaluate_module
from engine.inference.evaluation.evaluate import evaluate
from engine.inference.trained_model import CannotLoad
from engine.runs.evaluations import SavedEvaluation, read_evaluation, read_evaluations
from tests.support.cases import mark_long_cases
from tests.support.consent import permit_model_file
from tests.support.masks import make_masked
from tests.support.trained_runs import COUNTING, DATASETS, TrainedRun


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bootstrap, "MAX_RESAMPLES", 60)


def evaluate_run(run: Path, dataset: str = "", **fields: object) -> SavedEvaluation:
    request = EvaluateRequest(run=str(run), checkpoint="last", dataset=dataset, **fields)  # type: ignore[arg-type]
    return read_evaluation(evaluate(request, lambda progress: None).parent)


def read_refusal(run: Path, dataset: str) -> str:
    before = sorted((run / "evaluations").iterdir())
    with pytest.raises(CannotLoad) as refusal:
        evaluate_run(run, dataset)
    assert sorted((run / "evaluations").iterdir()) == before
    (problem,) = refusal.value.problems
    return f"{problem.field}: {problem.message} {problem.remedy}"


@pytest.mark.parametrize("task", mark_long_cases(DATASETS, ("classification", "detection")))
def test_evaluation_matches_the_runs_metrics(task: str, trained: Callable[[str], TrainedRun], tmp_path: Path) -> None:
    of = trained(task)
    permit_model_file(COUNTING)
    run = shutil.copytree(of.run.path, tmp_path / "run")
    reported: list[Progress] = []
    devices = ("cpu", "cpu") if task in ("multilabel", "detection") else ("cpu",)
    path = evaluate(EvaluateRequest(run=str(run), checkpoint="last", devices=devices), reported.append)
    (saved,) = read_evaluations(run)
    assert saved.folder == path.parent
    evaluation = saved.evaluation
    measures = {name: each.value for name, each in evaluation.measures.items()}
    assert {name: measures[name] for name in of.measures} == pytest.approx(of.measures, abs=1e-5)
    assert list(measures) == [entry.id for entry in evaluation.entries]
    assert evaluation.resamples == 60
    assert all(each.low is not None for each in evaluation.measures.values())
    resamples = msgspec.msgpack.decode((saved.folder / RESAMPLES_FILE).read_bytes(), type=Resamples).measures
    assert {name: len(draws) for name, draws in resamples.items()} == dict.fromkeys(measures, 60)
    assert not any(None in draws for draws in resamples.values())
    samples = saved.read_samples()
    columns = (samples.losses, samples.correct, samples.true, samples.predicted, samples.confidence)
    for column in (samples.paths, samples.splits, samples.indices, *filter(None, columns)):
        assert len(column) == evaluation.samples
    assert (samples.losses is None) == (task in ("detection", "instance_segmentation"))
    if samples.losses is not None and "loss" in of.measures:
        assert np.mean(samples.losses) == pytest.approx(of.measures["loss"], abs=1e-4)
    assert saved.probabilities_file.exists() == (task in ("classification", "multilabel"))
    assert bool(saved.read_curves().classes) == (
        task in ("classification", "multilabel", "detection", "instance_segmentation", "edge_detection")
    )
    assert path.parent.stat().st_mode & 0o777 == 0o700
    assert {file.stat().st_mode & 0o777 for file in path.parent.iterdir()} == {0o600}
    assert max(message.fraction for message in reported) == 1


def test_other_folder_maps_classes_by_name(
    trained: Callable[[str], TrainedRun], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = SimpleNamespace(strftime=lambda form, _: f"at {form[:2]}", gmtime=time.gmtime)
    monkeypatch.setattr(evaluate_module, "time", clock)
    run = shutil.copytree(trained("classification").run.path, tmp_path / "run")
    folder = shutil.copytree(Path(trained("classification").job.data.dataset) / "val", tmp_path / "folder")
    (folder / "blue").rename(folder / "0 new")
    (folder / "red/broken.png").write_bytes(b"no image")
    saved = evaluate_run(run, str(folder))
    evaluation = saved.evaluation
    assert (evaluation.split, evaluation.samples, evaluation.classes) == ("all", 10, ("blue", "green", "red"))
    assert (evaluation.mapping.missing, evaluation.mapping.unknown, evaluation.mapping.ignored) == (
        ("blue",),
        ("0 new",),
        5,
    )
    assert [warning for warning in evaluation.warnings if "blue" in warning or "0 new" in warning] == [
        "The folder has no blue: the evaluation can't tell how well the model recognizes it.",
        "The model does not know 0 new; its samples were left out (5).",
    ]
    complete = evaluate_run(run, split="all")
    assert (evaluation.id, complete.evaluation.id, complete.folder.name) == ("at %Y-all", *["at %Y-all-2"] * 2)
    samples = complete.read_samples()
    assert list(zip(samples.splits, samples.indices, strict=True)) == [
        (split, index)
        for split in ("train", "val")
        for index in range(samples.splits.count(split))  # type: ignore[arg-type]
    ]
    of_all = dict(zip(complete.read_samples().paths, complete.read_samples().losses or (), strict=True))
    of_folder = dict(zip(saved.read_samples().paths, saved.read_samples().losses or (), strict=True))
    assert {f"val/{path}": loss for path, loss in of_folder.items()} == pytest.approx(
        {path: loss for path, loss in of_all.items() if path.startswith("val/") and "blue" not in path}, abs=1e-6
    )
    (folder / "green").rename(folder / "1 new")
    (folder / "red").rename(folder / "2 new")
    assert "none of the model's classes" in read_refusal(run, str(folder))


def test_other_masks_map_by_value(trained: Callable[[str], TrainedRun], tmp_path: Path) -> None:
    run = shutil.copytree(trained("segmentation").run.path, tmp_path / "run")
    counts = {"train": 2, "val": 1, "test": 3}
    folder = make_masked(tmp_path / "folder", counts)
    samples = evaluate_run(run, str(folder), split="all").read_samples()
    expected = [(split, index) for split, count in counts.items() for index in range(count)]
    assert list(zip(samples.splits, samples.indices, strict=True)) == expected
    evaluation = evaluate_run(run, str(folder)).evaluation
    assert (evaluation.split, evaluation.samples, evaluation.classes) == ("test", 3, ("class 0", "class 1", "class 2"))
    assert evaluation.mapping.unknown == ()


@pytest.mark.long
def test_other_clouds_use_training_normalization(trained: Callable[[str], TrainedRun], tmp_path: Path) -> None:
    of = trained("point_segmentation")
    run = shutil.copytree(of.run.path, tmp_path / "run")
    folder = shutil.copytree(Path(of.job.data.dataset) / "val", tmp_path / "folder")
    validation, other = evaluate_run(run), evaluate_run(run, str(folder))
    assert other.evaluation.split == "all"
    assert {name: each.value for name, each in other.evaluation.measures.items()} == pytest.approx(
        {name: each.value for name, each in validation.evaluation.measures.items()}, abs=1e-6
    )


def test_invalid_evaluation_leaves_nothing(
    trained: Callable[[str], TrainedRun], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = shutil.copytree(trained("classification").run.path, tmp_path / "run")
    (run / "evaluations").mkdir()
    masks = make_masked(tmp_path / "masks", {"train": 2, "val": 2})
    assert "images with masks" in read_refusal(run, str(masks))
    assert "There is no folder" in read_refusal(run, str(tmp_path / "nowhere"))
    monkeypatch.setattr(os, "rename", _full_disk)
    assert "No space left on device" in read_refusal(run, "")

    monkeypatch.undo()

    def interrupt(progress: Progress) -> None:
        if progress.what.startswith("Evaluating"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        evaluate(EvaluateRequest(run=str(run)), interrupt)
    assert list((run / "evaluations").iterdir()) == []
    (run / "evaluations").rmdir()
    (run / "evaluations").symlink_to(masks)
    assert "it is a link" in read_refusal(run, "")


def _full_disk(source: str, target: str) -> None:
    raise OSError(28, "No space left on device", target)
