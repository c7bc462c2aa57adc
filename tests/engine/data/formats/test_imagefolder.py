"""Detection of class folders: evidence for and against folders being classes."""

from __future__ import annotations

import os
from collections.abc import Callable
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


def laboratory(folder: Path) -> None:
    for name in ("test_tube", "beaker", "flask"):
        photos(folder / name, *NAMES)


def stations(folder: Path) -> None:
    for name in ("train_station", "bus_station", "airport"):
        photos(folder / name, *NAMES)


def numbered_types(folder: Path) -> None:
    for name in ("type_1", "type_2", "type_3"):
        photos(folder / name, *NAMES)


def sequences(folder: Path) -> None:
    for name in ("run", "walk"):
        for sequence in ("video1", "video2"):
            photos(folder / name / sequence, *NAMES)


def printed_labels(folder: Path) -> None:
    for name in ("label_torn", "label_ok"):
        photos(folder / name, *NAMES)


def splits_in_themselves(folder: Path) -> None:
    for split in ("training", "validation"):
        cats_and_dogs(folder / split / split)


def augmented(folder: Path) -> None:
    for name in ("cat", "dog"):
        photos(folder / name, "1.png", "1_flip.png", "2.png", "2_flip.png")


def bricks(folder: Path) -> None:
    for name in ("brick 2x2", "brick 2x4"):
        photos(folder / name, *NAMES)


def lists_of_splits(folder: Path) -> None:
    cats_and_dogs(folder)
    (folder / "meta").mkdir()
    (folder / "meta" / "train.txt").write_text("cat/1.png\n")
    (folder / "meta" / "classes.json").write_text("[]")


def trains_and_tests(folder: Path) -> None:
    for name in ("toy_train", "train station", "TestTube", "bus"):
        photos(folder / name, *NAMES)


@pytest.mark.parametrize(
    "make",
    [
        *(cats_and_dogs, letters, with_a_train, with_splits, face_masks, with_readme, laboratory, stations),
        *(
            numbered_types,
            sequences,
            printed_labels,
            lists_of_splits,
            splits_in_themselves,
            augmented,
            bricks,
            trains_and_tests,
        ),
    ],
)
def test_imagefolder_accepts_classes(tmp_path: Path, make: object) -> None:
    make(tmp_path)  # type: ignore[operator]
    found = detect_once(tmp_path)
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


def stereo_with_gaps(folder: Path) -> None:
    photos(folder / "left", *NAMES)
    photos(folder / "right", *NAMES[:2])


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


def txt_next_to_images(folder: Path) -> None:
    cats_and_dogs(folder)
    for name in NAMES:
        (folder / "dog" / Path(name).with_suffix(".txt")).write_text("what this image shows")


def nested_roles(folder: Path) -> None:
    for split in ("train", "val"):
        photos(folder / "leftImg8bit" / split / "aachen", "a.png", "b.png")
        photos(folder / "gtFine" / split / "aachen", "a.png", "b.png")


def make_class_writer(*names: str) -> Callable[[Path], None]:
    """Return a function that writes class folders with these names, with different images in each."""

    def make(folder: Path) -> None:
        for number, name in enumerate(names):
            photos(folder / name, *(f"{number}{each}" for each in NAMES))

    return make


def make_nested_writer(*names: str, inner: tuple[str, ...]) -> Callable[[Path], None]:
    """Return a function that writes folders with the given names, all of which contain the subfolders `inner`."""

    def make(folder: Path) -> None:
        for name in names:
            make_class_writer(*inner)(folder / name)

    return make


def copied_into_itself(folder: Path) -> None:
    cats_and_dogs(folder)
    cats_and_dogs(folder / "dataset")


def make_writer_with_file(name: str) -> Callable[[Path], None]:
    """Return a function that writes class folders, and an additional file with this name."""

    def make(folder: Path) -> None:
        cats_and_dogs(folder)
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text("")

    return make


def sequences_with_lists(folder: Path) -> None:
    cats_and_dogs(folder)
    (folder / "lists").mkdir()
    for name in ("cat", "dog"):
        (folder / "lists" / f"{name}.txt").write_text("1 2 3 4")


def make_view_writer(*names: str) -> Callable[[Path], None]:
    """Return a function that writes folders with the same scenes, in a different size and brightness in each folder."""

    def make(folder: Path) -> None:
        for seed in range(5):
            scene = Image.fromarray(np.random.default_rng(seed).integers(0, 255, (6, 6), np.uint8)).resize((48, 48))
            for number, name in enumerate(names):
                (folder / name).mkdir(parents=True, exist_ok=True)
                image = scene.point(lambda value, number=number: value / (number + 1)).convert("RGB")
                image.resize((48 - 8 * number,) * 2).save(folder / name / f"{seed}.png")

    return make


def make_frame_writer(*endings: str) -> Callable[[Path], None]:
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
        (make_nested_writer("cat", "dog", inner=("train", "test")), "folders of the same names inside"),
        (make_nested_writer("GOPR0372", "GOPR0374", inner=("blur", "sharp")), "folders of the same names inside"),
        (make_nested_writer("10253", "10254", "8863", inner=("0", "1")), "folders of the same names inside"),
        (make_class_writer("yes", "no", "pred"), "named by their role (pred)"),
        (make_class_writer("full1024x1024", "small128x128"), "copies in several sizes"),
        (make_frame_writer("", "_mask"), "under several endings in chess"),
        (make_frame_writer(".color", ".depth"), "under several endings in chess"),
        (make_frame_writer("_B02", "_B03", "_B8A"), "under several endings in chess"),
        (copied_into_itself, "like the other classes inside dataset"),
        (make_class_writer("labels-ah", "labels-vk", "stare-images"), "named by their role"),
        (make_writer_with_file("cat/1.pts"), "annotation files among the images"),
        (make_writer_with_file("dog/disp0.pfm"), "annotation files among the images"),
        (make_writer_with_file("cat/1.mat"), "annotation files among the images"),
        (make_writer_with_file("buildings/tile.geojson"), "a folder of annotation files (buildings)"),
        (make_writer_with_file("tracks/1.xml"), "a folder of annotation files (tracks)"),
        (sequences_with_lists, "a folder of annotation files (lists)"),
        (make_view_writer("HR", "LR"), "they show the same"),
        (make_view_writer("B02", "B03", "B08"), "they show the same"),
        (make_view_writer("clean", "final"), "they show the same"),
        (colored_masks, "approved looks like masks"),
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
        (stereo_with_gaps, "the same file names in left and right"),
        (one_folder_per_image, "one image each"),
        (roles_in_each_folder, "inside those of the classes (annotations, images)"),
        (xml_among_images, "annotation files among the images"),
        (txt_next_to_images, "annotation files among the images"),
    ],
)
def test_imagefolder_reports_evidence_against_classes(tmp_path: Path, make: object, reason: str) -> None:
    make(tmp_path / "data")  # type: ignore[operator]
    found = detect_once(tmp_path / "data")
    assert found.confidence is Confidence.WEAK
    assert any(reason in each for each in found.against), found.against
    recognized = recognize(str(tmp_path / "data"), val_fraction=0.3, seed=0)
    assert recognized.train is None
    (problem,) = errors(recognized.problems)
    assert {"format": "imagefolder"} in [choice.values for choice in problem.choices]


@pytest.mark.parametrize("make", [photos_and_masks, stereo, xml_among_images])
def test_imagefolder_is_read_if_requested(tmp_path: Path, make: object) -> None:
    make(tmp_path)  # type: ignore[operator]
    found = recognize(str(tmp_path), val_fraction=0.3, seed=0, format="imagefolder")
    assert not errors(found.problems)
    assert len(found.classes) == 2


@pytest.mark.parametrize("name", ["images", "JPEGImages", "leftImg8bit"])
def test_imagefolder_doubts_a_folder_next_to_annotations(tmp_path: Path, name: str) -> None:
    with_splits(tmp_path / name)
    assert detect_once(tmp_path / name).against == ()
    (tmp_path / "labels").mkdir()
    assert "next to labels" in detect_once(tmp_path / name).against[0]


def test_imagefolder_offers_an_inner_folder_only_with_classes(tmp_path: Path) -> None:
    cats_and_dogs(tmp_path / "good" / "inner")
    flat_splits(tmp_path / "bad" / "inner")
    offers = {name: str(recognize(str(tmp_path / name), val_fraction=0.3, seed=0).problems) for name in ("good", "bad")}
    assert f"Choose {tmp_path / 'good' / 'inner'} instead" in offers["good"]
    assert "instead" not in offers["bad"]


@pytest.mark.parametrize("place", ["images", "a/b", "data/data/images"])
def test_imagefolder_names_the_inner_folder_to_choose(tmp_path: Path, place: str) -> None:
    cats_and_dogs(tmp_path / "data" / place)
    (problem,) = errors(recognize(str(tmp_path / "data"), val_fraction=0.3, seed=0).problems)
    assert problem.remedy == f"Choose {tmp_path / 'data' / place} instead, which has 2 folders."


def loose_images(folder: Path) -> None:
    cats_and_dogs(folder)
    photos(folder, *NAMES)


def flat_test(folder: Path) -> None:
    cats_and_dogs(folder / "train")
    photos(folder / "test", *NAMES)


def loose_in_a_split(folder: Path) -> None:
    with_splits(folder)
    photos(folder / "val", *NAMES)


def second_training_split(folder: Path) -> None:
    with_splits(folder)
    cats_and_dogs(folder / "training")


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (loose_images, "3 images in "),
        (flat_test, "next to the splits: test"),
        (loose_in_a_split, "3 images in val"),
        (second_training_split, "train there is training"),
    ],
)
def test_imagefolder_warns_of_images_outside_classes(tmp_path: Path, make: Callable[[Path], None], text: str) -> None:
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
    for name in ("train/empty", "val/ant"):
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
    words = ("there is training,", "Folder empty in train", ": 4.png.")
    assert [word in problem.message for word, problem in zip(words, content.problems, strict=True)] == [True] * 3
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


@pytest.mark.parametrize(("plain", "count"), [(8, 0), (4, 1)])
def test_few_images_with_an_ending_are_no_evidence(tmp_path: Path, plain: int, count: int) -> None:
    for name in "abcdefgh"[:plain]:
        (tmp_path / "cat").mkdir(exist_ok=True)
        for ending in ("", "_mask") if name in "ab" else ("",):
            (tmp_path / f"cat/{name}{ending}.png").touch()
    assert len(evidence(tmp_path, "cat")) == count


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
