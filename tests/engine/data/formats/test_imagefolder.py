"""Detection of class folders: evidence for and against folders being classes."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from engine.contract.problems import errors
from engine.data.formats import imagefolder
from engine.data.formats.format import Confidence, Detection
from engine.data.formats.registry import recognize
from engine.data.formats.shared.class_evidence import find_evidence_against
from engine.data.formats.tree import Tree
from tests.support.images import write_noise
from tests.support.read_formats import list_annotations_by_split


def detect_once(folder: Path) -> Detection:
    (found,) = imagefolder.detect(Tree(str(folder)))
    return found


def photos(folder: Path, *names: str) -> None:
    for seed, name in enumerate(names):
        write_noise(folder / name, seed=seed)


def masks(folder: Path, *names: str) -> None:
    for number, name in enumerate(names):
        values = np.zeros((24, 24), np.uint8)
        values[2 : 8 + number, 3:20] = 1
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(values).save(folder / name)


NAMES = ("1.png", "2.png", "3.png")
Make = Callable[[Path], None]


def make_photo_writer(*folders: str, names: Sequence[str] = NAMES) -> Make:
    """Return a function that writes photos of the same names into each of these folders."""

    def make(folder: Path) -> None:
        for each in folders:
            photos(folder / each, *names)

    return make


def make_file_writer(*paths: str) -> Make:
    """Return a function that writes photos to these paths."""
    return lambda folder: photos(folder, *paths)


def make_class_writer(*names: str) -> Make:
    """Return a function that writes class folders with these names, with different images in each."""
    return make_file_writer(*(f"{name}/{number}{each}" for number, name in enumerate(names) for each in NAMES))


def make_text_writer(*names: str, text: str = "") -> Make:
    """Return a function that writes class folders, and files with the paths `names` and the content `text`."""

    def make(folder: Path) -> None:
        cats_and_dogs(folder)
        for name in names:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text)

    return make


cats_and_dogs = make_photo_writer("cat", "dog")
with_splits = make_photo_writer("train/cat", "train/dog", "val/cat", "val/dog")
flat_splits = make_file_writer("train/cat.0.png", "train/dog.1.png", "val/cat.2.png", "val/dog.3.png")
ACCEPTED = {
    "two classes": cats_and_dogs,
    "letters": make_photo_writer("A", "B", "C"),
    "a class named train": make_photo_writer("bicycle", "bus", "car", "train"),
    "splits": with_splits,
    "faces with masks": make_class_writer("with_mask", "without_mask"),
    "texts": make_text_writer("README.txt", "classes.txt", text="cat\ndog\n"),
    "laboratory": make_photo_writer("test_tube", "beaker", "flask"),
    "stations": make_photo_writer("train_station", "bus_station", "airport"),
    "numbers": make_photo_writer("type_1", "type_2", "type_3"),
    "videos": make_photo_writer("run/video1", "run/video2", "walk/video1", "walk/video2"),
    "printed labels": make_photo_writer("label_torn", "label_ok"),
    "lists of splits": make_text_writer("meta/train.txt", "meta/classes.json", text="cat/1.png\n"),
    "splits in themselves": make_photo_writer(
        *(f"{split}/{split}/{name}" for split in ("training", "validation") for name in ("cat", "dog"))
    ),
    "augmented": make_photo_writer("cat", "dog", names=("1.png", "1_flip.png", "2.png", "2_flip.png")),
    "sizes of bricks": make_photo_writer("brick 2x2", "brick 2x4"),
    "a class inside others": make_photo_writer("cat/cat", "cat/dog", "dog"),
    "a text named like a class": make_text_writer("meta/cat.txt"),
    "a text in a class": make_text_writer("cat/README.txt"),
    "words of splits": make_photo_writer("toy_train", "train station", "TestTube", "bus"),
}


@pytest.mark.parametrize("make", ACCEPTED.values(), ids=ACCEPTED)
def test_imagefolder_accepts_classes(tmp_path: Path, make: Make) -> None:
    make(tmp_path)
    found = detect_once(tmp_path)
    assert found.against == ()
    assert found.confidence is Confidence.LIKELY
    assert found.obvious
    assert not errors(recognize(str(tmp_path), val_fraction=0.3, seed=0).problems)


def photos_and_masks(folder: Path) -> None:
    photos(folder / "CameraRoll", "a.png", "b.png")
    masks(folder / "drawn", "by me/a.png", "by me/b.png")


def make_nested_writer(*names: str, inner: tuple[str, ...]) -> Make:
    """Return a function that writes folders with the given names, all of which contain the subfolders `inner`."""
    return make_file_writer(
        *(f"{name}/{each}/{number}{file}" for name in names for number, each in enumerate(inner) for file in NAMES)
    )


def make_view_writer(*names: str) -> Make:
    """Return a function that writes folders with the same scenes, in a different size and brightness in each folder."""

    def make(folder: Path) -> None:
        for seed in range(5):
            scene = Image.fromarray(np.random.default_rng(seed).integers(0, 255, (6, 6), np.uint8)).resize((48, 48))
            for number, name in enumerate(names):
                (folder / name).mkdir(parents=True, exist_ok=True)
                image = scene.point(lambda value, number=number: value / (number + 1)).convert("RGB")
                image.resize((48 - 8 * number,) * 2).save(folder / name / f"{seed}.png")

    return make


def make_frame_writer(*endings: str) -> Make:
    """Return a function that writes class folders in which each frame has an image for every suffix in `endings`.

    For example, the suffixes can be those of color and depth images.
    """

    def make(folder: Path) -> None:
        for name in ("chess", "fire"):
            photos(folder / name / "seq", *(f"{frame}{ending}.png" for frame in "abc" for ending in endings))

    return make


def colored_masks(folder: Path) -> None:
    photos(folder / "stills", "a.png", "b.png")
    for seed, name in enumerate(("a_L.png", "b_L.png")):
        values = np.zeros((24, 24, 3), np.uint8)
        values[2 : 8 + seed, 3:20] = (128, 0, 64)
        (folder / "approved").mkdir(exist_ok=True)
        Image.fromarray(values).save(folder / "approved" / name)


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (make_class_writer("cars_train", "cars_test"), "alike but for the split"),
        (make_class_writer("trainA", "trainB", "testA", "testB"), "alike but for the split"),
        (make_class_writer("data_large", "val_large"), "words for validation"),
        (make_class_writer("box_train", "box_test", "gallery"), "alike but for the split"),
        (make_class_writer("part1", "part2", "part3"), "parts of a dataset"),
        (make_class_writer("batch_1", "batch_2"), "parts of a dataset"),
        (make_class_writer("CAM_FRONT", "CAM_BACK"), "parts of a dataset"),
        (make_nested_writer("photo", "cartoon", inner=("dog", "house")), "folders of the same names inside"),
        (make_nested_writer("cat", "dog", inner=("in/train", "in/test")), "folders of the same names inside"),
        (make_nested_writer("GOPR0372", "GOPR0374", inner=("blur", "sharp")), "folders of the same names inside"),
        (make_nested_writer("10253", "10254", "8863", inner=("0", "1")), "folders of the same names inside"),
        (make_class_writer("yes", "no", "pred"), "named by their role (pred)"),
        (make_class_writer("full1024x1024", "small128x128"), "copies in several sizes"),
        (make_frame_writer("", "_mask"), "under several endings in chess"),
        (make_frame_writer(".color", ".depth"), "under several endings in chess"),
        (make_frame_writer("_B02", "_B03", "_B8A"), "under several endings in chess"),
        (make_photo_writer("cat", "dog", "dataset/cat", "dataset/dog"), "like the other classes inside dataset"),
        (make_class_writer("labels-ah", "labels-vk", "stare-images"), "named by their role"),
        (make_text_writer("cat/1.pts"), "annotation files among the images"),
        (make_text_writer("dog/disp0.pfm"), "annotation files among the images"),
        (make_text_writer("cat/1.mat"), "annotation files among the images"),
        (make_text_writer("buildings/tile.geojson"), "a folder of annotation files (buildings)"),
        (make_text_writer("tracks/in/1.xml"), "a folder of annotation files (tracks/in)"),
        (make_text_writer("notes/1.txt", "notes/2.txt"), "a folder of annotation files (notes)"),
        (make_text_writer("lists/cat.txt", "lists/dog.txt"), "a folder of annotation files (lists)"),
        (make_view_writer("HR", "LR"), "they show the same"),
        (make_view_writer("B02", "B03", "B08"), "they show the same"),
        (make_view_writer("clean", "final"), "they show the same"),
        (colored_masks, "approved looks like masks"),
        (flat_splits, "named like splits"),
        (
            make_file_writer("train/cat.0.png", "train/dog.1.png", "val/cat.2.png", "val/dog.3.png", "unlabeled/x.png"),
            "named like splits",
        ),
        (
            make_photo_writer("bounding_box_train", "bounding_box_test", "query"),
            "alike but for the split (bounding_box_test, bounding_box_train)",
        ),
        (make_photo_writer("CatsTrain", "CatsVal", "DogsTrain", "DogsVal"), "alike but for the split"),
        (make_photo_writer("city 2019 training", "city 2019 validation"), "alike but for the split"),
        (make_photo_writer("images", "depth"), "named by their role"),
        (
            make_file_writer("PNGImages/a.png", "PNGImages/b.png", "PedMasks/a_mask.png", "PedMasks/b_mask.png"),
            "named by their role",
        ),
        (
            make_photo_writer(
                "leftImg8bit/train/aachen", "leftImg8bit/val/aachen", "gtFine/train/aachen", "gtFine/val/aachen"
            ),
            "named by their role",
        ),
        (photos_and_masks, "drawn looks like masks"),
        (make_photo_writer("left", "right"), "the same file names in left and right"),
        (
            make_file_writer("left/1.png", "left/2.png", "left/3.png", "right/1.png", "right/2.png"),
            "the same file names in left and right",
        ),
        (make_file_writer(*(f"{number:032x}/image.png" for number in range(10))), "one image each"),
        (
            make_photo_writer(
                *(f"patient{number}/{role}" for number in (1, 2, 3) for role in ("images", "annotations"))
            ),
            "inside those of the classes (annotations, images)",
        ),
        (make_text_writer("cat/1.xml", text="<note/>"), "annotation files among the images"),
        (
            make_text_writer("dog/1.txt", "dog/2.txt", "dog/3.txt", text="what this image shows"),
            "annotation files among the images",
        ),
    ],
)
def test_imagefolder_reports_evidence_against_classes(tmp_path: Path, make: Make, reason: str) -> None:
    make(tmp_path / "data")
    found = detect_once(tmp_path / "data")
    assert found.confidence is Confidence.WEAK
    assert any(reason in each for each in found.against), found.against
    recognized = recognize(str(tmp_path / "data"), val_fraction=0.3, seed=0)
    assert recognized.train is None
    (problem,) = errors(recognized.problems)
    assert {"format": "imagefolder"} in [choice.values for choice in problem.choices]


@pytest.mark.parametrize("make", [photos_and_masks, make_photo_writer("left", "right")])
def test_imagefolder_is_read_if_requested(tmp_path: Path, make: Make) -> None:
    make(tmp_path)
    found = recognize(str(tmp_path), val_fraction=0.3, seed=0, format="imagefolder")
    assert not errors(found.problems)
    assert len(found.classes) == 2


@pytest.mark.parametrize("name", ["images", "JPEGImages", "leftImg8bit"])
def test_imagefolder_doubts_a_folder_next_to_annotations(tmp_path: Path, name: str) -> None:
    with_splits(tmp_path / name)
    assert detect_once(tmp_path / name).against == ()
    (tmp_path / "labels").mkdir()
    assert "next to labels" in detect_once(tmp_path / name).against[0]
    (found,) = imagefolder.detect(Tree(f"{tmp_path / name}/"))
    assert "next to labels" in found.against[0]


def test_imagefolder_offers_no_inner_folder_without_classes(tmp_path: Path) -> None:
    flat_splits(tmp_path / "inner")
    assert "instead" not in str(recognize(str(tmp_path), val_fraction=0.3, seed=0).problems)


@pytest.mark.parametrize("place", ["images", "a/b", "data/data/images"])
def test_imagefolder_names_the_inner_folder_to_choose(tmp_path: Path, place: str) -> None:
    cats_and_dogs(tmp_path / "data" / place)
    (tmp_path / "data/empty").mkdir()
    (problem,) = errors(recognize(str(tmp_path / "data"), val_fraction=0.3, seed=0).problems)
    assert problem.remedy == f"Choose {tmp_path / 'data' / place} instead, which has 2 folders."


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (make_photo_writer("cat", "dog", ""), "3 images in "),
        (make_photo_writer("train/cat", "train/dog", "test"), "next to the splits: test"),
        (make_photo_writer("train/cat", "train/dog", "val/cat", "val/dog", "val"), "3 images in val"),
        (
            make_photo_writer("train/cat", "train/dog", "val/cat", "val/dog", "training/cat", "training/dog"),
            "train there is training",
        ),
    ],
)
def test_imagefolder_warns_of_images_outside_classes(tmp_path: Path, make: Make, text: str) -> None:
    make(tmp_path)
    problems = recognize(str(tmp_path), val_fraction=0.3, seed=0).problems
    assert not errors(problems)
    assert any(text in each.message for each in problems)


@pytest.mark.parametrize("splits", [("train", "test"), ("train", "val", "test"), ("training", "testing")])
def test_imagefolder_reports_classes_of_the_test_split_alone(tmp_path: Path, splits: tuple[str, ...]) -> None:
    for split in splits:
        cats_and_dogs(tmp_path / split)
    photos(tmp_path / splits[-1] / "mouse", *NAMES)
    found = recognize(str(tmp_path), val_fraction=0.25, seed=0)
    assert (found.classes, errors(found.problems)) == (("cat", "dog"), [])
    assert any("mouse is in the test split" in problem.message for problem in found.problems)
    assert recognize(str(tmp_path), val_fraction=0.0, seed=0).classes == ("cat", "dog", "mouse")


def test_imagefolder_reads_every_class_of_every_split(tmp_path: Path) -> None:
    photos(tmp_path / "train", "ant/1.png", "bee/1.png", "bee/in/2.png", "cat/1.png", "dog/1.png")
    photos(tmp_path, "val/cow/3.png", "val/dog/1.png", "val/4.png", "training/bee/1.png")
    (tmp_path / "train/bee/notes.txt").touch()
    for name in ("train/empty", "val/ant", "docs"):
        (tmp_path / name).mkdir()
    tree = Tree(str(tmp_path))
    found = detect_once(tmp_path)
    assert found.evidence == ("5 folders of images (ant, bee, cat, dog, …)", "split folders (train, val)")
    content = imagefolder.read(tree, found, "classes")
    assert content.classes == ("ant", "bee", "cat", "cow", "dog", "empty")
    splits = content.splits.items()
    assert {split: [os.path.relpath(file, tmp_path) for file in each.files] for split, each in splits} == {
        "train": [f"train/{name}.png" for name in ("ant/1", "bee/1", "bee/in/2", "cat/1", "dog/1")],
        "val": ["val/cow/3.png", "val/dog/1.png"],
    }
    assert [each.labels.tolist() for _, each in splits] == [[0, 1, 1, 2, 4], [3, 4]]
    assert [Path(path).name for path in content.splits["train"].strays] == ["notes.txt"]
    phrases = ("there is training,", "Folder empty in train", ": 4.png.")
    assert [phrase in problem.message for phrase, problem in zip(phrases, content.problems, strict=True)] == [True] * 3
    content = imagefolder.read(Tree(str(tmp_path / "val")), found, "classes")
    assert (content.classes, list_annotations_by_split(content)) == (("cow", "dog"), {"": {"1": "dog", "3": "cow"}})
    assert not detect_once(tmp_path / "train/bee").obvious


def evidence(folder: Path, *names: str) -> list[str]:
    return list(find_evidence_against(Tree(str(folder)), ("",), names))


@pytest.mark.parametrize(
    ("names", "is_evidence"),
    [
        (("full1024x1024", "small128x128"), True),
        (("cat", "small128x128"), False),
        (("part1", "part2"), True),
        (("part1", "dog2"), False),
        (("part1",), False),
        (("CAM_FRONT", "CAM_BACK"), True),
        (("CAM_FRONT", "front"), False),
        (("1", "2"), False),
        (("val", "cat"), True),
        (("val", "cat", "dog"), False),
        (("train", "val", *"abcde"), True),
        (("a_masks", "b"), True),
        (("a_masks", "b", "c"), False),
        (("a_masks", "b_masks", *"cdefg"), True),
        (("labels-a", "b"), False),
        (("labels-a", "labels-b", "c", "d"), True),
        (("labels-a", "labels-b", "c", "d", "e"), False),
        (("val_a", "b"), True),
        (("val_a", "b", "c"), False),
        (("train_test_a", "test_a", "b"), False),
    ],
)
def test_names_are_evidence_if_enough_are_alike(tmp_path: Path, names: tuple[str, ...], is_evidence: bool) -> None:
    assert bool(evidence(tmp_path, *names)) == is_evidence


@pytest.mark.parametrize(
    ("inner", "is_evidence"),
    [
        (("xy", "xy", "", "", ""), False),
        (("xy", "xy", "z", "", "", ""), True),
        (("xy", "x", "", ""), False),
        (("xy", "xy", "z", "w"), False),
        (("xy", ""), False),
        (("x", "x"), False),
    ],
)
def test_subfolders_are_evidence_if_many_classes_share_them(
    tmp_path: Path, inner: tuple[str, ...], is_evidence: bool
) -> None:
    names = [f"cat{chr(97 + number)}" for number in range(len(inner))]
    for name, each in zip(names, inner, strict=True):
        for child in each or ".":
            (tmp_path / name / child).mkdir(parents=True)
    assert bool(evidence(tmp_path, *names)) == is_evidence


@pytest.mark.parametrize(("plain", "count"), [(8, 0), (4, 1), (1, 0)])
def test_few_images_with_an_ending_are_no_evidence(tmp_path: Path, plain: int, count: int) -> None:
    for name in "abcdefgh"[:plain]:
        (tmp_path / "cat").mkdir(exist_ok=True)
        for ending in ("", "_mask") if name in "ab" else ("",):
            (tmp_path / f"cat/{name}{ending}.png").touch()
    assert len(evidence(tmp_path, "cat")) == count
    for name in ("dog/a_mask.png", "dog/b_mask.png", "hen/a.png", "left/1.png", "right/1.png"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    assert evidence(tmp_path, "dog", "hen") == evidence(tmp_path, "left", "right") == []


@pytest.mark.parametrize(("large", "count"), [(0, 1), (5, 0)])
def test_folders_of_one_image_are_evidence_if_most_are(tmp_path: Path, large: int, count: int) -> None:
    names = "abcdefgh"
    for number, name in enumerate(names):
        (tmp_path / name).mkdir()
        for place in range(3 if number < large else 1):
            (tmp_path / name / f"{name}{place}.png").touch()
    assert len(evidence(tmp_path, *names)) == count


def test_scenes_that_are_all_alike_are_no_evidence(tmp_path: Path) -> None:
    base = np.random.default_rng(9).integers(0, 200, (16, 16))
    for folder in ("B02x", "B03y"):
        (tmp_path / folder).mkdir()
        for seed in range(5):
            values = base + np.random.default_rng(seed).integers(0, 60, (16, 16))
            if folder == "B03y":
                values = values // 2 + np.random.default_rng(seed + 50).integers(0, 3, (16, 16))
            Image.fromarray(values.astype(np.uint8)).convert("RGB").save(tmp_path / folder / f"{seed}.png")
    assert evidence(tmp_path, "B02x", "B03y") == []
    for name in ("dark", "light"):
        (tmp_path / name).mkdir()
        for number in range(5):
            Image.new("L", (16, 16), 9 * number + len(name)).save(tmp_path / name / f"{number}.png")
    assert evidence(tmp_path, "dark", "light") == []
    make_view_writer("clean", "final")(tmp_path)
    assert evidence(tmp_path, "clean", "final") != []
    shutil.copy(tmp_path / "clean/0.png", tmp_path / "final/0.png")
    assert evidence(tmp_path, "clean", "final") == [], "copies are reported by the inspection"
