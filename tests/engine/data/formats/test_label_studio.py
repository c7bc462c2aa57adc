"""Label Studio exports in JSON and JSON-MIN."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from engine.data.formats.format import Confidence
from engine.data.formats.label_studio import FORMAT
from engine.data.formats.tree import Tree
from tests.support import read_formats
from tests.support.boxed import TWO, draw, text
from tests.support.read_formats import join_problems, list_boxes_by_split
from tests.support.round_trip import list_rows

CAT = ("cat", (8.0, 6.0, 24.0, 30.0))
OF_CAT = {"x": 10, "y": 10, "width": 20, "height": 40, "rotation": 0}


def region(value: dict[str, Any], labels: Any = ("cat",), kind: str = "rectanglelabels", **more: Any) -> dict[str, Any]:
    sizes = {"original_width": 80, "original_height": 60, "image_rotation": 0}
    return {"id": "r", "type": kind, "value": value | {kind: labels}, **sizes, **more}


BOX = region(OF_CAT)


def task(*results: Any, image: str = "a.png", **more: Any) -> dict[str, Any]:
    annotation = {"id": 1, "was_cancelled": False, "result": list(results)}
    return {"id": 1, "annotations": [annotation], "data": {"preview": "preview.png", "image": image}, **more}


def put(folder: Path, *tasks: Any, images: tuple[str, ...] = ("a.png",), name: str = "export.json") -> Path:
    for each in images:
        draw(folder / each, TWO)
    text(folder / name, json.dumps(tasks))
    return folder


read_once = partial(read_formats.read_once, FORMAT)


@pytest.mark.parametrize(
    ("url", "image_at"),
    [
        ("/data/upload/12/0123abcd-my%20cat.png", "images/0123abcd-my cat.png"),
        ("/data/upload/12/0123abcd-cat.png", "cat.png"),
        ("/data/local-files/?d=sets/pets/cat.png", "pets/cat.png"),
        ("/data/local-files/?d=my%20cat.png", "my cat.png"),
        ("s3://bucket/key/cat.png", "cat.png"),
        ("https://example.org/files/cat.png?X-Amz-Date=1", "images/cat.png"),
        ("cat.png", "photos/cat.png"),
        ("cat#1.png", "images/cat#1.png"),
        ("gone.png", "images/uploaded.png"),
    ],
)
def test_label_studio_finds_images(tmp_path: Path, url: str, image_at: str) -> None:
    put(
        tmp_path,
        task(BOX, data={"text": "of a cat", "url": "", "photo": url}, file_upload="0123abcd-uploaded.png"),
        images=(image_at,),
    )
    content = read_once(tmp_path)
    assert [each.path for each in content.splits[""]] == [str(tmp_path / image_at)]
    assert content.problems == []


@pytest.mark.parametrize(
    ("bad", "phrase"),
    [
        (region({"x": 1, "y": 1, "width": 2}), "height is missing"),
        (region({"x": "far", "y": 1, "width": 2, "height": 2}), "x is far"),
        (region({"points": [[1, 1], [2, 2]]}, kind="polygonlabels"), "it has 2 points"),
        (region({"points": [[1, 1], [2]]}, kind="polygonlabels"), "not pairs of numbers"),
        (region({"format": "rle", "rle": [1, 2]}, kind="brushlabels"), "ends too early"),
        (region({"rle": [0] * 90}, kind="brushlabels"), "0 pixels"),
        (region({"format": "rle", "rle": ["x"]}, kind="brushlabels"), "not a list of bytes"),
        (region({"x": 1, "y": 1, "width": 0.5}, kind="keypointlabels"), "height is missing"),
        (region(OF_CAT, ["cat", "dog"]), "with several labels"),
        (region(OF_CAT, [" "], id="other"), "without a label"),
        (region(OF_CAT, image_rotation=90), "turned in Label Studio"),
        ({"type": "rectangle", "id": "other", "value": OF_CAT}, "without a label"),
        ({"type": "rectangle", "id": [], "value": OF_CAT}, "without a label"),
        (region({"x": 1, "y": 1}, kind="keypointlabels"), "it has no area"),
        ("text", "of an unknown kind"),
        ({"type": "video"}, "of an unknown kind"),
    ],
)
def test_label_studio_loses_one_object_to_one_fault(tmp_path: Path, bad: Any, phrase: str) -> None:
    put(tmp_path, task(bad, BOX), task(BOX, image="b.png"), images=("a.png", "b.png"))
    content = read_once(tmp_path)
    assert list_boxes_by_split(content)[""] == {"a": [CAT], "b": [CAT]}
    (problem,) = content.problems
    assert "There is 1 object" in problem.message
    assert "a.png" in problem.message
    assert phrase in problem.message


def test_label_studio_rotates_boxes_about_their_corner(tmp_path: Path) -> None:
    put(tmp_path, task(region({"x": 50, "y": 0, "width": 20, "height": 10, "rotation": 90})))
    assert list_boxes_by_split(read_once(tmp_path))[""]["a"] == [("cat", (34.0, 0.0, 40.0, 16.0))]


def test_label_studio_reads_ellipses_and_generic_labels(tmp_path: Path) -> None:
    oval = region({"x": 50, "y": 50, "radiusX": 25, "radiusY": 10, "rotation": 90}, kind="ellipselabels")
    plain = {"type": "rectangle", "id": "r", "value": OF_CAT}
    relation = {"type": "relation", "from_id": "r", "to_id": "r"}
    note = {"type": "textarea", "id": "n", "value": {"text": ["wet"]}}
    put(tmp_path, task(oval, region(OF_CAT, [" cat "], kind="labels"), plain, relation, note))
    content = read_once(tmp_path)
    assert list_boxes_by_split(content)[""]["a"] == [("cat", (34.0, 10.0, 46.0, 50.0)), CAT]
    assert content.splits[""][0].size == (60, 80)
    assert content.problems == []


def test_label_studio_measures_images_of_unknown_size(tmp_path: Path) -> None:
    plain = {"id": "r", "type": "rectanglelabels", "value": {**OF_CAT, "x": 10.5, "rectanglelabels": ["cat"]}}
    put(tmp_path, task(plain), task(plain, image="b.png"))
    (tmp_path / "b.png").write_bytes(b"torn")
    content = read_once(tmp_path)
    assert [each.size for each in content.splits[""]] == [None, None]
    assert list_boxes_by_split(content)[""] == {"a": [("cat", (8.4, 6.0, 24.4, 30.0))], "b": []}
    assert "the size of its image is unknown" in join_problems(content)


def test_label_studio_uses_the_first_annotation_not_canceled(tmp_path: Path) -> None:
    other = region({**OF_CAT, "x": 50})
    annotations = [
        {"was_cancelled": True, "result": [other]},
        {"was_cancelled": False, "result": [BOX]},
        {"was_cancelled": False, "result": [other]},
    ]
    put(tmp_path, {**task(), "annotations": annotations, "predictions": [{"result": [other]}]})
    content = read_once(tmp_path)
    assert list_boxes_by_split(content)[""]["a"] == [CAT]
    assert "1 image with several annotations: a.png" in join_problems(content)


def test_label_studio_distinguishes_backgrounds_from_unannotated(tmp_path: Path) -> None:
    canceled = {**task(image="c.png"), "annotations": [{"was_cancelled": True, "result": []}]}
    tasks = task(BOX), task(image="b.png"), canceled, {**task(image="x/d.png"), "annotations": []}
    put(tmp_path, *tasks, images=("a.png", "b.png", "c.png", "x/d.png"))
    content = read_once(tmp_path)
    assert list_boxes_by_split(content)[""] == {"a": [CAT], "b": []}
    assert "2 images without an annotation: c.png, d.png" in join_problems(content)


def test_label_studio_min_reads_choices_and_no_other_texts(tmp_path: Path) -> None:
    common = {"annotator": 1, "annotation_id": 2}
    box = {**OF_CAT, "rectanglelabels": ["cat"], "original_width": 80, "original_height": 60}
    put(
        tmp_path,
        {"image": "a.png", "title": "sunny", "class": "wet", "label": [box], **common},
        {
            "image": "b.png",
            "title": "sunny",
            "choice": {"choices": ["wet", 3]},
            "more": {"choices": ["cold"]},
            **common,
        },
        {"image": "b.png", "title": "sunny", "choice": "late", **common},
        images=("a.png", "b.png"),
    )
    content = read_once(tmp_path, "labels")
    assert list_rows(content, "labels")[""] == {"a": ["wet"], "b": ["cold", "wet"]}
    assert "1 image with several annotations: b.png" in join_problems(content)
    boxed, plain = read_once(tmp_path).splits[""]
    assert (boxed.size, boxed.boxes, plain.boxes) == ((60, 80), [(*CAT[1], 0, False)], [])


def choices(*texts: str, **value: Any) -> dict[str, Any]:
    return {"type": "choices", "id": "r", "value": {**value, "choices": texts}}


@pytest.mark.parametrize("image", ["data:image/png;base64,iVBORw0K", "http://[::1", "", "/", "a\0.png"])
def test_label_studio_images_that_no_file_has_are_missing(tmp_path: Path, image: str) -> None:
    put(tmp_path, task(BOX), task(BOX, data={"image": image, "photo": "http://[::1"}, file_upload="gone.png"))
    found = join_problems(read_once(tmp_path))
    assert ("1 annotation without an image" in found, "gone.png" in found) == (True, not image)


@pytest.mark.parametrize(("name", "split"), [("val.json", "val"), ("export.json", "train")])
def test_label_studio_split_is_that_of_the_file_or_of_the_image(tmp_path: Path, name: str, split: str) -> None:
    put(tmp_path, task(BOX, image="train/a.png"), images=("train/a.png",), name=name)
    assert list_boxes_by_split(read_once(tmp_path)) == {split: {"a": [CAT]}}


def test_label_studio_reports_a_torn_export(tmp_path: Path) -> None:
    put(tmp_path, task(BOX))
    text(tmp_path / "torn.json", json.dumps([task(BOX)] * 2)[:-5])
    content = read_once(tmp_path)
    assert list_boxes_by_split(content)[""] == {"a": [CAT]}
    assert "torn.json can't be read" in join_problems(content)


OUTLINE = region({"points": [[1, 1], [9, 1], [9, 9]]}, kind="polygonlabels")


@pytest.mark.parametrize(
    ("tasks", "kinds", "is_certain"),
    [
        ([task()] * 1001 + [task(BOX)], "boxes", True),
        ([{"id": 1}, {"data": {"image": "a.png"}, "completions": [{"result": [BOX]}]}], "boxes", True),
        ([task(image="x" * 5_000_000), task(BOX)], "boxes", True),
        ([task()], "boxes", False),
        ([{**task(BOX), "predictions": [{"result": [OUTLINE]}]}], "boxes", True),
        ([task(BOX, choices("wet"), choices("old", "red", **OF_CAT))], "boxes classes labels", True),
        ([task(choices("wet", "cold")), task(choices("wet"))], "labels", True),
        ([task()] * 1001 + [task(choices("wet"))], "classes labels", True),
    ],
    ids=range(8),
)
def test_label_studio_detection_reads_several_tasks(
    tmp_path: Path, tasks: list[Any], kinds: str, is_certain: bool
) -> None:
    put(tmp_path, *tasks)
    (detection,) = FORMAT.detect(Tree(str(tmp_path)))
    assert (" ".join(detection.kinds), detection.confidence is Confidence.CERTAIN) == (kinds, is_certain)


@pytest.mark.parametrize(
    "content",
    ["{}", "[]", "[1, 2]", '[{"image": "a.png"}]', '[{"data": {}}]', '[{"data": 3, "annotations": []}]', "[{", ""],
)
def test_label_studio_detection_refuses_other_json_files(tmp_path: Path, content: str) -> None:
    text(tmp_path / "a.json", content)
    assert FORMAT.detect(Tree(str(tmp_path))) == []
