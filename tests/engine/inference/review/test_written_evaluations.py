"""Reviews of evaluations whose results are written by hand."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from engine.contract.events import Planned
from engine.contract.images import Preprocessing
from engine.contract.inference.evaluation import (
    EVALUATION_FILE,
    PROBABILITIES_FILE,
    SAMPLES_FILE,
    Evaluation,
    Samples,
)
from engine.contract.inference.review import Review, ReviewedSample, ReviewRequest, decode_review
from engine.contract.job import Job, save_job
from engine.contract.messages import Progress
from engine.contract.protocol import ENCODE
from engine.inference.review.review import review
from engine.inference.review.samples import collect_samples
from engine.inference.trained_model import CannotLoad
from engine.runs.evaluations import FOLDER
from engine.runs.folder import RunFolder
from tests.support.trained_runs import TrainedRun, make_labeled


def write_evaluation(
    run: Path,
    splits: Sequence[str],
    *,
    task: str = "classification",
    classes: Sequence[str] = "abc",
    probabilities: Any = None,
    **columns: Any,
) -> str:
    """Write an evaluation of the samples 0.png, 1.png, ... to the run folder `run`, and return the evaluation's folder.

    `splits` gives the split of each sample, and `columns` gives further fields of `Samples`. If the run has no job yet,
    a job for `task` is written, too.
    """
    job = RunFolder(run).job()
    if job is None:
        job = Job.from_fields(task=task, dataset=str(run / "data"), devices=("cpu",))
        run.mkdir(exist_ok=True)
        save_job(job, RunFolder(run).job_file)
    folder = run / FOLDER / "20260101-000000-all"
    folder.mkdir(parents=True)
    evaluation = Evaluation(
        id=folder.name,
        date="2026-01-01T00:00:00Z",
        run=run.name,
        task=task,
        checkpoint="last.pt",
        sha256="0",
        dataset=job.data.dataset,
        split="all",
        classes=tuple(classes),
        samples=len(splits),
    )
    samples = Samples(
        paths=tuple(f"{number}.png" for number in range(len(splits))),
        splits=tuple(splits),  # type: ignore[arg-type]
        indices=tuple(range(len(splits))),
        **columns,
    )
    (folder / EVALUATION_FILE).write_bytes(msgspec.json.encode(evaluation))
    (folder / SAMPLES_FILE).write_bytes(msgspec.msgpack.encode(samples))
    if probabilities is not None:
        np.save(folder / PROBABILITIES_FILE, np.array(probabilities, np.float32))
    return str(folder)


def review_run(run: Path, **fields: Any) -> Review:
    request = ReviewRequest(run=str(run), **({"labels": False, "duplicates": False} | fields))
    reported: list[Progress] = []
    found = decode_review(review(request, reported.append).read_bytes())
    assert all(0 <= message.fraction <= 1 for message in reported)
    return found


def test_samples_of_evaluations_are_joined(tmp_path: Path) -> None:
    columns = {"losses": (0.5, 0.0), "correct": (1.0, 0.0), "confidence": (0.75, 0.25)}
    values = {"true": ((0,), (1,)), "predicted": ((0,), (2,)), **columns}
    first = write_evaluation(tmp_path / "run-1", ["train", "val"], probabilities=np.eye(2, 3), **values)
    second = write_evaluation(tmp_path / "run-2", ["train"], true=((2,),))
    (tmp_path / "run-1/data").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "run-1/data")
    for folder, dataset in ((first, "link"), (second, "other")):
        file = Path(folder, EVALUATION_FILE)
        file.write_bytes(
            file.read_bytes().replace(f"{Path(folder).parents[1]}/data".encode(), f"{tmp_path}/{dataset}".encode())
        )
    found = collect_samples(RunFolder(tmp_path / "run-1"), (first, second))
    assert found.held_out.tolist() == [False, True, True]  # the second one is on another dataset than the training
    assert (found.true, found.probabilities, found.data) == ([(0,), (1,), (2,)], None, None)
    assert found.samples[1:] == [
        ReviewedSample(
            path="1.png", split="val", true=("b",), predicted=("c",), loss=0.0, correct=0.0, confidence=0.25
        ),
        ReviewedSample(path="0.png", split="train", true=("c",)),
    ]
    older = Path(shutil.copytree(first, Path(first).with_name("20250101-000000-all"))) / EVALUATION_FILE
    older.write_bytes(older.read_bytes().replace(b"2026-01-01T", b"2025-01-01T"))
    alone = collect_samples(RunFolder(tmp_path / "run-1"), ())
    assert alone.probabilities == pytest.approx(np.eye(2, 3))
    assert [each.folder for each in alone.evaluations] == [Path(first)]
    (older.parent / EVALUATION_FILE).write_bytes(b"{")
    with pytest.raises(CannotLoad) as refused:
        collect_samples(RunFolder(tmp_path / "run-1"), (str(older.parent),))
    assert [problem.field for problem in refused.value.problems] == ["evaluations"]
    for number, fields in enumerate(({"classes": "abd"}, {"task": "multilabel"}), 3):
        other = write_evaluation(tmp_path / f"run-{number}", ["val"], **fields)
        with pytest.raises(CannotLoad, match="is of other classes"):
            collect_samples(RunFolder(tmp_path / "run-1"), (first, other))


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        ({"losses": (0.5, float("nan"), 2.0, 0.1)}, ["1.png", "2.png", "0.png"]),
        ({"correct": (0.2, 0.9, 0.0, 1.0)}, ["2.png", "0.png", "1.png"]),
        ({}, ["0.png", "1.png", "2.png"]),
    ],
)
def test_worst_samples_come_first(tmp_path: Path, columns: dict[str, Any], expected: list[str]) -> None:
    write_evaluation(tmp_path, ["val"] * 4, **columns)
    assert [sample.path for sample in review_run(tmp_path, worst=3).worst] == expected


def test_worst_samples_are_filtered_by_both_classes(tmp_path: Path) -> None:
    write_evaluation(tmp_path, ["val"] * 4, true=((0,), (1,), (0,), (0, 1)), predicted=((1,), (0,), (0,), (1, 2)))
    for fields, expected in (
        ({"true": "a"}, [0, 2, 3]),
        ({"predicted": "b"}, [0, 3]),
        ({"true": "b", "predicted": "c"}, [3]),
    ):
        assert [sample.path for sample in review_run(tmp_path, **fields).worst] == [f"{each}.png" for each in expected]


def test_unknown_classes_are_reported_together(tmp_path: Path) -> None:
    write_evaluation(tmp_path, ["val"], classes=("cat", "dog"))
    with pytest.raises(CannotLoad) as refused:
        review_run(tmp_path, true="cap", predicted="dig")
    assert [(problem.field, problem.remedy) for problem in refused.value.problems] == [
        ("true", "Did you mean “cat”?"),
        ("predicted", "Did you mean “dog”?"),
    ]


def test_origin_counts_runs_and_training_samples(tmp_path: Path) -> None:
    first = write_evaluation(tmp_path / "run-1", ["train", "val", "val"])
    second = write_evaluation(tmp_path / "run-2", ["val"])
    found = review_run(tmp_path / "run-1")
    assert (found.held_out, found.samples, found.checked_samples) == (False, 3, 2)
    assert found.origin == "Predictions of run-1 for 3 samples (train, val), 1 of which were in its training."
    shutil.copytree(tmp_path / "run-1" / FOLDER, tmp_path / "run-1" / "other")
    for evaluations, runs in (((second, first), 2), ((first, str(tmp_path / "run-1/other" / Path(first).name)), 1)):
        origin = review_run(tmp_path / "run-1", evaluations=evaluations).origin
        assert origin.startswith(f"Predictions of {runs} run{'s' if runs > 1 else ''} for ")
    third = write_evaluation(tmp_path / "run-3", ["val"])
    assert review_run(tmp_path / "run-3", evaluations=(second, third)).origin == (
        "Predictions of 2 runs for 2 samples, none of which was in the training of the run that predicted it."
    )


def test_wrong_labels_are_those_of_held_out_samples(tmp_path: Path) -> None:
    sure = np.eye(3)[[0, 1, 2] * 4] * 0.9 + 0.1 / 3
    sure[:3] = sure[2::-1]  # training samples with wrong labels
    true = [(each,) for each in [0, 1, 2] * 4]
    sure[4], sure[8] = (0.95, 0.03, 0.02), (0.01, 0.98, 0.01)  # sample 8 is further from its label
    write_evaluation(tmp_path, ["train"] * 3 + ["val"] * 9, probabilities=sure, true=tuple(true))
    found = review_run(tmp_path, labels=True)
    issues = [(each.sample.path, each.given, each.suggested) for each in found.label_issues]
    assert issues == [("8.png", "c", "b"), ("4.png", "b", "a")]
    assert [each.probability for each in found.label_issues] == pytest.approx([0.01, 0.03])
    assert [each.suggested_probability for each in found.label_issues] == pytest.approx([0.98, 0.95])
    assert found.expected_errors == 2
    without = review_run(tmp_path)
    assert (without.label_issues, without.expected_errors) == ((), 0)


def test_wrong_labels_of_several_are_found_separately(tmp_path: Path) -> None:
    true = [(0,), (1,), (0, 1), ()] * 3
    probabilities = np.full((12, 3), 0.05)
    for row, numbers in enumerate(true):
        probabilities[row, list(numbers)] = 0.95
    true[2], true[7] = (1,), (1,)  # a is missing, b is superfluous
    write_evaluation(tmp_path, ["val"] * 12, task="multilabel", probabilities=probabilities, true=tuple(true))
    found = review_run(tmp_path, labels=True)
    issues = {(each.sample.path, each.given, each.suggested) for each in found.label_issues}
    assert issues == {("2.png", "", "a"), ("7.png", "b", "")}
    assert {round(each.suggested_probability, 4) for each in found.label_issues} == {0.95}
    assert found.expected_errors == 2


def test_duplicates_have_their_labels(tmp_path: Path) -> None:
    run, classes = tmp_path / "run", ("red", "green", "blue")
    write_evaluation(run, ["val"], task="multilabel", classes=classes)
    data = make_labeled(run / "data", {"train": 4, "val": 2})
    lines = (data / "train/labels.csv").read_text().splitlines()
    (data / "train/labels.csv").write_text("\n".join([*lines[:2], "001.png,1,0,1", "002.png,0,1,0", "003.png,0,0,0"]))
    shutil.copy(data / "train/001.png", data / "train/002.png")
    shutil.copy(data / "train/001.png", data / "train/003.png")
    planned = Planned(
        epochs=1,
        steps_per_epoch=1,
        train_images=4,
        val_images=2,
        classes=classes,
        image_size=16,
        parameters=1,
        trainable_parameters=1,
        preprocessing=Preprocessing(framing="crop", mean=(0.5,) * 3, std=(0.5,) * 3),
    )
    RunFolder(run).events_file.write_bytes(ENCODE.encode(planned) + b"\n")
    found = [(pair.first.true, pair.second.true) for pair in review_run(run, duplicates=True).duplicates]
    assert sorted(found) == [(("green",), ()), (("red", "blue"), ()), (("red", "blue"), ("green",))]


def test_duplicates_are_sorted_by_split_and_label(
    trained: Callable[[str], TrainedRun], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    of = trained("classification")
    run, data = tmp_path / "run", Path(shutil.copytree(of.job.data.dataset, tmp_path / "data"))
    shutil.copytree(of.run.path, run)
    save_job(of.job.with_fields(dataset=str(data)), RunFolder(run).job_file)
    copies = {
        "val/red/copy.png": "train/blue/0.png",
        "val/red/same.png": "train/red/1.png",
        "train/red/copy.png": "train/green/2.png",
        "train/green/same.png": "train/green/3.png",
    }
    for copy, original in copies.items():
        shutil.copy(data / original, data / copy)
    for name, end in (("3.png", b"a"), ("same.png", b"b")):  # the pixels remain the same
        with (data / "train/green" / name).open("ab") as stream:
            stream.write(end)
    (data / "val/red/broken.png").write_bytes(b"no image")
    write_evaluation(run, ["val"], classes=("blue", "green", "red"))
    found = review_run(run, duplicates=True)
    pairs = [({each.first.path, each.second.path}, each.exact, each.labels_differ) for each in found.duplicates]
    expected = [(True, True), (True, False), (True, True), (False, False)]
    assert pairs == [({*pair}, *facts) for pair, facts in zip(copies.items(), expected, strict=True)]
    assert {each.first.true for each in found.duplicates} == {("blue",), ("red",), ("green",)}
    assert [each for each in found.missing if "image" in each or "pairs" in each] == [
        "1 image can't be read and were not compared."
    ]
    monkeypatch.setattr("engine.inference.review.review.MAX_PAIRS", 3)
    limited = review_run(run, duplicates=True)
    assert limited.duplicates == found.duplicates[:3]
    assert "4 pairs of duplicates were found, of which 3 are kept." in limited.missing
    monkeypatch.setattr("engine.inference.review.review.MAX_IMAGES", 3)
    assert not review_run(run, duplicates=True).duplicates
