"""Command ``footplate review``: folds of a cross-validation, and the samples in its table."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import pytest

from engine.cli import inference, review
from engine.cli.terminal import BAD_REQUEST, CommandError
from engine.contract.inference.evaluation import Evaluation
from engine.contract.inference.review import DuplicatePair, LabelIssue, Review, ReviewedSample, Split
from engine.contract.job import Job
from engine.runs.evaluations import SavedEvaluation
from tests.gui.sources.written_runs import write_run


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


@pytest.mark.parametrize("task", ["classification", "detection"])
@pytest.mark.parametrize("count", [1, 2, 3, 101])
def test_cross_validation_trains_each_fold(task: str, count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    run, folds = write_run(8, task=task, resume_from="/before.pt"), list[Job]()

    def evaluate_fold(fold: Job, _values: object) -> str:
        folds.append(fold)
        return f"folder of {fold.data.fold}"

    monkeypatch.setattr(review, "_evaluate_fold", evaluate_fold)
    if task == "detection" or count not in (2, 3):
        with pytest.raises(CommandError) as error:
            review._cross_validate(run, count, {})
        assert (error.value.code, folds) == (BAD_REQUEST, [])
        return
    names = [f"{number}/{count}" for number in range(1, count + 1)]
    assert review._cross_validate(run, count, {}) == tuple(f"folder of {name}" for name in names)
    assert [fold.data.fold for fold in folds] == names
    assert [fold.name for fold in folds] == [f"{run.run_id} fold {name}" for name in names]
    assert {(fold.checkpoints.resume_from, fold.checkpoints.predictions) for fold in folds} == {("", 0)}


def make_sample(file: str, split: Split = "train") -> ReviewedSample:
    return ReviewedSample(path=f"path of {file}", file=file, split=split, true=("ash",), predicted=("oak", "elm"))


def make_issue(file: str, given: str, suggested: str) -> LabelIssue:
    return LabelIssue(
        sample=make_sample(file), given=given, suggested=suggested, probability=0.1, suggested_probability=0.8
    )


def make_review(**lists: Any) -> Review:
    """Return a review with one sample among the worst. `lists` are its label issues and duplicates."""
    empty: dict[str, Any] = {"label_issues": (), "duplicates": ()}
    return Review(
        id="1", date="", run="", task="", dataset="", evaluations=(), classes=(), samples=9, checked_samples=9, held_out=True,
        origin="", worst=(make_sample("worst"),), **empty | lists,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("flags", "has_worst", "has_labels", "has_duplicates"),
    [
        ([], True, True, True),
        (["--worst", "5"], True, False, False),
        (["--class", "ash"], True, False, False),
        (["--labels"], False, True, False),
        (["--duplicates", "--predicted", "oak"], True, False, True),
    ],
)
def test_text_contains_requested_lists(
    flags: list[str], has_worst: bool, has_labels: bool, has_duplicates: bool
) -> None:
    parser = argparse.ArgumentParser()
    review.add_review(parser)
    text = "\n".join(review._format_lines(make_review(), parser.parse_args(["last", *flags])))
    found_lists = tuple(title in text for title in ("path of worst", "wrong labels", "Duplicates"))
    assert found_lists == (has_worst, has_labels, has_duplicates)


def test_samples_with_issues_and_duplicates_are_marked() -> None:
    found = make_review(
        label_issues=(make_issue("a", "ash", "oak"), make_issue("a", "ash", "elm"), make_issue("b", "", "elm")),
        duplicates=(
            DuplicatePair(first=make_sample("c", "val"), second=make_sample("d"), distance=0),
            DuplicatePair(first=make_sample("e"), second=make_sample("f"), distance=0),
            DuplicatePair(first=make_sample("e"), second=make_sample("g"), distance=0),
            DuplicatePair(first=make_sample("h"), second=make_sample("a"), distance=0),
        ),
    )
    marked = [(each.file, each.reason, each.new_label) for each in review._list_samples_to_mark(found)]
    assert marked == [
        ("a", "probably a wrong label", "oak"),
        ("b", "probably a wrong label", ""),
        ("d", "a duplicate of path of c", ""),
        ("e", "a duplicate of path of f", ""),
    ]
    (only,) = review._list_samples_to_mark(make_review())
    assert (only.file, only.reason, only.label, only.prediction) == ("worst", "among the worst", "ash", "oak, elm")
