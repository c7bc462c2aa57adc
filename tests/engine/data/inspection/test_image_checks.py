"""Inspection of image files and idx files whose splits are known: checked samples, empty classes and examples."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from engine.contract.dataset import Example, Sample, SplitReport
from engine.contract.problems import errors
from engine.data.files import Files, Listing
from engine.data.inspection import imagefolder, inspector
from engine.data.inspection.imagefolder import ImageCheck, inspect_files, inspect_idx, inspect_labels
from engine.data.inspection.inspector import find_candidate_readings, inspect
from engine.data.inspection.samples import list_samples
from engine.data.splits import FileSplit, IdxSplit, LabelSplit, MaskCode, MaskSplit, RecognizedDataset
from tests.support.images import write_idx, write_noise
from tests.support.trained_runs import make_labeled


def by_class(folder: Path, names: list[str], labels: list[int]) -> FileSplit:
    return FileSplit(Files.of([Listing.of(str(folder), names)]), np.array(labels, np.int64), Files.of())


@pytest.mark.parametrize("cached_s", [0.0, 60.0])
def test_sample_is_spread_over_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cached_s: float) -> None:
    monkeypatch.setattr(imagefolder, "CACHED_S", cached_s)
    monkeypatch.setattr(imagefolder, "HEADERS_TIMED", 2)
    monkeypatch.setattr(imagefolder, "SAMPLE", 10)
    monkeypatch.setattr(imagefolder, "CHUNK", 6)
    paths = [write_noise(tmp_path / f"{number}.png", number, (16, 12)) for number in range(39)]
    for number in (0, 5, 8, 32, 33):
        content = paths[number].read_bytes()
        paths[number].write_bytes(content[:60] + bytes(len(content) - 80) + content[-20:])
    check = ImageCheck(39)
    reasons = list(check.check_files([*map(str, paths)], 2))
    assert [number for number, reason in enumerate(reasons) if reason is not None] == [0, 8, 32]
    (problem,) = check.problems()
    assert "Of 10 images decoded as a sample, 3 are damaged within" in problem.message


def test_classes_and_splits_without_images_are_not_called_unreadable(tmp_path: Path) -> None:
    for number in range(3):
        write_noise(tmp_path / f"{number}.png", number)
    train, val = by_class(tmp_path, ["0.png", "1.png", "2.png"], [0, 2, 2]), by_class(tmp_path, [], [])
    done: list[tuple[int, int]] = []
    found = RecognizedDataset("", ("ant", "bee", "cow"), train=train, val=val)
    result = inspect_files(found, lambda *numbers: done.append(numbers), lambda path, reason: None, 1)
    assert result.problems == []
    assert result.splits == [
        SplitReport("train", {"ant": 1, "bee": 0, "cow": 2}),
        SplitReport("val", {"ant": 0, "bee": 0, "cow": 0}),
    ]
    assert done == [(1, 3), (2, 3), (3, 3)]


def test_examples_of_idx_files_are_the_rows_of_the_split(tmp_path: Path) -> None:
    pixels = np.arange(8)[:, None, None] * np.full((8, 4, 4), 30)
    path = str(write_idx(tmp_path / "images-idx3-ubyte", pixels))
    train = IdxSplit(path, np.array([1, 0, 1]), np.array([2, 5, 7]))
    val = IdxSplit(path, np.array([0, 1]), np.array([0, 1]), is_drawn=True)
    done: list[tuple[int, int]] = []
    found = RecognizedDataset("", ("ant", "bee"), train=train, val=val)
    result = inspect_idx(found, lambda *numbers: done.append(numbers), lambda path, reason: None, 1)
    assert done == [(3, 5), (5, 5)]
    assert result.splits == [
        SplitReport("train", {"ant": 1, "bee": 2}),
        SplitReport("val", {"ant": 1, "bee": 1}, is_drawn=True),
    ]
    levels = {}
    for example in result.examples:
        with Image.open(BytesIO(example.png)) as image:
            levels[example.sample] = (example.class_name, *np.unique(np.asarray(image)).tolist())
    assert levels == {0: ("bee", 60), 1: ("ant", 150), 2: ("bee", 210)}


def test_samples_are_listed_evenly_with_their_rows(tmp_path: Path) -> None:
    path = str(tmp_path / "raw/images")
    train, val = IdxSplit(path, np.array([1, 0, 1]), np.array([2, 5, 7])), IdxSplit(path, np.array([0]))
    found = RecognizedDataset("idx", ("ant", "bee"), train=train, val=val)
    samples = [Sample("raw/images:2", "train", label="bee"), Sample("raw/images:5", "train", label="ant"),
               Sample("raw/images:7", "train", label="bee"), Sample("raw/images:0", "val", label="ant")]  # fmt: skip
    assert [list_samples(found, str(tmp_path), limit) for limit in (4, 2)] == [samples, samples[::2]]
    masks = MaskSplit([str(tmp_path / "a.png")], [str(tmp_path / "gone.png")])
    (sample,) = list_samples(RecognizedDataset("masks", ("ant",), train=masks, code=MaskCode((0,))), str(tmp_path), 9)
    assert (sample.file, sample.pixels) == ("a.png", None)
    assert "it does not exist" in sample.problem


def test_number_of_listed_unreadable_files_is_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inspector, "MAX_UNREADABLE_LISTED", 4)
    for number in range(20):
        write_noise(tmp_path / "ab"[number % 2] / f"{number}.png", number)
    for number in range(6):
        (tmp_path / "a" / f"{number}.jpg").write_bytes(b"")
    report = inspect(str(tmp_path), val_fraction=0.2, seed=0, progress=lambda done, total: None)
    assert (len(report.unreadable), report.unreadable_count) == (4, 6)
    (problem,) = report.problems
    assert problem.message.startswith("6 files are left out (")
    assert problem.message.endswith("; and 3 more).")
    assert problem.message.count("it is empty") == 3


def test_readings_show_evenly_spaced_training_images(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("images", "depth"):
        for number in range(15):
            write_noise(tmp_path / name / f"{number:02}.png", number + len(name) * 20)
    drawn: list[RecognizedDataset] = []

    def draw(found: RecognizedDataset) -> tuple[Example, ...]:
        drawn.append(found)
        return ()

    monkeypatch.setattr("engine.data.inspection.inspector._draw_examples", draw)
    readings = find_candidate_readings(str(tmp_path), val_fraction=0.2, seed=0)
    (found,) = [each for each in drawn if each.format == "imagefolder"]
    assert "imagefolder" in [reading.format for reading in readings]
    assert (found.val, found.test) == (None, None)
    assert isinstance(found.train, FileSplit)
    assert found.train.labels.tolist() == [0, 0, 1]


def test_test_splits_of_labels_are_counted_by_image(tmp_path: Path) -> None:
    folder = make_labeled(tmp_path, {"train": 9, "val": 4, "test": 3})
    report = inspect(str(folder), val_fraction=0.2, seed=0, kinds=("labels",), progress=lambda done, total: None)
    assert [(split.name, split.total) for split in report.splits] == [("train", 9), ("val", 4), ("test", 3)]
    assert report.splits[2].counts == {}
    images = sorted((folder / "train").glob("*.png"))
    rows = [line.split(",") for line in (folder / "train/labels.csv").read_text().splitlines()]
    for left, problem in ((8, ""), (0, "No training image can be read (9 images).")):
        for path in images[: 9 - left]:
            path.write_bytes(b"")
        report = inspect(str(folder), val_fraction=0.2, seed=0, kinds=("labels",), progress=lambda done, total: None)
        expected = {
            name: sum(row[place] == "1" for row in rows[10 - left :]) for place, name in enumerate(rows[0]) if place
        }
        assert (report.splits[0].total, report.splits[0].counts) == (left, expected)
        assert [each.message for each in errors(report.problems)] == [problem] * bool(problem)


def test_examples_of_labels_have_the_rarest_label(tmp_path: Path) -> None:
    files = [str(write_noise(tmp_path / f"{number}.png", number, (8, 8))) for number in range(20)]
    labels = np.zeros((20, 3), bool)
    labels[:, 0] = labels[19, 1] = labels[:17, 2] = labels[19, 2] = True
    found = RecognizedDataset("", ("sky", "car", "dog"), train=LabelSplit(files, labels))
    result = inspect_labels(found, lambda *_: None, lambda *_: None, 1)
    assert [each.sample for each in result.examples] == [17, 18, 19, *range(9)]
    assert [each.class_name for each in result.examples[1:4]] == ["sky", "sky, car, dog", "sky, dog"]
