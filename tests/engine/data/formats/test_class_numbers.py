"""Names of numbered classes, and categories of COCO files."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.data.formats.shared.class_numbers import find_names, name_numbers
from engine.data.formats.shared.coco_categories import add_spellings
from engine.data.formats.shared.ignored_class import drop_ignored_class, drop_point_label
from engine.data.formats.tree import Tree
from engine.data.splits import MaskCode, MaskSplit, RecognizedDataset, dataset_error


@pytest.mark.parametrize(
    ("file", "text", "names"),
    [
        ("classes.txt", "cat\ndog\n", "cat dog"),
        ("classes.txt", "0 cat\n0 dog\n", "0_cat 0_dog"),
        ("classes.txt", "1: dog\n0: 'cat'\n", "cat dog"),
        ("classes.txt", "a.png 0\nb.png 1\n", ""),
        ("coco.names", "cat\ndog\n", "cat dog"),
        ("0_prices.json", '{"0": "cat", "1": "dog"}', ""),
        ("classes.json", '["cat", "dog"]', "cat dog"),
        ("classes.json", '{"0": "cat"}', ""),
        ("classes.json", '{"cat": 0, "dog": 1, "hen": 1}', ""),
        ("classes.json", '{"cat": 0, "dog": 1}', "cat dog"),
        ("classes.csv", "a,b,name\n0,5,cat\n1,6,dog\n", ""),
        ("classes.csv", "b,name\n1,dog\n0,cat\n", "cat dog"),
        ("classes.csv", "b,name,title\n1,dog,Canis\n0,cat,Felis\n", "cat dog"),
    ],
)
def test_find_names_needs_a_name_for_each_number(tmp_path: Path, file: str, text: str, names: str) -> None:
    (tmp_path / file).write_text(text)
    # Files with usual names come first.
    other = "z_map.json" if file.startswith("classes.") and not file.endswith(".txt") else "a_map.json"
    (tmp_path / other).write_text('{"0": "x", "1": "y"}')
    found = find_names(Tree(str(tmp_path)), ("",), [0, 1])
    expected = dict(enumerate((names or "x y").split()))
    assert {number: name.replace(" ", "_") for number, name in found.items()} == expected


def test_name_numbers_sorts_by_number(tmp_path: Path) -> None:
    tree = Tree(str(tmp_path))
    assert list((name_numbers(tree, ("",), ["10", "9", "1"]) or {}).items()) == [("1", "1"), ("9", "9"), ("10", "10")]
    assert name_numbers(tree, ("",), ["1", "cat"]) is None
    (tmp_path / "classes.txt").write_text("cat\ndog\n")
    assert name_numbers(Tree(str(tmp_path)), ("",), ["2", "1"]) == {"1": "cat", "2": "dog"}


def test_with_spellings_adds_numbers_and_texts() -> None:
    expected = {"0": "a", 0: "a", "-7": "b", -7: "b", 5: "c", "5": "c", 2.5: "d", "2.5": "d", "07": "e", "-0": "f"}
    assert add_spellings({"0": "a", "-7": "b", 5: "c", 2.5: "d", "07": "e", "-0": "f"}) == expected
    assert add_spellings({1: "a", "1": "b"}) == {1: "a", "1": "b"}


CODE = MaskCode((1, 2, 3), ignored=(0,))


@pytest.mark.parametrize(
    ("value", "classes", "code"),
    [(2, ("a", "c"), MaskCode((1, 3), ignored=(0, 2))), (9, ("a", "b", "c"), CODE)],
)
def test_labels_without_a_value_keep_the_others(value: int, classes: tuple[str, ...], code: MaskCode) -> None:
    found = RecognizedDataset("", ("a", "b", "c"), MaskSplit([], []), None, (), CODE)
    without = drop_ignored_class(found, "", value)
    assert (without.classes, without.code) == (classes, code)
    assert drop_ignored_class(found, "", None) is found


def test_labels_without_a_value_must_be_two() -> None:
    problem = drop_point_label(("a", "b"), MaskCode((1, 2)), 1)
    assert getattr(problem, "field", None) == "ignore_value"
    failed = RecognizedDataset("", ("a", "b"), problems=(dataset_error("Broken."),), code=CODE)
    assert drop_ignored_class(failed, "", 1) is failed
