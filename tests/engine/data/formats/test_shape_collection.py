"""Collection of images and shapes from annotation files, from a sample of which formats are detected."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from engine.data.decoding.reading import Unfit, read_json
from engine.data.formats.shared.json_files import find_words, first_items, likely_first
from engine.data.formats.shared.shape_collection import ShapeCollection
from engine.data.formats.shared.shapes import ShapedImage, as_number, as_size, box_shape
from engine.data.formats.tree import Tree, split_of_path


@pytest.mark.parametrize(
    ("path", "by_name", "split"),
    [
        ("train/a.json", False, "train"),
        ("labels/Validation/b/a.json", False, "val"),
        ("data/annotations_train.xml", True, "train"),
        ("data/annotations_train.xml", False, ""),
        ("latest/strain.json", True, ""),
        ("a.json", True, ""),
        ("test\\a.png", False, "test"),
    ],
)
def test_split_of_path_matches_complete_words(path: str, by_name: bool, split: str) -> None:
    assert split_of_path(path, by_name=by_name) == split


@pytest.mark.parametrize(
    ("value", "number"),
    [
        (1, 1.0),
        ("2.5", 2.5),
        (" 3 ", 3.0),
        (True, None),
        (None, None),
        ("x", None),
        ("nan", None),
        (1e999, None),
        (-1e10, None),
    ],
)
def test_as_number_accepts_coordinates_only(value: object, number: float | None) -> None:
    assert as_number(value) == number
    assert as_number(10**400) is None


@pytest.mark.parametrize("side", [0, -1, None, "x", 1e20, float("inf")])
def test_as_size_refuses_sides_that_no_image_has(side: object) -> None:
    assert as_size(5, side) is None
    assert as_size(side, 5) is None


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_words_in_and_first_items_read_every_encoding(tmp_path: Path, encoding: str) -> None:
    path = tmp_path / "a.json"
    path.write_text(json.dumps(["é" * 4_194_300, {"needle": 1}, 3]), encoding)
    assert find_words(str(path), (b'"needle"', b'"other"')) == {b'"needle"'}
    assert first_items(str(path))[1:] == [{"needle": 1}, 3]


@pytest.mark.parametrize("content", ["{", "[1, 2", "\0", '{"a": nan}'])
def test_read_json_reports_invalid_files(tmp_path: Path, content: str) -> None:
    path = tmp_path / "a.json"
    path.write_text(content)
    with pytest.raises(Unfit, match="not valid JSON"):
        read_json(str(path))


def test_likely_first_prefers_files_in_few_folders() -> None:
    deep = [f"a/b/{number}.json" for number in range(500)]
    paths = likely_first([*deep, "export.json"])
    assert paths[0] == "export.json"
    assert len(paths) == 40


@pytest.mark.parametrize(
    ("splits", "expected"),
    [
        ({"a": "", "b": ""}, {"": 2}),
        ({"a": "", "b": "val"}, {"train": 1, "val": 1}),
        ({"a": "train", "b": "val", "c": ""}, {"train": 1, "val": 1}),
        ({"a": "", "b": "test"}, {"train": 1, "test": 1}),
    ],
)
def test_collection_settles_images_of_no_split(
    tmp_path: Path, splits: dict[str, str], expected: dict[str, int]
) -> None:
    found = ShapeCollection(Tree(str(tmp_path)))
    for name, split in splits.items():
        found.add(ShapedImage(str(tmp_path / f"{name}.png"), [box_shape("cat", 1, 2, 3, 4)]), split)
    content = found.content("boxes")
    assert {split: len(images) for split, images in content.splits.items()} == expected
    assert len(content.problems) == (sum(expected.values()) < len(splits))


def test_collection_counts_objects_by_reason(tmp_path: Path) -> None:
    found = ShapeCollection(Tree(str(tmp_path)))
    found.add(ShapedImage(str(tmp_path / "a.png")), "")
    for name in "abcd":
        found.skip_object(f"{name}.json", "drawn as line")
    found.skip_object("b.json", "without a name", "its number is 7")
    lines, name = found.content("boxes").problems
    assert "4 objects drawn as line, in a.json, b.json, c.json, …" in lines.message
    assert "1 object without a name, in b.json (b.json: its number is 7)" in name.message
