"""Tables of images with any number of labels, in the spellings in which people keep them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from engine.data.datasets.open_splits import open_splits
from engine.data.formats.folders import subfolders
from engine.data.formats.labels_table import LabelSplit, recognise_labels
from engine.data.inspection.inspector import inspect
from engine.data.splits import Recognised

IMAGES = {"a.png": {"sea"}, "b.png": {"sea", "sky"}, "c.png": set(), "d.png": {"tree"}, "e.png": {"tree", "sky"}}
CLASSES = ("sea", "sky", "tree")


def images(folder: Path, names: tuple[str, ...] = tuple(IMAGES)) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for number, name in enumerate(names):
        Image.fromarray(np.full((4, 4, 3), 5 * number, np.uint8)).save(folder / name)
    return folder


def recognised(folder: Path, val_fraction: float = 0.4) -> Recognised | None:
    return recognise_labels(str(folder), subfolders(str(folder)), val_fraction, 0)


def told(*splits: object, classes: tuple[str, ...] = CLASSES) -> dict[str, set[str]]:
    """The labels of each image, by its name."""
    found = {}
    for split in splits:
        assert isinstance(split, LabelSplit)
        for file, row in zip(split.files, split.labels, strict=True):
            found[Path(file).name] = {name for name, there in zip(classes, row, strict=True) if there}
    return found


FLAGS = "filename,sea,sky,tree\n" + "".join(
    f"{name},{','.join(str(int(each in labels)) for each in CLASSES)}\n" for name, labels in IMAGES.items()
)
WORDS = FLAGS.replace(",1", ",True").replace(",0", ",FALSE")
SEMICOLONS = "Image;Tags;Author\n" + "".join(f'{n};"{"|".join(sorted(labels))}";x\n' for n, labels in IMAGES.items())
SPACES = "image_name,tags\n" + "".join(f"{name[0]},{' '.join(sorted(labels))}\n" for name, labels in IMAGES.items())
HEADLESS = "".join(f'{name},"{";".join(sorted(labels))}"\n' for name, labels in IMAGES.items())
DICT = json.dumps({name: sorted(labels) for name, labels in IMAGES.items()})
FLAG_DICT = json.dumps({name: {each: each in labels for each in CLASSES} for name, labels in IMAGES.items()})
LIST = json.dumps([{"image": f"images/{name}", "labels": sorted(labels)} for name, labels in IMAGES.items()])


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("labels.csv", FLAGS),
        ("labels.csv", WORDS),
        ("labels.csv", SEMICOLONS),
        ("train_v2.csv", SPACES),
        ("labels.csv", HEADLESS),
        ("labels.json", DICT),
        ("labels.json", FLAG_DICT),
        ("list.json", LIST),
        ("labels.tsv", FLAGS.replace(",", "\t")),
    ],
)
def test_that_the_same_labels_are_read_of_every_table(tmp_path: Path, name: str, content: str) -> None:
    images(tmp_path / "images")
    (tmp_path / name).write_text(content)
    found = recognised(tmp_path)
    assert found is not None
    assert (found.kind, found.classes) == ("labels", CLASSES)
    assert told(found.train, found.val) == IMAGES
    assert isinstance(found.val, LabelSplit)
    assert found.val.made


def test_that_splits_are_read_of_two_tables_of_folders_and_of_a_column(tmp_path: Path) -> None:
    two = tmp_path / "two"
    images(two)
    lines = FLAGS.splitlines(keepends=True)
    (two / "train.csv").write_text("".join(lines[:4]))
    (two / "val.csv").write_text("".join([lines[0], *lines[4:]]))
    folders = tmp_path / "folders"
    names = tuple(IMAGES)
    images(folders / "train", names[:3])
    images(folders / "valid", names[3:])
    (folders / "train/_classes.csv").write_text("".join(lines[:4]))
    (folders / "valid/_classes.csv").write_text("".join([lines[0], *lines[4:]]))
    column = tmp_path / "column"
    images(column / "images")
    marks = ["split", "train", "train", "train", "Val", "val"]
    marked = "".join(f"{line.strip()},{mark}\n" for line, mark in zip(lines, marks, strict=True))
    (column / "all.csv").write_text(marked)
    for folder in (two, folders, column):
        found = recognised(folder)
        assert found is not None
        assert sorted(told(found.train)) == ["a.png", "b.png", "c.png"]
        assert told(found.val) == {name: IMAGES[name] for name in ("d.png", "e.png")}
        assert isinstance(found.val, LabelSplit)
        assert not found.val.made
        messages = [problem.message for problem in found.problems]
        assert messages == [
            "No training image has the label tree, which is never learned.",
            "No validation image has the label sea, which is never validated.",
        ]


def test_that_arcgis_labelled_tiles_are_read_with_the_names_of_their_definition(tmp_path: Path) -> None:
    images(tmp_path / "images")
    (tmp_path / "labels").mkdir()
    values = {"sea": 3, "sky": 5, "tree": 9}
    for name, labels in IMAGES.items():
        objects = "".join(f"<object><name>{values[label]}</name></object>" for label in sorted(labels))
        (tmp_path / "labels" / f"{name[0]}.xml").write_text(f"<annotation>{objects}</annotation>")
    classes = [{"Value": value, "Name": name} for name, value in values.items()]
    (tmp_path / "esri_model_definition.emd").write_text(json.dumps({"Classes": classes}))
    found = recognised(tmp_path)
    assert found is not None
    assert found.classes == CLASSES
    assert told(found.train, found.val) == IMAGES


def test_that_what_does_not_belong_together_is_told_once_of_a_kind(tmp_path: Path) -> None:
    images(tmp_path, (*IMAGES, "left.png", "over.png"))
    (tmp_path / "labels.csv").write_text(FLAGS + "".join(f"gone{number}.png,1,0,0\n" for number in range(5)))
    found = recognised(tmp_path)
    assert found is not None
    messages = [problem.message for problem in found.problems if problem.severity == "warning"]
    assert messages[0] == "There are 5 images that a table names can't be found: gone0.png, gone1.png, gone2.png, …."
    assert messages[1] == "There are 2 images that no table names: left.png, over.png."


def test_that_folders_without_tables_of_labels_are_left_to_others(tmp_path: Path) -> None:
    assert recognised(images(tmp_path)) is None
    (tmp_path / "measurements.csv").write_text("day,weight\n1,0.5\n2,0.7\n")
    (tmp_path / "annotations.json").write_text(json.dumps({"images": [{"file_name": "a.png"}], "annotations": []}))
    assert recognised(tmp_path) is None


def test_that_of_several_tables_the_one_called_labels_is_used_and_the_others_are_told(tmp_path: Path) -> None:
    images(tmp_path)
    (tmp_path / "labels.csv").write_text(FLAGS)
    (tmp_path / "cameras.csv").write_text("file,tags\n" + "".join(f"{name},left\n" for name in IMAGES))
    found = recognised(tmp_path)
    assert found is not None
    assert found.classes == CLASSES
    assert found.problems[0].message == "These tables of labels are not used: cameras.csv."


def test_that_rare_labels_are_in_both_parts(tmp_path: Path) -> None:
    names = tuple(f"{number:02}.png" for number in range(40))
    images(tmp_path, names)
    rows = "".join(f"{name},{'common' if number > 3 else 'common;rare'}\n" for number, name in enumerate(names))
    (tmp_path / "labels.csv").write_text("file,labels\n" + rows)
    found = recognised(tmp_path, 0.25)
    assert found is not None
    for split, count in ((found.train, 3), (found.val, 1)):
        assert isinstance(split, LabelSplit)
        assert split.labels.sum(0)[1] == count


def test_that_a_look_tells_how_often_each_label_occurs_and_what_cannot_be_read(tmp_path: Path) -> None:
    images(tmp_path / "train")
    images(tmp_path / "val", ("a.png", "f.png"))
    (tmp_path / "train/labels.csv").write_text(FLAGS)
    (tmp_path / "val/labels.csv").write_text("file,labels\na.png,sea\nf.png,tree;sky\n")
    (tmp_path / "train/e.png").write_bytes(b"torn")
    report = inspect(str(tmp_path), val_fraction=0.2, seed=0, progress=lambda *_: None, kinds=("labels",))
    assert (report.kind, report.classes, report.channels) == ("labels", CLASSES, 3)
    assert [split.counts for split in report.splits] == [
        {"sea": 2, "sky": 1, "tree": 1},
        {"sea": 1, "sky": 1, "tree": 1},
    ]
    assert [split.images for split in report.splits] == [4, 2]
    assert report.unreadable_count == 1
    assert {example.class_name for example in report.examples} == {"sea", "sea, sky", "", "tree"}


def test_that_labels_are_given_as_numbers_to_the_loader(tmp_path: Path) -> None:
    images(tmp_path)
    (tmp_path / "labels.csv").write_text(FLAGS)
    splits = open_splits(str(tmp_path), val_fraction=0.4, seed=0, kinds=("labels",))
    for split in (splits.train, splits.val):
        for place, target in enumerate(split.targets.tolist()):
            assert target == [float(name in IMAGES[split.path(place)]) for name in CLASSES]
    counts = [split.class_counts(3) for split in (splits.train, splits.val)]
    assert np.sum(counts, axis=0).tolist() == [2, 2, 2]


def test_that_a_label_of_half_a_character_is_shown_by_its_number(tmp_path: Path) -> None:
    images(tmp_path)
    (tmp_path / "labels.json").write_text('{"a.png": ["\\ud800"], "b.png": ["sea"], "c.png": ["sea"]}')
    found = recognised(tmp_path)
    assert found is not None
    assert found.classes == ("sea", "\\ud800")


def test_that_a_tile_whose_labels_are_in_no_known_encoding_is_not_used(tmp_path: Path) -> None:
    images(tmp_path / "images")
    (tmp_path / "labels").mkdir()
    for name in IMAGES:
        text = "<annotation><object><name>sea</name></object></annotation>"
        (tmp_path / "labels" / name.replace("png", "xml")).write_text(text)
    (tmp_path / "labels" / "a.xml").write_text(f'<?xml version="1.0" encoding="x"?>{text}')
    found = recognised(tmp_path)
    assert found is not None
    assert "There is 1 image that no table names: a.png." in {problem.message for problem in found.problems}
