"""Masks of single objects: PASCAL VOC, one folder per image, and ArcGIS's RCNN masks."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from engine.data.decoding.mask_values import NO_CLASS
from engine.data.decoding.masks import VOC_CLASSES
from engine.data.formats import arcgis_masks, dsb2018, maskfolder, voc_masks
from engine.data.formats.format import Confidence
from tests.support.dataset_formats import arcgis_masks as arcgis_writer
from tests.support.dataset_formats import dsb2018 as dsb_writer
from tests.support.dataset_formats import voc_masks as voc_writer
from tests.support.dataset_formats.pixels import draw_object_numbers, save_mask
from tests.support.dataset_formats.truth import TRUTH
from tests.support.read_formats import detect, list_things, list_true_things, read, read_class_masks, read_masks

BY_SPLIT = {"train": TRUTH.get_images("train"), "val": TRUTH.get_images("val")}


@pytest.mark.parametrize("variant", voc_writer.VARIANTS)
def test_read_voc_masks_returns_the_truth(tmp_path: Path, variant: str) -> None:
    voc_writer.write(TRUTH, tmp_path, variant)
    (found,) = detect(voc_masks.FORMAT, tmp_path)
    assert (found.kinds, found.confidence) == (("instances", "masks"), Confidence.CERTAIN)
    assert detect(maskfolder.FORMAT, tmp_path) == []
    content = read(voc_masks.FORMAT, tmp_path, "masks")
    objects = read(voc_masks.FORMAT, tmp_path, "instances")
    assert content.problems == objects.problems == []
    assert objects.classes == TRUTH.classes
    truth = {
        "plain": {"": TRUTH.images}, "labelme": {"": TRUTH.images}, "trainval": {"train": TRUTH.images},
    }.get(variant, BY_SPLIT)  # fmt: skip
    assert content.splits.keys() == objects.splits.keys() == truth.keys()
    for split, images in truth.items():
        masks = read_masks(content, split)
        assert masks.keys() == {image.name for image in images}
        for image in images if variant != "cvat" else ():
            np.testing.assert_array_equal(masks[image.name], image.draw_mask())
        assert list_things(objects, split) == list_true_things(images)


def test_read_voc_masks_names_the_classes_of_voc_alone(tmp_path: Path) -> None:
    for number, (image, name) in enumerate(
        zip(TRUTH.images, ["2007_000032", "2011_003271", "2008_000008"], strict=False)
    ):
        image.save(tmp_path / f"voc/JPEGImages/{name}.jpg")
        image.save(tmp_path / f"own/JPEGImages/{number}.jpg")
        values = np.where(image.draw_mask(), 8, 0).astype(np.uint8)
        values[0], values[1] = 255, 20
        save_mask(tmp_path / f"voc/SegmentationClass/{name}.png", values)
        save_mask(tmp_path / f"voc/SegmentationObject/{name}.png", draw_object_numbers(image))
        save_mask(tmp_path / f"own/SegmentationClass/{number}.png", values)
    content = read(voc_masks.FORMAT, tmp_path / "voc", "masks")
    assert content.classes == VOC_CLASSES
    assert read(voc_masks.FORMAT, tmp_path / "voc", "instances").classes == VOC_CLASSES[1:]
    plane = read_class_masks(content, "")["2007_000032"]
    assert plane[[0, 1, 9], 10].tolist() == [NO_CLASS, 20, 8]
    content = read(voc_masks.FORMAT, tmp_path / "own", "masks")
    assert (content.classes, content.code) == ((), None)
    (tmp_path / "voc/labels.txt").write_text("ground\nthing\n")
    content = read(voc_masks.FORMAT, tmp_path / "voc", "masks")
    assert (content.classes, content.code) == ((), None)
    (tmp_path / "voc/labels.txt").unlink()
    photo, mask = tmp_path / "voc/JPEGImages/2008_000008.jpg", tmp_path / "voc/SegmentationClass/2008_000008.png"
    save_mask(mask, np.full((64, 96), 21, np.uint8))  # the value of no class
    assert read(voc_masks.FORMAT, tmp_path / "voc", "masks").classes == ()
    save_mask(mask, np.full((64, 96), 20, np.uint8))
    assert read(voc_masks.FORMAT, tmp_path / "voc", "masks").classes == VOC_CLASSES
    for name in "xyz":  # then only half of the names are like those of VOC
        shutil.copy(photo, photo.with_stem(name))
        shutil.copy(mask, mask.with_stem(name))
    assert read(voc_masks.FORMAT, tmp_path / "voc", "masks").classes == ()
    for path in tmp_path.glob("voc/SegmentationClass/*"):
        TRUTH.images[0].save(path)
    assert detect(voc_masks.FORMAT, tmp_path / "voc") == []


def test_read_voc_masks_ignores_lists_without_training_images(tmp_path: Path) -> None:
    voc_writer.write(TRUTH, tmp_path, "splits")
    (tmp_path / "ImageSets/Segmentation/train.txt").unlink()
    for kind in ("masks", "instances"):
        content = read(voc_masks.FORMAT, tmp_path, kind)
        assert (content.problems, [*content.splits]) == ([], [""])
        assert {Path(path).stem for path in content.splits[""].files} == {image.name for image in TRUTH.images}
    names = [image.name for image in TRUTH.images]
    (tmp_path / "ImageSets/Segmentation/trainval.txt").write_text("\n".join([*names, *names]))
    splits = read(voc_masks.FORMAT, tmp_path, "masks").splits
    assert {split: [Path(path).stem for path in each.files] for split, each in splits.items()} == {
        split: [image.name for image in images] for split, images in BY_SPLIT.items()
    }


def test_read_voc_masks_without_a_background_keeps_all_classes(tmp_path: Path) -> None:
    colors = np.array([(5, 5, 5), (200, 10, 10), (10, 200, 10), (10, 10, 200)], np.uint8)
    for image in TRUTH.images:
        image.save(tmp_path / f"JPEGImages/deep/{image.name}.jpg")
        save_mask(tmp_path / f"SegmentationClass/deep/{image.name}.png", colors[image.draw_mask()])
        save_mask(tmp_path / f"SegmentationObject/deep/{image.name}.png", draw_object_numbers(image))
    content = read(voc_masks.FORMAT, tmp_path, "instances")
    assert content.classes == ("#050505", "#0a0ac8", "#0ac80a", "#c80a0a")


@pytest.mark.parametrize("names", [["a", "b"], ["/a", "b"], ["JPEGImages/a.jpg", "b.JPG"]])
def test_read_voc_masks_reports_names_without_files(tmp_path: Path, names: list[str]) -> None:
    for name in "abc":
        TRUTH.images[0].save(tmp_path / f"JPEGImages/{name}.jpg")
        for mask in {"a": ["a"], "b": [], "c": ["c", "c_1"]}[name]:
            save_mask(tmp_path / f"SegmentationClass/{mask}.png", TRUTH.images[0].draw_mask())
    lists = tmp_path / "ImageSets/Segmentation"
    lists.mkdir(parents=True)
    (lists / "train.txt").write_text("\n".join([*names, "gone"]) + "\n")
    content = read(voc_masks.FORMAT, tmp_path, "masks")
    assert read_masks(content, "train").keys() == {"a"}
    messages = [problem.message for problem in content.problems]
    names = ("gone", "b.jpg", "several files of masks: c.jpg")
    assert [name in message for name, message in zip(names, messages, strict=True)] == [True] * 3


def test_detect_voc_masks_asks_about_several_years(tmp_path: Path) -> None:
    for year in (2007, 2012):
        voc_writer.write(TRUTH, tmp_path / f"VOCdevkit/VOC{year}", "splits")
    assert {each.variant for each in detect(voc_masks.FORMAT, tmp_path)} == {"VOCdevkit/VOC2007", "VOCdevkit/VOC2012"}


@pytest.mark.parametrize("background", ["background", "_background_", None])
def test_read_voc_masks_numbers_objects_without_background(tmp_path: Path, background: str | None) -> None:
    voc_writer.write(TRUTH, tmp_path, "plain")
    names = [background or "ground", *TRUTH.classes]
    (tmp_path / "class_names.txt").write_text("\n".join(names))
    content = read(voc_masks.FORMAT, tmp_path, "instances")
    assert content.classes == TRUTH.classes
    assert list_things(content, "") == list_true_things(TRUTH.images)
    assert str(tmp_path) in read(voc_masks.FORMAT, tmp_path, "masks").table_folders


# A folder per image


@pytest.mark.parametrize("variant", dsb_writer.VARIANTS)
def test_read_dsb2018_returns_the_truth(tmp_path: Path, variant: str) -> None:
    dsb_writer.write(TRUTH, tmp_path, variant)
    (found,) = detect(dsb2018.FORMAT, tmp_path)
    assert (found.kinds, found.confidence) == (("instances",), Confidence.CERTAIN)
    assert detect(maskfolder.FORMAT, tmp_path) == []
    content = read(dsb2018.FORMAT, tmp_path, "instances")
    assert (content.classes, content.problems) == (("object",), [])
    for split, images in ({"": TRUTH.images} if variant == "plain" else BY_SPLIT).items():
        assert list_things(content, split) == list_true_things(images, "object")


@pytest.mark.parametrize("pattern", ["img_[123]/masks", "img_?/masks/*_[1-9].png"])
def test_detect_dsb2018_needs_several_masks_in_most_folders(tmp_path: Path, pattern: str) -> None:
    dsb_writer.write(TRUTH, tmp_path)
    for path in list(tmp_path.glob(pattern)):
        path.rename(path.with_suffix(".old"))
    assert detect(dsb2018.FORMAT, tmp_path) == []


@pytest.mark.parametrize("missing", ["images/img_2.png", "masks", ""])
def test_read_dsb2018_reports_folders_that_lack_files(tmp_path: Path, missing: str) -> None:
    dsb_writer.write(TRUTH, tmp_path)
    if missing:
        (tmp_path / "img_2" / missing).rename(tmp_path / "elsewhere")
    else:
        TRUTH.images[0].save(tmp_path / "img_2/images/second.png")
    content = read(dsb2018.FORMAT, tmp_path, "instances")
    assert list_things(content, "").keys() == {image.name for image in TRUTH.images} - {"img_2"}
    (problem,) = content.problems
    assert "img_2" in problem.message


@pytest.mark.parametrize("place", ["{name}/images/{name}.png", "{name}/{name}.png", "images/{name}.png"])
def test_detect_dsb2018_passes_over_other_folders(tmp_path: Path, place: str) -> None:
    for image in TRUTH.images:
        image.save(tmp_path / place.format(name=image.name))
        save_mask(tmp_path / f"masks/{image.name}.png", image.draw_mask())
    dsb_writer.write(TRUTH, tmp_path / "photos")
    for path in tmp_path.glob("photos/*/masks/*"):
        TRUTH.images[0].save(path)
    assert detect(dsb2018.FORMAT, tmp_path) == detect(dsb2018.FORMAT, tmp_path / "photos") == []


# ArcGIS


def test_detect_arcgis_masks_doubts_folders_without_definition(tmp_path: Path) -> None:
    arcgis_writer.write(TRUTH, tmp_path, "names")
    (tmp_path / "esri_model_definition.emd").unlink()
    (found,) = detect(arcgis_masks.FORMAT, tmp_path)
    assert found.confidence is Confidence.WEAK
    assert found.evidence == ("5 images with masks of 3 classes in labels",)
    content = read(arcgis_masks.FORMAT, tmp_path, "instances")
    assert list_things(content, "") == list_true_things(TRUTH.images)
    for path in tmp_path.glob("labels/*/*.tif"):
        TRUTH.images[0].save(path)
    assert detect(arcgis_masks.FORMAT, tmp_path) == []


def test_read_arcgis_masks_orders_classes_that_all_have_a_name(tmp_path: Path) -> None:
    arcgis_writer.write(TRUTH, tmp_path)
    (tmp_path / "labels/5").rename(tmp_path / "labels/other")
    assert read(arcgis_masks.FORMAT, tmp_path, "instances").classes == ("6", "7", "other")
    for value, name in zip(("other", "6", "7"), TRUTH.classes, strict=True):
        (tmp_path / "labels" / value).rename(tmp_path / "labels" / name)
    classes = [{"Value": value, "Name": name} for value, name in enumerate(reversed(TRUTH.classes))]
    (tmp_path / "esri_model_definition.emd").write_text(json.dumps({"Classes": classes}))
    assert read(arcgis_masks.FORMAT, tmp_path, "instances").classes == TRUTH.classes[::-1]


@pytest.mark.parametrize("variant", ["plain", "splits", "nested"])
@pytest.mark.parametrize("lost", [("SegmentationObject",), ("SegmentationClass", "SegmentationObject")])
def test_read_voc_masks_reports_images_without_objects(tmp_path: Path, variant: str, lost: tuple[str, ...]) -> None:
    voc_writer.write(TRUTH, tmp_path, variant)
    for folder in lost:
        next(tmp_path.rglob(f"{folder}/img_4.png")).unlink()
    content = read(voc_masks.FORMAT, tmp_path, "instances")
    (problem,) = content.problems
    assert "1 image" in problem.message
    assert "without a mask of objects: img_4.jpg" in problem.message
