"""Layouts of images and masks, and the choice between several folders that might contain the masks."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from engine.contract.problems import Problem
from engine.data.formats import maskfolder
from engine.data.formats.format import Confidence
from engine.data.formats.maskfolder import FORMAT, select_splits, warn_about_numbers
from engine.data.formats.shared.mask_sample import MaskSample
from engine.data.formats.shared.name_pairs import Pairs
from tests.support.dataset_formats import masks
from tests.support.dataset_formats.pixels import draw_object_numbers, save_mask
from tests.support.dataset_formats.truth import TRUTH, TrueImage
from tests.support.read_formats import detect, list_things, list_true_things, read, read_masks


def squares(image: TrueImage, value: int = 1) -> np.ndarray:
    return np.where(image.draw_mask() > 0, value, 0).astype(np.uint8)


@pytest.mark.parametrize("variant", masks.VARIANTS)
def test_read_returns_the_truth(tmp_path: Path, variant: str) -> None:
    masks.write(TRUTH, tmp_path, variant)
    best, other = detect(FORMAT, tmp_path)
    numbered = variant in masks.NUMBERED
    assert (best.kinds, best.confidence) == (("instances" if numbered else "masks",), Confidence.CERTAIN)
    assert (other.kinds, best.variant) == (("masks" if numbered else "instances",), "")
    content = read(FORMAT, tmp_path, "masks")
    assert content.problems == []
    assert content.code is None
    flat = variant in masks.WITHOUT_SPLITS
    truth = {"": TRUTH.images} if flat else {"train": TRUTH.get_images("train"), "val": TRUTH.get_images("val")}
    assert content.splits.keys() == truth.keys()
    for split, images in truth.items():
        found = read_masks(content, split)
        assert len(found) == len(images)
        for image in images:
            (values,) = [each for name, each in found.items() if name.startswith(image.name)]
            expected = draw_object_numbers(image) if numbered else image.draw_mask()
            if variant == "cvat_camvid":
                colors = [(red << 16) + (green << 8) + blue for red, green, blue in masks.COLORS]
                values = np.argmax(values[:, :, None] == np.array(colors), -1)
            np.testing.assert_array_equal(values, expected)


@pytest.mark.parametrize(("variant", "folder"), [("cvat_camvid", ""), ("roboflow", "train"), ("splits", "masks/train")])
def test_read_names_the_folders_of_class_tables(tmp_path: Path, variant: str, folder: str) -> None:
    masks.write(TRUTH, tmp_path, variant)
    folders = {str(Path(each)) for each in read(FORMAT, tmp_path, "masks").table_folders}
    assert str(tmp_path / folder) in folders


def test_read_returns_numbered_objects(tmp_path: Path) -> None:
    masks.write(TRUTH, tmp_path, "numbered")
    content = read(FORMAT, tmp_path, "instances")
    assert list_things(content, "") == list_true_things(TRUTH.images, "pedestrian")
    assert content.problems == []


def draw_numbered_objects(count: int) -> np.ndarray:
    """Return a mask of `count` small objects, numbered from 1."""
    values = np.zeros((64, 48), np.uint8)
    for number in range(1, count + 1):
        values[4 * number : 4 * number + 2, 5:9] = number
    return values


def draw_regions(*values: int) -> np.ndarray:
    """Return a mask with a region of each value."""
    return np.pad(np.repeat(np.array(values, np.uint8), 8)[:, None].repeat(40, 1), ((0, 64 - 8 * len(values)), (0, 8)))


BINARY, MANY, CLASSES = (
    [draw_regions(1)] * 6,
    [draw_numbered_objects(n) for n in range(7, 13)],
    [draw_regions(2, 5), draw_regions(5), draw_regions(2)] * 2,
)
COLORED = [np.stack([each * 40, each * 9, each], 2) for each in CLASSES]


@pytest.mark.parametrize(
    ("masks", "names", "categories", "expected"),
    [
        (BINARY, "masks/{}.png", ["cell"], "masks CERTAIN, instances LIKELY cell"),
        (BINARY, "images/{}.mask.png", [], "masks CERTAIN, instances LIKELY object"),
        (BINARY, "vessels/{}.png", [], "masks WEAK 1, instances WEAK 1 object"),
        (COLORED, "vessels/{}.png", [], ""),
        ([each[:9] for each in BINARY], "vessels/{}.png", [], ""),
        (BINARY[:2], "masks/{}.png", [], "masks CERTAIN, instances LIKELY object"),
        (BINARY + BINARY, "masks/{}.png", [], "masks LIKELY, instances WEAK object"),
        (MANY, "masks/{}.png", [], "instances CERTAIN object, masks LIKELY"),
        (MANY, "masks/{}.png", ["cell"], "instances CERTAIN cell, masks WEAK 1"),
        (MANY, "masks/{}.png", ["cell", "cup"], "instances LIKELY object, masks WEAK"),
        ([draw_regions(1, 2)] * 6, "masks/{}.png", ["cell"], "instances CERTAIN cell, masks WEAK 1"),
        (CLASSES, "masks/{}.png", ["cell"], "masks CERTAIN, instances WEAK 1 cell"),
    ],
)  # fmt: skip
def test_detect_weighs_masks_and_objects(
    tmp_path: Path, masks: list[np.ndarray], names: str, categories: list[str], expected: str
) -> None:
    (tmp_path / "images").mkdir()
    for number in range(6):
        Image.fromarray(np.zeros((64, 48, 3), np.uint8)).save(tmp_path / f"images/{number}.png")
    for number, mask in enumerate(masks):
        save_mask(tmp_path / names.format(number), mask)
    for number, name in enumerate(categories):
        (tmp_path / "annotations").mkdir(exist_ok=True)
        (tmp_path / "annotations/torn.json").touch()
        (tmp_path / f"{'annotations/' * number}{number}.json").write_text(json.dumps({"categories": [{"name": name}]}))
    found = []
    for each in detect(FORMAT, tmp_path):
        classes = FORMAT.read(maskfolder.Tree(str(tmp_path)), each, each.kinds[0]).classes
        against = [str(len(each.against))] if each.against else []
        found.append(" ".join([each.kinds[0], each.confidence.name, *against, *classes]))
    assert ", ".join(found) == expected


# Several folders that may hold the masks


@pytest.mark.parametrize(
    "names", [("gt", "masks"), ("labels", "mask", "segmentation"), ("annotator_a_masks", "annotator_b_masks")]
)
def test_detect_asks_about_several_folders(tmp_path: Path, names: tuple[str, ...]) -> None:
    for image in TRUTH.images:
        image.save(tmp_path / f"images/{image.name}.png")
        for value, name in enumerate(names, 1):
            save_mask(tmp_path / f"{name}/{image.name}.png", squares(image, value))
    found = [each for each in detect(FORMAT, tmp_path) if each.kinds == ("masks",)]
    assert {each.variant for each in found} == set(names)
    assert {each.confidence for each in found} == {Confidence.CERTAIN}
    for each in found:
        split = FORMAT.read(maskfolder.Tree(str(tmp_path)), each, "masks").splits[""]
        assert {Path(path).parent.name for path in split.masks} == {each.variant}


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("{split}/1st_manual/{name}_manual1.gif", "{split}/mask/{name}_{split}_mask.gif"),
        ("{split}/1st_manual/{name}_manual1.gif", "{split}/2nd_manual/{name}_manual2.gif"),
        ("manual1/{name}.tif", "mask/{name}_mask.tif"),
        ("images/{name}_1stHO.png", "images/{name}_2ndHO.png"),
    ],
)
def test_detect_prefers_the_first_annotator(tmp_path: Path, first: str, second: str) -> None:
    for image in TRUTH.images:
        split = {"train": "training", "val": "test"}[image.split]
        suffix = f"_{split}" if "{split}" in first else ""
        folder = f"{split}/images" if "{split}" in first else "images"
        image.save(tmp_path / folder / f"{image.name}{suffix}.png")
        save_mask(tmp_path / first.format(split=split, name=image.name), squares(image))
        save_mask(
            tmp_path / second.format(split=split, name=image.name), np.ones((image.height, image.width), np.uint8)
        )
    found = [each for each in detect(FORMAT, tmp_path) if each.kinds == ("masks",)]
    assert [each.confidence for each in found] == [Confidence.CERTAIN, Confidence.WEAK]
    content = FORMAT.read(maskfolder.Tree(str(tmp_path)), found[0], "masks")
    for split in content.splits:
        for name, values in read_masks(content, split).items():
            (image,) = [each for each in TRUTH.images if name.startswith(each.name)]
            np.testing.assert_array_equal(values > 0, image.draw_mask() > 0)


@pytest.mark.parametrize("copy", ["labels_color", "labels_overlay", "labels_rgb"])
def test_detect_prefers_masks_to_colored_copies(tmp_path: Path, copy: str) -> None:
    for image in TRUTH.images:
        image.save(tmp_path / f"images/{image.name}.png")
        save_mask(tmp_path / f"labels/{image.name}.png", image.draw_mask())
        save_mask(tmp_path / f"{copy}/{image.name}.png", np.array(masks.COLORS, np.uint8)[image.draw_mask()])
    found = [each for each in detect(FORMAT, tmp_path) if each.kinds == ("masks",)]
    assert [(each.variant, each.confidence) for each in found] == [
        ("labels", Confidence.CERTAIN),
        (copy, Confidence.WEAK),
    ]


@pytest.mark.parametrize(
    ("name", "lossy", "reason"), [("labels", 0, "photos"), ("masks", 3, "photos"), ("gt", 4, "JPEG")]
)
def test_detect_doubts_photographs(tmp_path: Path, name: str, lossy: int, reason: str) -> None:
    for number, image in enumerate(TRUTH.images):
        image.save(tmp_path / f"images/{image.name}.png")
        image.save(tmp_path / name / f"{image.name}.{'jpg' if number < lossy else 'png'}")
    for found in detect(FORMAT, tmp_path):
        assert found.confidence is Confidence.WEAK
        assert reason in found.against[0]
    for image in TRUTH.images:
        save_mask(tmp_path / f"vessels/{image.name}.png", squares(image))
    assert "vessels" in detect(FORMAT, tmp_path)[0].evidence[0]


@pytest.mark.parametrize(
    "place", ["classes/{split}/{name}", "{split}/with_mask/{name}", "a/{name}", "{split}/mask/{name}"]
)
def test_detect_passes_over_images_by_class(tmp_path: Path, place: str) -> None:
    for image in TRUTH.images:
        for name in ("cat", "dog"):
            where = place.format(split=image.split, name=name)
            Image.fromarray(squares(image, 200)).convert("RGB").save(image.save(tmp_path / where / f"{image.name}.png"))
    assert detect(FORMAT, tmp_path) == []


@pytest.mark.parametrize("size", [(10, 10), (48, 32), (300, 200)])
def test_detect_doubts_masks_of_other_sizes(tmp_path: Path, size: tuple[int, int]) -> None:
    for image in TRUTH.images:
        image.save(tmp_path / f"images/{image.name}.png")
        save_mask(tmp_path / f"masks/{image.name}.png", np.eye(*size, dtype=np.uint8))
    found = detect(FORMAT, tmp_path)[0]
    assert found.confidence is Confidence.WEAK
    assert "sizes" in found.against[0]


def test_detect_examines_several_masks(tmp_path: Path) -> None:
    masks.write(TRUTH, tmp_path)
    (tmp_path / "masks/img_1.png").write_bytes(b"no image")
    TRUTH.images[1].save(tmp_path / "masks/img_2.png")
    assert detect(FORMAT, tmp_path)[0].confidence is Confidence.CERTAIN


def test_detect_doubts_masks_that_none_can_be_opened(tmp_path: Path) -> None:
    masks.write(TRUTH, tmp_path)
    for path in (tmp_path / "masks").iterdir():
        path.write_bytes(b"no image")
    found = detect(FORMAT, tmp_path)[0]
    assert found.confidence is Confidence.WEAK
    assert "img_1.png: " in found.against[0]


@pytest.mark.parametrize("name", ["photos of 2019", "tiles", "x"])
def test_detect_finds_images_in_folders_of_other_names(tmp_path: Path, name: str) -> None:
    for image in TRUTH.images:
        image.save(tmp_path / f"{name}/{image.name}.png")
        save_mask(tmp_path / f"masks/{image.name}.png", image.draw_mask())
    found = detect(FORMAT, tmp_path)[0]
    assert (found.confidence, found.variant) == (Confidence.CERTAIN, "")


# Ignored files


def test_read_reports_images_of_no_split_and_without_masks(tmp_path: Path) -> None:
    masks.write(TRUTH, tmp_path, "splits")
    for image in TRUTH.images[:2]:
        image.save(tmp_path / f"images/extra/{image.name}.png")
        save_mask(tmp_path / f"masks/extra/{image.name}.png", image.draw_mask())
        image.save(tmp_path / f"images/test/{image.name}.png")
    content = read(FORMAT, tmp_path, "masks")
    assert {split: len(each.files) for split, each in content.splits.items()} == {"train": 4, "val": 2}
    messages = " ".join(problem.message for problem in content.problems)
    assert "2 images in folders that belong to no split" in messages
    assert "images/test have no masks" in messages
    for path in [*tmp_path.glob("*/train")]:
        path.rename(path.with_name("more"))
    assert {split: len(each.files) for split, each in read(FORMAT, tmp_path, "masks").splits.items()} == {
        "": 6,
        "val": 2,
    }


def test_select_splits_reports_pairs_only() -> None:
    problems: list[Problem] = []
    splits = {"train": Pairs([("a", "b")]), "": Pairs(unmatched_images=["c"])}
    assert (list(select_splits(splits, problems)), problems) == (["train"], [])


@pytest.mark.parametrize(
    ("numbers", "are_classes"),
    [
        ([[2, 5], [5]], True),
        ([[1, 2], [1, 2]], False),
        ([[5], [5]], False),
        ([[2, 5], [3]], False),
        ([[2, 5], [1, 2]], False),
    ],
)
def test_repeated_values_with_gaps_may_be_classes(numbers: list[list[int]], are_classes: bool) -> None:
    sample = MaskSample(numbers=numbers)
    problems = warn_about_numbers(sample)
    assert (sample.are_classes, any("gaps" in problem.message for problem in problems)) == (are_classes, are_classes)
