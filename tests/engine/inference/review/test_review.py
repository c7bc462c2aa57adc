"""Reviews of evaluations: worst samples, probable label errors in held-out samples, duplicates."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from PIL import Image

from engine.contract.inference.evaluation import EvaluateRequest
from engine.contract.inference.review import Review, ReviewRequest, decode_review
from engine.contract.job import save_job
from engine.inference.evaluation import bootstrap
from engine.inference.evaluation.evaluate import evaluate
from engine.inference.review.review import review
from engine.inference.review.samples import find_displayed_file
from engine.inference.trained_model import CannotLoad
from engine.runs.evaluations import read_evaluation
from engine.runs.folder import RunFolder
from tests.engine.cli.terminal import footplate, run_in_this_process
from tests.support.cases import mark_long_cases
from tests.support.consent import permit_model_file
from tests.support.trained_runs import COUNTING, TrainedRun, train_small_model
from tests.support.worker_group import Forker


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bootstrap, "MAX_RESAMPLES", 60)


def evaluate_run(run: Path, **values: object) -> Path:
    request = EvaluateRequest(run=str(run), checkpoint="last", **values)  # type: ignore[arg-type]
    return evaluate(request, lambda progress: None).parent


def review_run(run: Path, **values: object) -> Review:
    request = ReviewRequest(run=str(run), **values)  # type: ignore[arg-type]
    return decode_review(review(request, lambda progress: None).read_bytes())


def test_file_of_a_sample_that_the_dataset_has_lost() -> None:
    class Files:
        def __init__(self, *files: str) -> None:
            self.files = files

        def __len__(self) -> int:
            return 2

        def path(self, index: int) -> str:
            return f"{index}.png"

    samples: Any = Files("/data/0.png", "/data/1.png")
    assert [find_displayed_file(samples, index, f"{index}.png") for index in range(3)] == [
        "/data/0.png",
        "/data/1.png",
        None,
    ]
    assert find_displayed_file(samples, 1, "0.png") is None
    assert find_displayed_file(None, 0, "0.png") is None
    assert find_displayed_file(cast(Any, Files()), 0, "0.png") == ""


@pytest.mark.parametrize(
    "task",
    mark_long_cases(["classification", "multilabel", "detection", "point_segmentation", "custom"], ["classification"]),
)
def test_review_of_every_task(task: str, trained: Callable[[str], TrainedRun], tmp_path: Path) -> None:
    of = trained(task)
    permit_model_file(COUNTING)
    run = Path(shutil.copytree(of.run.path, tmp_path / "run"))
    evaluate_run(run)
    found = review_run(run)
    assert found.held_out
    assert found.samples == len(found.worst) > 0
    if found.worst[0].loss is not None:
        losses = [sample.loss or 0.0 for sample in found.worst]
        assert losses == sorted(losses, reverse=True)
    if task not in ("classification", "multilabel"):
        assert any("Wrong labels" in each for each in found.missing)
    if task in ("classification", "multilabel", "detection"):
        assert all(Path(sample.file).is_file() for sample in found.worst)


def test_cross_validation_is_for_classification(trained: Callable[[str], TrainedRun]) -> None:
    answer = run_in_this_process("review", str(trained("detection").run.path), "--cross-validate", "1")
    assert answer.code == 2
    assert "Only runs of image classification" in answer.err
    assert "2 to 100 folds" in answer.err


def write_wrong_dataset(folder: Path) -> Path:
    """Write a dataset of dark and bright images with wrong labels and copies. Return its folder.

    One validation image of each class is in the folder of the other class. Another validation image is a copy of a
    training image with a different label. Two more are copies with the same label.
    """
    random = np.random.default_rng(0)
    for split, count in (("train", 24), ("val", 12)):
        for name, level in (("bright", 150), ("dark", 0)):
            (folder / split / name).mkdir(parents=True)
            for number in range(count):
                swapped = split == "val" and number == 5
                small = random.integers(0, 100, (5, 5, 3), dtype=np.uint8) + np.uint8(150 - level if swapped else level)
                image = Image.fromarray(small).resize((24, 24), Image.Resampling.BICUBIC)
                image.save(folder / split / name / f"{number}.png")
    shutil.copyfile(folder / "train/dark/3.png", folder / "val/bright/copy.png")
    for number in (7, 8):
        shutil.copyfile(folder / f"train/dark/{number}.png", folder / f"val/dark/copy-{number}.png")
    return folder


@pytest.fixture(scope="module")
def wrong(forker: Forker, tmp_path_factory: pytest.TempPathFactory) -> TrainedRun:
    """Return a run on the dataset of `write_wrong_dataset`. Tests must not change its folder."""
    folder = tmp_path_factory.mktemp("wrong")
    dataset = str(write_wrong_dataset(folder / "dataset"))
    return train_small_model(forker, folder, "classification", dataset=dataset, epochs=4, learning_rate=0.002)


def test_review_finds_wrong_labels_and_copies(wrong: TrainedRun, tmp_path: Path) -> None:
    run = Path(shutil.copytree(wrong.run.path, tmp_path / "run"))
    evaluation = evaluate_run(run)
    found = review_run(run)
    mistaken = {"val/bright/5.png", "val/dark/5.png", "val/bright/copy.png"}
    assert {issue.sample.path for issue in found.label_issues} == mistaken
    assert {sample.path for sample in found.worst[:3]} == mistaken
    first = next(issue for issue in found.label_issues if issue.sample.path == "val/dark/5.png")
    assert (first.given, first.suggested) == ("dark", "bright")
    assert first.suggested_probability > 0.5 > first.probability
    pair = found.duplicates[0]
    assert {pair.first.path, pair.second.path} == {"train/dark/3.png", "val/bright/copy.png"}
    assert (pair.exact, pair.labels_differ, pair.distance) == (True, True, 0)
    assert [pair.labels_differ for pair in found.duplicates] == [True, False, False]
    assert review_run(run, true="dark", labels=False, duplicates=False).worst[0].path == "val/dark/5.png"
    cell = review_run(
        run, true="dark", predicted="bright", labels=False, duplicates=False, evaluations=(str(evaluation),)
    )
    assert [sample.path for sample in cell.worst] == ["val/dark/5.png"]
    with pytest.raises(CannotLoad) as refused:
        review_run(run, true="dark", predicted="gray")
    assert [problem.field for problem in refused.value.problems] == ["predicted"]

    home = {"FOOTPLATE_HOME": os.environ.get("FOOTPLATE_HOME", str(tmp_path / "home"))}
    answer = footplate("review", str(run), "--labels", "--json", "--csv", str(tmp_path / "m.csv"), **home)
    assert answer.code == 0, answer.err
    assert {issue["sample"]["path"] for issue in json.loads(answer.out)["label_issues"]} == mistaken
    assert found.is_model_weak, "about 3 of 25 labels seem to be wrong"
    assert (tmp_path / "m.csv").read_text().count("a label worth checking") == 3


def test_review_skips_training_samples(wrong: TrainedRun, tmp_path: Path) -> None:
    run = Path(shutil.copytree(wrong.run.path, tmp_path / "run"))
    evaluate_run(run, split="all")
    found = review_run(run, duplicates=False)
    assert not found.held_out
    assert found.checked_samples == found.samples - 48
    assert all(issue.sample.split == "val" for issue in found.label_issues)
    assert any("48 samples the model was trained with" in each for each in found.missing)
    assert "48 of which were in its training" in found.origin


def test_review_reports_missing_inputs(trained: Callable[[str], TrainedRun], tmp_path: Path) -> None:
    of = trained("classification")
    run = Path(shutil.copytree(of.run.path, tmp_path / "run"))
    with pytest.raises(CannotLoad, match="has not been evaluated"):
        review_run(run)
    dataset = shutil.copytree(of.job.data.dataset, tmp_path / "dataset")
    save_job(of.job.with_fields(dataset=str(dataset)), RunFolder(run).job_file)
    evaluation = evaluate_run(run)
    changes = ("1 sample of {} is no longer where it was", "2 samples of {} are no longer where they were")
    for path, change in zip(read_evaluation(evaluation).read_samples().paths[:-3:-1], changes, strict=True):
        (dataset / path).unlink()
        found = review_run(run, labels=False, duplicates=False)
        assert found.missing == (f"{change.format(evaluation.name)} in the dataset.",)
    shutil.rmtree(dataset)
    found = review_run(run)
    assert not any("no longer where" in each for each in found.missing)
    assert found.worst
    assert any("can't be opened" in each for each in found.missing)
