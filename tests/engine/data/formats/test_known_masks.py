"""Mask datasets with known layouts and classes: Cityscapes, Mapillary, ADE20K, pets, LoveDA."""

from __future__ import annotations

import json
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from PIL import Image

from engine.data.decoding.mask_values import NO_CLASS
from engine.data.formats import ade20k, cityscapes, loveda, mapillary, maskfolder, pets
from engine.data.formats.format import Confidence
from engine.data.formats.shared.instances import InstanceSplit
from tests.support.dataset_formats import ade20k as ade20k_writer
from tests.support.dataset_formats import cityscapes as cityscapes_writer
from tests.support.dataset_formats import loveda as loveda_writer
from tests.support.dataset_formats import mapillary as mapillary_writer
from tests.support.dataset_formats import pets as pets_writer
from tests.support.dataset_formats.pixels import draw_labels, save_mask
from tests.support.dataset_formats.truth import CLASSES, TRUTH
from tests.support.read_formats import detect, list_things, list_true_things, read, read_class_masks

WRITERS = [
    (ade20k, ade20k_writer),
    (cityscapes, cityscapes_writer),
    (loveda, loveda_writer),
    (mapillary, mapillary_writer),
    (pets, pets_writer),
]


@pytest.mark.parametrize(
    ("module", "writer", "variant"),
    [(module, writer, variant) for module, writer in WRITERS for variant in writer.VARIANTS],
)
def test_detect_is_certain_only_of_known_files(
    tmp_path: Path, module: ModuleType, writer: ModuleType, variant: str
) -> None:
    writer.write(TRUTH, tmp_path, variant)
    for other, _ in WRITERS:
        found = detect(other.FORMAT, tmp_path)
        assert [each.confidence for each in found] == ([Confidence.CERTAIN] if other is module else [])
    assert detect(maskfolder.FORMAT, tmp_path) == []


@pytest.mark.parametrize("variant", cityscapes_writer.VARIANTS)
def test_read_cityscapes_returns_the_truth(tmp_path: Path, variant: str) -> None:
    cityscapes_writer.write(TRUTH, tmp_path, variant)
    if variant == "plain":  # training ids, which users may change, take precedence over label ids
        for path in tmp_path.rglob("*_labelIds.png"):
            with Image.open(path) as mask:
                size = mask.size
            save_mask(path, np.full(size[::-1], 7, np.uint8))
    content = read(cityscapes.FORMAT, tmp_path, "masks")
    objects = read(cityscapes.FORMAT, tmp_path, "instances")
    assert content.problems == objects.problems == []
    assert (len(content.classes), len(objects.classes)) == (19, 8)
    ids = {name: content.classes.index(other) for name, other in cityscapes_writer.NAMES.items()}
    by_split = {"train": TRUTH.get_images("train"), "val": TRUTH.get_images("val")}
    for split, images in ({"train": TRUTH.images} if variant == "kitti" else by_split).items():
        found = {name.removesuffix("_leftImg8bit"): plane for name, plane in read_class_masks(content, split).items()}
        assert found.keys() == {image.name for image in images}
        for image in images:
            np.testing.assert_array_equal(found[image.name], draw_labels(image, content.classes.index("road"), ids))
        found_objects = {name.removesuffix("_leftImg8bit"): each for name, each in list_things(objects, split).items()}
        assert found_objects == list_true_things(images, cityscapes_writer.NAMES)


def test_read_cityscapes_ignores_groups_and_void(tmp_path: Path) -> None:
    cityscapes_writer.write(TRUTH, tmp_path, "label_ids")
    stem = tmp_path / "gtFine/train/aachen/img_1_gtFine"
    numbers = np.zeros((64, 96), np.uint16)
    numbers[:8], numbers[8:16], numbers[16:24], numbers[24:32] = 26, 26003, 29001, 7
    save_mask(stem.with_name(stem.name + "_instanceIds.png"), numbers)
    labels = np.zeros((64, 96), np.uint8)
    labels[:8], labels[8:16], labels[16:24] = 26, 29, 33
    save_mask(stem.with_name(stem.name + "_labelIds.png"), labels)
    assert detect(cityscapes.FORMAT, tmp_path)[0].against == ()
    split = read(cityscapes.FORMAT, tmp_path, "instances").splits["train"]
    assert isinstance(split, InstanceSplit)
    found = split.sources[0].instances(64, 96)
    assert [(each.label, each.ignored, each.window.top) for each in found] == [(2, True, 0), (2, False, 8)]
    plane = read_class_masks(read(cityscapes.FORMAT, tmp_path, "masks"), "train")["img_1_leftImg8bit"]
    assert plane[[0, 8, 16, 30], 0].tolist() == [13, NO_CLASS, 18, NO_CLASS]


@pytest.mark.parametrize("value", [0, 3])
def test_read_cityscapes_leaves_out_test_masks_without_labels(tmp_path: Path, value: int) -> None:
    cityscapes_writer.write(TRUTH, tmp_path, "label_ids")
    image = TRUTH.images[0]
    image.save(tmp_path / "leftImg8bit/test/berlin/b_leftImg8bit.png")
    save_mask(tmp_path / "gtFine/test/berlin/b_gtFine_labelIds.png", np.full((64, 96), value, np.uint8))
    save_mask(tmp_path / "gtFine/test/berlin/b_gtFine_instanceIds.png", np.full((64, 96), value, np.uint16))
    for path in tmp_path.glob("gtFine/val/*/*Ids.png"):
        path.write_bytes(b"")  # unreadable masks are reported later
    for kind in ("masks", "instances"):
        assert set(read(cityscapes.FORMAT, tmp_path, kind).splits) == {"train", "val"}


def test_detect_cityscapes_asks_about_fine_and_coarse(tmp_path: Path) -> None:
    for variant in ("plain", "coarse"):
        cityscapes_writer.write(TRUTH, tmp_path, variant)
    assert [each.variant for each in detect(cityscapes.FORMAT, tmp_path)] == ["gtFine", "gtCoarse"]
    (tmp_path / "leftImg8bit").rename(tmp_path / "images")
    assert detect(cityscapes.FORMAT, tmp_path) == []


def test_detect_cityscapes_doubts_values_of_no_label(tmp_path: Path) -> None:
    cityscapes_writer.write(TRUTH, tmp_path, "label_ids")
    values = np.full((64, 96), 70, np.uint8)
    values[:9] = 90
    save_mask(tmp_path / "gtFine/train/aachen/img_1_gtFine_labelIds.png", values)
    (found,) = detect(cityscapes.FORMAT, tmp_path)
    assert found.confidence is Confidence.WEAK
    assert ("70" in found.against[0], "90" in found.against[0]) == (True, False)
    for path in tmp_path.rglob("*_labelIds.png"):
        path.unlink()
    next(tmp_path.rglob("*_instanceIds.png")).unlink()
    (found,) = detect(cityscapes.FORMAT, tmp_path)
    assert (found.kinds, found.against) == (("instances",), ())
    assert len(read(cityscapes.FORMAT, tmp_path, "instances").problems) == 1


@pytest.mark.parametrize(("incomplete", "first"), [(False, 0), (True, 7)])
def test_cityscapes_uses_label_ids_of_more_images(tmp_path: Path, incomplete: bool, first: int) -> None:
    cityscapes_writer.write(TRUTH, tmp_path, "plain")
    if incomplete:
        next(tmp_path.rglob("*_labelTrainIds.png")).unlink()
    for path in tmp_path.glob("gtFine/val/*/*_labelTrainIds.png"):
        save_mask(path, np.zeros((64, 96), np.uint8))  # only roads
    code = read(cityscapes.FORMAT, tmp_path, "masks").code
    assert code is not None
    assert code.values[0] == first


def test_cityscapes_objects_may_all_be_groups(tmp_path: Path) -> None:
    for folder, variant, value in (("a", "label_ids", 26), ("b", "kitti", 26 * 256)):
        cityscapes_writer.write(TRUTH, tmp_path / folder, variant)
        masks = [*(tmp_path / folder).rglob("*_instanceIds.png"), *(tmp_path / folder).glob("*/instance/*.png")]
        for path in masks:
            save_mask(path, np.full((64, 96), value, np.uint16))
        split = read(cityscapes.FORMAT, tmp_path / folder, "instances").splits["train"]
        assert isinstance(split, InstanceSplit)
        assert [source.labels() for source in split.sources] == [[]] * len(split.files)
    (tmp_path / "b/training/instance").rename(tmp_path / "b/training/other")
    assert detect(cityscapes.FORMAT, tmp_path / "b")[0].kinds == ("masks",)


def test_cityscapes_joins_extra_training_images(tmp_path: Path) -> None:
    cityscapes_writer.write(TRUTH, tmp_path, "label_ids")
    TRUTH.images[0].save(tmp_path / "leftImg8bit/Train_Extra/ulm/b_leftImg8bit.png")
    save_mask(tmp_path / "gtFine/Train_Extra/ulm/b_gtFine_labelIds.png", np.full((64, 96), 7, np.uint8))
    split = read(cityscapes.FORMAT, tmp_path, "masks").splits["train"]
    assert len(split.files) == len(TRUTH.get_images("train")) + 1


@pytest.mark.parametrize("variant", mapillary_writer.VARIANTS)
def test_read_mapillary_returns_the_truth(tmp_path: Path, variant: str) -> None:
    mapillary_writer.write(TRUTH, tmp_path, variant)
    if variant == "plain":
        (tmp_path / "config.json").rename(tmp_path / "config_v1.1.json")
    for path in tmp_path.rglob("*.png"):
        with Image.open(path) as mask:
            values = np.array(mask)
        values[0, -1] = mapillary_writer.VOID if path.parent.name == "labels" else mapillary_writer.VOID * 256 + 1
        save_mask(path, values)
    content = read(mapillary.FORMAT, tmp_path, "masks")
    assert content.classes == ("Apple", "Road", "Bear", "Cup")
    objects = read(mapillary.FORMAT, tmp_path, "instances")
    assert objects.classes == ("Apple", "Bear", "Cup")
    for split in ("train", "val"):
        found = read_class_masks(content, split)
        for image in TRUTH.get_images(split):
            expected = draw_labels(image, mapillary_writer.ROAD, mapillary_writer.LABELS)
            expected[0, -1] = NO_CLASS
            np.testing.assert_array_equal(found[image.name], expected)
        assert list_things(objects, split) == list_true_things(
            TRUTH.get_images(split), {name: name.title() for name in CLASSES}
        )


def test_detect_mapillary_asks_about_versions(tmp_path: Path) -> None:
    mapillary_writer.write(TRUTH, tmp_path, "v2.0")
    mapillary_writer.write(TRUTH, tmp_path, "v1.2")
    assert [each.variant for each in detect(mapillary.FORMAT, tmp_path)] == ["v1.2", "v2.0"]


@pytest.mark.parametrize("text", ["{", "[]", '{"labels": 3}', '{"labels": [{"name": "x"}]}'])
def test_detect_mapillary_passes_over_other_configs(tmp_path: Path, text: str) -> None:
    mapillary_writer.write(TRUTH, tmp_path)
    (tmp_path / "config.json").write_text(text)
    assert detect(mapillary.FORMAT, tmp_path) == []


def test_detect_mapillary_doubts_more_values_than_labels(tmp_path: Path) -> None:
    mapillary_writer.write(TRUTH, tmp_path)
    content = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({"labels": content["labels"][:3]}))
    (found,) = detect(mapillary.FORMAT, tmp_path)
    assert found.confidence is Confidence.WEAK
    for path in tmp_path.rglob("labels"):
        path.rename(path.with_name("other"))
    (found,) = detect(mapillary.FORMAT, tmp_path)
    assert (found.kinds, found.against) == (("instances",), ())


@pytest.mark.parametrize("variant", ade20k_writer.VARIANTS)
def test_read_ade20k_returns_the_truth(tmp_path: Path, variant: str) -> None:
    ade20k_writer.write(TRUTH, tmp_path, variant)
    content = read(ade20k.FORMAT, tmp_path, "masks")
    assert content.classes[:3] == (CLASSES if variant != "without_names" else ("class 1", "class 2", "class 3"))
    assert content.classes[-1] == ("thing 150" if variant in ("plain", "nested") else "class 150")
    assert (len(content.classes), len(content.problems)) == (150, variant in ade20k_writer.WARNINGS)
    for split in ("train", "val"):
        found = read_class_masks(content, split)
        for image in TRUTH.get_images(split):
            expected = np.where(image.draw_mask(), image.draw_mask() - 1, NO_CLASS)
            np.testing.assert_array_equal(found[f"ADE_{split}_{image.name}"], expected)


def test_ade20k_numbers_repeated_names(tmp_path: Path) -> None:
    ade20k_writer.write(TRUTH, tmp_path, "plain")
    (path,) = tmp_path.rglob("objectInfo150.txt")
    lines = path.read_text().splitlines()
    lines[2] = "\t".join(["2", *lines[1].split("\t")[1:]])
    path.write_text("\n".join(lines))
    first = CLASSES[0]
    assert read(ade20k.FORMAT, tmp_path, "masks").classes[:3] == (f"{first} (1)", f"{first} (2)", CLASSES[2])


@pytest.mark.parametrize(("others", "count"), [(1, 1), (2, 0)])
def test_ade20k_names_most_images(tmp_path: Path, others: int, count: int) -> None:
    for number, image in enumerate(TRUTH.images[: 2 + others]):
        name = f"x_{number}" if number >= 2 else f"ADE_{number}"
        image.save(tmp_path / f"images/training/{name}.png")
        save_mask(tmp_path / f"annotations/training/{name}.png", image.draw_mask())
    assert len(detect(ade20k.FORMAT, tmp_path)) == count
    (tmp_path / "objectInfo150.txt").touch()
    for value, confidence in ((150, Confidence.CERTAIN), (151, Confidence.WEAK)):
        save_mask(tmp_path / "annotations/training/ADE_0.png", np.full((64, 96), value, np.uint8))
        assert [each.confidence for each in detect(ade20k.FORMAT, tmp_path)] == [confidence]


@pytest.mark.parametrize("place", ["a/ADE_train_1", "images/ADE/training/urban/street/ADE_train_1", "ADE_train_1"])
def test_detect_refuses_the_full_ade20k(tmp_path: Path, place: str) -> None:
    TRUTH.images[0].save(tmp_path / f"{place}.jpg")
    for name in ("parts_1", "seg"):
        save_mask(tmp_path / f"{place}_{name}.png", np.zeros((64, 96, 3), np.uint8))
    (found,) = detect(ade20k.FORMAT, tmp_path)
    assert (found.kinds, found.confidence) == ((), Confidence.CERTAIN)
    assert found.evidence == ("1 mask such as ADE_train_1_seg.png",)
    assert "ADEChallengeData2016" in found.remedy
    save_mask(tmp_path / f"{place}2_seg.png", np.zeros((64, 96, 3), np.uint8))  # no image belongs to it
    assert len(detect(ade20k.FORMAT, tmp_path)) == 1
    (tmp_path / f"{place}.jpg").unlink()
    assert detect(ade20k.FORMAT, tmp_path) == []


@pytest.mark.parametrize("variant", pets_writer.VARIANTS)
def test_read_pets_returns_the_truth(tmp_path: Path, variant: str) -> None:
    pets_writer.write(TRUTH, tmp_path, variant)
    if variant == "splits":  # images in several lists belong to the first one
        with (tmp_path / "annotations/test.txt").open("a") as file:
            file.writelines(f"{image.name} 1 1 1\n" for image in TRUTH.get_images("train"))
        (tmp_path / "annotations/trainval.txt").rename(tmp_path / "annotations/train.txt")
        TRUTH.images[0].save(tmp_path / "images/lost.jpg")
        save_mask(tmp_path / "annotations/trimaps/lost.png", pets_writer.make_trimap(TRUTH.images[0]))
    content = read(pets.FORMAT, tmp_path, "masks")
    assert content.classes == ("background", "pet")
    assert [problem.message.rpartition(": ")[2] for problem in content.problems] == ["lost.jpg."] * (
        variant == "splits"
    )
    splits = (
        {"": TRUTH.images}
        if variant == "plain"
        else {"train": TRUTH.get_images("train"), "test": TRUTH.get_images("val")}
    )
    assert content.splits.keys() == splits.keys()
    for split, images in splits.items():
        found = read_class_masks(content, split)
        assert found.keys() == {image.name for image in images}
        for image in images:
            expected = (image.draw_mask() > 0).astype(np.uint8)
            expected[0] = NO_CLASS
            np.testing.assert_array_equal(found[image.name], expected)


def test_read_pets_uses_no_lists_without_training_images(tmp_path: Path) -> None:
    pets_writer.write(TRUTH, tmp_path, "splits")
    (tmp_path / "annotations/trainval.txt").unlink()
    content = read(pets.FORMAT, tmp_path, "masks")
    assert {split: len(each.files) for split, each in content.splits.items()} == {"": len(TRUTH.images)}


@pytest.mark.parametrize("value", [0, 4])
def test_pets_have_no_other_values(tmp_path: Path, value: int) -> None:
    pets_writer.write(TRUTH, tmp_path)
    save_mask(tmp_path / "annotations/trimaps/img_1.png", pets_writer.make_trimap(TRUTH.images[0]) * 0 + value)
    assert detect(pets.FORMAT, tmp_path) == []


def test_read_loveda_returns_the_truth(tmp_path: Path) -> None:
    loveda_writer.write(TRUTH, tmp_path)
    (path,) = tmp_path.rglob("masks_png/img_1.png")
    values = loveda_writer.make_mask(TRUTH.images[0])
    values[1, 0] = 7
    save_mask(path, values)
    content = read(loveda.FORMAT, tmp_path, "masks")
    assert content.classes == ("background", "building", "road", "water", "barren", "forest", "agriculture")
    assert content.problems == []
    every = {name: plane for split in ("train", "val") for name, plane in read_class_masks(content, split).items()}
    for image in TRUTH.images:
        expected = image.draw_mask()
        expected[0] = NO_CLASS
        expected[1, 0] = 6 if image.name == "img_1" else expected[1, 0]
        np.testing.assert_array_equal(every[image.name], expected)
    save_mask(path, values + 1)
    assert detect(loveda.FORMAT, tmp_path) == []
