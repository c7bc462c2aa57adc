"""Supervisely projects."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from engine.data.formats.supervisely import FORMAT
from engine.data.formats.tree import Tree
from tests.support import read_formats
from tests.support.boxed import TWO, draw, text
from tests.support.dataset_formats import supervisely as writer
from tests.support.read_formats import join_problems, list_boxes_by_split
from tests.support.round_trip import list_rows

CAT = ("cat", (1.0, 2.0, 11.0, 12.0))


def thing(kind: str | None, exterior: Any, interior: Any = (), **more: Any) -> dict[str, Any]:
    points = {"exterior": exterior, "interior": list(interior)}
    return {"classTitle": "cat", "geometryType": kind, "points": points, **more}


BOX = thing("rectangle", [[11, 5], [1, 12], [4, 2]])


def put(folder: Path, *objects: Any, name: str = "ds/a", tags: tuple[Any, ...] = ()) -> Path:
    dataset, _, stem = name.rpartition("/")
    draw(folder / dataset / f"img/{stem}.png", TWO)
    content = {"size": {"height": 60, "width": 80}, "tags": list(tags), "objects": list(objects)}
    text(folder / dataset / f"ann/{stem}.png.json", json.dumps(content))
    return folder


read_once = partial(read_formats.read_once, FORMAT)


@pytest.mark.parametrize(
    ("bad", "phrase"),
    [
        (thing("line", [[1, 2], [3, 4]]), "drawn as line"),
        (thing("point", [[1, 2]]), "drawn as point"),
        (thing("spiral", [[1, 2]]), "of an unknown shape"),
        (thing("polygon", [[1, 2], [3, 4]]), "polygon cat: it has 2 points"),
        (thing("polygon", [[1, 2], [3, 4], [5, None]]), "not pairs of numbers"),
        (thing("rectangle", [[1, 2]]), "it has 1 point"),
        (thing("bitmap", [], bitmap={"origin": [1, 2], "data": "eA=="}), "can't be decoded"),
        (thing("bitmap", [], bitmap={"data": writer.encode_bitmap(2, 2)}), "pairs of numbers"),
        (thing("bitmap", [], bitmap={"origin": [1, 2], "data": writer.encode_bitmap(99, 2)}), "the image 80 x 60"),
        (thing("bitmap", [], bitmap={"origin": [90, 2], "data": writer.encode_bitmap(2, 2)}), "it is empty"),
        ({**BOX, "classTitle": ""}, "without a class"),
        (7, "without a class"),
    ],
)
def test_supervisely_loses_one_object_to_one_fault(tmp_path: Path, bad: Any, phrase: str) -> None:
    put(tmp_path, bad, BOX)
    put(tmp_path, BOX, name="ds/b")
    content = read_once(tmp_path)
    assert list_boxes_by_split(content)[""] == {"a": [CAT], "b": [CAT]}
    (problem,) = content.problems
    assert "There is 1 object" in problem.message
    assert "a.png.json" in problem.message
    assert phrase in problem.message


def test_supervisely_polygons_have_holes(tmp_path: Path) -> None:
    outer = [[10, 10], [30, 10], [30, 30], [10, 30]]
    holes = [[[x, 12], [x + 4, 12], [x + 4, 16], [x, 16]] for x in (12, 20)]
    put(tmp_path, thing(None, outer, holes))
    split = read_once(tmp_path, "instances").splits[""]
    (instance,) = split.sources[0].instances(60, 80)
    assert instance.area == 20 * 20 - 2 * 4 * 4
    assert not instance.window.pixels[2:6, 2:6].any()
    assert instance.window.pixels[:, 6:10].all()


def test_supervisely_bitmap_is_placed_at_its_origin(tmp_path: Path) -> None:
    data = "eJzrDPBz5+WS4mJgYOD19HAJAtLMIMwIInOeqf8BUmwBPiGuQPr///9Lb86/C2QxlgT5BTM4PLuRBuTwebo4hlTMSa44sKHhISMDuxpTYrr03F6gDIOnq5/LOqeEJgDM5ht6"  # fmt: skip
    put(tmp_path, thing(None, [], bitmap={"origin": [5, 7], "data": data}))  # Supervisely's example, a ring
    (instance,) = read_once(tmp_path, "instances").splits[""].sources[0].instances(60, 80)
    assert (instance.window.left, instance.window.top) == (5, 7)
    assert instance.window.pixels.tolist() == [[True] * 3, [True, False, True], [True] * 3]


def test_supervisely_tags_with_values_are_labels(tmp_path: Path) -> None:
    text(tmp_path / "meta.json", json.dumps({"classes": [{"title": "sky: 0"}], "tags": [{"name": "wet"}]}))
    put(tmp_path, tags=({"name": "sky", "value": 0}, {"name": "wet", "value": ""}, {"name": "train"}, "odd"))
    put(tmp_path, tags=({"name": "sky", "value": "gray"},), name="ds/b")
    (detection,) = FORMAT.detect(Tree(str(tmp_path)))
    assert detection.kinds == ("labels",)
    content = read_once(tmp_path, "labels")
    assert content.classes == ("wet", "sky: 0")
    assert list_rows(content, "labels") == {"train": {"a": ["wet", "sky: 0"]}}
    assert "1 annotated image in no split: b.png" in join_problems(content)


def test_supervisely_reads_nested_datasets(tmp_path: Path) -> None:
    for name in ("train/a", "train/datasets/more/b", "val/c"):
        put(tmp_path, BOX, name=name, tags=({"name": "test"},))
    (tmp_path / "val/ann/c.png.json").rename(tmp_path / "val/ann/c.json")
    assert list_boxes_by_split(read_once(tmp_path)) == {"train": {"a": [CAT], "b": [CAT]}, "val": {"c": [CAT]}}
    assert [found.kinds for found in FORMAT.detect(Tree(str(tmp_path)))] == [("boxes",)]


def test_supervisely_keeps_equal_names_of_datasets_apart(tmp_path: Path) -> None:
    for number in range(3):
        put(tmp_path, thing("rectangle", [[number, 2], [11, 12]]), name=f"ds{number}/a")
    lefts = [each.boxes[0].left for each in read_once(tmp_path).splits[""]]
    assert lefts == [0, 1, 2]


def test_supervisely_classes_are_in_the_order_of_the_project(tmp_path: Path) -> None:
    put(tmp_path, *({**BOX, "classTitle": name} for name in ("ant", "bee", "cat")))
    for path, names in (("meta.json", ("dog", "cat")), ("ds/meta.json", ("bee", "ant"))):
        text(tmp_path / path, json.dumps({"classes": [{"title": name} for name in names]}))
    assert read_once(tmp_path).classes == ("cat", "bee", "ant")
    text(tmp_path / "meta.json", "{broken")
    assert read_once(tmp_path).classes == ("bee", "ant", "cat")


def test_supervisely_reports_broken_files_and_missing_images(tmp_path: Path) -> None:
    for name in ("a", "b", "c", "d"):
        put(tmp_path, BOX, name=f"ds/{name}")
    text(tmp_path / "ds/ann/a.png.json", "{")
    text(tmp_path / "ds/ann/b.png.json", "[]")
    (tmp_path / "ds/img/c.png").unlink()
    content = read_once(tmp_path)
    assert list(list_boxes_by_split(content)[""]) == ["d"]
    assert "2 annotations that can't be read (a.png.json" in join_problems(content)
    assert "1 annotation without an image: c.png.json" in join_problems(content)


def test_supervisely_detection_needs_its_folders_and_files(tmp_path: Path) -> None:
    put(tmp_path / "coco", BOX)
    text(tmp_path / "coco/ds/ann/a.png.json", '{"images": [], "annotations": []}')
    put(tmp_path / "no_img", BOX)
    (tmp_path / "no_img/ds/img").rename(tmp_path / "no_img/ds/pictures")
    (tmp_path / "empty").mkdir()
    for name in ("coco", "no_img", "empty"):
        assert FORMAT.detect(Tree(str(tmp_path / name))) == []
