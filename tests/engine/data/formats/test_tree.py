"""Folders and files of a dataset, and the splits that their names denote."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.data.formats.tree import Tree, split_of_file, split_of_path, split_of_table


def tree(folder: Path, *files: str) -> Tree:
    for name in files:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()
    return Tree(str(folder))


def test_splits_prefer_the_usual_names(tmp_path: Path) -> None:
    found = tree(tmp_path, "TRAIN2017/a", "train/a", "Valid/a", "val2017/a", "testing/a", "x/train/a")
    assert found.named(("x", "valid", "y", "train")) == ["x", "Valid", "train"]
    assert found.splits() == {"train": "train", "val": "Valid", "test": "testing"}


def test_walk_visits_a_linked_folder_once(tmp_path: Path) -> None:
    found = tree(tmp_path, "a/b/c.png", "d.png")
    (tmp_path / "e").symlink_to(tmp_path / "a")
    (tmp_path / "a/up").symlink_to(tmp_path)
    assert list(found.walk()) == ["", "a", "a/b"]
    assert list(found.walk(depth=1)) == ["", "a"]
    assert list(found.find(".png", depth=0)) == ["d.png"]


def test_suffixes_are_counted_in_any_case(tmp_path: Path) -> None:
    found = tree(tmp_path, "a.PNG", "b.png", "c.Png", "d.txt", "e", ".f.png")
    assert found.suffixes() == {".png": 3, ".txt": 1, "": 1}
    assert found.files("", (".png",)) == ["a.PNG", "b.png", "c.Png"]
    assert (found.has(".TXT"), found.has(".txt"), found.has_images()) == (False, True, True)


@pytest.mark.parametrize(
    ("path", "by_path", "by_file", "by_table"),
    [
        ("train/val_a.csv", "train", "val", "val"),
        ("val/train/a.csv", "val", "train", "train"),
        ("train/x/a.csv", "train", "train", "train"),
        ("x/test_a.csv", "test", "test", "test"),
        ("x/latest.csv", "", "", ""),
    ],
)
def test_splits_of_files_are_named_by_them_or_their_folders(
    path: str, by_path: str, by_file: str, by_table: str
) -> None:
    folder, _, name = path.rpartition("/")
    found = split_of_path(path, by_name=True), split_of_file(path), split_of_table(folder, name)
    assert found == (by_path, by_file, by_table)
