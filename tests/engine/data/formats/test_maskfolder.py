"""Folders of images and masks in their common layouts."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from engine.data.formats.registry import recognize
from engine.data.splits import MaskSplit, RecognizedDataset

MASKS = ("masks",)


def pair(image: Path, mask: Path) -> None:
    for path, pixels in ((image, np.zeros((8, 8, 3), np.uint8)), (mask, np.eye(8, dtype=np.uint8))):
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(path)


def recognize_folder(folder: Path, formats: tuple[str, ...] = MASKS) -> RecognizedDataset:
    return recognize(str(folder), val_fraction=0.25, seed=0, kinds=formats)


def names(recognized: RecognizedDataset) -> tuple[list[str], list[str]]:
    assert isinstance(recognized.train, MaskSplit)
    assert isinstance(recognized.val, MaskSplit)
    for split in (recognized.train, recognized.val):
        assert [Path(path).stem.split("_")[0] for path in split.masks] == [Path(path).stem for path in split.files]
    return [Path(path).name for path in recognized.train.files], [Path(path).name for path in recognized.val.files]


@pytest.mark.parametrize(
    ("image", "mask"),
    [
        ("images/{split}/{name}.jpg", "masks/{split}/{name}.png"),
        ("Images/{split}/{name}.jpg", "Labels/{split}/{name}_mask.png"),
        ("{split}/images/{name}.jpg", "{split}/labels/{name}.tif"),
        ("{split}/{name}.png", "{split}annot/{name}.png"),
        ("{split}/{name}.jpg", "{split}_labels/{name}_L.png"),
        ("images/{split}2017/{name}.jpg", "annotations/{split}2017/{name}.png"),
        ("{split}2017/{name}.jpg", "{split}2017_masks/{name}.png"),
    ],
)
def test_mask_splits_are_found_in_all_spellings(tmp_path: Path, image: str, mask: str) -> None:
    for split, stems in (("train", "abc"), ("val", "de")):
        for name in stems:
            pair(tmp_path / image.format(split=split, name=name), tmp_path / mask.format(split=split, name=name))
    recognized = recognize_folder(tmp_path)
    assert (recognized.kind, recognized.problems, recognized.classes) == ("masks", (), ("class 0", "class 1"))
    train, val = names(recognized)
    assert [Path(name).stem for name in train] == ["a", "b", "c"]
    assert [Path(name).stem for name in val] == ["d", "e"]


def test_unpaired_files_are_reported(tmp_path: Path) -> None:
    for number in range(4):
        pair(tmp_path / f"images/{number}.jpg", tmp_path / f"masks/{number}.png")
    Image.new("RGB", (8, 8)).save(tmp_path / "images/lonely.jpg")
    Image.new("L", (8, 8)).save(tmp_path / "masks/spare.png")
    messages = " ".join(map(str, recognize_folder(tmp_path).problems))
    assert "There is 1 image" in messages
    assert "without a mask: lonely.jpg" in messages
    assert "without an image: spare.png" in messages


def test_missing_training_data_is_the_only_problem(tmp_path: Path) -> None:
    for number in range(4):
        pair(tmp_path / f"images/test/{number}.jpg", tmp_path / f"masks/test/{number}.png")
    recognized = recognize_folder(tmp_path)
    assert recognized.train is None
    (problem,) = recognized.problems
    assert "none for training" in problem.message


def test_first_folder_with_masks_is_used(tmp_path: Path) -> None:
    for number in range(4):
        pair(tmp_path / f"images/{number}.jpg", tmp_path / f"gt/{number}.png")
    (tmp_path / "masks").mkdir()
    (tmp_path / "labels").mkdir()
    (tmp_path / "labels/0.txt").touch()
    train, val = names(recognize_folder(tmp_path))
    assert len(train) + len(val) == 4


def test_folder_of_another_kind_names_its_task(tmp_path: Path) -> None:
    for number in range(4):
        pair(tmp_path / f"masked/images/{number}.jpg", tmp_path / f"masked/masks/{number}.png")
        pair(tmp_path / f"classes/cat/{number}.jpg", tmp_path / f"classes/dog/{number}.png")
    (problem,) = recognize_folder(tmp_path / "masked", ("classes",)).problems
    assert "Semantic segmentation" in problem.remedy
    (problem,) = recognize_folder(tmp_path / "classes").problems
    assert "not images with masks" in problem.message
    assert recognize_folder(tmp_path / "classes", ("classes",)).format == "imagefolder"
