"""JSON files from labelme and X-AnyLabeling."""

from __future__ import annotations

import base64
import io
import json
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from engine.contract.problems import errors
from engine.data.formats.labelme import FORMAT
from engine.data.formats.tree import Tree
from tests.support import read_formats
from tests.support.boxed import TWO, draw, text
from tests.support.read_formats import join_problems, list_boxes_by_split, list_instances_by_split
from tests.support.round_trip import list_rows

SQUARE = [[1, 2], [11, 2], [11, 12], [1, 12]]
CAT = ("cat", (1.0, 2.0, 11.0, 12.0))


def shape(kind: str | None = "polygon", points: Any = SQUARE, **more: Any) -> dict[str, Any]:
    return {"label": "cat", "points": points, "shape_type": kind, "group_id": None, **more}


def write_sample(folder: Path, *shapes: Any, name: str = "a", **more: Any) -> Path:
    """Write an image of 80 x 60 pixels, and its JSON file with `shapes` and the additional fields `more`.

    `name` is the stem of both files. Returns `folder`.
    """
    draw(folder / f"{name}.png", TWO)
    content = {"shapes": list(shapes), "imagePath": f"{name}.png", "imageData": None, **more}
    text(folder / f"{name}.json", json.dumps(content))
    return folder


read_once = partial(read_formats.read_once, FORMAT)


@pytest.mark.parametrize(
    ("drawn", "box"),
    [
        (shape(None), CAT[1]),
        (shape("circle", [[30, 30], [30, 40]]), (20.0, 20.0, 40.0, 40.0)),
        (shape(label=" cat "), CAT[1]),
        (shape("rectangle", [[11, 12], [1, 2]], label="cat "), CAT[1]),
        (shape("rectangle", SQUARE), CAT[1]),
        (shape("rotation", [[10, 0], [20, 10], [10, 20], [0, 10]], direction=0.78), (0.0, 0.0, 20.0, 20.0)),
        (shape("oriented_rectangle", [[10, 0], [20, 10], [10, 20], [0, 10]]), (0.0, 0.0, 20.0, 20.0)),
    ],
)
def test_labelme_boxes_surround_shapes(tmp_path: Path, drawn: dict[str, Any], box: tuple[float, ...]) -> None:
    assert list_boxes_by_split(read_once(write_sample(tmp_path, drawn)))[""]["a"] == [("cat", box)]


def test_labelme_rotated_rectangle_is_its_polygon(tmp_path: Path) -> None:
    corners = [[10, 0], [20, 10], [10, 20], [0, 10]]
    content = read_once(write_sample(tmp_path, shape("rotation", corners), shape(None, corners)), "instances")
    assert [each.area for each in content.splits[""].sources[0].instances(60, 80)] == [200, 200]


@pytest.mark.parametrize(
    ("bad", "phrase"),
    [
        (shape("line", [[1, 2], [3, 4]]), "drawn as line"),
        (shape("point", [[1, 2]]), "drawn as point"),
        (shape("linestrip", [[1, 2], [3, 4], [5, 6]]), "drawn as linestrip"),
        (shape("spiral"), "of an unknown shape"),
        (shape(points=[[1, 2], [3, 4]]), "its polygon has 2 points"),
        (shape(points=[[1, 2], [3, "x"], [3, 4]]), "pairs of numbers"),
        (shape(points=[[1, 2], [3, float("nan")], [3, 4]]), "pairs of numbers"),
        (shape(points=None), "pairs of numbers"),
        (shape("circle", [[1, 2], [1, 2]]), "no radius"),
        (shape("circle", [[1, 2]]), "its circle has 1 point"),
        (shape("mask", [[0, 0], [5, 5]], mask="iVBORw0KGgo="), "can't be decoded"),
        (shape("mask", [[0, 0], [5, 5]]), "its mask is missing"),
        (shape(label=" "), "without a label"),
        (shape(label=None), "without a label"),
        (shape(label="__ignore__"), "labeled __ignore__"),
        ("text", "of an unknown shape"),
    ],
)
def test_labelme_loses_one_object_to_one_fault(tmp_path: Path, bad: Any, phrase: str) -> None:
    write_sample(tmp_path, bad, shape())
    write_sample(tmp_path, shape(), name="b")
    content = read_once(tmp_path)
    assert list_boxes_by_split(content)[""] == {"a": [CAT], "b": [CAT]}
    (problem,) = content.problems
    assert "There is 1 object" in problem.message
    assert "a.json" in problem.message
    assert phrase in problem.message


def test_labelme_groups_polygons_of_one_label_and_group(tmp_path: Path) -> None:
    parts = [[[x, 2], [x + 5, 2], [x + 5, 12], [x, 12]] for x in (1, 21, 41, 61)]
    groups = (0, "cat"), (0, "cat"), (4, "cat"), (0, "dog")
    shapes = (shape(points=points, group_id=id, label=label) for points, (id, label) in zip(parts, groups, strict=True))
    write_sample(tmp_path, *shapes)
    assert list_instances_by_split(read_once(tmp_path, "instances"))[""]["a"] == [
        ("cat", (1, 2, 26, 12)),
        ("cat", (41, 2, 46, 12)),
        ("dog", (61, 2, 66, 12)),
    ]


def test_labelme_ignores_difficult_shapes(tmp_path: Path) -> None:
    plain = shape("rectangle", difficult=False, label="__cat__")
    write_sample(
        tmp_path, shape(difficult=True), shape("rectangle", difficult=True), plain, shape(difficult=True, group_id=1)
    )
    assert [box.ignored for box in read_once(tmp_path).splits[""][0].boxes] == [True, True, False, True]


def test_labelme_mask_is_placed_at_its_corner(tmp_path: Path) -> None:
    inside = np.zeros((6, 5), bool)
    inside[1:4, 2:5] = True
    buffer = io.BytesIO()
    Image.fromarray(inside).save(buffer, "PNG")
    mask = base64.b64encode(buffer.getvalue()).decode()
    content = read_once(
        write_sample(tmp_path, shape("mask", [[14, 25], [9.6, 19.7]], mask=mask, difficult=True)), "instances"
    )
    assert list_instances_by_split(content)[""]["a"] == [("cat", (12, 21, 15, 24))]
    assert content.splits[""].sources[0].instances(60, 80)[0].ignored
    (tmp_path / "a.png").write_bytes(b"torn")
    assert "the size of its image is unknown" in join_problems(read_once(tmp_path, "instances"))


@pytest.mark.parametrize(
    ("json_at", "image_at", "image_path"),
    [
        ("labels/a.json", "images/a.png", "../images/a.png"),
        ("labels/a.json", "images/a.png", "..\\images\\a.png"),
        ("a.json", "photos/deep/x.png", "D:\\work\\deep\\x.png"),
        ("a.json", "a.png", "renamed_meanwhile.jpg"),
        ("a.json", "a.jpg", "a"),
    ],
)
def test_labelme_finds_images(tmp_path: Path, json_at: str, image_at: str, image_path: str) -> None:
    draw(tmp_path / image_at, TWO)
    text(tmp_path / json_at, json.dumps({"shapes": [shape()], "imagePath": image_path, "imageData": None}))
    content = read_once(tmp_path)
    assert [each.path for each in content.splits[""]] == [str(tmp_path / image_at)]
    assert content.problems == []


def test_labelme_gives_the_size_in_the_json(tmp_path: Path) -> None:
    for name, size in (("a", 7), ("b", None), ("c", "x")):
        write_sample(tmp_path, shape(), name=name, imageHeight=size, imageWidth=9)
    assert [each.size for each in read_once(tmp_path).splits[""]] == [(7, 9), None, None]


def test_labelme_with_embedded_images_only_is_an_error(tmp_path: Path) -> None:
    write_sample(tmp_path, shape(), imageData="not even base64")
    (tmp_path / "a.png").unlink()
    (problem,) = errors(read_once(tmp_path).problems)
    assert "1 image only embedded in JSON files: a.json" in problem.message
    assert "labelme_export_json" in problem.remedy
    (problem,) = read_once(write_sample(tmp_path, shape(), name="b")).problems
    assert problem.severity == "warning"


def test_labelme_reports_a_broken_file_and_reads_the_others(tmp_path: Path) -> None:
    for name in ("a", "b", "c", "d"):
        write_sample(tmp_path, shape(), name=name)
    text(tmp_path / "a.json", '{"shapes": [')
    text(tmp_path / "b.json", '{"something": "else"}')
    text(tmp_path / "settings.json", "{}")
    content = read_once(tmp_path)
    assert list(list_boxes_by_split(content)[""]) == ["c", "d"]
    (problem,) = content.problems
    assert "2 annotations that can't be read (a.json: it is not valid JSON" in problem.message


def test_labelme_reports_images_without_a_file_and_the_opposite(tmp_path: Path) -> None:
    write_sample(tmp_path, shape(), name="b")
    draw(tmp_path / "lonely.png", TWO)
    text(tmp_path / "a.json", json.dumps({"shapes": [], "imagePath": "b.png"}))
    content = read_once(tmp_path)
    assert list_boxes_by_split(content) == {"": {"b": [CAT]}}
    assert "1 image without an annotation: lonely.png" in join_problems(content)
    assert "1 annotation without an image: a.json" in join_problems(content)


def test_labelme_leaves_out_images_of_no_split(tmp_path: Path) -> None:
    for name in ("train/a", "val/b", "c"):
        write_sample(tmp_path, shape(), name=name, imagePath=f"{name[-1]}.png")
    (tmp_path / "val/b.json").rename(tmp_path / "b.json")
    content = read_once(tmp_path)
    assert {split: len(images) for split, images in content.splits.items()} == {"train": 1, "val": 1}
    assert "1 annotated image in no split: c.png" in join_problems(content)


@pytest.mark.parametrize(
    ("flags", "kinds", "tags"),
    [
        ({"sea": True, "sky": False, "fog": "no", " ": True}, ("classes", "labels"), ["sea"]),
        ({"sea": True, "sky": True}, ("labels",), ["sea", "sky"]),
    ],
)
def test_labelme_flags_are_classes(
    tmp_path: Path, flags: dict[str, Any], kinds: tuple[str, ...], tags: list[str]
) -> None:
    write_sample(tmp_path, flags=flags)
    write_sample(tmp_path, name="b", flags={"sky": True})
    (detection,) = FORMAT.detect(Tree(str(tmp_path)))
    assert detection.kinds == kinds
    assert list_rows(read_once(tmp_path, "labels"), "labels")[""] == {"a": tags, "b": ["sky"]}


def test_labelme_detection_refuses_other_json_files(tmp_path: Path) -> None:
    text(tmp_path / "coco/a.json", '{"images": [], "annotations": [], "categories": []}')
    text(tmp_path / "list/a.json", "[1, 2]")
    text(tmp_path / "shapes/a.json", '{"shapes": {"imagePath": 1}}')
    for name in ("coco", "list", "shapes"):
        assert FORMAT.detect(Tree(str(tmp_path / name))) == []
