"""Shapes in annotation files: reading, conversion and collection by image, and detection of formats from samples."""

from __future__ import annotations

import json
from contextlib import nullcontext
from pathlib import Path

import msgspec
import pytest

from engine.contract.problems import errors
from engine.data.decoding.reading import Unfit, read_json
from engine.data.formats.shared.json_files import (
    EntryFaults,
    Fault,
    find_json_files,
    find_words,
    parse_file,
    parse_items,
    read_first_items,
    read_head,
    read_json_bytes,
    sample_json,
    sample_lists,
    select_likely,
)
from engine.data.formats.shared.shape_collection import ShapeCollection, detect_files, list_kinds
from engine.data.formats.shared.shapes import (
    ShapedImage,
    convert,
    make_box_shape,
    make_ellipse_points,
    make_polygon_shape,
    make_rotated_box,
    parse_number,
    parse_points,
    parse_size,
    rename_classes,
)
from engine.data.formats.tree import Tree, split_of_path
from engine.system.regular_files import UnusableFile


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
        (False, None),
        (None, None),
        ("x", None),
        ("nan", None),
        (1e999, None),
        (-1e10, None),
    ],
)
def test_as_number_accepts_coordinates_only(value: object, number: float | None) -> None:
    assert parse_number(value) == number
    assert parse_number(10**400) is None


@pytest.mark.parametrize("side", [0, -1, None, "x", 1e20, float("inf")])
def test_as_size_refuses_sides_that_no_image_has(side: object) -> None:
    assert parse_size(5, side) is None
    assert parse_size(side, 5) is None


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32"])
def test_read_json_bytes_converts_every_encoding(tmp_path: Path, encoding: str) -> None:
    path = tmp_path / "a.json"
    path.write_text('{"é": [NaN, "NaN", -Infinity]}', encoding)
    assert read_json_bytes(str(path)) == '{"é": [null, "NaN", null]}'.encode()
    assert sample_lists(str(path), ("é",), "é")["é"][1] == "NaN"
    path.write_text("[Infinity]", encoding)
    assert read_json_bytes(str(path)) == b"[null]"


def test_read_json_bytes_counts_lines_over_all_chunks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.data.formats.shared.json_files.CHUNK_BYTES", 4)
    (tmp_path / "a.json").write_bytes('[1,é\n2,\n3,\n"'.encode() + b'\xff"]')
    with pytest.raises(Unfit, match="line 4 "):
        read_json_bytes(str(tmp_path / "a.json"))


def test_find_words_finds_a_word_between_two_chunks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.data.formats.shared.json_files.CHUNK_BYTES", 4)
    (tmp_path / "a.json").write_text('{"abc": 1, "def": 2}')
    assert find_words(str(tmp_path / "a.json"), (b'"abc"', b'"def"', b'"ghi"')) == {b'"abc"', b'"def"'}
    assert sample_json(str(tmp_path / "a.json"), (b'"abc"', b'"def"')) == {"abc": 1, "def": 2}
    assert sample_json(str(tmp_path / "a.json"), (b'"abc"', b'"ghi"')) is None
    for max_bytes, failure in ((20, nullcontext()), (19, pytest.raises(UnusableFile, match="has 20 bytes"))):
        monkeypatch.setattr("engine.data.formats.shared.json_files.MAX_TABLE_BYTES", max_bytes)
        with failure:
            find_words(str(tmp_path / "a.json"), (b'"abc"',))
    (tmp_path / "a.json").write_text('{"abc": "torn')
    assert sample_json(str(tmp_path / "a.json"), (b'"abc"',)) is None


@pytest.mark.parametrize("chunk_bytes", [7, 11, 30, 1000])
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('[{"a": [1], "b": [2]}]', {}),
        ('\n {"a": [1, 2, 3], "c": [4], "b": [5]}', {"a": [1, 2], "b": [5]}),
        ('{"a": [], "c": "' + "x" * 99 + '", "a": [1], "b": [2]}', {"a": [1], "b": [2]}),
        ('{"a": [], "c": 1}', {"a": []}),
        ('{"a": [1], "a": [9], "b": [2]}', {"a": [1], "b": [2]}),
        ('{"a": [1], "b": ["torn', {"a": [1], "b": ['"b": ["torn']}),
        ('{"a": [{"b": [1, 2]}]}', {"a": [{"b": [1, 2]}], "b": [1, 2]}),
        ('{"a": ["ééééé"], "b": [2]}', {"a": ["ééééé"], "b": [2]}),
    ],
)
def test_sample_lists_returns_first_entries(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, expected: dict[str, list[object]], chunk_bytes: int
) -> None:
    monkeypatch.setattr("engine.data.formats.shared.json_files.CHUNK_BYTES", chunk_bytes)
    (tmp_path / "a.json").write_text(text)
    found = sample_lists(str(tmp_path / "a.json"), ("a", "b"), until="b", count=2)
    assert found.keys() == expected.keys()
    assert all(items == expected[key][: len(items) or None] for key, items in found.items())


@pytest.mark.parametrize(("count", "items"), [(0, []), (2, [1, {"a": 2}]), (9, [1, {"a": 2}, "x"])])
def test_items_from_stops_after_a_count(count: int, items: list[object]) -> None:
    assert parse_items('[1, {"a": 2}, "x", {"torn', 1, count) == items


def test_json_files_are_sorted_by_size(tmp_path: Path) -> None:
    for name, length in (("b.json", 7), ("a.json", 9), ("c.json", 9), ("x/y/z/d.json", 1), ("x/y/z/w/e.json", 1)):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(" " * length)
    (tmp_path / "0.json").symlink_to("gone")
    (tmp_path / "d.json").symlink_to("a.json")
    assert find_json_files(Tree(str(tmp_path))) == {
        "": ["a.json", "c.json", "d.json", "b.json", "0.json"], "x/y/z": ["x/y/z/d.json"],
    }  # fmt: skip
    assert read_head(str(tmp_path / "0.json")) == ""


def test_entry_faults_are_counted_by_kind() -> None:
    faults = EntryFaults("a.json")
    for number in range(3):
        faults.add(Fault("odd entry", "odd entries", "Fix it."), f"images[{number}]")
    faults.add(Fault("one", "many", "Drop it."), "annotations[7].id")
    first, second = faults.problems()
    assert (first.message.count("3 odd entries"), first.remedy, second.remedy) == (1, "Fix it.", "Drop it.")
    assert ("annotations[7].id" in second.message, "images[0], images[1], images[2]" in first.message) == (True, True)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_words_in_and_first_items_read_every_encoding(tmp_path: Path, encoding: str) -> None:
    path = tmp_path / "a.json"
    path.write_text(json.dumps(["é" * 4_194_300, {"needle": 1}, 3]), encoding)
    assert find_words(str(path), (b'"needle"', b'"other"')) == {b'"needle"'}
    assert read_first_items(str(path))[1:] == [{"needle": 1}, 3]


@pytest.mark.parametrize("content", ["{", "[1, 2", "\0", '{"a": nan}'])
def test_read_json_reports_invalid_files(tmp_path: Path, content: str) -> None:
    path = tmp_path / "a.json"
    path.write_text(content)
    with pytest.raises(Unfit, match="not valid JSON"):
        read_json(str(path))
    path.write_text("3")
    with pytest.raises(Unfit, match="its content is missing"):
        parse_file(str(path), msgspec.json.Decoder(list[int]))


def test_likely_first_prefers_files_in_few_folders() -> None:
    deep = [f"a/b/{number}.json" for number in range(500)]
    paths = select_likely([*deep, "export.json"])
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
        found.add(ShapedImage(str(tmp_path / f"{name}.png"), [make_box_shape("cat", 1, 2, 3, 4)]), split)
    content = found.content("boxes")
    assert {split: len(images) for split, images in content.splits.items()} == expected
    assert len(content.problems) == (sum(expected.values()) < len(splits))


def test_collection_counts_objects_by_reason(tmp_path: Path) -> None:
    found = ShapeCollection(Tree(str(tmp_path)))
    found.add(ShapedImage(str(tmp_path / "a.png")), "")
    for name in "abcd":
        found.skip_object(f"{name}.json", "drawn as line")
    for name, number in (("b.json", 7), ("c.json", 8)):
        found.skip_object(name, "without a name", f"its number is {number}")
    lines, name = found.content("boxes").problems
    assert "4 objects drawn as line, in a.json, b.json, c.json, …" in lines.message
    assert "2 objects without a name, in b.json, c.json (b.json: its number is 7)" in name.message


def test_collection_without_any_image_is_an_error(tmp_path: Path) -> None:
    found = ShapeCollection(Tree(str(tmp_path)))
    for name in ("a.png", "b.png", "a.png"):
        found.note_missing(name)
    (problem,) = errors(found.content("boxes").problems)
    assert "None of the 2 annotated images is in the folder: a.png, b.png" in problem.message


def collection(folder: Path, *images: str) -> ShapeCollection:
    for name in images:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()
    return ShapeCollection(Tree(str(folder)))


def names_in(messages: list[str]) -> list[str]:
    return [text.rpartition(": ")[2].rstrip(".") for text in messages]


def test_collection_reports_images_without_annotations(tmp_path: Path) -> None:
    found = collection(tmp_path, "a.png", "b.png", "c.png", "d.png", "x/e.png")
    found.add(ShapedImage(str(tmp_path / "a.png"), [make_box_shape("cat", 1, 2, 3, 4)]), "test", "train")
    found.add(ShapedImage(str(tmp_path / "a.png")), "train")
    found.note_unannotated(str(tmp_path / "b.png"))
    found.note_unannotated("listed.png")
    found.note_missing("gone.png")
    found.skip_file(str(tmp_path / "c.json"), Unfit("it is torn"), str(tmp_path / "c.png"))
    content = found.content("boxes", ["dog", "cat"])
    unreadable, *others = (problem.message for problem in content.problems)
    assert ("c.json" in unreadable, "c.png" in unreadable) == (True, False)
    assert names_in(others) == ["gone.png", "a.png", "b.png, listed.png, d.png"]
    assert (list(content.splits), content.classes) == (["train", "test"], ("cat",))


@pytest.mark.parametrize(
    ("same_name", "named", "found", "renamed"),
    [
        ("a.png", "", "a.png", False),
        ("a.png", "x\\a.png", "a.png", False),
        ("a.png", "a.jpg", "a.jpg", False),
        ("a.png", "a.bmp", "a.png", False),
        ("a.png", "c.png", "a.png", True),
        ("a.png", "gone.png", "a.png", False),
        (None, "c.png", "c.png", False),
        (None, "used.png", None, False),
        (None, "", None, False),
    ],
)
def test_collection_prefers_the_image_of_the_same_name(
    tmp_path: Path, same_name: str | None, named: str, found: str | None, renamed: bool
) -> None:
    images = collection(tmp_path, "a.png", "a.jpg", "c.png", "used.png")
    images.add(ShapedImage(str(tmp_path / "used.png")), "")
    paths = [None if name is None else str(tmp_path / name) for name in (same_name, found)]
    assert images.find_named("a.json", paths[0], named, "", "") == paths[1]
    assert any("a.json" in problem.message for problem in images.content("boxes").problems) == renamed


@pytest.mark.parametrize(
    ("outlines", "boxes", "tags", "kinds"),
    [
        (True, False, 0, "instances boxes"),
        (False, True, 1, "boxes classes labels"),
        (False, False, 2, "labels"),
        (False, False, 0, ""),
    ],
)
def test_detected_kinds_begin_with_the_most_detailed(outlines: bool, boxes: bool, tags: int, kinds: str) -> None:
    assert " ".join(list_kinds(has_outlines=outlines, has_boxes=boxes, max_tags=tags)) == kinds


@pytest.mark.parametrize(
    ("contents", "found"),
    [
        ([{"shapes": ["polygon"]}] * 3, ("instances boxes", 3, ())),
        ([{"shapes": ["rectangle"], "tags": ["x", "y"]}], ("boxes labels", 3, ())),
        ([{"shapes": [], "tags": ["x"]}], ("classes labels", 3, ())),
        ([{"shapes": []}, *[{"other": 1}] * 2], ("boxes", 2, ("2 of 3 ",))),
        ([{"shapes": []}, {"other": 1}], ("boxes", 3, ())),
        ([{"shapes": []}] * 31 + [{"shapes": ["polygon"]}] + [{"shapes": []}] * 8, ("instances boxes", 3, ())),
        ([{"other": 1}], None),
    ],
)
def test_detect_files_depends_on_a_sample(
    tmp_path: Path, contents: list[dict[str, list[str]]], found: tuple[str, int, tuple[str, ...]] | None
) -> None:
    names = [f"{number:02}.json" for number in range(len(contents))]
    for name, content in zip(names, contents, strict=True):
        (tmp_path / name).write_text(json.dumps(content))
    detections = detect_files(
        Tree(str(tmp_path)),
        names,
        "Tool",
        keys=(b'"shapes"',),
        is_valid=lambda content: content is not None,
        shapes_of=lambda content: content["shapes"],
        tags_of=lambda content: content.get("tags", []),
        outlines={"polygon"},
    )
    detected = [(" ".join(each.kinds), int(each.confidence)) for each in detections]
    assert detected == ([] if found is None else [found[:2]])
    if found is not None:
        assert [text for text, each in zip(found[2], detections[0].against, strict=True) if text in each] == [*found[2]]


# Shapes


@pytest.mark.parametrize("value", [None, [1, 2], [[1, 2, 3]], [[1]], [[1, "x"]], [[1, True]]])
def test_as_points_refuses_other_values(value: object) -> None:
    with pytest.raises(Unfit):
        parse_points(value)
    assert parse_points([[1, 2.5], ("3", 4)]) == [(1, 2.5), (3, 4)]


def test_polygon_shape_drops_unusable_rings() -> None:
    square = [(1.0, 2.0), (5.0, 2.0), (5.0, 4.0)]
    shape = make_polygon_shape("cat", square, square[:2], [*square[:2], (float("nan"), 1.0)], ignored=True)
    assert shape is not None
    assert (shape.box, shape.ignored, bytes(shape.outline or b"")) == (
        (1, 2, 5, 4),
        True,
        b"[[1.0,2.0,5.0,2.0,5.0,4.0]]",
    )
    assert make_polygon_shape("cat", square[:2]) is None


@pytest.mark.parametrize(
    ("degrees", "edges", "has_outline"),
    [(0, (2, 0, 6, 2), False), (360, (2, 0, 6, 2), False), (90, (2, 2, 4, 6), True), (180, (-2, 2, 2, 4), True)],
)
def test_rotated_box_turns_clockwise(degrees: float, edges: tuple[float, ...], has_outline: bool) -> None:
    shape = make_rotated_box("cat", (2, 0, 6, 2), degrees, (2, 2))
    assert shape.box == pytest.approx(edges)
    assert (shape.outline is not None) == has_outline


def test_ellipse_points_have_two_radii() -> None:
    x, y = zip(*make_ellipse_points(10, 20, 3, 5), strict=True)
    assert (min(x), max(x), min(y), max(y)) == pytest.approx((7, 13, 15, 25))


def shaped() -> list[ShapedImage]:
    first = ShapedImage(
        "a.png", [make_box_shape("dog", 3, 4, 1, 2, ignored=True), make_box_shape("ant", 5, 6, 7, 8)], (9, 8)
    )
    return [first, ShapedImage("b.png", tags=("x", "y", "z")), ShapedImage("c.png", tags=("y",), fractions=True)]


def test_convert_numbers_listed_classes_first() -> None:
    boxes = convert("boxes", {"train": shaped()}, [], ["dog", "cat"])
    assert boxes.classes == ("dog", "cat", "ant")
    assert [(each.path, each.boxes, each.size, each.fractions) for each in boxes.splits["train"]] == [
        ("a.png", [(1, 2, 3, 4, 0, True), (5, 6, 7, 8, 2, False)], (9, 8), False),
        ("b.png", [], None, False),
        ("c.png", [], None, True),
    ]
    labels = convert("labels", {"train": shaped()}, []).splits["train"].labels
    assert labels.tolist() == [[False] * 3, [True] * 3, [False, True, False]]
    classes = convert("classes", {"train": [*shaped(), ShapedImage("d.png", tags=("x", "z"))]}, [])
    assert list(classes.splits["train"].files) == ["c.png"]
    assert names_in([problem.message for problem in classes.problems]) == ["a.png", "b.png, d.png"]


def test_convert_warns_of_too_many_instances(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.data.formats.shared.shapes.MAX_INSTANCES", 2)
    triangle = make_polygon_shape("cat", [(0, 0), (4, 0), (0, 4)])
    assert triangle is not None
    images = [ShapedImage(f"{count}.png", [triangle] * count) for count in (2, 3)]
    images.append(ShapedImage("box.png", [make_box_shape("cat", 1, 2, 3, 4)]))
    content = convert("instances", {"": images}, [])
    without_outline, crowd = (problem.message for problem in content.problems)
    assert ("1 object without an outline, in box.png" in without_outline, names_in([crowd])) == (True, ["3.png"])
    assert [source.labels() for source in content.splits[""].sources] == [[0, 0], [0, 0, 0], []]


def test_rename_classes_renames_shapes_and_tags() -> None:
    images = shaped()
    rename_classes(images, {"dog": "Hound", "x": "Y", "y": "Y"})
    assert [shape.name for shape in images[0].shapes] == ["Hound", "ant"]
    assert [image.tags for image in images] == [(), ("Y", "z"), ("Y",)]
