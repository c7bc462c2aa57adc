"""Paths in YOLO folders: data.yaml, image lists, splits, and text files in unusual places."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.data.formats.yolo import FORMAT
from tests.support import boxed
from tests.support.boxed import SPLITS, text, write_images_with_labels
from tests.support.read_formats import detect, detect_once, join_problems, read_once

BOX = "0 0.5 0.5 0.25 0.5"


def list_images(root: Path) -> dict[str, list[str]]:
    """Return the image paths of each split and check that every image has the box `BOX`."""
    content = read_once(FORMAT, root)
    for images in content.splits.values():
        assert all(len(image.boxes) == 1 for image in images)
    return {
        split: [str(Path(image.path).relative_to(root)) for image in images] for split, images in content.splits.items()
    }


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
    root = write_images_with_labels(
        tmp_path,
        {f"images/{each}.png": content for each, content in files.items()},
        path + keys.format(*paths) + "\nnames: {'0': cat, 1: dog}\n",
    )
    text(root / "train.txt", "./images/train/one/a.png\n/home/x/set/images/train/two/b.png\n")
    text(root / "val.txt", "images/val/one/c.png\n")
    assert list_images(root) == {
        "train": ["images/train/one/a.png", "images/train/two/b.png"],
        "val": ["images/val/one/c.png"],
    }
    assert read_once(FORMAT, root).classes == ("cat", "dog")


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
    root = write_images_with_labels(tmp_path, {f"{place}.png": BOX for place in places}, yaml and f"{yaml}names: [x]\n")
    found = list_images(root)
    assert [len(found["train"]), len(found["val"])] == [2, 1]
    assert "no split" not in join_problems(read_once(FORMAT, root))


def test_yolo_gives_no_labels_of_another_folder(tmp_path: Path) -> None:
    files = {"images/train/a.png": BOX, "images/train/empty/a.png": None, "images/val/b.png": BOX}
    content = read_once(FORMAT, write_images_with_labels(tmp_path, files))
    assert sorted(len(image.boxes) for image in content.splits["train"]) == [0, 1]
    assert "1 image without a text file: a.png" in join_problems(content)
    assert "share" not in join_problems(content)


def test_yolo_reports_splits_that_do_not_exist(tmp_path: Path) -> None:
    yaml = "train: ../train/images\nval: ../valid/images\ntest: ../test/images\nnames: ['x']\n"
    root = write_images_with_labels(tmp_path, {"train/images/a.png": BOX, "val/images/b.png": BOX}, yaml)
    assert list_images(root) == {"train": ["train/images/a.png"], "val": ["val/images/b.png"]}
    warnings = join_problems(read_once(FORMAT, root))
    assert "../valid/images for val, which does not exist; val/images is used" in warnings
    assert "../test/images for test, which does not exist" in warnings


def test_yolo_counts_images_in_no_split(tmp_path: Path) -> None:
    files = {"images/train/a.png": BOX, "images/val/b.png": BOX, "images/extra/c.png": BOX, "preview.png": None}
    content = read_once(
        FORMAT, write_images_with_labels(tmp_path, files, "train: images/train\nval: images/val\nnames: [x]\n")
    )
    assert "2 images in no split" in join_problems(content)
    assert "images/extra" in join_problems(content)


def test_yolo_counts_images_of_a_split_without_labels(tmp_path: Path) -> None:
    files = {"images/train/a.png": BOX, "images/val/b.png": BOX, "images/test/c.png": None, "images/test/d.png": None}
    content = read_once(FORMAT, write_images_with_labels(tmp_path, files))
    assert set(content.splits) == {"train", "val"}
    assert "2 images and no annotations in the test split" in join_problems(content)


def test_yolo_reports_images_that_lists_miss(tmp_path: Path) -> None:
    files = {"one/images/a.png": BOX, "two/images/a.png": BOX}
    root = write_images_with_labels(tmp_path, files, "train: two/train.txt\nnames: [x]\n")
    text(root / "two/train.txt", "images/a.png\nimages/gone.png\n")
    assert list_images(root) == {"train": ["two/images/a.png"]}
    assert "1 image named in two/train.txt but not in the folder: gone.png" in join_problems(read_once(FORMAT, root))


def test_yolo_prefers_lists_in_the_main_folder(tmp_path: Path) -> None:
    root = write_images_with_labels(tmp_path, {"images/a.png": BOX, "images/b.png": BOX, "images/c.png": BOX})
    text(root / "train.txt", "images/a.png\n")
    text(root / "val.txt", "images/b.png\n")
    text(root / "data" / "train.txt", "../images/c.png\n")
    assert list_images(root) == {"train": ["images/a.png"], "val": ["images/b.png"]}


def test_yolo_asks_for_images_that_an_export_lacks(tmp_path: Path) -> None:
    root = boxed.yolo_darknet(tmp_path, SPLITS)
    text(root / "obj.data", "classes = 2\ntrain = data/train.txt\nnames = data/obj.names\n")
    for image in root.glob("obj_train_data/*.png"):
        image.unlink()
    refusal = detect_once(FORMAT, root)
    assert (refusal.kinds, refusal.evidence) == ((), ("obj.data", "no images"))
    text(root / "data.yaml", "names: [cat, dog]\n")
    assert detect(FORMAT, root) == []
