"""Evidence for and against images by class."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from engine.contract.problems import errors
from engine.data.formats import imagefolder
from engine.data.formats.format import Confidence, Detection
from engine.data.formats.registry import recognize
from engine.data.formats.tree import Tree
from tests.support.images import noise


def detected(folder: Path) -> Detection:
    (found,) = imagefolder.detect(Tree(str(folder)))
    return found


def photos(folder: Path, *names: str) -> None:
    for seed, name in enumerate(names):
        noise(folder / name, seed=seed)


def masks(folder: Path, *names: str) -> None:
    for number, name in enumerate(names):
        values = np.zeros((24, 24), np.uint8)
        values[2 : 8 + number, 3:20] = 1
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(values).save(folder / name)


NAMES = ("1.png", "2.png", "3.png")


def cats_and_dogs(folder: Path) -> None:
    photos(folder / "cat", *NAMES)
    photos(folder / "dog", *NAMES)


def letters(folder: Path) -> None:
    for letter in "ABC":
        photos(folder / letter, *NAMES)


def with_a_train(folder: Path) -> None:
    for name in ("bicycle", "bus", "car", "train"):
        photos(folder / name, *NAMES)


def with_splits(folder: Path) -> None:
    for split in ("train", "val"):
        cats_and_dogs(folder / split)


def face_masks(folder: Path) -> None:
    photos(folder / "with_mask", "a1.png", "a2.png")
    photos(folder / "without_mask", "b1.png", "b2.png")


def with_readme(folder: Path) -> None:
    cats_and_dogs(folder)
    (folder / "README.txt").write_text("cats and dogs")
    (folder / "classes.txt").write_text("cat\ndog\n")


def trains_and_tests(folder: Path) -> None:
    for name in ("toy_train", "train station", "TestTube", "bus"):
        photos(folder / name, *NAMES)


@pytest.mark.parametrize(
    "make", [cats_and_dogs, letters, with_a_train, with_splits, face_masks, with_readme, trains_and_tests]
)
def test_imagefolder_accepts_classes(tmp_path: Path, make: object) -> None:
    make(tmp_path)  # type: ignore[operator]
    found = detected(tmp_path)
    assert found.against == ()
    assert found.confidence is Confidence.LIKELY
    assert found.obvious
    assert not errors(recognize(str(tmp_path), val_fraction=0.3, seed=0).problems)


def flat_splits(folder: Path) -> None:
    photos(folder / "train", "cat.0.png", "dog.1.png")
    photos(folder / "val", "cat.2.png", "dog.3.png")


def flat_splits_and_unlabeled(folder: Path) -> None:
    flat_splits(folder)
    photos(folder / "unlabeled", "x.png")


def market(folder: Path) -> None:
    for name in ("bounding_box_train", "bounding_box_test", "query"):
        photos(folder / name, *NAMES)


def classes_by_split(folder: Path) -> None:
    for name in ("CatsTrain", "CatsVal", "DogsTrain", "DogsVal"):
        photos(folder / name, *NAMES)


def splits_behind(folder: Path) -> None:
    for name in ("city 2019 training", "city 2019 validation"):
        photos(folder / name, *NAMES)


def images_and_depth(folder: Path) -> None:
    photos(folder / "images", *NAMES)
    photos(folder / "depth", *NAMES)


def photos_and_masks(folder: Path) -> None:
    photos(folder / "CameraRoll", "a.png", "b.png")
    masks(folder / "drawn", "a.png", "b.png")


def camel_case_roles(folder: Path) -> None:
    photos(folder / "PNGImages", "a.png", "b.png")
    photos(folder / "PedMasks", "a_mask.png", "b_mask.png")


def stereo(folder: Path) -> None:
    photos(folder / "left", *NAMES)
    photos(folder / "right", *NAMES)


def one_folder_per_image(folder: Path) -> None:
    for number in range(10):
        photos(folder / f"{number:032x}", "image.png")


def roles_in_each_folder(folder: Path) -> None:
    for name in ("patient1", "patient2", "patient3"):
        photos(folder / name / "images", *NAMES)
        photos(folder / name / "annotations", *NAMES)


def xml_among_images(folder: Path) -> None:
    cats_and_dogs(folder)
    (folder / "cat" / "1.xml").write_text("<note/>")


def txt_beside_images(folder: Path) -> None:
    cats_and_dogs(folder)
    for name in NAMES:
        (folder / "dog" / Path(name).with_suffix(".txt")).write_text("what this image shows")


def nested_roles(folder: Path) -> None:
    for split in ("train", "val"):
        photos(folder / "leftImg8bit" / split / "aachen", "a.png", "b.png")
        photos(folder / "gtFine" / split / "aachen", "a.png", "b.png")


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (flat_splits, "named like splits"),
        (flat_splits_and_unlabeled, "named like splits"),
        (market, "alike but for the split (bounding_box_test, bounding_box_train)"),
        (classes_by_split, "alike but for the split"),
        (splits_behind, "alike but for the split"),
        (images_and_depth, "named by their role"),
        (camel_case_roles, "named by their role"),
        (nested_roles, "named by their role"),
        (photos_and_masks, "drawn looks like masks"),
        (stereo, "the same file names in left and right"),
        (one_folder_per_image, "one image each"),
        (roles_in_each_folder, "inside those of the classes (annotations, images)"),
        (xml_among_images, "annotation files among the images"),
        (txt_beside_images, "annotation files among the images"),
    ],
)
def test_imagefolder_reports_evidence_against_classes(tmp_path: Path, make: object, reason: str) -> None:
    make(tmp_path / "data")  # type: ignore[operator]
    found = detected(tmp_path / "data")
    assert found.confidence is Confidence.WEAK
    assert any(reason in each for each in found.against), found.against
    recognized = recognize(str(tmp_path / "data"), val_fraction=0.3, seed=0)
    assert recognized.train is None
    (problem,) = errors(recognized.problems)
    assert {"format": "imagefolder"} in [choice.values for choice in problem.choices]


@pytest.mark.parametrize("make", [photos_and_masks, stereo, xml_among_images])
def test_imagefolder_is_read_if_the_user_says_so(tmp_path: Path, make: object) -> None:
    make(tmp_path)  # type: ignore[operator]
    found = recognize(str(tmp_path), val_fraction=0.3, seed=0, format="imagefolder")
    assert not errors(found.problems)
    assert len(found.classes) == 2


@pytest.mark.parametrize("own", ["images", "JPEGImages", "leftImg8bit"])
def test_imagefolder_doubts_a_folder_next_to_annotations(tmp_path: Path, own: str) -> None:
    with_splits(tmp_path / own)
    assert detected(tmp_path / own).against == ()
    (tmp_path / "labels").mkdir()
    assert "next to labels" in detected(tmp_path / own).against[0]


def test_imagefolder_offers_an_inner_folder_only_with_classes(tmp_path: Path) -> None:
    cats_and_dogs(tmp_path / "good" / "inner")
    flat_splits(tmp_path / "bad" / "inner")
    offers = {name: str(recognize(str(tmp_path / name), val_fraction=0.3, seed=0).problems) for name in ("good", "bad")}
    assert f"Choose {tmp_path / 'good' / 'inner'} instead" in offers["good"]
    assert "instead" not in offers["bad"]
