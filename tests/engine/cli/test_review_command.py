"""Command ``footplate review``: folds of a cross-validation, its lists, and the samples in its table."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import msgspec
import pytest

from engine.cli import children, review
from engine.cli.terminal import BAD_REQUEST, COMPLETED, FAILED
from engine.contract.events import Outcome
from engine.contract.inference.evaluation import EVALUATION_FILE, EvaluateRequest
from engine.contract.inference.review import DuplicatePair, LabelIssue, Review, ReviewedSample, Split
from engine.contract.job import Job
from engine.runs.evaluations import read_evaluations
from engine.runs.folder import RunFolder, list_runs
from tests.engine.cli.terminal import Answer, run_in_this_process
from tests.gui.run.model.saved_evaluations import save_evaluation
from tests.gui.sources.written_runs import list_run_events, write, write_run


class Reviewer:
    """Stand-in for the processes that evaluate and review. Every review returns `found`."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self.run = write_run(8, dataset=str(folder), resume_from="/before.pt")
        self.found = make_review()
        self.requests: list[Any] = []
        self._file = folder / "review.json"
        patch.setattr(children, "run_in_child", self._carry_out)

    def review(self, *flags: str) -> Answer:
        self.requests.clear()
        return run_in_this_process("review", str(self.run.path), *flags)

    def _carry_out(self, request: Any, **_options: Any) -> Path:
        self.requests.append(request)
        if not isinstance(request, EvaluateRequest):
            self._file.write_bytes(msgspec.json.encode(self.found))
            return self._file
        run = RunFolder(Path(request.run))
        name = f"evaluation-{len(read_evaluations(run.path))}"
        change_evaluation(save_evaluation(run, self._file.parent, name).folder, checkpoint="last.pt")
        return run.path / "evaluations" / name / EVALUATION_FILE


def change_evaluation(folder: Path, **changes: str) -> None:
    file = folder / EVALUATION_FILE
    file.write_bytes(msgspec.json.encode(msgspec.json.decode(file.read_bytes()) | changes))


@pytest.fixture
def reviewer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Reviewer:
    return Reviewer(tmp_path, monkeypatch)


def test_cross_validation_reuses_completed_folds(reviewer: Reviewer, monkeypatch: pytest.MonkeyPatch) -> None:
    def set_outcome(outcome: Outcome) -> None:
        def start_supervisor(run: RunFolder) -> None:
            write(run.events_file, list_run_events(run.job() or Job(), 8, outcome))

        monkeypatch.setattr(review, "start_supervisor", start_supervisor)

    set_outcome("failed")
    answer = reviewer.review("--cross-validate", "3")
    assert (answer.code, answer.out, reviewer.requests) == (FAILED, "", [])
    set_outcome("completed")
    answer = reviewer.review("--cross-validate", "3")
    assert answer.code == COMPLETED, answer.err
    assert ("Fold 3 of 3\n" in answer.err, "epoch 1" in answer.err, "epoch 1" in answer.out) == (True, True, False)
    assert len(list_runs()) == 5
    jobs = {run: job for run in list_runs() if run.state() == "completed" and (job := run.job()) and job.data.fold}
    runs = sorted(jobs, key=lambda run: jobs[run].data.fold)
    names = [f"{number}/3" for number in (1, 2, 3)]
    assert [(jobs[run].data.fold, jobs[run].name) for run in runs] == [
        (name, f"{reviewer.run.run_id} fold {name}") for name in names
    ]
    assert {(job.checkpoints.resume_from, job.checkpoints.predictions) for job in jobs.values()} == {("", 0)}
    *requests, last = reviewer.requests
    assert [(each.run, each.checkpoint, each.split) for each in requests] == [
        (str(run.path), "last", "val") for run in runs
    ]
    folders = [str(run.path / "evaluations/evaluation-0") for run in runs]
    assert (list(last.evaluations), last.run) == (folders, str(reviewer.run.path))
    reviewer.review("--cross-validate", "3")
    assert reviewer.requests == [last]
    for run, changes in zip(runs, ({"checkpoint": "best.pt"}, {"split": "test"}, {"dataset": "/other"}), strict=True):
        change_evaluation(run.path / "evaluations/evaluation-0", **changes)
        reviewer.review("--cross-validate", "3")
        assert [each.run for each in reviewer.requests] == [str(run.path), last.run]
    assert len(list_runs()) == 5


@pytest.mark.parametrize(("task", "count"), [("detection", 2), ("classification", 1), ("classification", 101)])
def test_cross_validation_is_refused(task: str, count: int, reviewer: Reviewer) -> None:
    reviewer.run = write_run(8, task=task)
    before = len(list_runs())
    assert reviewer.review("--cross-validate", str(count)).code == BAD_REQUEST
    assert (len(list_runs()), reviewer.requests) == (before, [])


def test_run_without_evaluation_is_evaluated_once(reviewer: Reviewer) -> None:
    for count in (2, 1):
        reviewer.review()
        assert len(reviewer.requests) == count
        assert reviewer.requests[-1].evaluations == ()


def make_sample(file: str, split: Split = "train") -> ReviewedSample:
    return ReviewedSample(path=f"path of {file}", file=file, split=split, true=("ash",), predicted=("oak", "elm"))


def make_issue(file: str, given: str, suggested: str) -> LabelIssue:
    return LabelIssue(
        sample=make_sample(file), given=given, suggested=suggested, probability=0.1, suggested_probability=0.8
    )


def make_review(**values: Any) -> Review:
    """Return a review with one sample among the worst. `values` are its other lists and facts."""
    empty: dict[str, Any] = {"label_issues": (), "duplicates": ()}
    return Review(
        id="1", date="", run="", task="", dataset="", evaluations=(), classes=(), samples=9, checked_samples=9, held_out=True,
        origin="", worst=(make_sample("worst"),), **empty | values,
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
    flags: list[str], has_worst: bool, has_labels: bool, has_duplicates: bool, *, reviewer: Reviewer
) -> None:
    text = reviewer.review(*flags).out
    found_lists = tuple(title in text for title in ("path of worst", "wrong labels", "Duplicates"))
    assert found_lists == (has_worst, has_labels, has_duplicates)


def test_text_has_the_first_rows_of_long_lists(reviewer: Reviewer) -> None:
    issues = tuple(make_issue(f"issue-{n}", "ash", "oak") for n in range(21))
    pairs = tuple(
        DuplicatePair(first=make_sample(f"pair-{n}", "val"), second=make_sample("d"), distance=0) for n in range(21)
    )
    reviewer.found = make_review(label_issues=issues, duplicates=pairs, expected_errors=9)
    text = reviewer.review().out
    assert "Labels worth checking: 21. The model is too weak" in text
    assert "Duplicates: 21 pairs, 21 of them across splits." in text
    for kind in ("issue", "pair"):
        assert [f"path of {kind}-{n} " in text for n in (0, 19, 20)] == [True, True, False]


def test_samples_with_issues_and_duplicates_are_marked(reviewer: Reviewer, tmp_path: Path) -> None:
    def read_marked(*flags: str) -> list[tuple[str, ...]]:
        answer = reviewer.review("--csv", str(tmp_path / "marked.csv"), *flags)
        with (tmp_path / "marked.csv").open(newline="") as stream:
            head, *rows = map(tuple, csv.reader(stream))
        assert head == ("file", "reason", "label", "prediction", "new_label")
        written = f"Wrote {len(rows)} sample{'s' * (len(rows) > 1)} to {tmp_path / 'marked.csv'}.\n"
        text, other = (answer.err, answer.out) if flags else (answer.out, answer.err)
        assert (text.endswith(written), written in other) == (True, False)
        return rows

    reviewer.found = make_review(
        label_issues=(make_issue("a", "ash", "oak"), make_issue("a", "ash", "elm"), make_issue("b", "", "elm")),
        duplicates=(
            DuplicatePair(first=make_sample("c", "val"), second=make_sample("d"), distance=0),
            DuplicatePair(first=make_sample("e"), second=make_sample("f"), distance=0),
            DuplicatePair(first=make_sample("e"), second=make_sample("g"), distance=0),
            DuplicatePair(first=make_sample("h"), second=make_sample("a"), distance=0),
        ),
    )
    assert read_marked() == [
        ("a", "probably a wrong label", "ash", "oak", "oak"),
        ("b", "probably a wrong label", "ash", "elm", ""),
        ("d", "a duplicate of path of c", "ash", "", ""),
        ("e", "a duplicate of path of f", "ash", "", ""),
    ]
    reviewer.found = make_review()
    assert read_marked("--json") == [("worst", "among the worst", "ash", "oak, elm", "")]
