"""Inspection of boxes and instances: statistics, problems and examples."""

from __future__ import annotations

import json
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from engine.contract.dataset import DatasetReport
from engine.contract.problems import errors
from engine.data.datasets.open_splits import open_splits
from engine.data.formats.registry import recognize
from engine.data.inspection.inspector import inspect
from engine.data.inspection.objects import read_shrunk
from tests.support import boxed
from tests.support.boxed import ONE, SPLITS, TWO, DrawnImage, Rectangle, draw, text, write_numbered_mask

DATASETS = Path(__file__).parents[5] / "shared/datasets"


def inspect_folder(folder: Path, format_: str = "boxes") -> DatasetReport:
    return inspect(
        str(folder), val_fraction=0.25, seed=0, progress=lambda done, total: None, kinds=(format_,), threads=2
    )


def messages(report: DatasetReport) -> str:
    return " ".join(map(str, report.problems))


def dataset(name: str) -> Path:
    if not (DATASETS / name).is_dir():
        pytest.skip(f"the dataset {name} is not at hand")
    return DATASETS / name


@pytest.mark.parametrize("format_", ["boxes", "instances"])
def test_objects_and_their_images_are_counted(tmp_path: Path, format_: str) -> None:
    report = inspect_folder(boxed.coco(tmp_path, SPLITS), format_)
    assert (report.kind, report.classes, report.channels) == (format_, ("cat", "dog"), 3)
    assert [entry.name for entry in report.legend] == (["cat", "dog"] if format_ == "boxes" else [])
    train, val = report.splits
    assert (train.name, train.images, train.counts, train.objects) == (
        "train",
        2,
        {"cat": 2, "dog": 1},
        {"cat": 2, "dog": 1},
    )
    assert (val.name, val.images, val.objects) == ("val", 2, {"cat": 2, "dog": 1})
    areas = sorted([32 * 24, 24 * 26, 20 * 50])
    assert train.object_sides is not None
    assert train.object_sides[1] == pytest.approx(areas[1] ** 0.5)
    assert errors(report.problems) == []


def test_examples_show_boxes_of_objects(tmp_path: Path) -> None:
    one = DrawnImage(480, 480, (Rectangle(100, 150, 300, 350, "cat"),))  # larger than examples
    report = inspect_folder(boxed.yolo(tmp_path, {"train": {"a": one}, "val": {"b": one}}))
    (example,) = report.examples
    assert (example.class_name, example.split, example.sample) == ("cat", "train", 0)
    pixels = np.asarray(Image.open(BytesIO(example.png)).convert("RGB")).astype(int)
    assert pixels.shape == (384, 384, 3)
    frame, inside = pixels[200, 80], pixels[200, 160]
    assert np.abs(inside - boxed.COLORS["cat"]).max() < 12
    assert np.abs(frame - boxed.COLORS["cat"]).max() > 60
    small = DrawnImage(96, 96, (Rectangle(20, 30, 60, 70, "cat"),))
    report = inspect_folder(boxed.yolo(tmp_path / "small", {"train": {"a": small}, "val": {"b": small}}))
    pixels = np.asarray(Image.open(BytesIO(report.examples[0].png)).convert("RGB")).astype(int)
    assert np.abs(pixels[50, 20] - boxed.COLORS["cat"]).max() > 60


def test_examples_show_objects_in_different_colors(tmp_path: Path) -> None:
    pair = DrawnImage(60, 80, (Rectangle(5, 5, 35, 55, "cat"), Rectangle(45, 5, 75, 55, "cat")))
    report = inspect_folder(boxed.coco(tmp_path, {"train": {"a": pair}, "val": {"b": pair}}), "instances")
    (example,) = report.examples
    pixels = np.asarray(Image.open(BytesIO(example.png)).convert("RGB")).astype(int)
    height, width = pixels.shape[:2]
    left, right = pixels[height // 2, width // 4], pixels[height // 2, 3 * width // 4]
    assert np.abs(left - right).max() > 30


def test_read_shrunk_turns_photos_upright(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6  # to be rotated clockwise by 90 degrees
    photo = Image.new("RGB", (80, 40), boxed.COLORS["dog"])
    photo.paste(boxed.COLORS["cat"], (0, 0, 40, 40))
    photo.save(tmp_path / "a.jpg", exif=exif)
    found = read_shrunk(str(tmp_path / "a.jpg"), 20)
    assert found.shape == (20, 10, 3)
    assert np.abs(found[[2, -3], 5] - np.array([boxed.COLORS["cat"], boxed.COLORS["dog"]])).max() < 20


def test_unusable_images_are_left_out_with_reason(tmp_path: Path) -> None:
    root = boxed.coco(tmp_path, {"train": {"a": TWO, "b": ONE, "c": TWO, "d": ONE}, "val": {"e": TWO}})
    draw(root / "train2017/a.png", TWO._replace(width=70))
    intact = (root / "train2017/b.png").read_bytes()
    (root / "train2017/b.png").write_bytes(intact[: len(intact) // 2])
    for format_, marks in (("boxes", "boxes"), ("instances", "outlines")):
        report = inspect_folder(root, format_)
        assert report.splits[0].images == 2
        reasons = {Path(each.path).name: each.reason for each in report.unreadable}
        assert reasons["a.png"] == f"it has 70 x 60 pixels, but its {marks} belong to an image of 80 x 60"
        assert "truncated or damaged" in reasons["b.png"]


def test_ignored_regions_are_not_counted(tmp_path: Path) -> None:
    root = boxed.coco(tmp_path, SPLITS)
    content = boxed.coco_json(SPLITS["train"])
    content["annotations"][2]["iscrowd"] = 1
    text(root / "annotations/instances_train2017.json", json.dumps(content))
    assert inspect_folder(root).splits[0].objects == {"cat": 1, "dog": 1}
    assert inspect_folder(root, "instances").splits[0].objects == {"cat": 1, "dog": 1}


def test_masks_with_too_many_objects_are_reported_once(tmp_path: Path) -> None:
    many = [
        Rectangle(3 * (number % 20), 3 * (number // 20), 3 * (number % 20) + 2, 3 * (number // 20) + 2, "cat")
        for number in range(300)
    ]
    crowded = DrawnImage(60, 80, tuple(many))
    full = DrawnImage(60, 80, tuple(many[:255]))
    for name, drawn in (("train/a", crowded), ("val/a", crowded), ("train/b", full)):
        draw(tmp_path / f"images/{name}.png", drawn)
        write_numbered_mask(tmp_path / f"masks/{name}.png", drawn)
    report = inspect_folder(tmp_path, "instances")
    assert [problem.message for problem in report.problems if "255" in problem.message] == [
        "There are 2 images with more than 255 instances: a.png."
    ]
    pixels = np.asarray(Image.open(BytesIO(report.examples[1].png)).convert("RGB"))
    last = many[254]
    assert tuple(pixels[last.top, last.left]) not in (boxed.COLORS["cat"], boxed.GRAY)


def test_empty_boxes_are_reported(tmp_path: Path) -> None:
    """Use more images than a report has examples."""
    flat = DrawnImage(80, 60, (*ONE.rectangles, Rectangle(20, 20, 20, 40, "dog")))
    named = {f"{number:02}": (TWO, flat)[number % 2] for number in range(16)}
    folder = boxed.voc(tmp_path, {"train": named, "val": {"c": ONE, "d": TWO}})
    report = inspect_folder(folder)
    assert "8 boxes without area, in " in messages(report)
    assert [split.images for split in report.splits] == [16, 2]
    assert report.splits[0].objects == {"cat": 16, "dog": 8}
    assert report.unreadable_count == 0
    assert len(report.examples) == 4 * 2
    splits = open_splits(str(folder), val_fraction=0.2, seed=0, kinds=("boxes",))
    assert (splits.classes, len(splits.train), len(splits.val)) == (("cat", "dog"), 16, 2)
    assert (splits.train.class_counts(2), splits.val.class_counts(2)) == ([16, 8], [2, 1])


def test_objects_in_masks_get_only_class_of_their_file(tmp_path: Path) -> None:
    for split, images in SPLITS.items():
        for stem, drawn in images.items():
            draw(tmp_path / f"images/{split}/{stem}.png", drawn)
            write_numbered_mask(tmp_path / f"masks/{split}/{stem}.png", drawn)
        content = boxed.coco_json(images)
        content["categories"] = [{"id": 3, "name": "nucleus"}]
        content["annotations"] = [{**each, "category_id": 3} for each in content["annotations"]]
        text(tmp_path / f"annotations/{split}.json", json.dumps(content))
    splits = open_splits(str(tmp_path), val_fraction=0.2, seed=0, kinds=("instances",))
    assert (splits.classes, len(splits.train), len(splits.val)) == (("nucleus",), 2, 2)
    assert (splits.train.class_counts(1), splits.val.class_counts(1)) == ([3], [3])


def test_blood_cells_are_read_without_empty_boxes() -> None:
    folder = str(dataset("bccd"))
    (problem,) = recognize(folder, val_fraction=0.2, seed=0, kinds=("boxes",)).problems
    assert "2 boxes without area, in BloodImage_00343.jpg, BloodImage_00338.jpg" in problem.message
    splits = open_splits(folder, val_fraction=0.2, seed=0, kinds=("boxes",))
    assert (splits.classes, len(splits.train), len(splits.val)) == (("Platelets", "RBC", "WBC"), 205, 87)
    assert splits.train.class_counts(3) == [209, 2381, 214]
    assert splits.val.class_counts(3) == [83, 967, 87]


@pytest.mark.long
def test_blood_cells_are_inspected() -> None:
    report = inspect_folder(dataset("bccd"))
    assert [split.images for split in report.splits] == [205, 87, 72]
    assert report.splits[0].objects == {"Platelets": 209, "RBC": 2381, "WBC": 214}
    assert report.unreadable_count == 0
    assert len(report.examples) == 12


def test_nuclei_are_separated_by_masks() -> None:
    splits = open_splits(str(dataset("nuclei_subset")), val_fraction=0.2, seed=0, kinds=("instances",))
    assert (splits.classes, len(splits.train), len(splits.val)) == (("nucleus",), 96, 24)
    assert splits.train.class_counts(1) == [2929]
    assert splits.val.class_counts(1) == [739]
