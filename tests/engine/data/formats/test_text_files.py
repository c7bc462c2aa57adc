"""Annotations in text files: how they are found, and which of them are read to detect a format."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from engine.data.formats.shared.json_files import text_windows
from engine.data.formats.shared.text_files import (
    ENOUGH_FILES,
    Pair,
    Parsed,
    TextFiles,
    check_pairs,
    pairs_by_folder,
    read_texts,
    sample,
    text_folders,
    usable_fraction,
)
from engine.data.formats.tree import Tree, split_of_folder
from engine.system.regular_files import UnusableFile


def touch(root: Path, *paths: str, content: str = "") -> Path:
    for path in paths:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(content)
    return root


def parse_lines(path: str) -> Parsed[str]:
    """Parse the lines of a file. Lines that start with "bad" are errors."""
    lines = Path(path).read_text().splitlines()
    return Parsed([line for line in lines if line[:3] != "bad"], [line for line in lines if line[:3] == "bad"])


@pytest.mark.parametrize(
    ("folder", "split"),
    [
        ("images/train", "train"),
        ("train2017", "train"),
        ("data/valid/images", "val"),
        ("images/test/day", "test"),
        ("train_images", "train"),
        ("images_val", "val"),
        ("images", ""),
        ("site_latest", ""),
        ("", ""),
    ],
)
def test_split_of_matches_complete_words(folder: str, split: str) -> None:
    assert split_of_folder(folder) == split


@pytest.mark.parametrize(
    ("image", "text"),
    [
        ("images/a.png", "labels/a.txt"),
        ("Images/train/deep/er/a.png", "Labels/train/deep/er/a.txt"),
        ("x/images/y/images/a.png", "x/images/y/labels/a.txt"),
        ("x/images/y/images/a.png", "x/labels/y/images/a.txt"),
        ("image_2/a.png", "label_2/a.txt"),
        ("train/images/a.png", "train/labelTxt-v1.5/a.txt"),
        ("trainval/images/a.png", "trainval/annfiles/a.txt"),
        ("a.png", "a.txt"),
        ("images/\u00e9.png", "labels/e\u0301.txt"),
    ],
)
def test_text_files_finds_the_file_about_an_image(tmp_path: Path, image: str, text: str) -> None:
    touch(tmp_path, image, text)
    found = TextFiles(Tree(str(tmp_path))).find(*os.path.split(image))
    assert found == str(tmp_path / text)


@pytest.mark.parametrize("text", ["labels/b.txt", "masks/a.txt", "labels_2/a.txt", "notes/a.txt"])
def test_text_files_finds_nothing_elsewhere(tmp_path: Path, text: str) -> None:
    touch(tmp_path, "images/a.png", text)
    assert TextFiles(Tree(str(tmp_path))).find("images", "a.png") is None


def test_text_files_prefers_the_mirrored_folder(tmp_path: Path) -> None:
    touch(tmp_path, "images/train/a.png", "images/train/a.txt", "labels/a.txt", "labels/train/a.txt")
    assert TextFiles(Tree(str(tmp_path))).find("images/train", "a.png") == str(tmp_path / "labels/train/a.txt")


def test_pairs_by_folder_leaves_other_images_out(tmp_path: Path) -> None:
    touch(tmp_path, "images/train/a.png", "labels/train/a.txt", "images/train/more/b.png", "masks/a.png", "preview.png")
    found = pairs_by_folder(Tree(str(tmp_path)), TextFiles(Tree(str(tmp_path))))
    assert [os.path.basename(pair.image) for pair in found["train"]] == ["a.png", "b.png"]
    assert list(found) == ["train"]


def test_text_folders_takes_texts_of_images_only(tmp_path: Path) -> None:
    touch(tmp_path, "a.png", "a.txt", "readme.txt", "list.txt", "labels/x.txt", "labels/classes.txt", "other/y.txt")
    assert text_folders(Tree(str(tmp_path)), frozenset({"classes.txt"})) == {"": ["a.txt"], "labels": ["x.txt"]}


def test_sample_is_spread_and_passes_empty_files_over(tmp_path: Path) -> None:
    names = [f"{number:04d}.txt" for number in range(1000)]
    touch(tmp_path, *names[:900])
    touch(tmp_path, *names[900:], content="word")
    found = sample([str(tmp_path / name) for name in names], parse_lines)
    assert len(found) == ENOUGH_FILES
    assert found == sample([str(tmp_path / name) for name in names], parse_lines)
    assert max(path for path, _ in found) > str(tmp_path / "0990")


def test_sample_raises_only_if_no_file_can_be_used(tmp_path: Path) -> None:
    def parse(path: str) -> Parsed[str]:
        if path.endswith("pipe.txt"):
            raise UnusableFile(path, "is a FIFO")
        return parse_lines(path)

    touch(tmp_path, "a.txt", "pipe.txt", content="word")
    assert len(sample([str(tmp_path / "pipe.txt"), str(tmp_path / "a.txt")], parse)) == 1
    with pytest.raises(UnusableFile):
        sample([str(tmp_path / "pipe.txt")], parse)


def test_good_share_counts_files_and_not_lines() -> None:
    good, bad = Parsed(["a"]), Parsed(["a"], ["b"] * 5000)
    assert usable_fraction([("1", good), ("2", good), ("3", good), ("4", bad)]) == 0.75
    assert usable_fraction([]) == 0


def test_read_texts_keeps_what_it_can(tmp_path: Path) -> None:
    touch(tmp_path, "a.txt", content="one\nbad two\nthree")
    touch(tmp_path, "b.txt", content="bad")
    pairs = [Pair("a.png", str(tmp_path / "a.txt")), Pair("b.png", str(tmp_path / "b.txt")), Pair("c.png", None)]
    pairs.append(Pair("d.png", str(tmp_path / "gone.txt")))
    found, problems = read_texts({"train": pairs}, parse_lines)
    assert found == {"train": [("a.png", ["one", "three"]), ("c.png", [])]}
    assert ["2 annotations" in problems[0].message, "1 line " in problems[1].message] == [True, True]


def test_check_pairs_counts_unused_repeated_and_shared(tmp_path: Path) -> None:
    touch(tmp_path, "a.png", "a.jpg", "b.png", "c.png")
    pairs = {name: Pair(str(tmp_path / name), str(tmp_path / f"{name[0]}.txt")) for name in ("a.png", "a.jpg", "b.png")}
    splits = {"train": [pairs["a.png"], pairs["a.jpg"], pairs["b.png"]], "val": [pairs["b.png"]]}
    unused, repeated, shared = (each.message for each in check_pairs(Tree(str(tmp_path)), splits))
    assert "1 image in no split: c.png" in unused
    assert "1 image in several splits: b.png" in repeated
    assert "1 annotation file of several images, such as a.txt of a.png, a.jpg" in shared


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "utf-32"])
def test_text_windows_begin_at_characters(tmp_path: Path, encoding: str) -> None:
    file = tmp_path / "large.json"
    file.write_text('{"images": [' + "1234567, " * 999 + "0]}", encoding=encoding)
    windows = list(text_windows(str(file), count=5, length=80))
    assert len(windows) == 5
    assert all(set(window.lstrip("\ufeff")) <= set('{"images": [0123456789,]}') for window in windows)
