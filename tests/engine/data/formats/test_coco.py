"""Boxes and outlines in COCO files."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from engine.contract.problems import errors
from engine.data.formats.coco import FORMAT
from engine.data.formats.shared.json_files import sample_lists
from tests.support import boxed
from tests.support.boxed import ONE, SPLITS, TWO, DrawnImage, Rectangle, draw, text
from tests.support.read_formats import (
    detect,
    list_boxes,
    list_ignored_flags,
    list_instances,
    read,
)

Edit = Callable[[dict[str, Any]], None]
SIZES = {"a": (60, 80), "b": (80, 60), "c": (80, 60), "d": (60, 80)}


def list_drawn_boxes(images: dict[str, DrawnImage]) -> dict[str, list[tuple[str, float, float, float, float]]]:
    return {name: [(each.name, *map(float, each[:4])) for each in drawn.rectangles] for name, drawn in images.items()}


def write_edited(root: Path, edit: Edit, *, outlines: bool = True) -> Path:
    """Write images and a COCO file of boxes, with outlines if `outlines`, and return `root`.

    `edit` modifies the content of the COCO file before it is written.
    """
    for stem, drawn in SPLITS["train"].items():
        draw(root / f"images/{stem}.png", drawn)
    content = boxed.coco_json(SPLITS["train"], outlines=outlines)
    edit(content)
    text(root / "annotations.json", json.dumps(content))
    return root


# Categories


def test_categories_are_matched_by_name_in_each_file(tmp_path: Path) -> None:
    for split, order in (("train", ("cat", "dog")), ("valid", ("dog", "cat")), ("test", ("bird", "dog", "cat"))):
        draw(tmp_path / split / "a.png", TWO)
        content = boxed.coco_json({"a": TWO})
        content["categories"] = [{"id": number, "name": name} for number, name in enumerate(order)]
        for each, rectangle in zip(content["annotations"], TWO.rectangles, strict=True):
            each["category_id"] = order.index(rectangle.name)
        text(tmp_path / split / "_annotations.coco.json", json.dumps(content))
    content = read(FORMAT, tmp_path, "boxes")
    assert content.classes == ("cat", "dog", "bird")
    expected = list_drawn_boxes({"a": TWO})
    assert {split: list_boxes(content, split) for split in content.splits} == dict.fromkeys(
        ("train", "val", "test"), expected
    )


def _set(key: str, value: object, field: str = "annotations", index: int = 0) -> Edit:
    return lambda json_content: json_content[field][index].update({key: value})


def _reverse_ids(content: dict[str, Any]) -> None:
    for each in content["categories"]:
        each["id"] = 100 - each["id"]
    for each in content["annotations"]:
        each["category_id"] = 100 - each["category_id"]


def _set_categories(*categories: tuple[object, object]) -> Edit:
    return lambda content: content.update(categories=[{"id": id, "name": name} for id, name in categories])


def _add_parents(content: dict[str, Any]) -> None:
    names = (("animals", "none"), ("bird", "bird"), ("cow", "animals"), ("cat", "dog"))
    content["categories"] += [
        {"id": 50 + number, "name": name, "supercategory": parent} for number, (name, parent) in enumerate(names)
    ]


@pytest.mark.parametrize(
    ("edit", "classes", "phrases"),
    [
        pytest.param(_reverse_ids, ("dog", "cat"), [], id="in the order of ids"),
        pytest.param(_set("name", 0, "categories"), ("0", "dog"), [], id="an integer"),
        pytest.param(_set("name", 2.5, "categories"), ("2.5", "dog"), [], id="a number"),
        pytest.param(_set("name", "été", "categories"), ("été", "dog"), [], id="other letters"),
        pytest.param(_set("name", "cat", "categories", 1), ("cat",), ["categories[1].name"], id="one name twice"),
        pytest.param(
            _set_categories((3, ""), (7, "dog"), (8, "dog")),
            ("class 3", "dog"),
            ["categories[0]", "categories[2]"],
            id="without a name, and one name twice",
        ),
        pytest.param(
            lambda content: (content.pop("categories"), content["annotations"][0].update(category_id=10)),
            ("class 3", "class 10"),
            ["2 categories without a name"],
            id="no list",
        ),
        pytest.param(_set_categories(), ("class 3", "class 7"), ["2 categories without a name"], id="empty list"),
        pytest.param(_add_parents, ("cat", "dog", "bird", "cow"), ["categories[5].name"], id="categories above others"),
    ],
)
def test_categories_are_named_or_reported(
    tmp_path: Path, edit: Edit, classes: tuple[str, ...], phrases: list[str]
) -> None:
    content = read(FORMAT, write_edited(tmp_path, edit), "boxes")
    assert content.classes == classes
    messages = [problem.message for problem in content.problems if "categor" in problem.message]
    assert [phrase in message for phrase, message in zip(phrases, messages, strict=True)] == [True] * len(phrases)
    if edit is _reverse_ids:
        assert list_boxes(content) == list_drawn_boxes(SPLITS["train"])


# Odd values


@pytest.mark.parametrize(
    ("edit", "place"),
    [
        (_set("bbox", [1, 2, 3]), "annotations[0].bbox"),
        (_set("bbox", [1, 2, None, 4]), "annotations[0].bbox"),
        (_set("bbox", [1, float("nan"), 3, 4]), "annotations[0].bbox"),
        (_set("bbox", [1, 2, "wide", 4]), "annotations[0].bbox"),
        (_set("bbox", {"x": 1}), "annotations[0].bbox"),
        (_set("bbox", None), "annotations[0]"),
        (_set("bbox", []), "annotations[0]"),
        (lambda json_content: json_content["annotations"][0].pop("bbox"), "annotations[0]"),
        (_set("image_id", None), "annotations[0].image_id"),
        (_set("image_id", 99), "annotations[0].image_id"),
        (_set("category_id", [3]), "annotations[0].category_id"),
        (_set("category_id", 99), "annotations[0].category_id"),
        (lambda json_content: json_content["annotations"][0].pop("category_id"), "annotations[0].category_id"),
        (lambda json_content: json_content["annotations"].insert(0, "nonsense"), "annotations[0]"),
    ],
)
def test_a_bad_annotation_costs_one_object(tmp_path: Path, edit: Edit, place: str) -> None:
    root = write_edited(tmp_path, edit, outlines=False)
    assert detect(FORMAT, root)[0].kinds == ("boxes",)
    content = read(FORMAT, root, "boxes")
    expected = list_drawn_boxes(SPLITS["train"])
    if list_boxes(content) != expected:  # an inserted entry doesn't affect the others
        del expected["a"][0]
    assert list_boxes(content) == expected
    (problem,) = content.problems
    assert problem.severity == "warning"
    assert f"annotations.json: {place}." in problem.message
    assert "msgspec" not in problem.message
    assert "Expected" not in problem.message


@pytest.mark.parametrize(
    "edit",
    [
        _set("area", float("nan")),
        _set("score", float("-inf")),
        _set("iscrowd", None),
        _set("iscrowd", "0"),
        _set("image_id", "10"),
        _set("attributes", {"occluded": False, "NaN": "Infinity, NaN"}),
        _set("segmentation", "none", index=1),
        _set("width", None, "images"),
        _set("width", "80", "images"),
        _set("height", float("nan"), "images"),
        _set("supercategory", 5, "categories"),
        lambda json_content: json_content.update(info=None, licenses="NaN"),
    ],
)
def test_fields_that_are_not_needed_may_be_odd(tmp_path: Path, edit: Edit) -> None:
    content = read(FORMAT, write_edited(tmp_path, edit), "boxes")
    assert list_boxes(content) == list_drawn_boxes(SPLITS["train"])
    assert content.problems == []


def test_ids_of_both_spellings_name_different_entries(tmp_path: Path) -> None:
    def edit(json_content: dict[str, Any]) -> None:
        json_content["categories"] = [{"id": 1, "name": "cat"}, {"id": "1", "name": "dog"}, {"id": "01", "name": "cow"}]
        for each, key in zip(json_content["annotations"], ("1", 1, "01"), strict=True):
            each["category_id"] = key

    content = read(FORMAT, write_edited(tmp_path, edit), "boxes")
    assert [name for rows in list_boxes(content).values() for name, *_ in rows] == ["dog", "cat", "cow"]


def test_rotated_boxes_become_upright_with_a_warning(tmp_path: Path) -> None:
    content = read(FORMAT, write_edited(tmp_path, _set("bbox", [30, 20, 20, 10, 90]), outlines=False), "boxes")
    assert list_boxes(content)["a"][0][1:] == pytest.approx((25, 10, 35, 30))
    (problem,) = content.problems
    assert "1 rotated box" in problem.message
    content = read(FORMAT, write_edited(tmp_path, _set("bbox", [30, 20, 20, 10, 45]), outlines=False), "boxes")
    assert list_boxes(content)["a"][0][1:] == pytest.approx((19.393, 9.393, 40.607, 30.607), abs=1e-3)
    content = read(FORMAT, write_edited(tmp_path, _set("bbox", [30, 20, 20, 10, 0]), outlines=False), "boxes")
    assert (list_boxes(content)["a"][0][1:], len(content.problems)) == ((20, 15, 40, 25), 1)


def test_crowds_are_ignored(tmp_path: Path) -> None:
    for value, expected in ((1, True), (True, True), ("1", True), (0, False), (0.0, False), ("0", False), ("", False)):
        content = read(FORMAT, write_edited(tmp_path, _set("iscrowd", value, index=2)), "boxes")
        assert list_ignored_flags(content) == {"a": [False, False], "b": [expected]}


def test_boxes_with_a_rotation_become_upright(tmp_path: Path) -> None:
    turned = _set("attributes", {"occluded": False, "rotation": 90.0})
    content = read(FORMAT, write_edited(tmp_path / "boxes", turned, outlines=False), "boxes")
    assert list_boxes(content)["a"][0] == ("dog", *(pytest.approx(edge) for edge in (12, 0, 36, 32)))
    assert "1 rotated box" in content.problems[0].message
    content = read(FORMAT, write_edited(tmp_path / "outlines", turned), "boxes")
    assert list_boxes(content) == list_drawn_boxes(SPLITS["train"])
    assert content.problems == []


@pytest.mark.parametrize(
    ("images", "kinds"),
    [((10, 11), ("classes", "labels")), ((10, 10, 11), ("labels",)), ((10, 11, 11), ("labels",))],
)
def test_annotations_without_places_are_labels(tmp_path: Path, images: tuple[int, ...], kinds: tuple[str, ...]) -> None:
    def edit(json_content: dict[str, Any]) -> None:
        json_content["annotations"] = [
            {"id": number, "image_id": image, "category_id": 3 + 4 * (number % 2)}
            for number, image in enumerate(images)
        ]

    write_edited(tmp_path, edit)
    assert detect(FORMAT, tmp_path)[0].kinds == kinds
    content = read(FORMAT, tmp_path, "labels")
    assert content.classes == ("cat", "dog")
    expected = {10: [False, False], 11: [False, False]}
    for number, image in enumerate(images):
        expected[image][number % 2] = True
    assert content.splits[""].labels.tolist() == list(expected.values())
    if "classes" in kinds:
        assert read(FORMAT, tmp_path, "classes").splits[""].labels.tolist() == [0, 1]


# Outlines


@pytest.mark.parametrize("empty", ["[ ]", "[]", "null", "[[]]", "[ [ ] ]", "[\n\n]", "[[], []]"])
def test_empty_outlines_leave_boxes(tmp_path: Path, empty: str) -> None:
    root = write_edited(tmp_path, lambda json_content: None, outlines=False)
    path = root / "annotations.json"
    path.write_text(path.read_text().replace('"iscrowd"', f'"segmentation": {empty}, "iscrowd"'))
    (detection,) = detect(FORMAT, root)
    assert detection.kinds == ("boxes",)
    content = read(FORMAT, root)
    assert list_boxes(content) == list_drawn_boxes(SPLITS["train"])
    assert content.problems == []


@pytest.mark.parametrize(
    ("outline", "phrase"),
    [
        ([[10, 10, 30, 30]], "1 outline of fewer than three points"),
        ([[10, 10, 30]], "1 outline of fewer than three points"),
        ([[10, 10, float("inf"), 10, 30, 30]], "1 outline that is neither"),
        ([], "1 object without an outline"),
        ([[]], "1 object without an outline"),
        (None, "1 object without an outline"),
        ("polygon", "1 outline that is neither"),
        ([[10, 10, None, 10, 30, 30]], "1 outline that is neither"),
        ({"size": [60, 80], "counts": [5, 5]}, "1 outline that is neither"),
        ({"size": [10, 10], "counts": [50, 50]}, "1 outline that is neither"),
        ({"counts": "abc"}, "1 outline that is neither"),
    ],
)
def test_a_bad_outline_costs_one_object(tmp_path: Path, outline: object, phrase: str) -> None:
    root = write_edited(tmp_path, _set("segmentation", outline))
    content = read(FORMAT, root, "instances")
    found = list_instances(content, SIZES)
    assert found == {"a": [("cat", 50, 30, 74, 56)], "b": [("cat", 10, 20, 30, 70)]}
    (problem,) = content.problems
    assert phrase in problem.message
    assert "annotations[0]" in problem.message
    content = read(FORMAT, root, "boxes")
    assert (list_boxes(content), content.problems) == (list_drawn_boxes(SPLITS["train"]), [])


@pytest.mark.parametrize(
    "outline",
    [
        pytest.param([8, 4, 40, 4, 40, 28, 8, 28], id="a flat list"),
        pytest.param([[1, 1, 2, 2], [8, 4, 40, 4, 40, 28, 8, 28]], id="with a ring of two points"),
    ],
)
def test_outlines_may_be_unusual_lists(tmp_path: Path, outline: object) -> None:
    content = read(FORMAT, write_edited(tmp_path, _set("segmentation", outline)), "instances")
    assert list_instances(content, SIZES)["a"][0] == ("dog", 8, 4, 40, 28)
    assert content.problems == []


def test_missing_boxes_come_from_outlines(tmp_path: Path) -> None:
    def edit(json_content: dict[str, Any]) -> None:
        for each in json_content["annotations"]:
            del each["bbox"]
        dog, cat, other_cat = json_content["annotations"]
        json_content["images"][0]["width"] = None
        dog["segmentation"] = {"size": [60, 80], "counts": [484, 24, 36, 24, 4232]}
        cat["segmentation"][0].append(99)
        other_cat["segmentation"].append([40, 20, 50, 20, 50, 80])

    found = list_boxes(read(FORMAT, write_edited(tmp_path, edit), "boxes"))
    assert found["a"] == [("dog", 8, 4, 10, 28), ("cat", 50, 30, 74, 56)]
    assert found["b"] == [("cat", 10, 20, 50, 80)]


def test_too_many_instances_are_reported(tmp_path: Path) -> None:
    rectangles = tuple(
        Rectangle(4 * column, 4 * row, 4 * column + 2, 4 * row + 2, "cat") for row in range(15) for column in range(20)
    )
    root = boxed.coco(tmp_path, {"train": {"a": DrawnImage(60, 80, rectangles), "b": ONE}, "val": {"c": ONE}})
    (problem,) = read(FORMAT, root, "instances").problems
    assert "1 image with more than 255 instances: a.png" in problem.message


# Units


def _fractions(json_content: dict[str, Any], boxes_: list[list[float]]) -> None:
    for each, box in zip(json_content["annotations"], boxes_, strict=True):
        each["bbox"] = box


def test_fractions_are_read_as_such_with_a_warning(tmp_path: Path) -> None:
    given = [[0.1, 0.1, 0.4, 0.5], [0.5, 0.5, 0.5, 0.5], [0, 0, 1, 1]]
    content = read(
        FORMAT, write_edited(tmp_path, lambda json_content: _fractions(json_content, given), outlines=False), "boxes"
    )
    assert all(image.fractions for image in content.splits[""])
    assert list_boxes(content)["a"][0] == ("dog", 0.1, 0.1, 0.5, 0.6)
    (problem,) = content.problems
    assert problem.severity == "warning"
    assert "seem to be fractions" in problem.message


def test_outlines_in_fractions_are_refused(tmp_path: Path) -> None:
    def edit(json_content: dict[str, Any]) -> None:
        for each in json_content["annotations"]:
            each["segmentation"] = [[0.1, 0.1, 0.5, 0.1, 0.5, 0.6]]

    (problem,) = errors(read(FORMAT, write_edited(tmp_path, edit), "instances").problems)
    assert "seem to be fractions" in problem.message


@pytest.mark.parametrize(
    ("write", "phrase"),
    [
        (lambda box: list(box[:4]), "left, top, right and bottom"),
        (lambda box: [(box[0] + box[2]) / 2, (box[1] + box[3]) / 2, box[2] - box[0], box[3] - box[1]], "a center"),
    ],
)
def test_numbers_that_mean_something_else_are_refused(
    tmp_path: Path, write: Callable[[Rectangle], list[float]], phrase: str
) -> None:
    rectangles = tuple(Rectangle(10 + step, 20 + step, 60 + 2 * step, 55, "cat") for step in range(5))
    drawn = DrawnImage(60, 80, rectangles)
    draw(tmp_path / "a.png", drawn)
    content = boxed.coco_json({"a": drawn}, outlines=False)
    text(tmp_path / "annotations.json", json.dumps(content))
    assert read(FORMAT, tmp_path, "boxes").problems == []
    for each, rectangle in zip(content["annotations"], rectangles, strict=True):
        each["bbox"] = write(rectangle)
    text(tmp_path / "annotations.json", json.dumps(content))
    (problem,) = errors(read(FORMAT, tmp_path, "boxes").problems)
    assert f"seem to be {phrase}" in problem.message


# Images


def test_each_entry_of_a_shared_id_is_counted(tmp_path: Path) -> None:
    def edit(json_content: dict[str, Any]) -> None:
        json_content["images"] += [{"id": 10, "file_name": f"{name}.png"} for name in "xy"]

    message = read(FORMAT, write_edited(tmp_path, edit), "boxes").problems[0].message
    assert "3 images with the ids of other images" in message
    assert [message.count(f"images[{place}].id") for place in (0, 1, 2, 3)] == [1, 0, 1, 1]


def test_images_that_share_an_id_are_left_out(tmp_path: Path) -> None:
    for shared, expected in ((10, set()), ("10", {"a"})):
        content = read(FORMAT, write_edited(tmp_path, _set("id", shared, "images", 1)), "boxes")
        assert expected <= list_boxes(content).keys()
    content = read(FORMAT, write_edited(tmp_path, _set("id", 10, "images", 1)), "boxes")
    assert list_boxes(content) == {}
    message = content.problems[0].message
    assert "images[0].id" in message
    assert "images[1].id" in message


def test_an_image_that_is_listed_twice_has_the_objects_of_both(tmp_path: Path) -> None:
    def edit(json_content: dict[str, Any]) -> None:
        json_content["images"].append(json_content["images"][0] | {"id": 5})
        json_content["annotations"][0]["image_id"] = 5

    content = read(FORMAT, write_edited(tmp_path, edit), "boxes")
    assert {name: len(rows) for name, rows in list_boxes(content).items()} == {"a": 2, "b": 1}
    (problem,) = content.problems
    assert "images[2]" in problem.message


# Files and splits


def _write_files(root: Path, names: dict[str, str]) -> Path:
    """Write COCO files that each list a single image, and these images. Return `root`.

    `names` maps the path of each COCO file to the stem of its image.
    """
    for name, stem in names.items():
        draw(root / f"images/{stem}.png", ONE)
        text(root / name, json.dumps(boxed.coco_json({stem: ONE})))
    return root


def test_files_of_single_images_are_all_read(tmp_path: Path) -> None:
    names = {f"labels/{number}.json": f"{number}" for number in range(25)}
    content = read(FORMAT, _write_files(tmp_path, names), "boxes")
    assert list_boxes(content) == list_drawn_boxes(dict.fromkeys(names.values(), ONE))
    assert content.problems == []


def test_a_split_without_annotations_is_left_out(tmp_path: Path) -> None:
    root = _write_files(tmp_path, {"train.json": "a", "val.json": "b", "test.json": "c"})
    text(root / "test.json", json.dumps(boxed.coco_json({"c": ONE}) | {"annotations": []}))
    content = read(FORMAT, root, "boxes")
    assert set(content.splits) == {"train", "val"}
    (problem,) = content.problems
    assert "test split" in problem.message
    root = _write_files(tmp_path / "outlines", {"train.json": "a", "val.json": "b"})
    changed = boxed.coco_json({"a": ONE}, outlines=False)
    text(root / "train.json", json.dumps(changed))
    assert set(read(FORMAT, root, "instances").splits) == {"train", "val"}


@pytest.mark.parametrize(
    "names", [("cats.json", "dogs.json"), ("a/x.json", "b/x.json"), ("train_1.json", "train_2.json")]
)
def test_coco_files_of_different_classes_are_refused(tmp_path: Path, names: tuple[str, str]) -> None:
    draw(tmp_path / "images/a.png", ONE)
    for name, prefix in zip(names, ("", "other "), strict=True):
        content = boxed.coco_json({"a": ONE})
        for category in content["categories"]:
            category["name"] = prefix + category["name"]
        text(tmp_path / name, json.dumps(content))
    found = errors(read(FORMAT, tmp_path, "boxes").problems)
    assert ["other classes" in problem.message for problem in found] == [True]


def test_instances_are_preferred_to_keypoints_and_captions_are_not_read(tmp_path: Path) -> None:
    root = boxed.coco(tmp_path, SPLITS)
    changed = boxed.coco_json(SPLITS["train"])
    del changed["annotations"][0]
    text(root / "annotations/person_keypoints_train2017.json", json.dumps(changed))
    captions = {"images": changed["images"], "annotations": [{"image_id": 10, "id": 1, "caption": "A cat."}]}
    text(root / "annotations/captions_train2017.json", json.dumps(captions))
    content = read(FORMAT, root, "boxes")
    assert list_boxes(content, "train") == list_drawn_boxes(SPLITS["train"])
    (problem,) = content.problems
    assert "person_keypoints_train2017.json" in problem.message


# Detection


@pytest.mark.parametrize(
    "content",
    [
        {"shapes": [], "imagePath": "a.png"},
        {"images": [{"id": 1, "file_name": "a.png"}], "categories": [{"id": 1, "name": "cat"}]},
        {"images": [{"id": 1, "file_name": "a.png"}], "annotations": []},
        {"categories": [{"id": 1, "name": "cat"}], "annotations": []},
        {"categories": {}, "items": [{"id": "a", "annotations": [{"type": "bbox", "label_id": 1}]}]},
        [{"image_id": 1, "category_id": 1, "bbox": [1, 2, 3, 4], "score": 0.5}],
        [],
        '{"annotations": [{"category_id": 1, "bbox": [1',
        '{"annotations": [{"image_id": 1, "segments_info": [{"category_id": 2',
    ],
)
def test_other_files_are_not_detected(tmp_path: Path, content: object) -> None:
    draw(tmp_path / "a.png", ONE)
    text(tmp_path / "file.json", content if isinstance(content, str) else json.dumps(content))
    assert detect(FORMAT, tmp_path) == []


def test_a_file_without_objects_is_detected(tmp_path: Path) -> None:
    content = read(FORMAT, write_edited(tmp_path, lambda json_content: json_content["annotations"].clear()))
    assert list_boxes(content) == {"a": [], "b": []}
    assert content.classes == ("cat", "dog")


def test_detection_stops_once_it_knows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.data.formats.shared.json_files.CHUNK_BYTES", 64)
    content = boxed.coco_json({f"{number}": ONE for number in range(50)}, outlines=False)
    start = json.dumps(content)[:-500]
    path = text(tmp_path / "long.json", start)
    assert len(sample_lists(str(path), ("images", "annotations"), until="annotations")["annotations"]) >= 1
    other = text(tmp_path / "other.json", '{"features": [' + "1, " * 10_000 + start)
    assert sample_lists(str(other), ("images", "annotations"), until="annotations") == {}


def test_outlines_late_in_a_long_file_are_detected(tmp_path: Path) -> None:
    images = {f"{number}": ONE for number in range(9000)}
    content = boxed.coco_json(images, outlines=False)
    draw(tmp_path / "0.png", ONE)
    for each in content["annotations"][6000:]:
        each["segmentation"] = [[1, 2, 3, 4, 5, 6]]
    text(tmp_path / "annotations.json", json.dumps(content))
    assert detect(FORMAT, tmp_path)[0].kinds == ("instances", "boxes")


@pytest.mark.parametrize(
    ("edit", "count"),
    [
        (lambda json_content: json_content.update(annotations=[], categories=[], images=[]), 1),
        (lambda json_content: (json_content.update(annotations=[], images=[]), json_content.pop("categories")), 0),
        (lambda json_content: [each.update(caption="a cat") for each in json_content["annotations"]], 0),
        (lambda json_content: [each.update(segments_info=[]) for each in json_content["annotations"]], 0),
    ],
)
def test_files_need_objects_in_categories(tmp_path: Path, edit: Edit, count: int) -> None:
    assert len(detect(FORMAT, write_edited(tmp_path, edit))) == count


@pytest.mark.parametrize(("other", "failures"), [(3, 0), (7, 1), (None, 0)])
def test_files_of_one_image_must_not_annotate_other_classes(tmp_path: Path, other: int | None, failures: int) -> None:
    draw(tmp_path / "images/a.png", ONE)
    for name, category in (("x/train.json", 3), ("y/train.json", other)):
        content = boxed.coco_json({"a": ONE})
        for each in content["annotations"]:
            each["category_id"] = category
        if category is None:
            content["annotations"] = []
        text(tmp_path / name, json.dumps(content))
    assert len(errors(read(FORMAT, tmp_path, "boxes").problems)) == failures


@pytest.mark.parametrize("index", [0, 1])
def test_files_of_lvis_are_reported(tmp_path: Path, index: int) -> None:
    def edit(json_content: dict[str, Any]) -> None:
        json_content["images"][index]["neg_category_ids"] = [3]
        json_content["annotations"][0]["image_id"] = 99

    content = read(FORMAT, write_edited(tmp_path, edit), "boxes")
    assert ["annotates only some" in problem.message for problem in content.problems] == [False, True]
