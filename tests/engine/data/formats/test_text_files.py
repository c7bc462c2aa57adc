"""Annotations in text files: how they are found, and which of them are read to detect a format."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from engine.data.decoding.reading import Unfit
from engine.data.formats.format import Confidence
from engine.data.formats.shared.json_files import iterate_text_windows
from engine.data.formats.shared.text_files import (
    ENOUGH_FILES,
    Pair,
    Parsed,
    TextFiles,
    check_pairs,
    describe_folders,
    detect_texts,
    divide_by_lists,
    drop_unannotated_images,
    drop_unannotated_splits,
    find_image_folders,
    find_text_folders,
    measure_usable_fraction,
    pair_by_folder,
    parse_lines,
    parse_sample,
    read_annotated,
    read_texts,
)
from engine.data.formats.tree import Tree, split_of_folder
from engine.system.regular_files import UnusableFile


def touch(root: Path, *paths: str, content: str = "") -> Path:
    for path in paths:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(content)
    return root


def parse_words(path: str) -> Parsed[str]:
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
        ("a.png", "labels/a.txt"),
        ("train/a.png", "labels/train/a.txt"),
        ("train/a.png", "train/labels/a.txt"),
        ("train/a.png", "train_labels/a.txt"),
        ("images/train/s/a.png", "labels/train/a.txt"),
        ("JPEGImages/train/a.png", "labels/train/a.txt"),
        ("images/a.png", "labels/a.png.txt"),
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


@pytest.mark.parametrize(
    ("files", "found"),
    [
        (("images/train/a.txt", "labels/a.txt", "labels/train/a.txt"), "labels/train/a.txt"),
        (("images/train/a.txt", "labels/a.txt"), "images/train/a.txt"),
        (("annotations/train/a.txt", "labels/train/a.txt"), "labels/train/a.txt"),
        (("labels/a.txt",), "labels/a.txt"),
        (("labels/a.txt", "images/b.png"), None),
        (("labels/a.txt", "images/val/b.png"), "labels/a.txt"),
    ],
)
def test_text_files_prefers_the_mirrored_folder(tmp_path: Path, files: tuple[str, ...], found: str | None) -> None:
    touch(tmp_path, "images/train/a.png", *files)
    expected = None if found is None else str(tmp_path / found)
    assert TextFiles(Tree(str(tmp_path))).find("images/train", "a.png") == expected


def test_pairs_by_folder_leaves_other_images_out(tmp_path: Path) -> None:
    touch(
        tmp_path, "images/train/a.png", "labels/train/a.txt", "images/train/more/b.png", "masks/a.png", "e.png", "e.txt"
    )
    found = pair_by_folder(Tree(str(tmp_path)), TextFiles(Tree(str(tmp_path))))
    assert [os.path.basename(pair.image) for pair in found["train"]] == ["a.png", "b.png"]
    assert list(found) == ["train"]


def test_text_folders_takes_texts_of_images_only(tmp_path: Path) -> None:
    touch(tmp_path, "a.png", "a.txt", "readme.txt", "list.txt", "labels/x.txt", "labels/Classes.txt", "other/y.txt")
    assert find_text_folders(Tree(str(tmp_path)), frozenset({"classes.txt"})) == {"": ["a.txt"], "labels": ["x.txt"]}


def test_sample_is_spread_and_passes_empty_files_over(tmp_path: Path) -> None:
    names = [f"{number:04d}.txt" for number in range(1000)]
    touch(tmp_path, *names[:900])
    touch(tmp_path, *names[900:], content="word")
    found = parse_sample([str(tmp_path / name) for name in names], parse_words)
    assert len(found) == ENOUGH_FILES
    assert found == parse_sample([str(tmp_path / name) for name in names], parse_words)
    assert max(path for path, _ in found) > str(tmp_path / "0990")


def test_sample_raises_only_if_no_file_can_be_used(tmp_path: Path) -> None:
    def parse(path: str) -> Parsed[str]:
        if path.endswith("pipe.txt"):
            raise UnusableFile(path, "is a FIFO")
        return parse_words(path)

    touch(tmp_path, "a.txt", "pipe.txt", content="word")
    assert len(parse_sample([str(tmp_path / f"{name}.txt") for name in ("gone", "pipe", "a")], parse)) == 1
    with pytest.raises(UnusableFile):
        parse_sample([str(tmp_path / "pipe.txt")], parse)


def test_good_share_counts_files_and_not_lines() -> None:
    good, bad = Parsed(["a"]), Parsed(["a"], ["b"] * 5000)
    assert measure_usable_fraction([("1", good), ("2", good), ("3", good), ("4", bad)]) == 0.75
    assert measure_usable_fraction([]) == 0


def test_read_texts_keeps_what_it_can(tmp_path: Path) -> None:
    touch(tmp_path, "a.txt", content="one\nbad two\nthree")
    touch(tmp_path, "b.txt", content="bad 1\nbad 2")
    pairs = [Pair("a.png", str(tmp_path / "a.txt")), Pair("b.png", str(tmp_path / "b.txt")), Pair("c.png", None)]
    pairs.append(Pair("d.png", str(tmp_path / "gone.txt")))
    touch(tmp_path, "e.txt")
    pairs.append(Pair("e.png", str(tmp_path / "e.txt")))
    repeated = Parsed(["x"], repeated=2)
    _, (problem,) = read_texts({"train": [pairs[0]]}, lambda path: repeated)
    assert "2 lines" in problem.message
    found, problems = read_texts({"train": pairs[::-1]}, parse_words)
    assert found == {"train": [("a.png", ["one", "three"]), ("c.png", []), ("e.png", [])]}
    assert "2 annotations that can't be read (b.txt: bad 1; " in problems[0].message
    assert "1 line " in problems[1].message


def test_check_pairs_counts_unused_repeated_and_shared(tmp_path: Path) -> None:
    touch(tmp_path, "a.png", "a.jpg", "b.png", "c.png")
    pairs = {name: Pair(str(tmp_path / name), str(tmp_path / f"{name[0]}.txt")) for name in ("a.png", "a.jpg", "b.png")}
    splits = {"train": [pairs[name] for name in ("a.png", "a.jpg", "b.png", "b.png")], "val": [pairs["b.png"]]}
    unused, repeated, shared = (each.message for each in check_pairs(Tree(str(tmp_path)), splits))
    (in_folder,) = check_pairs(Tree(str(touch(tmp_path, "x/d.png"))), {"train": [*pairs.values()][:1]})
    assert [len(each) > 1 for each in in_folder.message.rpartition(", in ")[2].split(", ")] == [True, True]
    assert "1 image in no split: c.png, in the dataset's folder" in unused
    assert "1 image in several splits: b.png" in repeated
    assert "1 annotation file of several images, such as a.txt of a.png, a.jpg" in shared


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "utf-32"])
def test_text_windows_begin_at_characters(tmp_path: Path, encoding: str) -> None:
    file = tmp_path / "large.json"
    file.write_text('{"images": [' + "1234567, " * 999 + "0]}", encoding=encoding)
    windows = list(iterate_text_windows(str(file), count=5, length=80))
    assert len(windows) == 5
    assert all(set(window.lstrip("\ufeff")) <= set('{"images": [0123456789,]}') for window in windows)
    file.write_text("x" * 100)
    assert next(iterate_text_windows(str(file), count=5, length=80)) == "x" * 100
    file.unlink()
    assert list(iterate_text_windows(str(file))) == []


def paths(pairs: list[Pair]) -> list[str]:
    return [Path(pair.image).name for pair in pairs]


def test_image_folders_named_for_annotations_need_texts(tmp_path: Path) -> None:
    touch(tmp_path, "labels/a.png", "annotations/b.png", "annotations/b.txt", "x/c.png", "x/labels/d.png")
    tree = Tree(str(tmp_path))
    assert list(find_image_folders(tree)) == ["annotations", "x"]
    assert list(find_image_folders(tree, "labels")) == ["labels"]


def test_splits_without_texts_are_left_out() -> None:
    splits = {"train": [Pair("a.png", "a.txt"), Pair("b.png", None)], "val": [Pair("c.png", None)], "test": []}
    annotated, (problem,) = drop_unannotated_splits(splits)
    assert (list(annotated), "c.png" in problem.message, "val" in problem.message) == (["train"], True, True)
    only, (problem,) = drop_unannotated_images(splits)
    assert {split: paths(pairs) for split, pairs in only.items()} == {"train": ["a.png"], "val": [], "test": []}
    assert ("b.png, c.png" in problem.message, drop_unannotated_images({"train": splits["train"][:1]})[1]) == (True, [])
    lists = {"test": dict.fromkeys("cax"), "val": dict.fromkeys("b")}
    divided = divide_by_lists(splits, lists)  # type: ignore[arg-type]
    assert {split: paths(pairs) for split, pairs in divided.items()} == {"test": ["a.png", "c.png"], "val": ["b.png"]}


def test_read_annotated_reports_pairs_and_unused_files(tmp_path: Path) -> None:
    touch(tmp_path, "a.png", "b.png", "labels/a.txt", "labels/z.txt", "labels/list.txt", "labels/x/a.txt")
    splits = {"train": [Pair(str(tmp_path / "a.png"), str(tmp_path / "labels/a.txt"))]}
    splits["val"] = [*splits["train"], Pair(str(tmp_path / "b.png"), None)]
    found, problems = read_annotated(Tree(str(tmp_path)), splits, splits, parse_words, frozenset({"list.txt"}))
    assert {split: [Path(path).name for path, _ in images] for split, images in found.items()} == {
        "train": ["a.png"], "val": ["a.png"],
    }  # fmt: skip
    named = [problem.message.rpartition(": ")[2] for problem in problems]
    assert named == ["a.png.", "z.txt, a.txt.", "b.png."]


@pytest.mark.parametrize(
    ("bad", "confidence"),
    [(0, Confidence.CERTAIN), (1, Confidence.CERTAIN), (2, Confidence.LIKELY), (5, Confidence.LIKELY), (6, None)],
)
def test_detect_texts_depends_on_usable_files(tmp_path: Path, bad: int, confidence: Confidence | None) -> None:
    names = [f"labels/{number}.txt" for number in range(10)]
    touch(tmp_path, *names[:bad], content="bad\n")
    touch(tmp_path, *names[bad:], content="good\n")
    touch(tmp_path, "a.png", *[f"labels/empty{number}.txt" for number in range(20)])
    found = detect_texts(Tree(str(tmp_path)), frozenset(), parse_words, ("boxes",), "lines")
    assert [each.confidence for each in found] == ([] if confidence is None else [confidence])
    (tmp_path / "a.png").unlink()
    assert detect_texts(Tree(str(tmp_path)), frozenset(), parse_words, ("boxes",), "lines") == []


def test_describe_folders_begins_with_the_largest() -> None:
    assert describe_folders({"": ["a"], "val": ["b", "c"]}).rpartition(" in ")[2] == "val, the folder itself"


def test_parse_lines_counts_repetitions_by_a_key(tmp_path: Path) -> None:
    touch(tmp_path, "a.txt", content="one\n\nONE\nbad\ntwo\nOne\n")

    def parse(line: str, number: int) -> str | None:
        if line == "bad":
            raise Unfit(f"line {number} is bad")
        return line or None

    assert parse_lines(str(tmp_path / "a.txt"), parse, str.lower) == Parsed(["one", "two"], ["line 4 is bad"], 2)
    assert parse_lines(str(tmp_path / "a.txt"), parse).repeated == 0
