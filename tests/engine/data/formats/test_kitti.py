"""KITTI folders: layouts, image lists and problems."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.data.formats.format import Confidence
from engine.data.formats.kitti import FORMAT
from engine.data.formats.shared.boxes import ANY_CLASS
from engine.data.formats.tree import Tree
from tests.support import boxed
from tests.support.boxed import ONE, SPLITS, TWO, draw, kitti_txt, text
from tests.support.read_formats import detect_once, join_problems, list_boxes_by_split, read_once


def test_kitti_reads_classes_of_arcgis_in_their_order(tmp_path: Path) -> None:
    images = {f"{number:09d}": TWO if number % 2 else ONE for number in range(8)}
    content = read_once(FORMAT, boxed.arcgis_kitti(tmp_path, images))
    assert (content.classes, content.problems) == (("cat", "dog"), [])
    assert list_boxes_by_split(content)[""]["000000000"] == [("cat", (10.0, 20.0, 30.0, 70.0))]


def test_kitti_ignores_regions_for_every_class(tmp_path: Path) -> None:
    root = boxed.kitti(tmp_path, SPLITS)
    region = "DontCare -1 -1 -10 1.00 2.00 9.00 8.00 -1 -1 -1 -1000 -1000 -1000 -10"
    text(root / "training/label_2/b.txt", kitti_txt(ONE, more=[region]))
    content = read_once(FORMAT, root)
    assert content.classes == ("cat", "dog")
    (image,) = (image for image in content.splits["train"] if Path(image.path).stem == "b")
    assert [(box.label, box.ignored) for box in image.boxes] == [(0, False), (ANY_CLASS, True)]


def test_kitti_uses_trainval_if_there_is_no_train(tmp_path: Path) -> None:
    root = boxed.kitti(tmp_path, SPLITS)
    (root / "ImageSets/train.txt").unlink()
    text(root / "ImageSets/trainval.txt", "a\nb\nc\nd\n")
    (root / "ImageSets").rename(root / "training/ImageSets")
    content = read_once(FORMAT, root)
    assert {split: sorted(images) for split, images in list_boxes_by_split(content).items()} == {
        "train": ["a", "b"],
        "val": ["c", "d"],
    }


def test_kitti_reports_images_that_lists_leave_out_or_miss(tmp_path: Path) -> None:
    root = boxed.kitti(tmp_path, SPLITS)
    for path, names in (
        ("train", "data/a 1\ngone\n1.5\n"),
        ("val", "c.png\nlost"),
        ("trainval", "b"),
        ("../training/ImageSets/train", "b"),
    ):
        text(root / f"ImageSets/{path}.txt", names)
    content = read_once(FORMAT, root)
    assert {split: list(images) for split, images in list_boxes_by_split(content).items()} == {
        "train": ["a"],
        "val": ["c"],
    }
    assert "3 images named in a list but not in the folder: 1.5, gone, lost" in join_problems(content)
    assert "2 images in no split: b.png, d.png" in join_problems(content)


def test_kitti_does_not_use_lists_without_training_images(tmp_path: Path) -> None:
    root = boxed.kitti(tmp_path, SPLITS)
    (root / "ImageSets/train.txt").unlink()
    assert {split: len(images) for split, images in list_boxes_by_split(read_once(FORMAT, root)).items()} == {
        "train": 4
    }


def test_kitti_leaves_out_bad_lines_one_by_one(tmp_path: Path) -> None:
    root = boxed.kitti(tmp_path, SPLITS)
    text(
        root / "training/label_2/b.txt",
        f"{kitti_txt(ONE).rstrip()} 0.9\ncat 0.0 0\n{kitti_txt(ONE).replace('20.0', 'x')}",
    )
    content = read_once(FORMAT, root)
    assert list_boxes_by_split(content)["train"]["b"] == [("cat", (10.0, 20.0, 30.0, 70.0))]
    assert "2 lines that can't be read (b.txt: line 2 has 3 fields" in join_problems(content)
    assert detect_once(FORMAT, root).confidence == Confidence.LIKELY


@pytest.mark.parametrize(
    "line",
    ["0 0.5 0.5 0.2 0.2", "0 " + " ".join(["0.25", "1.0"] * 7), "a photo of a cat", "1 2 3 4 5 6 7 8 plane 0", ""],
)
def test_kitti_leaves_other_texts_to_others(tmp_path: Path, line: str) -> None:
    draw(tmp_path / "images/a.png", ONE)
    text(tmp_path / "labels/a.txt", line)
    assert not FORMAT.detect(Tree(str(tmp_path)))
