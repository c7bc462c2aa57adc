"""Warnings about probable mistakes: shared annotations, spellings of classes, conflicting copies, mixed colors."""

from __future__ import annotations

import unicodedata
from pathlib import Path

import msgspec
import numpy as np
import pytest
from PIL import Image

from engine.contract.problems import Problem
from engine.data.files import Files, Listing
from engine.data.formats.shared.boxes import BoxSplit
from engine.data.formats.shared.instances import InstanceSplit, Outlines
from engine.data.inspection.contents import Contents
from engine.data.inspection.doubts import NAMED, find_doubts, spelling_key
from engine.data.inspection.inspector import inspect
from engine.data.splits import FileSplit, LabelSplit, MaskSplit, RecognizedDataset
from engine.tasks.edges.formats import EdgeSplit
from tests.support.boxed import ONE, TWO, draw, yolo
from tests.support.images import write_image, write_noise
from tests.support.masks import make_masked
from tests.support.outlined import make_outlined
from tests.support.trained_runs import make_labeled


def find_warnings(folder: Path, kind: str, phrase: str) -> list[Problem]:
    """Inspect a folder for annotations of `kind`, and return the warnings that contain `phrase`."""
    report = inspect(str(folder), val_fraction=0.25, seed=0, kinds=(kind,), progress=lambda done, total: None)
    assert not [problem for problem in report.problems if problem.severity == "error"]
    return [problem for problem in report.problems if phrase in problem.message]


def write_class_folders(folder: Path, *names: str) -> Path:
    """Write eight random images into each of the class folders `names`, all of them different. Return `folder`."""
    for label, name in enumerate(names):
        for number in range(8):
            write_noise(folder / name / f"{number}.png", seed=100 * label + number)
    return folder


# Shared annotations


@pytest.mark.parametrize("pairs", [NAMED, NAMED + 1])
def test_first_images_that_share_boxes_are_named(tmp_path: Path, pairs: int) -> None:
    names = [f"a{number}" for number in range(pairs)]
    folder = yolo(tmp_path, {"train": dict.fromkeys([*names, "b"], TWO), "val": {"c": ONE}})
    for name in names:
        draw(next((folder / "images").rglob(f"{name}.*")).with_suffix(".bmp"), TWO)
    (problem,) = find_warnings(folder, "boxes", "share an annotation")
    assert problem.message.startswith(f"{pairs} pairs of images share an annotation")
    assert problem.message.count(" and ") == NAMED
    assert ("; …)" in problem.message) == (pairs > NAMED)


def test_images_of_one_name_with_one_mask_are_reported(tmp_path: Path) -> None:
    for name, counts in {"one": {"train": 4, "val": 2}, "two": {"train": 6, "val": 3}}.items():
        folder = make_masked(tmp_path / name, counts)
        assert find_warnings(folder, "masks", "without a mask") == []
        write_noise(folder / "images/train/001.bmp", size=(32, 32))
        (problem,) = find_warnings(folder, "masks", "of the same name as another")
        assert "001.bmp, 001.png" in problem.message


def test_masks_and_edges_of_several_images_are_reported(tmp_path: Path) -> None:
    files = [write_noise(tmp_path / f"{number}/a.png", seed=number) for number in range(3)]
    first, second, third = map(str, files)
    masks = RecognizedDataset("", train=MaskSplit([first, second], ["m", "m"]), val=MaskSplit([third], ["n"]))
    edges = RecognizedDataset("", train=EdgeSplit([first, second], ["m", "n"]), val=EdgeSplit([third], ["n"]))
    alike = RecognizedDataset("", train=MaskSplit([first, second], ["m", "n"]), val=MaskSplit([third], ["o"]))
    warned = [find_doubts(each, str(tmp_path), Contents()) for each in (masks, edges, alike)]
    assert [len(each) for each in warned] == [1, 1, 0]
    assert "0/a.png and 1/a.png" in warned[0][0].message
    assert "1/a.png and 2/a.png" in warned[1][0].message


def test_images_of_one_name_with_separate_annotations_are_valid(tmp_path: Path) -> None:
    folder = make_outlined(tmp_path, {"train": 4, "val": 2})
    path = folder / "annotations/instances_train.json"
    (folder / "images/train/001.png").rename(folder / "images/train/000.bmp")
    path.write_text(path.read_text().replace("001.png", "000.bmp"))
    assert find_warnings(folder, "instances", "share an annotation") == []


def make_box_split(files: list[Path], *labels: list[int]) -> BoxSplit:
    """Return a split in which image `files[i]` has a box for each class index in `labels[i]`. All boxes are equal."""
    flat = np.array([label for each in labels for label in each], np.int64)
    bounds = np.cumsum([0, *map(len, labels)])
    boxes = np.tile(np.array([[1, 2, 9, 8]], np.float32), (len(flat), 1))
    sizes = np.full((len(files), 2), 20)
    return BoxSplit([*map(str, files)], sizes, bounds, boxes, flat, np.zeros(len(flat), bool))


@pytest.mark.parametrize(
    ("names", "labels", "is_reported"),
    [
        (("a.png", "a.bmp"), ([0, 1], [0, 1]), True),
        (("a.png", "a.bmp"), ([0], []), True),
        (("a.png", "a.bmp"), ([], [0]), True),
        (("a.png", "a.bmp"), ([0], [1]), False),
        (("a.png", "a.bmp"), ([0], [0, 0]), False),
        (("a.png", "a.png"), ([0], [0]), False),
        (("a.png", "b.bmp"), ([0], [0]), False),
        (("a.png", "x/a.bmp"), ([0], [0]), False),
        (("a.png", "a.bmp", "a.gif"), ([0], [0], [0]), True),
    ],
)
def test_images_of_one_name_are_reported_if_their_objects_are_equal(
    tmp_path: Path, names: tuple[str, ...], labels: tuple[list[int], ...], is_reported: bool
) -> None:
    files = [write_noise(tmp_path / name, seed=number) for number, name in enumerate(names)]
    files.insert(0, write_noise(tmp_path / "first.png"))
    outlines = [Outlines([(label, msgspec.Raw(b"[]"), False) for label in objects], None) for objects in ([0], *labels)]
    pairs = "; ".join(f"{names[0]} and {name}" for name in names[1:])
    for split in (make_box_split(files, [0], *labels), InstanceSplit([*map(str, files)], outlines)):
        found = find_doubts(RecognizedDataset("", ("ant", "bee"), train=split), str(tmp_path), Contents())
        assert [f"({pairs})" in problem.message for problem in found] == [True] * is_reported


# Spellings of classes


def test_examples_of_spellings_contain_the_class(tmp_path: Path) -> None:
    files = [write_noise(tmp_path / f"{number}.png", seed=number) for number in range(5)]
    split = make_box_split(files, [2], [0, 0], [], [1], [1])
    (problem,) = find_doubts(RecognizedDataset("", ("cat", "Cat", "dog"), train=split), str(tmp_path), Contents())
    assert "“cat” (1.png)" in problem.message
    assert "“Cat” (3.png)" in problem.message
    is_cat = np.eye(5, 3, -2, bool) & [True, False, False]  # the third image
    val = LabelSplit([str(write_noise(tmp_path / "val.png", seed=9))], np.array([[False, True, False]]))
    labeled = RecognizedDataset("", ("cat", "Cat", "dog"), train=LabelSplit([*map(str, files)], is_cat), val=val)
    (problem,) = find_doubts(labeled, str(tmp_path), Contents())
    assert "“cat” (2.png) and “Cat” (val.png)" in problem.message
    outlines = [Outlines([(label, msgspec.Raw(b"[]"), False)], None) for label in (2, 1, 0, 0, 1)]
    outlined = RecognizedDataset("", ("cat", "Cat", "dog"), train=InstanceSplit([*map(str, files)], outlines))
    (problem,) = find_doubts(outlined, str(tmp_path), Contents())
    assert "“cat” (2.png) and “Cat” (1.png)" in problem.message


SPELLINGS = {
    "case": ("cat", "Cat"),
    "blanks": ("traffic light", "traffic_light"),
    "dashes": ("t-shirt", "T Shirt"),
    "accents": (unicodedata.normalize("NFC", "café"), unicodedata.normalize("NFD", "café")),
}


@pytest.mark.parametrize("pair", SPELLINGS.values(), ids=SPELLINGS)
def test_two_spellings_of_a_class_are_reported_for_folders(tmp_path: Path, pair: tuple[str, str]) -> None:
    write_class_folders(tmp_path, *pair, "dog")
    (problem,) = find_warnings(tmp_path, "classes", "differ in spelling only")
    assert all(f"({name}/" in problem.message for name in pair)
    assert "dog" not in problem.message
    assert ("(with separate accents)" in problem.message) == (pair is SPELLINGS["accents"])
    assert "the same name" in problem.remedy


def test_unusual_whitespace_in_class_names_is_escaped(tmp_path: Path) -> None:
    write_class_folders(tmp_path, "traffic light", "traffic\u00a0light")
    (problem,) = find_warnings(tmp_path, "classes", "differ in spelling only")
    assert "“traffic\\u00a0light”" in problem.message


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("Straße", "STRASSE", True), ("a  b", "a b ", True), ("e\u0301", "\u00e9", True), ("on-off", "on off", True),
        ("-1", "1", False), ("1-2", "12", False), ("C++", "C", False), ("ab", "a b", False),
    ],
)  # fmt: skip
def test_spelling_key_is_the_same_for_spellings(one: str, other: str, same: bool) -> None:
    assert (spelling_key(one) == spelling_key(other)) == same


# Conflicting copies


@pytest.mark.parametrize("split", ["train", "val"])
def test_same_image_in_two_classes_is_reported(tmp_path: Path, split: str) -> None:
    write_class_folders(tmp_path, "train/cat", "train/dog", "val/cat", "val/dog")
    (tmp_path / split / "dog/copy.png").write_bytes((tmp_path / "train/cat/3.png").read_bytes())
    (problem,) = find_warnings(tmp_path, "classes", "in different classes")
    assert problem.message.startswith("1 image is")
    assert "cat/3.png" in problem.message
    assert "dog/copy.png" in problem.message


def test_same_image_with_two_sets_of_labels_is_reported(tmp_path: Path) -> None:
    for number, (split, row) in enumerate([("train", "1,0,0"), ("val", "0,1,1"), ("train", "1,1,1")]):
        folder = make_labeled(tmp_path / str(number), {"train": 9, "val": 4})
        table = folder / split / "labels.csv"
        lines = table.read_text().splitlines()
        assert find_warnings(folder, "labels", "different sets of labels") == []
        other = next(
            name for name in range(9) if f"{name:03}.png,{row}" not in (folder / "train/labels.csv").read_text()
        )
        (folder / split / "copy.png").write_bytes((folder / f"train/{other:03}.png").read_bytes())
        table.write_text("\n".join([*lines, f"copy.png,{row}"]))
        (problem,) = find_warnings(folder, "labels", "different sets of labels")
        assert f"{split}/copy.png" in problem.message


def test_copies_in_different_classes_are_named_in_pairs(tmp_path: Path) -> None:
    files = [write_noise(tmp_path / f"{number}.png", seed=min(number, 1)) for number in range(4)]
    split = FileSplit(
        Files.of([Listing.of(str(tmp_path), [path.name for path in files])]), np.array([0, 1, 1, 0]), Files.of()
    )
    (problem,) = find_doubts(RecognizedDataset("", ("ant", "bee"), train=split), str(tmp_path), Contents())
    assert "1 image is in different classes (1.png and 3.png)" in problem.message
    names = [
        path.name for seed in range(4) for path in (write_noise(tmp_path / f"{seed}{n}.png", seed + 9) for n in "ab")
    ]
    split = FileSplit(Files.of([Listing.of(str(tmp_path), names)]), np.arange(8) % 2, Files.of())
    (problem,) = find_doubts(RecognizedDataset("", ("ant", "bee"), train=split), str(tmp_path), Contents())
    named = "0a.png and 0b.png; 1a.png and 1b.png; 2a.png and 2b.png; …"
    assert problem.message == f"4 images are in different classes ({named})."


def test_copies_of_training_images_in_test_are_reported(tmp_path: Path) -> None:
    for kind, folder in {"classes": tmp_path / "classes", "masks": tmp_path / "masks"}.items():
        if kind == "classes":
            write_class_folders(
                folder, *(f"{split}/{name}" for split in ("train", "val", "test") for name in ("cat", "dog"))
            )
            one, validated, other = (folder / f"{name}.png" for name in ("train/cat/1", "val/cat/0", "test/cat/2"))
        else:
            make_masked(folder, {"train": 6, "val": 3, "test": 3})
            one, validated, other = (folder / f"images/{name}.png" for name in ("train/001", "val/000", "test/002"))
        assert find_warnings(folder, kind, "test files") == []
        for copy in (validated, other):
            copy.write_bytes(one.read_bytes())
        warnings = find_warnings(folder, kind, "")
        phrase = "Of the 3 validation files" if kind == "masks" else "16 validation"
        assert sum(phrase in each.message for each in warnings) == 1
        (problem,) = (each for each in warnings if "test files" in each.message)
        assert "1 is a copy of a training one" in problem.message
        assert problem.message.endswith("so the test overrates the model.")


# Mixed color


def test_gray_images_among_colored_ones_are_reported(tmp_path: Path) -> None:
    folders = {
        "classes": write_class_folders(tmp_path / "classes", "cat", "dog"),
        "masks": make_masked(tmp_path / "masks", {"train": 5, "val": 2}),
        "instances": make_outlined(tmp_path / "instances", {"train": 5, "val": 2}),
        "labels": make_labeled(tmp_path / "labels", {"train": 9, "val": 4}),
    }
    for kind, folder in folders.items():
        assert find_warnings(folder, kind, "in color") == []
        path = sorted(path for path in folder.rglob("*.png") if "masks" not in path.parts[len(folder.parts) :])[0]
        with Image.open(path) as opened:
            gray = opened.convert("L")
        gray.save(path)
        (problem,) = find_warnings(folder, kind, "in color")
        assert f"1 is gray ({path.name})" in problem.message


def test_images_that_are_all_gray_or_all_colored_are_fine(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    for mode in ("L", "RGB", "P"):
        for name in ("cat", "dog"):
            for number in range(6):
                color = int(random.integers(0, 255)) if mode != "RGB" else tuple(random.integers(0, 255, 3).tolist())
                write_image(tmp_path / mode / name / f"{number}.png", color, mode=mode)
        assert find_warnings(tmp_path / mode, "classes", "in color") == []


def test_images_with_bands_are_neither_gray_nor_colored(tmp_path: Path) -> None:
    files = [write_image(tmp_path / "a.png", 9, mode="L"), write_image(tmp_path / "b.png")]
    split = MaskSplit([*map(str, files)], ["m", "n"])
    for has_bands in (False, True):
        found = find_doubts(RecognizedDataset("", train=split), str(tmp_path), Contents(), has_bands=has_bands)
        assert ["in color" in problem.message for problem in found] == [True] * (not has_bands)
