"""Annotation files of several splits, and the images that they name."""

from __future__ import annotations

import json
from pathlib import Path
from types import ModuleType

import pytest

from engine.data.formats import bdd100k, coco, createml, label_studio, via
from engine.data.formats.shared.annotation_files import AnnotationReader
from engine.data.formats.shared.shapes import ShapedImage
from engine.data.formats.tree import Tree
from tests.support.images import write_image
from tests.support.read_formats import read_once

FOUND = "a.png"
BOX = {"x": 2, "y": 3, "width": 2, "height": 2}
COCO = {
    "images": [{"id": 1, "file_name": FOUND}],
    "annotations": [{"image_id": 1, "category_id": 1, "bbox": [1, 2, 2, 2]}],
    "categories": [{"id": 1, "name": "cat"}],
}
RESULT = {"value": {**BOX, "rectanglelabels": ["cat"]}}
REGION = {"shape_attributes": {"name": "rect", **BOX}, "region_attributes": {"class": "cat"}}


@pytest.mark.parametrize(
    ("form", "content"),
    [
        (bdd100k, [{"name": FOUND, "labels": [{"category": "cat", "box2d": {"x1": 1, "y1": 2, "x2": 3, "y2": 4}}]}]),
        (coco, COCO),
        (createml, [{"image": FOUND, "annotations": [{"label": "cat", "coordinates": BOX}]}]),
        (label_studio, [{"data": {"image": FOUND}, "annotations": [{"result": [RESULT]}]}]),
        (via, {FOUND: {"filename": FOUND, "regions": [REGION]}}),
    ],
)
def test_files_of_splits_name_their_own_images(tmp_path: Path, form: ModuleType, content: object) -> None:
    for split in ("train", "val"):
        write_image(tmp_path / "images" / split / FOUND)
        (tmp_path / f"{split}.json").write_text(f"\n{json.dumps(content)}")
    found = read_once(form.FORMAT, tmp_path)
    assert {split: [image.path for image in images] for split, images in found.splits.items()} == {
        split: [str(tmp_path / "images" / split / FOUND)] for split in ("train", "val")
    }


def reader(folder: Path, names: list[str], *images: str, preferred: str = "") -> AnnotationReader[ShapedImage]:
    for name in images:
        write_image(folder / name)
    return AnnotationReader(Tree(str(folder)), names, preferred)


@pytest.mark.parametrize(
    ("names", "preferred", "used", "unused"),
    [
        (["all.json", "train.json"], "", [("train", "train.json")], ["all.json"]),
        (["all.json", "val.json"], "", [("val", "val.json"), ("", "all.json")], []),
        (
            ["train_boxes.json", "train_INSTANCES.json", "test_boxes.json"],
            "instances",
            [("train", "train_INSTANCES.json"), ("test", "test_boxes.json")],
            ["train_boxes.json"],
        ),
        (
            ["instances/train_boxes.json", "instances/train_instances.json", "more/train.json"],
            "instances",
            [("train", "instances/train_instances.json"), ("train", "more/train.json")],
            ["instances/train_boxes.json"],
        ),
    ],
)
def test_reader_chooses_files_by_split_and_word(
    tmp_path: Path, names: list[str], preferred: str, used: list[tuple[str, str]], unused: list[str]
) -> None:
    found = reader(tmp_path, names, preferred=preferred)
    assert list(found.iterate_files()) == used
    left_out = [name for name in names if any(f" {Path(name).name}." in each.message for each in found.problems)]
    assert left_out == unused


def test_reader_distinguishes_missing_and_ambiguous_images(tmp_path: Path) -> None:
    found = reader(tmp_path, ["a.json"], "x/a.png", "y/a.png", "x/c.png")
    results = [found.find(*names) for names in (("a.png", "a.json", ""), ("b.png", "a.json", ""))]
    assert [*results, found.find("b.png", "a.json", "", "c.png")] == [None, None, str(tmp_path / "x/c.png")]
    assert found.find("x/a.png", "a.json", "", "c.png") == str(tmp_path / "x/a.png")
    found.finish()
    missing, ambiguous = found.problems
    assert ("b.png" in missing.message, "a.png" in missing.message) == (True, False)
    assert ("a.png" in ambiguous.message, missing.severity, ambiguous.severity) == (True, "warning", "warning")
    without_images = reader(tmp_path, ["a.json"])
    without_images.find("b.png", "a.json", "")
    without_images.finish()
    assert [each.severity for each in without_images.problems] == ["error"]


def test_reader_adds_an_image_once(tmp_path: Path) -> None:
    found = reader(tmp_path, ["train.json", "val.json"])
    first, second = ShapedImage("a.png"), ShapedImage("b.png")
    assert found.add("train", [first])
    assert found.add("val", [first, second])
    assert not found.add("", [first])
    assert not found.add("train", [first], is_annotated=False)
    assert found.finish() == {"train": [first], "val": [first, second], "": []}
    assert len(found.problems) == 1
    single = reader(tmp_path, ["train.json", "more/train.json"])
    assert [single.add("train", [first]), single.add("train", [first])] == [True, False]


@pytest.mark.parametrize(("annotated", "left"), [((), ["train", "val"]), (("val",), ["val"])])
def test_reader_drops_splits_without_annotations(tmp_path: Path, annotated: tuple[str, ...], left: list[str]) -> None:
    found = reader(tmp_path, ["train.json", "val.json"])
    for split in ("train", "val"):
        found.add(split, [ShapedImage(f"{split}.png")], is_annotated=split in annotated)
    assert list(found.finish()) == left
    assert len(found.problems) == 2 - len(left)
