"""Description of a YOLO dataset: names, splits and paths in data.yaml and obj.data."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.data.formats.tree import Tree
from engine.data.formats.yolo.definition import find_class_names, find_definition, read_yaml, resolve
from engine.data.formats.yolo.format import FORMAT
from engine.data.formats.yolo.images import ImageSearch
from engine.system.regular_files import UnusableFile
from tests.support.boxed import TWO, draw, text
from tests.support.read_formats import detect, read


def make_tree(folder: Path, **files: str) -> Tree:
    """Write text files to `folder` and list them. `files` maps names to contents.

    "__" in a name separates folders, and the last "_" becomes a dot.
    """
    for name, content in files.items():
        text(folder / ".".join(name.replace("__", "/").rsplit("_", 1)), content)
    return Tree(str(folder))


@pytest.mark.parametrize(
    ("yaml", "names", "problems"),
    [
        ("names: [cat, dog]\nnc: 2\n", ["cat", "dog"], 0),
        ("names: [cat, dog]\nnc: 1\n", ["cat", "dog"], 1),
        ("names: [cat, dog]\nnc: 3\n", ["cat", "dog"], 1),
        ("names: []\nnc: 2\n", ["class 0", "class 1"], 0),
        ("names: {}\nnc: 2\n", ["class 0", "class 1"], 0),
        ("names: {0: cat, 2: dog}\n", ["cat", "class 1", "dog"], 0),
        ("names: {cat: 1, dog: 0}\n", ["dog", "cat"], 0),
        ("nc: 2\n", ["class 0", "class 1"], 0),
        ("nc: 1000000\n", None, 0),
        ("names: cat, dog\n", ["cat", "dog"], 0),
        ("names: [no, 'yes', 007]\n", ["no", "yes", "007"], 0),
        ('"names":\n  "0": a\n  "2": c\n', ["a", "class 1", "c"], 0),
        ("names: data/obj.names\n", ["cow"], 0),
        ("nc: 2\nnames:\n", ["class 0", "class 1"], 0),
    ],
)
def test_names_are_ordered_by_number(tmp_path: Path, yaml: str, names: list[str] | None, problems: int) -> None:
    found = find_definition(make_tree(tmp_path, data_yaml=yaml, data__obj_names="cow\n"))
    assert (found.names, len(found.problems)) == (names, problems)


@pytest.mark.parametrize(
    ("shape", "expected"),
    [("[17, 3]", (17, 3)), ("[4, 2]", (4, 2)), ("[4, 1]", None), ("[0, 3]", None), ("[4]", None)],
)
def test_keypoints_have_two_or_three_values(tmp_path: Path, shape: str, expected: tuple[int, int] | None) -> None:
    assert find_definition(make_tree(tmp_path, data_yaml=f"nc: 1\nkpt_shape: {shape}\n")).keypoint_shape == expected


@pytest.mark.parametrize(
    "names", ["{cat: x, dog: y}", "{100000: cat}", "{0: [cat]}", "{0: &a [cat], 1: *a}", "[[cat]]"]
)
def test_names_need_numbers(tmp_path: Path, names: str) -> None:
    with pytest.raises(UnusableFile):
        find_definition(make_tree(tmp_path, data_yaml=f"names: {names}\n"))


def test_definition_is_in_the_most_likely_file(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").symlink_to("gone")
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(OSError, match="loop"):
        read_yaml(str(tmp_path / "loop"))
    found = make_tree(tmp_path, obj_data="names = obj.names\n", obj_names="owl\n")
    assert find_definition(found).file == ""
    found = make_tree(tmp_path, b_yaml="names: [cat", c_yaml="names: [cat]\n", data_yaml="nc: &n 2\nk: *n\n")
    definition = find_definition(found)
    assert (definition.file, definition.names) == ("data.yaml", ["class 0", "class 1"])
    assert [problem.message.split()[0] for problem in definition.problems] == ["c.yaml"]


def test_file_with_splits_is_chosen(tmp_path: Path) -> None:
    found = find_definition(make_tree(tmp_path, data_yaml="names: [cat]\n", model_yaml="names: [dog]\ntrain: images\n"))
    assert (found.file, found.names, len(found.problems)) == ("model.yaml", ["dog"], 1)


def test_darknet_takes_the_first_path_of_a_split(tmp_path: Path) -> None:
    content = "train = a.txt\ntraining = b.txt\nvalid = v.txt\nnames = x.names\n"
    found = find_definition(make_tree(tmp_path, obj_data=content, x_names="cat\ndog\n"))
    assert (found.splits, found.names) == ({"train": ["a.txt"], "val": ["v.txt"]}, ["cat", "dog"])


@pytest.mark.parametrize(
    ("entry", "split", "path"),
    [
        ("images/train", "train", "images/train"),
        ("../data/images/train", "train", "images/train"),
        (r"C:\me\images\train", "train", "images/train"),
        ("/home/me/images/val", "val", None),
        ("/home/me/val/images", "val", None),
        ("/home/me/old/images", "val", "images"),
        ("nothing", "train", None),
    ],
)
def test_resolve_keeps_the_folder_of_the_split(tmp_path: Path, entry: str, split: str, path: str | None) -> None:
    (tmp_path / "images/train").mkdir(parents=True)
    assert resolve(Tree(str(tmp_path)), entry, "", split=split) == path
    (tmp_path / "more").mkdir()
    assert resolve(Tree(str(tmp_path / "images")), "../more", "") == "../more"
    (tmp_path / "more/images/train").mkdir(parents=True)
    assert resolve(Tree(str(tmp_path)), "images/train", "more") == "more/images/train"


@pytest.mark.parametrize(
    ("files", "names", "problems"),
    [
        ({"classes_txt": "cat\ndog"}, ["cat", "dog"], 0),
        ({"data__obj_names": "cow"}, ["cow"], 0),
        ({"obj_names": "cow", "labels__classes_txt": "cat\ndog"}, ["cat", "dog"], 0),
        ({"classes_txt": "cat\ndog", "labels__classes_txt": "dog\ncat"}, ["cat", "dog"], 1),
        (
            {"data_yaml": "names: [cat, dog]", "classes_txt": "cat\ndog", "labels__classes_txt": "dog"},
            ["cat", "dog"],
            0,
        ),
        ({"data_yaml": "names: [cat, dog]", "classes_txt": "dog\ncat"}, ["cat", "dog"], 1),
        ({}, None, 0),
    ],
)
def test_class_names_come_from_the_preferred_file(
    tmp_path: Path, files: dict[str, str], names: list[str] | None, problems: int
) -> None:
    (tmp_path / "labels").mkdir()
    found = make_tree(tmp_path, **files)
    given = find_class_names(found, find_definition(found), ["labels"])
    assert (given[0], len(given[1])) == (names, problems)


LINE = "0 0.5 0.5 0.2 0.2\n"


def dataset(folder: Path, *images: str, **files: str) -> Tree:
    for name in images:
        draw(folder / f"images/{name}.png", TWO)
        text(folder / f"labels/{name}.txt", LINE)
    return make_tree(folder, **files)


@pytest.mark.parametrize(
    ("files", "splits"),
    [
        ({"data_yaml": "nc: 1\nval: images/b.png\n"}, {"val": "b", "train": "ac"}),
        ({"data_yaml": "nc: 1\ntrain: [images/a.png, images/a.png, images/b.png]\n"}, {"train": "ab"}),
        ({"data_yaml": "nc: 1\ntrain: [images/a.png, '']\ntest:\n"}, {"train": "a"}),
        ({"train_txt": "images/a.png\nimages/b.png 0\n", "val_txt": "images/c.png"}, {"train": "ab", "val": "c"}),
        ({"train_txt": "cat\n", "notes_txt": "x"}, {"": "abc"}),
        ({}, {"": "abc"}),
    ],
)
def test_images_are_divided_by_entries_and_lists(tmp_path: Path, files: dict[str, str], splits: dict[str, str]) -> None:
    found = dataset(tmp_path, "a", "b", "c", **files)
    search = ImageSearch(found, find_definition(found))
    divided = search.find_splits()
    assert search.problems == []
    assert {split: "".join(Path(pair.image).stem for pair in pairs) for split, pairs in divided.items()} == splits


def test_missing_entry_names_the_folder_of_its_split(tmp_path: Path) -> None:
    found = dataset(tmp_path, "train/a", "val/b", data_yaml="nc: 1\ntrain: images/train\nval: gone\n")
    search = ImageSearch(found, find_definition(found))
    assert {split: len(pairs) for split, pairs in search.find_splits().items()} == {"train": 1, "val": 1}
    (problem,) = search.problems
    assert ("images/val" in problem.message, "images/train" in problem.message) == (True, False)


def lines(folder: Path, *texts: str, names: str = "cat\n") -> Path:
    for number, content in enumerate(texts):
        draw(folder / f"images/{number}.png", TWO)
        text(folder / f"labels/{number}.txt", content)
    text(folder / "classes.txt", names)
    return folder


TRIANGLE = "0 0.1 0.1 0.5 0.1 0.5 0.5\n"
QUAD = "0 0.1 0.1 0.5 0.1 0.5 0.5 0.1 0.5\n"


@pytest.mark.parametrize(
    ("texts", "kinds"),
    [
        ([LINE], "boxes"),
        ([TRIANGLE + LINE, TRIANGLE], "instances boxes"),
        ([TRIANGLE, TRIANGLE, LINE, LINE], "boxes instances"),
        ([QUAD], "boxes instances"),
        ([QUAD + TRIANGLE], "instances boxes"),
    ],
)
def test_kinds_depend_on_the_length_of_lines(tmp_path: Path, texts: list[str], kinds: str) -> None:
    assert " ".join(detect(FORMAT, lines(tmp_path, *texts))[0].kinds) == kinds


@pytest.mark.parametrize(
    ("texts", "kind", "named"),
    [
        ([LINE, LINE, TRIANGLE], "boxes", "2.png"),
        ([LINE, TRIANGLE, TRIANGLE], "boxes", "0.png"),
        ([TRIANGLE, TRIANGLE, LINE], "instances", "2.png"),
        ([TRIANGLE, "0 -0.05 0.1 0.5 0.1 0.5 0.5\n", TRIANGLE], "instances", "1.png"),
        ([TRIANGLE, "0 0.1 0.1 1.05 0.1 0.5 0.5\n", TRIANGLE], "instances", "1.png"),
        ([TRIANGLE, "0 0.1 0.1 1.009 0.1 0.5 0.5\n", TRIANGLE], "instances", ""),
    ],
)
def test_objects_of_another_kind_are_reported(tmp_path: Path, texts: list[str], kind: str, named: str) -> None:
    problems = read(FORMAT, lines(tmp_path, *texts), kind).problems
    assert [problem.message.rpartition("in ")[2].rstrip(".") for problem in problems] == ([named] if named else [])


@pytest.mark.parametrize(("names", "failures"), [("cat\ndog\n", 0), ("cat\n", 1)])
def test_highest_class_needs_a_name(tmp_path: Path, names: str, failures: int) -> None:
    content = read(FORMAT, lines(tmp_path, LINE.replace("0", "1", 1), names=names))
    assert [problem.severity for problem in content.problems] == ["error"] * failures


@pytest.mark.parametrize(
    ("content", "is_refused"),
    [
        ("0 100 90 20 30\n", True),
        ("0 100 90 20 30 0.9\n0 10 20 30 40 50 60\n", True),
        ("0 100 90 20 30\n0 10 20 30 40 50 60\n0 10 20 30 40 50 70\n", False),
        ("0 10 20 30 40 50 60\n", False),
    ],
)
def test_boxes_in_pixels_are_refused_and_other_numbers_passed_over(
    tmp_path: Path, content: str, is_refused: bool
) -> None:
    draw(tmp_path / "images/a.png", TWO)
    text(tmp_path / "labels/a.txt", content)
    assert [each.kinds for each in detect(FORMAT, tmp_path)] == [()] * is_refused
