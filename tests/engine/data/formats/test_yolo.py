"""YOLO folders: layouts, descriptions, paths and warnings."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from engine.contract.problems import errors
from engine.data.formats.format import Confidence
from engine.data.formats.tree import Tree
from engine.data.formats.yolo import FORMAT
from tests.support import boxed
from tests.support.boxed import NONE, ONE, SPLITS, TWO, Drawn, Rectangle, draw, text, yolo_txt
from tests.support.dataset_formats import yolo
from tests.support.dataset_formats.truth import TRUTH
from tests.support.read_formats import boxes_in, content_of, detected, instances_in, warnings_of

BOX = "0 0.5 0.5 0.25 0.5"


def dataset(root: Path, files: dict[str, str | None], yaml: str = "") -> Path:
    """Write images of 80 x 60 pixels by their paths, each with a text file where "images" is "labels"."""
    for path, content in files.items():
        draw(root / path, Drawn(60, 80, ()))
        if content is not None:
            text((root / path.replace("images", "labels")).with_suffix(".txt"), content)
    if yaml:
        text(root / "data.yaml", yaml)
    return root


def names(root: Path) -> dict[str, list[str]]:
    """Return the images of each split relative to the folder, and check that each has the box of `BOX`."""
    content = content_of(FORMAT, root)
    for images in content.splits.values():
        assert all(len(image.boxes) == 1 for image in images)
    return {
        split: [str(Path(image.path).relative_to(root)) for image in images] for split, images in content.splits.items()
    }


@pytest.mark.parametrize("variant", [each for each in yolo.VARIANTS if each != "utf16"])
def test_yolo_reads_the_truth(tmp_path: Path, variant: str) -> None:
    yolo.write(TRUTH, tmp_path, variant)
    content = content_of(FORMAT, tmp_path)
    assert (content.classes, content.problems) == (TRUTH.classes, [])
    found = boxes_in(content)
    assert set(found) == ({""} if variant in ("plain", "beside") else {"train", "val"})
    expected = {
        image.name: [(each.name, tuple(map(float, each.box))) for each in image.objects] for image in TRUTH.images
    }
    assert {stem: boxes for images in found.values() for stem, boxes in images.items()} == expected
    for split in set(found) - {""}:
        assert sorted(found[split]) == [image.name for image in TRUTH.of(split)]


@pytest.mark.parametrize("write", [boxed.yolo, boxed.yolo_coco, boxed.yolo_roboflow, boxed.yolo_darknet])
def test_yolo_reads_layouts_of_tools(tmp_path: Path, write: boxed.Write) -> None:
    content = content_of(FORMAT, write(tmp_path, SPLITS))
    assert (content.classes, content.problems) == (("cat", "dog"), [])
    assert boxes_in(content) == {
        split: {
            stem: [(each.name, tuple(map(float, each[:4]))) for each in drawn.rectangles]
            for stem, drawn in images.items()
        }
        for split, images in SPLITS.items()
    }


# Meaning of the columns


def test_yolo_reads_outlines_as_instances(tmp_path: Path) -> None:
    yolo.write(TRUTH, tmp_path, "outlines")
    content = content_of(FORMAT, tmp_path, "instances")
    assert content.problems == []
    for split, images in instances_in(content).items():
        assert images == {image.name: [(each.name, each.box) for each in image.objects] for image in TRUTH.of(split)}


def test_yolo_offers_outlines_first_if_most_lines_are(tmp_path: Path) -> None:
    triangle, box = "0 0.25 0.5 0.5 0.25 0.75 0.5", "0 0.5 0.5 0.2 0.2\n0 0.1 0.1 0.1 0.1"
    root = dataset(tmp_path, {"images/a.png": triangle, "images/b.png": triangle.replace("0.75", "0.5 0.9 0.7")})
    assert detected(FORMAT, root).kinds == ("instances", "boxes")
    dataset(root, {"images/c.png": box, "images/d.png": box})
    assert detected(FORMAT, root).kinds == ("boxes", "instances")
    content = content_of(FORMAT, root, "instances")
    assert "4 objects with a box instead of an outline" in warnings_of(content)


@pytest.mark.parametrize(("points", "values"), [(17, 3), (5, 2), (2, 2), (1, 3)])
def test_yolo_reads_boxes_of_poses_by_kpt_shape(tmp_path: Path, points: int, values: int) -> None:
    keypoints = " ".join(["0.45 0.55 2"[: 9 + 2 * (values == 3)]] * points)
    yaml = f"train: images\nnames: [hand]\nkpt_shape: [{points}, {values}]\n"
    root = dataset(tmp_path, {f"images/{each}.png": f"{BOX} {keypoints}" for each in "ab"}, yaml)
    content = content_of(FORMAT, root)
    assert boxes_in(content)["train"]["a"] == [("hand", (30.0, 15.0, 50.0, 45.0))]
    assert detected(FORMAT, root).kinds == ("boxes",)


def test_yolo_recognizes_poses_without_kpt_shape(tmp_path: Path) -> None:
    lines = {
        f"images/{place}.png": f"0 {x} {y} 0.1 0.1 {x - 0.02} {y} {x + 0.02} {y} {x} {y + 0.02} {x} {y - 0.02} {x} {y}"
        for place, (x, y) in enumerate(itertools.product((0.2, 0.4, 0.8), (0.3, 0.7)))
    }
    root = dataset(tmp_path, lines)
    assert detected(FORMAT, root).kinds == ("boxes",)
    assert boxes_in(content_of(FORMAT, root))[""]["0"] == [("class 0", (12.0, 15.0, 20.0, 21.0))]


def test_yolo_recognizes_outlines_of_equal_length(tmp_path: Path) -> None:
    root = dataset(
        tmp_path,
        {
            f"images/{place}.png": f"0 {x} {y} {x + 0.1} {y} {x + 0.12} {y + 0.1} {x + 0.05} {y + 0.2} {x} {y + 0.1}"
            for place, (x, y) in enumerate(itertools.product((0.1, 0.6, 0.8), (0.1, 0.6)))
        },
    )
    assert detected(FORMAT, root).kinds == ("instances", "boxes")


def test_yolo_asks_if_lines_may_be_poses_or_outlines(tmp_path: Path) -> None:
    line = "0 0.4 0.4 0.4 0.4 0.5 0.4 0.5 0.5 0.4 0.5"  # an outline in the middle, or a box with three points
    root = dataset(tmp_path, {f"images/{each}.png": line for each in "abcdef"})
    detections = FORMAT.detect(Tree(str(root)))
    assert {(each.variant, each.kinds) for each in detections} == {
        ("key points", ("boxes",)),
        ("outlines", ("instances", "boxes")),
    }
    assert all("kpt_shape" in each.against[-1] for each in detections)


# Evidence for and against the format


def test_yolo_accepts_many_backgrounds_first(tmp_path: Path) -> None:
    root = dataset(tmp_path, {f"images/{number:03d}.png": BOX if number > 100 else "" for number in range(110)})
    assert detected(FORMAT, root).confidence == Confidence.CERTAIN
    assert sum(map(bool, boxes_in(content_of(FORMAT, root))[""].values())) == 9


@pytest.mark.parametrize("line", ["0 0.95 0.5 1.03 0.2", "0 0.5 0.5 0.4 1.2", "0 -0.02 0.5 0.3 0.3"])
def test_yolo_accepts_a_box_that_reaches_out(tmp_path: Path, line: str) -> None:
    root = dataset(tmp_path, {"images/a.png": line, "images/b.png": BOX, "images/c.png": BOX})
    found = boxes_in(content_of(FORMAT, root))[""]
    assert [len(boxes) for boxes in found.values()] == [1, 1, 1]
    ((_, (left, top, right, bottom)),) = found["a"]
    assert min(left, top) >= 0
    assert right <= 80
    assert bottom <= 60


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ("0 40 30 20 10", "contains 40"),
        ("cat 0.5 0.5 0.2 0.2", "begins with 'cat'"),
        ("0 0.5 0.5 0.2", "has 4 numbers"),
        ("0 0.5 x 0.2 0.2", "contains x"),
    ],
)
def test_yolo_refuses_a_folder_and_names_the_line(tmp_path: Path, line: str, fault: str) -> None:
    root = dataset(tmp_path, {f"images/{each}.png": line for each in "abc"}, "train: images\nnames: [cat]\n")
    refusal = detected(FORMAT, root)
    assert refusal.kinds == ()
    assert f"a.txt: line 1 {fault}" in refusal.evidence[-1]
    assert refusal.remedy


@pytest.mark.parametrize("line", ["a photo of a cat", "apple 0.0 0 0.0 8.0 4.0 40.0 28.0 0 0 0 0 0 0 0", "x"])
def test_yolo_leaves_other_texts_to_others(tmp_path: Path, line: str) -> None:
    assert not FORMAT.detect(Tree(str(dataset(tmp_path / "labels", {f"images/{each}.png": line for each in "ab"}))))
    assert not FORMAT.detect(Tree(str(dataset(tmp_path / "beside", {f"{each}.png": line for each in "ab"}))))


@pytest.mark.parametrize(
    "line",
    [
        "0,0.5,0.5,0.25,0.5",
        "0; 0.5; 0.5; 0.25; 0.5",
        "0\t0.5\t0.5\t0.25\t0.5",
        "0 0,5 0,5 0,25 0,5",
        "0;0,5;0,5;0,25;0,5",
    ],
)
def test_yolo_reads_other_separators(tmp_path: Path, line: str) -> None:
    root = dataset(tmp_path, {f"images/{each}.png": line for each in "abc"})
    assert boxes_in(content_of(FORMAT, root))[""]["b"] == [("class 0", (30.0, 15.0, 50.0, 45.0))]


def test_yolo_leaves_out_bad_lines_one_by_one(tmp_path: Path) -> None:
    bad = "0 0.5 0.5\n0 0.5 0.5 5 0.5\n-1 0.5 0.5 0.1 0.1\n0 0.5 0.5 nan 0.1\n0 0.5 0.5 0.1 0.1 0.2 0.3 0.4"
    files = {f"images/{each}.png": BOX for each in "cdefghijkl"}
    root = dataset(tmp_path, {"images/a.png": f"{BOX}\n{bad}", "images/b.png": "0 200 300 50 60", **files})
    content = content_of(FORMAT, root)
    found = boxes_in(content)[""]
    assert len(found["a"]) == 1
    assert "b" not in found
    assert "5 lines that can't be read (a.txt: line 2 has 3 numbers" in warnings_of(content)
    assert "1 annotation that can't be read (b.txt: line 1 contains 200" in warnings_of(content)


def test_yolo_uses_repeated_lines_once(tmp_path: Path) -> None:
    root = dataset(tmp_path, {"images/a.png": f"{BOX}\n{BOX}\n{BOX}", "images/b.png": BOX})
    content = content_of(FORMAT, root)
    assert len(boxes_in(content)[""]["a"]) == 1
    assert "2 lines repeating another of the same file: a.txt" in warnings_of(content)


# Paths


@pytest.mark.parametrize(
    "paths",
    [
        ("images/train", "images/val"),
        ("./images/train/", "images/val/"),
        ("../images/train", "../images/val"),
        ("../../images/train", "../../../images/val"),
        ("/content/drive/My Drive/set/images/train", "/content/drive/My Drive/set/images/val"),
        ("C:\\Users\\somebody\\set\\images\\train", "D:/set/images/val"),
        ("[images/train/one, images/train/two]", "[images/val]"),
        ("train.txt", "val.txt"),
        ("[train.txt]", "images/val/one/c.png"),
        ("images/train/**", "images/val/*.png"),
        ("elsewhere/train", "elsewhere/val"),
    ],
)
@pytest.mark.parametrize("path", ["", "path: .\n", "path: ../datasets/set\n", "path: /home/somebody/set\n"])
@pytest.mark.parametrize("keys", ["train: {}\nval: {}", "'train': {}\n\"valid\": {}", "train: {}\nvalidation: {}"])
def test_yolo_follows_paths_of_data_yaml(tmp_path: Path, paths: tuple[str, str], path: str, keys: str) -> None:
    files = {"train/one/a": BOX, "train/two/b": BOX, "val/one/c": BOX}
    root = dataset(
        tmp_path,
        {f"images/{each}.png": content for each, content in files.items()},
        path + keys.format(*paths) + "\nnames: {'0': cat, 1: dog}\n",
    )
    text(root / "train.txt", "./images/train/one/a.png\n/home/x/set/images/train/two/b.png\n")
    text(root / "val.txt", "images/val/one/c.png\n")
    assert names(root) == {
        "train": ["images/train/one/a.png", "images/train/two/b.png"],
        "val": ["images/val/one/c.png"],
    }
    assert content_of(FORMAT, root).classes == ("cat", "dog")


@pytest.mark.parametrize(
    ("places", "yaml"),
    [
        (
            {"images/train/a": 1, "images/train/batch2/b": 1, "images/val/c": 1},
            "train: images/train\nval: images/val\n",
        ),
        ({"images/train/x/y/z/a": 1, "images/train/x/b": 1, "images/val/q/c": 1}, ""),
        ({"train/images/a": 1, "train/images/s/b": 1, "val/images/c": 1}, "train: train/images\nval: val/images\n"),
        ({"data/train/images/a": 1, "data/train/images/s/b": 1, "data/dev/images/c": 1}, ""),
        ({"train_images/a": 1, "train_images/s/b": 1, "val_images/c": 1}, ""),
    ],
)
def test_yolo_reads_folders_of_any_depth(tmp_path: Path, places: dict[str, int], yaml: str) -> None:
    root = dataset(tmp_path, {f"{place}.png": BOX for place in places}, yaml and f"{yaml}names: [x]\n")
    found = names(root)
    assert [len(found["train"]), len(found["val"])] == [2, 1]
    assert "no split" not in warnings_of(content_of(FORMAT, root))


@pytest.mark.parametrize(
    ("image", "label"),
    [
        ("train/a.png", "labels/train/a.txt"),
        ("train/a.png", "train/labels/a.txt"),
        ("train/a.png", "train_labels/a.txt"),
        ("images/train/a.png", "labels/a.txt"),
        ("images/train/s/a.png", "labels/train/a.txt"),
        ("JPEGImages/train/a.png", "labels/train/a.txt"),
        ("train/a.png", "train/a.txt"),
        ("images/train/a.png", "labels/train/a.png.txt"),
    ],
)
def test_yolo_finds_labels_in_other_places(tmp_path: Path, image: str, label: str) -> None:
    draw(tmp_path / image, ONE)
    text(tmp_path / label, yolo_txt(ONE))
    assert boxes_in(content_of(FORMAT, tmp_path)) == {"train": {"a": [("class 0", (10.0, 20.0, 30.0, 70.0))]}}


def test_yolo_gives_no_labels_of_another_folder(tmp_path: Path) -> None:
    files = {"images/train/a.png": BOX, "images/train/empty/a.png": None, "images/val/b.png": BOX}
    content = content_of(FORMAT, dataset(tmp_path, files))
    assert sorted(len(image.boxes) for image in content.splits["train"]) == [0, 1]
    assert content.problems == []


def test_yolo_reports_splits_that_do_not_exist(tmp_path: Path) -> None:
    yaml = "train: ../train/images\nval: ../valid/images\ntest: ../test/images\nnames: ['x']\n"
    root = dataset(tmp_path, {"train/images/a.png": BOX, "val/images/b.png": BOX}, yaml)
    assert names(root) == {"train": ["train/images/a.png"], "val": ["val/images/b.png"]}
    warnings = warnings_of(content_of(FORMAT, root))
    assert "../valid/images for val, which does not exist; val/images is used" in warnings
    assert "../test/images for test, which does not exist" in warnings


def test_yolo_counts_images_in_no_split(tmp_path: Path) -> None:
    files = {"images/train/a.png": BOX, "images/val/b.png": BOX, "images/extra/c.png": BOX, "preview.png": None}
    content = content_of(FORMAT, dataset(tmp_path, files, "train: images/train\nval: images/val\nnames: [x]\n"))
    assert "2 images in no split" in warnings_of(content)
    assert "images/extra" in warnings_of(content)


def test_yolo_counts_images_of_a_split_without_labels(tmp_path: Path) -> None:
    files = {"images/train/a.png": BOX, "images/val/b.png": BOX, "images/test/c.png": None, "images/test/d.png": None}
    content = content_of(FORMAT, dataset(tmp_path, files))
    assert set(content.splits) == {"train", "val"}
    assert "2 images and no annotations in the test split" in warnings_of(content)


def test_yolo_reports_images_in_several_splits(tmp_path: Path) -> None:
    root = dataset(tmp_path, {"images/a.png": BOX, "images/b.png": BOX}, "train: images\nval: images\nnames: [x]\n")
    assert "2 images in several splits" in warnings_of(content_of(FORMAT, root))


def test_yolo_reports_images_that_lists_miss(tmp_path: Path) -> None:
    root = dataset(tmp_path, {"images/a.png": BOX}, "train: train.txt\nnames: [x]\n")
    text(root / "train.txt", "images/a.png\nimages/gone.png\n")
    assert names(root) == {"train": ["images/a.png"]}
    assert "1 image named in train.txt but not in the folder: gone.png" in warnings_of(content_of(FORMAT, root))


def test_yolo_gives_shared_labels_to_all_images(tmp_path: Path) -> None:
    root = dataset(tmp_path, {"images/a.png": BOX, "images/a.jpg": BOX, "images/b.png": BOX})
    content = content_of(FORMAT, root)
    assert [len(image.boxes) for image in content.splits[""]] == [1, 1, 1]
    assert "a.txt of a.jpg, a.png" in warnings_of(content)


def test_yolo_reports_labels_without_an_image(tmp_path: Path) -> None:
    root = dataset(tmp_path, {"images/a.png": BOX, "images/b.png": None})
    text(root / "labels/spare.txt", BOX)
    content = content_of(FORMAT, root)
    assert boxes_in(content)[""]["b"] == []
    assert "1 annotation without an image: spare.txt" in warnings_of(content)


def test_yolo_asks_for_images_that_an_export_lacks(tmp_path: Path) -> None:
    root = boxed.yolo_darknet(tmp_path, SPLITS)
    text(root / "obj.data", "classes = 2\ntrain = data/train.txt\nnames = data/obj.names\n")
    for image in root.glob("obj_train_data/*.png"):
        image.unlink()
    refusal = detected(FORMAT, root)
    assert (refusal.kinds, refusal.evidence) == ((), ("obj.data", "no images"))


# Classes


@pytest.mark.parametrize(
    ("yaml", "expected"),
    [
        ("names: [no, 'yes', 007]", ("no", "yes", "007")),
        ('"names":\n  "0": a\n  "2": c', ("a", "class 1", "c")),
        ("names: {cat: 0, dog: 1}", ("cat", "dog")),
        ("names: cat, dog", ("cat", "dog")),
        ("names: data/obj.names", ("cat", "dog")),
        ("nc: 2", ("class 0", "class 1")),
        ("nc: 2\nnames:", ("class 0", "class 1")),
    ],
)
def test_yolo_reads_names_of_data_yaml(tmp_path: Path, yaml: str, expected: tuple[str, ...]) -> None:
    root = dataset(tmp_path, {"images/a.png": BOX}, f"train: images\n{yaml}\n")
    text(root / "data/obj.names", "cat\ndog\n" if "obj.names" in yaml else "")
    assert content_of(FORMAT, root).classes == expected


@pytest.mark.parametrize("folder", ["set", "archive/set", "config"])
def test_yolo_finds_data_yaml_in_folders(tmp_path: Path, folder: str) -> None:
    images = folder if folder != "config" else "images"
    files = {f"{images}/train/images/a.png": BOX, f"{images}/val/images/b.png": BOX}
    root = dataset(tmp_path, files if folder != "config" else {"images/train/a.png": BOX, "images/val/b.png": BOX})
    paths = "train: train/images\nval: val/images" if folder != "config" else "train: images/train\nval: images/val"
    text(root / folder / "data.yaml", f"{paths}\nnames: [cat]\n")
    content = content_of(FORMAT, root)
    assert (content.classes, sorted(content.splits), content.problems) == (("cat",), ["train", "val"], [])


@pytest.mark.parametrize("angle", ["-0.7", "45", "1.57"])
def test_yolo_asks_about_boxes_with_an_angle(tmp_path: Path, angle: str) -> None:
    root = dataset(tmp_path, {f"images/{each}.png": f"{BOX} {angle}" for each in "abc"})
    assert "not a confidence" in detected(FORMAT, root).against[0]


def test_yolo_warns_of_names_that_differ(tmp_path: Path) -> None:
    root = dataset(tmp_path, {"images/a.png": BOX}, "train: images\nnames: [a, b]\nnc: 3\n")
    text(root / "classes.txt", "b\na\n")
    content = content_of(FORMAT, root)
    assert content.classes == ("a", "b")
    assert "data.yaml and classes.txt name different classes" in warnings_of(content)
    assert "its nc is 3" in warnings_of(content)


def test_yolo_refuses_lists_of_names_that_differ(tmp_path: Path) -> None:
    root = dataset(tmp_path, {"train/images/a.png": BOX, "val/images/b.png": BOX})
    text(root / "train/labels/classes.txt", "cat\ndog\n")
    text(root / "val/labels/classes.txt", "dog\ncat\n")
    (problem,) = errors(content_of(FORMAT, root).problems)
    assert "train/labels/classes.txt and val/labels/classes.txt name different classes" in problem.message
    text(root / "val/labels/classes.txt", "cat\ndog\n")
    assert content_of(FORMAT, root).problems == []


def test_yolo_reports_classes_without_a_name(tmp_path: Path) -> None:
    root = boxed.yolo(tmp_path, SPLITS)
    for label in (2, 7):
        text(root / "labels/train/b.txt", f"{label} 0.5 0.5 0.1 0.1")
        (problem,) = errors(content_of(FORMAT, root).problems)
        assert f"class {label}, but only 2 classes are named" in problem.message
        assert "data.yaml" in problem.remedy
    (root / "data.yaml").unlink()
    assert content_of(FORMAT, root).classes[-1] == "class 7"


@pytest.mark.parametrize("number", ["1e30", "0.5", "-1"])
def test_yolo_leaves_out_lines_without_class_number(tmp_path: Path, number: str) -> None:
    root = boxed.yolo(tmp_path, {"train": {"a": TWO, "b": ONE}, "val": {"c": ONE, "d": NONE}})
    text(root / "labels/train/b.txt", f"{number} 0.5 0.5 0.1 0.1")
    assert f"begins with {number}, not with a class number" in warnings_of(content_of(FORMAT, root))


def test_yolo_names_the_line_of_a_broken_data_yaml(tmp_path: Path) -> None:
    root = dataset(tmp_path, {"images/a.png": BOX}, "train: images\nnames: [a, b\nval: images\n")
    (problem,) = errors(content_of(FORMAT, root).problems)
    assert "data.yaml, line 3" in problem.message


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16-be"])
def test_yolo_reads_texts_of_any_encoding(tmp_path: Path, encoding: str) -> None:
    mark = "\ufeff" if encoding == "utf-16-be" else ""
    files = {"labels/a.txt": BOX, "labels/b.txt": BOX, "classes.txt": "cät\ndog\n"}
    dataset(tmp_path, {"images/a.png": BOX, "images/b.png": BOX})
    for path, content in files.items():
        (tmp_path / path).write_text(mark + content, encoding)
    content = content_of(FORMAT, tmp_path)
    assert (content.classes, len(boxes_in(content)[""]["a"])) == (("cät", "dog"), 1)
    (tmp_path / "data.yaml").write_text(mark + "train: images\nnames: [cät, dog]\n", encoding)
    content = content_of(FORMAT, tmp_path)
    assert (content.classes, set(content.splits), content.problems) == (("cät", "dog"), {"train"}, [])


# Boxes and outlines


def test_yolo_puts_boxes_around_outlines(tmp_path: Path) -> None:
    root = boxed.yolo(tmp_path, SPLITS)
    text(root / "labels/train/b.txt", "1 0.25 0.5 0.5 0.25 0.75 0.5 0.5 0.875")
    content = content_of(FORMAT, root)
    assert boxes_in(content)["train"]["b"] == [("dog", (15.0, 20.0, 45.0, 70.0))]


def test_yolo_drops_the_confidence(tmp_path: Path) -> None:
    root = boxed.yolo(tmp_path, SPLITS)
    text(root / "labels/train/b.txt", "1 0.5 0.5 0.5 0.25 0.9")
    assert boxes_in(content_of(FORMAT, root))["train"]["b"] == [("dog", (15.0, 30.0, 45.0, 50.0))]


def test_yolo_reports_outlines_that_reach_out(tmp_path: Path) -> None:
    outline = "0 -0.05 0.5 0.5 0.25 0.75 0.5"
    root = dataset(tmp_path, {"images/a.png": outline, "images/b.png": f"{outline} 0.6 0.9".replace("-", "")})
    content = content_of(FORMAT, root, "instances")
    assert "1 outline extending beyond the image, in a.png" in warnings_of(content)
    ((_, (left, *_)),) = instances_in(content)[""]["a"]
    assert left == 0


def test_yolo_reads_many_boxes_of_an_image(tmp_path: Path) -> None:
    many = Drawn(60, 80, tuple(Rectangle(x, x % 50, x + 4, x % 50 + 6, "cat") for x in range(70)))
    content = content_of(FORMAT, boxed.yolo(tmp_path, {"train": {"a": many}, "val": {"b": ONE}}))
    assert len(boxes_in(content)["train"]["a"]) == 70
