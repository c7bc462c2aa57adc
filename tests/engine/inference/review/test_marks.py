"""A marked list becomes a table, or a copy of the dataset that can be undone; the dataset itself stays as it is."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from engine.contract.inference.review import CHANGES_FILE, Mark, Marked, MarkOrder, decode_marked
from engine.contract.job import Job, save_job
from engine.inference.review.marks import mark
from engine.inference.trained_model import CannotLoad
from engine.runs.folder import RunFolder
from tests.support.masks import make_masked
from tests.support.trained_runs import make_colours


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run's folder with nothing but its job."""
    folder = tmp_path / "run"
    folder.mkdir()
    dataset = make_colours(tmp_path / "dataset", {"train": 4, "val": 2})
    save_job(Job.from_fields(task="classification", dataset=str(dataset)), RunFolder(folder).job_file)
    return folder


def marked(run: Path, *marks: Mark, **values: str) -> Marked:
    path = mark(MarkOrder(run=str(run), marks=marks, **values), lambda progress: None)  # type: ignore[arg-type]
    done = decode_marked(path.read_bytes())
    path.unlink()
    path.parent.rmdir()
    return done


def content(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != CHANGES_FILE
    }


def test_that_a_copy_lacks_what_was_marked_has_new_labels_and_can_be_undone(run: Path, tmp_path: Path) -> None:
    dataset, copy = tmp_path / "dataset", tmp_path / "copy"
    before = content(dataset)
    marks = (
        Mark(file=str(dataset / "train/red/0.png"), reason="blurred"),
        Mark(file=str(dataset / "val/green/1.png"), reason="=wrong", label="green", new_label="blue"),
    )
    done = marked(run, *marks, copy=str(copy), csv=str(tmp_path / "marks.csv"))
    assert (done.files, done.linked, done.removed, done.relabelled) == (17, 17, 1, 1)
    there = content(copy)
    assert "train/red/0.png" not in there
    assert "val/green/1.png" not in there
    assert there["val/blue/1-1.png"] == before["val/green/1.png"]
    assert (copy / "train/red/1.png").samefile(dataset / "train/red/1.png")
    with open(tmp_path / "marks.csv", newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert [row["reason"] for row in rows] == ["blurred", "'=wrong"]
    assert marked(run, undo=str(copy)).restored == 2
    assert content(copy) == before == content(dataset)
    assert not (copy / CHANGES_FILE).exists()


def test_that_all_that_is_wrong_with_a_copy_is_told_and_nothing_written(run: Path, tmp_path: Path) -> None:
    dataset = tmp_path / "dataset"
    (tmp_path / "outside.png").write_bytes(b"x")
    marks = (
        Mark(file=str(tmp_path / "outside.png")),
        Mark(file=str(dataset / "train/red/0.png"), new_label="reed"),
    )
    with pytest.raises(CannotLoad) as refused:
        marked(run, *marks, copy=str(dataset / "inside"))
    assert [problem.field for problem in refused.value.problems] == ["copy", "marks", "marks"]
    masks = make_masked(tmp_path / "masks", {"train": 2, "val": 1})
    save_job(Job.from_fields(task="segmentation", dataset=str(masks)), RunFolder(run).job_file)
    with pytest.raises(CannotLoad, match="Only a dataset of one folder"):
        marked(run, copy=str(tmp_path / "copy"))
    with pytest.raises(CannotLoad, match="not a copy of a dataset"):
        marked(run, undo=str(dataset))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["dataset", "masks", "outside.png", "run"]


def test_that_a_record_that_leads_out_of_the_copy_undoes_nothing(run: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    copy.mkdir()
    (tmp_path / "mine.txt").write_text("mine")
    (copy / CHANGES_FILE).write_text(
        '{"dataset": "/", "changes": [{"original": "/etc/hostname", "path": "a.png", "moved_to": "../mine.txt"}]}'
    )
    with pytest.raises(CannotLoad, match="outside of the copy"):
        marked(run, undo=str(copy))
    assert (tmp_path / "mine.txt").read_text() == "mine"
    assert not (copy / "a.png").exists()
