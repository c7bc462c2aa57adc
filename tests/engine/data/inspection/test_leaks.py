"""Warnings about images that occur in both splits, and about classes with few images."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import psutil
import pytest

from engine.contract.dataset import SplitReport
from engine.contract.problems import Problem
from engine.data.formats.registry import recognize
from engine.data.inspection import contents as contents_module
from engine.data.inspection.contents import END_BYTES, Contents
from engine.data.inspection.inspector import check_imbalance, inspect
from engine.data.inspection.leaks import find_leaks, find_same_files, find_same_rows
from engine.data.splits import IdxSplit
from tests.support.clouds import make_clouds
from tests.support.edges import make_edged
from tests.support.images import write_idx, write_noise
from tests.support.masks import make_masked
from tests.support.outlined import make_outlined
from tests.support.trained_runs import make_labeled


def leaks_in(folder: Path, kinds: tuple[str, ...] = ("classes",)) -> list[Problem]:
    return find_leaks(recognize(str(folder), val_fraction=0.25, seed=0, kinds=kinds), str(folder), Contents())


def write_classes(folder: Path) -> Path:
    """Write two classes with six training and two validation images each, all different, and return `folder`."""
    for number in range(16):
        split = "train" if number < 12 else "val"
        write_noise(folder / split / ("ant", "bee")[number % 2] / f"{number}.png", seed=number)
    return folder


def test_renamed_copy_is_found(tmp_path: Path) -> None:
    folder = write_classes(tmp_path)
    assert leaks_in(folder) == []
    (folder / "val/bee/other name.png").write_bytes((folder / "train/ant/4.png").read_bytes())
    (problem,) = leaks_in(folder)
    assert problem.severity == "warning"
    assert "Of the 5 validation files, 1 is a copy" in problem.message
    assert problem.message.endswith("so validation overrates the model.")
    assert "val/bee/other name.png of train/ant/4.png" in problem.message
    assert "Remove the copies from one of the two" in problem.remedy


def test_copies_separated_by_drawn_split_are_reported(tmp_path: Path) -> None:
    for number in range(20):
        write_noise(tmp_path / ("ant", "bee")[number % 2] / f"{number}.png", seed=number // 4)
    (problem,) = leaks_in(tmp_path)
    assert "are copies of training ones" in problem.message
    assert "the random split puts some of them" in problem.remedy


def test_files_that_differ_inside_are_no_copies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    size = 4 * END_BYTES
    contents = {name: bytearray(size) for name in ("train", "val", "copy", "begin", "end")}
    contents["val"][size // 2] = 1
    contents["begin"][0] = contents["end"][-1] = 1
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
    (tmp_path / "empty").touch()
    for name in ("folder", "folder2"):  # of the same size, but not readable
        (tmp_path / name).mkdir()
    monkeypatch.setattr(contents_module, "BLOCK_BYTES", 1000)
    paths = {name: str(tmp_path / name) for name in (*contents, "empty", "folder", "folder2")}
    hashed: list[str] = []
    hash_content = contents_module.hash_content
    monkeypatch.setattr(
        contents_module, "hash_content", lambda path: (hashed.append(os.path.basename(path)), hash_content(path))[1]
    )
    others = [*(paths[name] for name in ("copy", "val", "begin", "end", "empty", "folder2")), str(tmp_path / "gone")]
    monkeypatch.setattr(contents_module, "MAX_BYTES", size)
    open_before = psutil.Process().num_fds()
    found = find_same_files([paths["train"], paths["empty"], paths["folder"]], others, Contents())
    assert found == [(paths["copy"], paths["train"])]
    assert sorted(hashed) == ["copy", "train", "val"]  # the start and end of the other files suffice
    monkeypatch.setattr(contents_module, "MAX_BYTES", size - 1)
    assert find_same_files([paths["train"]], others, Contents()) == []
    assert psutil.Process().num_fds() == open_before


MAKERS: dict[str, Callable[[Path, dict[str, int]], Path]] = {
    "masks": make_masked,
    "edges": make_edged,
    "boxes": make_outlined,
    "instances": make_outlined,
    "labels": make_labeled,
    "points": lambda folder, counts: make_clouds(folder, counts, 30),
}


@pytest.mark.parametrize("kind", MAKERS)
def test_copies_are_found_in_every_kind(tmp_path: Path, kind: str) -> None:
    folder = MAKERS[kind](tmp_path / "data", {"train": 5, "val": 3})
    assert leaks_in(folder, (kind,)) == []
    found = recognize(str(folder), val_fraction=0.25, seed=0, kinds=(kind,))
    one, other = Path(found.train.files[1]), Path(found.val.files[2])
    other.write_bytes(one.read_bytes())
    (problem,) = leaks_in(folder, (kind,))
    assert "Of the 3 validation files, 1 is a copy" in problem.message
    assert f"{other.relative_to(folder)} of {one.relative_to(folder)}" in problem.message


def test_idx_files_are_compared_by_image(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    train, val = (random.integers(0, 256, (count, 9, 9)) for count in (20, 10))
    val[3] = train[7]
    for name, pixels in (("train", train), ("t10k", val)):
        write_idx(tmp_path / f"{name}-images-idx3-ubyte", pixels)
        write_idx(tmp_path / f"{name}-labels-idx1-ubyte", np.arange(len(pixels)) % 5)
    (problem,) = leaks_in(tmp_path)
    assert "t10k-images-idx3-ubyte image 3 of train-images-idx3-ubyte image 7" in problem.message


def test_rows_of_one_idx_file_are_compared_by_split(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (9, 5, 5))
    pixels[[2, 7]] = pixels[4]
    path = str(write_idx(tmp_path / "images-idx3-ubyte", pixels))
    train, val = (IdxSplit(path, np.zeros(len(rows), int), np.array(rows)) for rows in ([1, 2, 4, 8], [0, 7]))
    assert find_same_rows(train, val) == [("images-idx3-ubyte image 7", "images-idx3-ubyte image 2")]
    assert find_same_rows(val, train) == [
        (f"images-idx3-ubyte image {row}", "images-idx3-ubyte image 7") for row in (2, 4)
    ]
    for limit, copies in ((pixels.size, 1), (pixels.size - 1, 0)):
        monkeypatch.setattr("engine.data.inspection.leaks.MAX_BYTES", limit)
        assert len(find_same_rows(train, val)) == copies
    assert find_same_rows(train, replace(val, images=str(tmp_path / "gone"))) == []


def test_imbalance_is_reported_from_a_tenth() -> None:
    (problem,) = check_imbalance(SplitReport("train", {"ant": 200, "bee": 20, "cow": 21, "dog": 3, "none": 0}))
    assert "Class ant has 200" in problem.message
    assert "as many as dog (3) and bee (20): " in problem.message
    assert "cow" not in problem.message
    assert "none" not in problem.message
    assert check_imbalance(SplitReport("train", {"ant": 199, "bee": 20})) == []
    assert (
        check_imbalance(SplitReport("train", {"sky": 900, "car": 5}, shares={"sky": 0.9, "car": 0.1}, total=900)) == []
    )


@pytest.mark.parametrize("kind", ["classes", "masks"])
def test_inspection_reports_copies_in_every_format(tmp_path: Path, kind: str) -> None:
    if kind == "masks":
        make_masked(tmp_path, {"train": 6, "val": 3})
        (tmp_path / "images/val/001.png").write_bytes((tmp_path / "images/train/004.png").read_bytes())
    else:
        for number in range(20):
            name = "ant" if number % 12 else "bee"
            write_noise(tmp_path / ("train" if number < 12 else "val") / name / f"{number}.png", seed=number % 19)
    report = inspect(str(tmp_path), val_fraction=0.2, seed=0, kinds=(kind,), progress=lambda done, total: None)
    messages = [problem.message for problem in report.problems]
    assert sum("1 is a copy of a training one" in message for message in messages) == 1
    assert sum("11 training samples, at least 10 times as many" in message for message in messages) == (
        kind == "classes"
    )
    assert all(problem.severity == "warning" for problem in report.problems)
