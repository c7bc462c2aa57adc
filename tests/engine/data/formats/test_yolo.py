"""YOLO folders: layouts, columns, detection and classes."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.contract.problems import errors
from engine.data.formats.format import Confidence
from engine.data.formats.tree import Tree
from engine.data.formats.yolo import FORMAT
from tests.support import boxed
from tests.support.boxed import NONE, ONE, SPLITS, TWO, text, write_images_with_labels
from tests.support.dataset_formats import yolo
from tests.support.dataset_formats.truth import TRUTH
from tests.support.read_formats import (
    detect_once,
    join_problems,
    list_boxes_by_split,
    list_instances_by_split,
    read_once,
)

BOX = "0 0.5 0.5 0.25 0.5"
YAML = "train: images\nnames: [cat]\n"


@pytest.mark.parametrize("write", [boxed.yolo, boxed.yolo_coco, boxed.yolo_darknet])
def test_yolo_reads_layouts_of_tools(tmp_path: Path, write: boxed.Write) -> None:
    content = read_once(FORMAT, write(tmp_path, SPLITS))
    assert (content.classes, content.problems) == (("cat", "dog"), [])
    assert list_boxes_by_split(content) == {
        split: {
            stem: [(each.name, tuple(map(float, each[:4]))) for each in drawn.rectangles]
            for stem, drawn in images.items()
        }
        for split, images in SPLITS.items()
    }


# Meaning of the columns


def test_yolo_reads_outlines_as_instances(tmp_path: Path) -> None:
    yolo.write(TRUTH, tmp_path, "outlines")
    content = read_once(FORMAT, tmp_path, "instances")
    assert content.problems == []
    for split, images in list_instances_by_split(content).items():
        assert images == {
            image.name: [(each.name, each.box) for each in image.objects] for image in TRUTH.get_images(split)
        }


@pytest.mark.parametrize(("points", "values"), [(17, 3), (5, 2), (2, 2), (1, 3)])
def test_yolo_reads_boxes_of_poses_by_kpt_shape(tmp_path: Path, points: int, values: int) -> None:
    keypoints = " ".join(["0.45 0.55 2"[: 9 + 2 * (values == 3)]] * points)
    yaml = f"train: images\nnames: [hand]\nkpt_shape: [{points}, {values}]\n"
    root = write_images_with_labels(tmp_path, {f"images/{each}.png": f"{BOX} {keypoints}" for each in "ab"}, yaml)
    content = read_once(FORMAT, root)
    assert list_boxes_by_split(content)["train"]["a"] == [("hand", (30.0, 15.0, 50.0, 45.0))]
    assert detect_once(FORMAT, root).kinds == ("boxes",)


def test_yolo_asks_if_lines_may_be_poses_or_outlines(tmp_path: Path) -> None:
    line = "0 0.4 0.4 0.4 0.4 0.5 0.4 0.5 0.5 0.4 0.5"  # an outline in the middle, or a box with three points
    root = write_images_with_labels(tmp_path, {f"images/{each}.png": line for each in "abcdef"})
    detections = FORMAT.detect(Tree(str(root)))
    assert {(each.variant, each.kinds) for each in detections} == {
        ("key points", ("boxes",)),
        ("outlines", ("instances", "boxes")),
    }
    assert all("kpt_shape" in each.against[-1] for each in detections)
    assert {each.confidence for each in detections} == {Confidence.LIKELY}
    text(root / "data.yaml", f"{YAML}kpt_shape: [17, 3]\n")
    assert "without the key points" in FORMAT.detect(Tree(str(root)))[0].against[0]


# Evidence for and against the format


@pytest.mark.parametrize(
    ("good", "confidence"), [(10, Confidence.CERTAIN), (9, Confidence.CERTAIN), (5, Confidence.LIKELY)]
)
def test_yolo_is_certain_if_most_lines_are_valid(tmp_path: Path, good: int, confidence: Confidence) -> None:
    lines = [BOX] * good + ["0 0.5 0.5"] * (10 - good)
    root = write_images_with_labels(tmp_path, {f"images/{n}.png": line for n, line in enumerate(lines)})
    detection = detect_once(FORMAT, root)
    assert (detection.kinds, detection.confidence) == (("boxes",), confidence)


@pytest.mark.parametrize(
    ("line", "fault", "yaml"),
    [
        ("0 40 30 20 10", "contains 40", ""),
        ("0 0.5 30 20 10", "contains 30", YAML),
        ("cat 0.5 0.5 0.2 0.2", "begins with 'cat'", YAML),
        ("0 0.5 0.5 0.2", "has 4 numbers", YAML),
        ("0 0.5 x 0.2 0.2", "contains x", YAML),
    ],
)
def test_yolo_refuses_a_folder_and_names_the_line(tmp_path: Path, line: str, fault: str, yaml: str) -> None:
    root = write_images_with_labels(tmp_path, {f"images/{each}.png": line for each in "abc"}, yaml)
    refusal = detect_once(FORMAT, root)
    assert refusal.kinds == ()
    assert f"a.txt: line 1 {fault}" in refusal.evidence[-1]
    assert refusal.remedy


@pytest.mark.parametrize("line", ["a photo of a cat", "apple 0.0 0 0.0 8.0 4.0 40.0 28.0 0 0 0 0 0 0 0", "x"])
def test_yolo_leaves_other_texts_to_others(tmp_path: Path, line: str) -> None:
    assert not FORMAT.detect(
        Tree(str(write_images_with_labels(tmp_path / "labels", {f"images/{each}.png": line for each in "ab"})))
    )
    assert not FORMAT.detect(
        Tree(str(write_images_with_labels(tmp_path / "beside", {f"{each}.png": line for each in "ab"})))
    )


def test_yolo_without_objects_needs_data_yaml(tmp_path: Path) -> None:
    root = write_images_with_labels(tmp_path, {"images/a.png": ""})
    assert FORMAT.detect(Tree(str(root))) == []
    text(root / "data.yaml", YAML)
    detection = detect_once(FORMAT, root)
    assert (detection.confidence, len(detection.against)) == (Confidence.LIKELY, 1)
    assert detection.evidence[0] == "data.yaml with 1 class"
    text(root / "data.yaml", "train: images\nnames: []\n")
    assert detect_once(FORMAT, root).evidence[0] == "data.yaml"


def test_yolo_leaves_out_bad_lines_one_by_one(tmp_path: Path) -> None:
    bad = "0 0.5 0.5\n0 0.5 0.5 5 0.5\n-1 0.5 0.5 0.1 0.1\n0 0.5 0.5 nan 0.1\n0 0.5 0.5 0.1 0.1 0.2 0.3 0.4"
    files = {f"images/{each}.png": BOX for each in "cdefghijkl"}
    root = write_images_with_labels(
        tmp_path, {"images/a.png": f"{BOX}\n{bad}", "images/b.png": "0 200 300 50 60", **files}
    )
    content = read_once(FORMAT, root)
    found = list_boxes_by_split(content)[""]
    assert len(found["a"]) == 1
    assert "b" not in found
    assert "5 lines that can't be read (a.txt: line 2 has 3 numbers" in join_problems(content)
    assert "1 annotation that can't be read (b.txt: line 1 contains 200" in join_problems(content)


def test_yolo_uses_repeated_lines_once(tmp_path: Path) -> None:
    root = write_images_with_labels(tmp_path, {"images/a.png": f"{BOX}\n{BOX}\n{BOX}", "images/b.png": BOX})
    content = read_once(FORMAT, root)
    assert len(list_boxes_by_split(content)[""]["a"]) == 1
    assert "2 lines repeating another of the same file: a.txt" in join_problems(content)


# Classes


@pytest.mark.parametrize("folder", ["set", "archive/set", "config"])
def test_yolo_finds_data_yaml_in_folders(tmp_path: Path, folder: str) -> None:
    images = folder if folder != "config" else "images"
    files = {f"{images}/train/images/a.png": BOX, f"{images}/val/images/b.png": BOX}
    root = write_images_with_labels(
        tmp_path, files if folder != "config" else {"images/train/a.png": BOX, "images/val/b.png": BOX}
    )
    paths = "train: train/images\nval: val/images" if folder != "config" else "train: images/train\nval: images/val"
    text(root / folder / "data.yaml", f"{paths}\nnames: [cat]\n")
    content = read_once(FORMAT, root)
    assert (content.classes, sorted(content.splits), content.problems) == (("cat",), ["train", "val"], [])


@pytest.mark.parametrize(("sixth", "count"), [("-0.7", 1), ("45", 1), ("1.57", 1), ("0", 0), ("1", 0)])
def test_yolo_asks_about_boxes_with_an_angle(tmp_path: Path, sixth: str, count: int) -> None:
    files = {f"images/{each}.png": f"{BOX} {sixth}" for each in "abc"} | {"images/d.png": f"{BOX} 0.5"}
    against = detect_once(FORMAT, write_images_with_labels(tmp_path, files)).against
    assert ["not a confidence" in each for each in against] == [True] * count


def test_yolo_refuses_lists_of_names_that_differ(tmp_path: Path) -> None:
    root = write_images_with_labels(tmp_path, {"train/images/a.png": BOX, "val/images/b.png": BOX})
    text(root / "train/labels/classes.txt", "cat\ndog\n")
    text(root / "val/labels/classes.txt", "dog\ncat\n")
    (problem,) = errors(read_once(FORMAT, root).problems)
    assert "train/labels/classes.txt and val/labels/classes.txt name different classes" in problem.message
    text(root / "val/labels/classes.txt", "cat\ndog\n")
    text(root / "obj.names", "of\nanother program\n")
    content = read_once(FORMAT, root)
    assert (content.classes, content.problems) == (("cat", "dog"), [])


def test_yolo_reports_classes_without_a_name(tmp_path: Path) -> None:
    root = boxed.yolo(tmp_path, SPLITS)
    for label in (2, 7):
        text(root / "labels/train/b.txt", f"{label} 0.5 0.5 0.1 0.1")
        (problem,) = errors(read_once(FORMAT, root).problems)
        assert f"class {label}, but names are given for only 2 classes" in problem.message
        assert "data.yaml" in problem.remedy
    (root / "data.yaml").unlink()
    content = read_once(FORMAT, root)
    assert content.classes[-1] == "class 7"
    assert "No file names the classes" in join_problems(content)


@pytest.mark.parametrize("number", ["1e30", "0.5", "-1"])
def test_yolo_leaves_out_lines_without_class_number(tmp_path: Path, number: str) -> None:
    root = boxed.yolo(tmp_path, {"train": {"a": TWO, "b": ONE}, "val": {"c": ONE, "d": NONE}})
    text(root / "labels/train/b.txt", f"{number} 0.5 0.5 0.1 0.1")
    assert f"begins with {number}, not with a class number" in join_problems(read_once(FORMAT, root))


def test_yolo_names_the_line_of_a_broken_data_yaml(tmp_path: Path) -> None:
    root = write_images_with_labels(tmp_path, {"images/a.png": BOX}, "train: images\nnames: [a, b\nval: images\n")
    (problem,) = errors(read_once(FORMAT, root).problems)
    assert "data.yaml can't be read: line 3" in problem.message


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16-be"])
def test_yolo_reads_texts_of_any_encoding(tmp_path: Path, encoding: str) -> None:
    mark = "\ufeff" if encoding == "utf-16-be" else ""
    files = {"labels/a.txt": BOX, "labels/b.txt": BOX, "classes.txt": "cät\ndog\n"}
    write_images_with_labels(tmp_path, {"images/a.png": BOX, "images/b.png": BOX})
    for path, content in files.items():
        (tmp_path / path).write_text(mark + content, encoding)
    content = read_once(FORMAT, tmp_path)
    assert (content.classes, len(list_boxes_by_split(content)[""]["a"])) == (("cät", "dog"), 1)
    (tmp_path / "data.yaml").write_text(mark + "train: images\nnames: [cät, dog]\n", encoding)
    content = read_once(FORMAT, tmp_path)
    assert (content.classes, set(content.splits), content.problems) == (("cät", "dog"), {"train"}, [])


# Boxes and outlines


def test_yolo_computes_boxes_of_outlines(tmp_path: Path) -> None:
    root = boxed.yolo(tmp_path, SPLITS)
    text(root / "labels/train/b.txt", "1 0.25 0.5 0.5 0.25 0.75 0.5 0.5 0.875")
    content = read_once(FORMAT, root)
    assert list_boxes_by_split(content)["train"]["b"] == [("dog", (15.0, 20.0, 45.0, 70.0))]
    assert "1 object with an outline among boxes, in b.png" in join_problems(content)
