"""Tables of classes or labels in their common forms."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from engine.contract.problems import errors
from engine.data.datasets.open_splits import open_splits
from engine.data.formats.format import Confidence, Content, Detection
from engine.data.formats.labels_table import FORMAT
from engine.data.formats.registry import recognize
from engine.data.formats.tree import Tree
from engine.data.inspection.inspector import inspect
from engine.data.splits import LabelSplit
from tests.support.read_formats import list_annotations, list_annotations_by_split, read_once

NAMES = ("a", "b", "c", "d", "e", "f")
FLAGS = "filename,sea,sky,tree\na.png,1,0,0\nb.png,1,1,0\nc.png,0,0,0\nd.png,0,0,1\ne.png,0,1,1\n"
LABELS: dict[str, set[str]] = {"a": {"sea"}, "b": {"sea", "sky"}, "c": set(), "d": {"tree"}, "e": {"tree", "sky"}}


def write_images(folder: Path, names: Sequence[str] = NAMES, ending: str = ".png") -> Path:
    """Write a small image with the suffix `ending` for each of `names`, all different, and return `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    for number, name in enumerate(names):
        pixels = np.random.default_rng(number).integers(0, 256, (6, 8, 3), np.uint8)
        Image.fromarray(pixels).save(folder / f"{name}{ending}")
    return folder


def write(folder: Path, name: str, text: str) -> Path:
    """Write six images into the subfolder "images", and the table `text` to the file `name` next to it.

    Returns `folder`.
    """
    write_images(folder / "images")
    (folder / name).write_text(text)
    return folder


def detections(folder: Path) -> Sequence[Detection]:
    return FORMAT.detect(Tree(str(folder)))


def messages(found: Content) -> str:
    return "\n".join(problem.message for problem in found.problems)


EDEMA: dict[str, set[str]] = {
    "a": {"Edema"}, "b": {"Mass"}, "c": set(), "d": {"Mass"}, "e": {"Edema", "Mass"}, "f": set(),
}  # fmt: skip
WORDS = FLAGS.replace(",0\n", ",FALSE\n").replace(",1\n", ",TRUE\n")
UNNAMED = "1 image that no table names: f.png"
CUT = "seems to be cut off"


def rows(head: str, *cells: str) -> str:
    """Return a table with the header `head`, and a row for each image with its name and its other cells as text."""
    return f"{head}\n" + "".join(f"{name}.png,{cell}\n" for name, cell in zip(NAMES, cells, strict=False))


@pytest.mark.parametrize(
    ("name", "text", "expected", "phrases"),
    [
        pytest.param("labels.csv", rows("file,class", "2", "-1", "-3", "", "2.0", "10"),
                     {"a": "2", "c": "-3", "e": "2", "f": "10"}, ["2 images without a class: b.png, d.png"],
                     id="images of class -1 and of none"),
        pytest.param("labels.csv", rows("file,class,mask", *(f"{label}," for label in "xxyyxy")),
                     dict(zip(NAMES, "xxyyxy", strict=True)), [], id="empty column of masks"),
        pytest.param("labels.csv", rows("file,unmasked,class", *(f"images/{name}.png,x" for name in NAMES)),
                     dict.fromkeys(NAMES, "x"), [], id="column of unmasked images"),
        pytest.param("labels.csv", rows("file,class", *"xxxyyy") + "a.png,y\nb.png,x\n",
                     {"b": "x", "c": "x", "d": "y", "e": "y", "f": "y"}, ["several classes: a.png"],
                     id="rows that disagree"),
        pytest.param("labels.csv", rows("file,labels", *"xxxyyy") + "a.png,y\n",
                     {name: {"x"} if name in "bc" else {"x", "y"} if name == "a" else {"y"} for name in NAMES}, [],
                     id="one image of several labels"),
        pytest.param("labels.csv", rows("file,class", *"xxyyxy") + "images/a.png,x\n",
                     dict(zip(NAMES, "xxyyxy", strict=True)), [], id="one image under two names"),
        pytest.param("labels.csv", rows("file,sea,sky", "1,0", "0,1") + "x/c.png,1,0\ny/c.png,0,1\n",
                     {"a": {"sea"}, "b": {"sky"}}, ["may mean several images: c.png"], id="one image of two folders"),
        pytest.param("labels.csv", rows("file,Edema,Mass", "1,0", "-1,1", "-1,-1", "0,1", "1,1", "0,0"), EDEMA,
                     ["3 values of -1 (uncertain), in the columns Edema, Mass"], id="uncertain labels"),
        pytest.param("labels.csv", rows("file,Edema,Mass", "1.0,0.0", "-1.0,1.0", "-1,-1.0", "0.0,1.0", "1.0,1.0", "0.0,0.0"),
                     EDEMA, ["3 values of -1 (uncertain), in the columns Edema, Mass"], id="uncertain labels as fractions"),
        pytest.param("labels.csv", rows("file,Edema,Mass", "1,", "-1,1", "-1,-1", "-1,1", "1,1", "-1,"), EDEMA,
                     ["5 values of -1 (uncertain), in the columns Edema, Mass"],
                     id="uncertain labels next to blank cells"),
        pytest.param("labels.csv", rows("file,Edema,Mass", "1,-1", "-1,1", "-1,-1", "-1,1", "1,1", "-1,-1"), EDEMA, [],
                     id="-1 for absent labels"),
        pytest.param("list_attr.txt", "6\nEdema Mass\na.png 1 -1\nb.png -1  1\nc.png -1 -1\nd.png -1 1\ne.png 1 1\nf.png -1 -1\n",
                     EDEMA, [], id="flags of CelebA"),
        pytest.param("image-labels.csv", "ImageID,LabelName\na,sea\nb,sea\nb,sky\nd,tree\ne,tree\ne,sky\n",
                     {name: labels for name, labels in LABELS.items() if labels},
                     ["2 images that no table names: c.png, f.png"], id="rows of one label each"),
        pytest.param("labels.csv", rows("file,sea,sky", "1,0", "1,1", "0,1", "0,0", "0,0", "0,0") + "a.png,0,1\n",
                     {"a": {"sea", "sky"}, "b": {"sea", "sky"}, "c": {"sky"}, "d": set(), "e": set(), "f": set()},
                     ["1 image in several rows with different labels: a.png"], id="rows of flags that disagree"),
        pytest.param("image-labels.csv", "file,tags\na,sea\nb,sea;sky\nd,tree\ne,tree\ne,sky\n",
                     {name: labels for name, labels in LABELS.items() if labels},
                     ["2 images that no table names: c.png, f.png"], id="rows of several labels"),
        pytest.param("labels.csv", FLAGS + "".join(f"gone{number}.png,1,0,0\n" for number in range(5)), LABELS,
                     ["5 images that a table names can't be found: gone0.png", UNNAMED], id="missing images"),
        pytest.param("labels.csv", FLAGS.rstrip(), LABELS, [UNNAMED], id="no last line break"),
        pytest.param("labels.csv", FLAGS.replace("0", ""), LABELS, [UNNAMED], id="no zeros"),
        pytest.param("labels.csv", WORDS + "f.png,1,0", LABELS, [CUT, UNNAMED], id="cut off after a cell"),
        pytest.param("labels.csv", WORDS + "f.png,1,0,Tru", LABELS, [CUT, UNNAMED], id="cut off in a word"),
        pytest.param("labels.csv", WORDS + "f.png,0", LABELS, [CUT, UNNAMED], id="cut off after the first cell"),
        pytest.param("labels.csv", WORDS + 'f.png,"', LABELS, [CUT, UNNAMED], id="cut off in quotes"),
    ],
)  # fmt: skip
def test_table_gives_annotations_and_warnings(
    tmp_path: Path, name: str, text: str, expected: dict[str, Any], phrases: list[str]
) -> None:
    kind = "classes" if isinstance(expected["b" if "b" in expected else "a"], str) else "labels"
    found = read_once(FORMAT, write(tmp_path, name, text), kind)
    assert list_annotations(found) == expected
    assert [phrase for phrase in phrases if phrase not in messages(found)] == []
    assert len(found.problems) == len(phrases)


@pytest.mark.parametrize(("column", "count"), [("filename", 1), ("file_name", 0)])
def test_table_named_metadata_needs_the_column_of_hugging_face(tmp_path: Path, column: str, count: int) -> None:
    assert len(detections(write(tmp_path, "Metadata.csv", FLAGS.replace("filename", column)))) == count


def test_table_leaves_out_test_images_of_kaggle(tmp_path: Path) -> None:
    write_images(tmp_path / "train", NAMES)
    write_images(tmp_path / "test", ("x", "y"))
    (tmp_path / "train.csv").write_text("id,label\n" + "".join(f"{name},{'01'[name in 'abc']}\n" for name in NAMES))
    (tmp_path / "test.csv").write_text("id\nx\ny\n")
    (tmp_path / "sample_submission.csv").write_text("id,label\nx,0\ny,0\n")
    (detection,) = detections(tmp_path)
    assert detection.kinds == ("classes", "labels")
    found = read_once(FORMAT, tmp_path, "classes")
    assert list_annotations_by_split(found) == {"train": {name: "01"[name in "abc"] for name in NAMES}}
    assert "2 images that no table names" in messages(found)


def test_table_reads_chexpert(tmp_path: Path) -> None:
    root = tmp_path / "anything"
    lines = ["Path,Sex,Age,Frontal/Lateral,AP/PA,No Finding,Edema,Fracture"]
    for split, number, cells in (("train", 1, "1.0,,"), ("train", 2, ",1.0,-1.0"), ("valid", 3, "0.0,1.0,1.0")):
        write_images(root / split / f"patient{number}" / "study1", ["view1_frontal"], ".jpg")
        lines.append(
            f"CheXpert-v1.0-small/{split}/patient{number}/study1/view1_frontal.jpg,Male,{number},Frontal,AP,{cells}"
        )
    (root / "train.csv").write_text("\n".join(lines[:3]) + "\n")
    (root / "valid.csv").write_text("\n".join([lines[0], lines[3]]) + "\n")
    found = read_once(FORMAT, root, "labels")
    assert found.classes == ("No Finding", "Edema", "Fracture")
    train, val = (found.splits[name] for name in ("train", "val"))
    assert train.labels.tolist() == [[True, False, False], [False, True, False]]
    assert val.labels.tolist() == [[False, True, True]]
    assert "1 value of -1 (uncertain), in the columns Fracture" in messages(found)
    assert "3 blank values of labels" in messages(found)


@pytest.mark.parametrize(
    ("file", "names"),
    [
        ("classes.txt", "cat\ndog\nhen\n"),
        ("../classes.txt", "cat\ndog\nhen\n"),
        ("label_num_to_disease_map.json", '{"0": "cat", "1": "dog", "2": "hen"}'),
        ("label_map.csv", "name,label_id\ncat,0\ndog,1\nhen,2\n"),
        ("class_indices.json", '{"cat": 0, "dog": 1, "hen": 2}'),
        ("labels.txt", "0: cat\n1: dog\n2: hen\n"),
    ],
)
def test_table_names_numbered_classes_from_a_file(tmp_path: Path, file: str, names: str) -> None:
    write(tmp_path / "set", "train.csv", "image,label\na.png,0\nb.png,1\nc.png,2\nd.png,0\n")
    (tmp_path / "set" / file).write_text(names)
    assert read_once(FORMAT, tmp_path, "classes").classes == ("cat", "dog", "hen")


def test_table_keeps_numbers_if_names_may_be_shifted(tmp_path: Path) -> None:
    write(tmp_path, "train.csv", "image,label\na.png,1\nb.png,2\nc.png,1\n")
    (tmp_path / "classes.txt").write_text("cat\ndog\nhen\ncow\n")
    assert read_once(FORMAT, tmp_path, "classes").classes == ("1", "2")


@pytest.mark.parametrize(
    ("head", "rows", "variants"),
    [
        ("image,diagnosis,target", ["nevus,0", "other,0", "melanoma,1", "nevus,0"], ["target", "diagnosis"]),
        ("image,fruit,color", ["apple,red", "pear,green", "apple,green", "pear,red"], ["fruit", "color"]),
        ("image,tags,class", ["a b,x", "a,y", "b,y", "b a,x"], ["class", "tags"]),
    ],
)
def test_table_with_several_label_columns_asks(tmp_path: Path, head: str, rows: list[str], variants: list[str]) -> None:
    text = "\n".join([head, *(f"{name}.png,{row}" for name, row in zip(NAMES, rows, strict=False))])
    write(tmp_path, "data.csv", text)
    assert [detection.variant for detection in detections(tmp_path)] == variants
    found = recognize(str(tmp_path), val_fraction=0.2, seed=0, kinds=("classes",))
    if "tags" not in variants:
        assert found.train is None
        assert any(problem.choices for problem in found.problems)


def test_table_takes_the_names_of_numbers_in_another_column(tmp_path: Path) -> None:
    text = "class id,filepaths,labels,data set\n0,a.png,owl,train\n1,b.png,tit,train\n0,c.png,owl,valid\n1,d.png,tit,test\n"
    found = read_once(FORMAT, write(tmp_path, "birds.csv", text), "classes")
    assert list_annotations_by_split(found) == {
        "train": {"a": "owl", "b": "tit"},
        "val": {"c": "owl"},
        "test": {"d": "tit"},
    }


@pytest.mark.parametrize("labels", [("-3", "2", "10"), ("1" * 5000, "20", "3")], ids=["numbers", "very long numbers"])
def test_table_sorts_numbers_unless_they_are_very_long(tmp_path: Path, labels: tuple[str, ...]) -> None:
    found = read_once(FORMAT, write(tmp_path, "labels.csv", rows("file,class", *labels, *labels)), "classes")
    assert found.classes == labels


def test_table_never_confuses_images_of_one_name(tmp_path: Path) -> None:
    by_path, by_name, moved = (tmp_path / name for name in ("by_path", "by_name", "moved"))
    for folder in (by_path, by_name):
        write_images(folder / "site_a", ("1", "2"))
        write_images(folder / "site_b", ("1", "2"))
    write_images(moved / "images", ("1", "2"))
    paths = "file,class\n" + "".join(f"site_{site}/{name}.png,{site}\n" for site in "ab" for name in "12")
    (by_path / "labels.csv").write_text(paths)
    (moved / "labels.csv").write_text(paths)
    (by_name / "labels.csv").write_text("file,class\n1.png,a\n2.png,b\n")
    found = read_once(FORMAT, by_path, "classes").splits[""]
    assert [Path(file).parts[-2:] for file in found.files] == [
        ("site_a", "1.png"), ("site_a", "2.png"), ("site_b", "1.png"), ("site_b", "2.png"),
    ]  # fmt: skip
    assert found.labels.tolist() == [0, 0, 1, 1]
    for folder in (by_name, moved):
        refused = read_once(FORMAT, folder, "classes")
        assert refused.splits == {}
        assert "may mean several images" in messages(refused)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("measurements.csv", "day,weight\n1,0.5\n2,0.7\n"),
        ("annotations.json", json.dumps({"images": [{"file_name": "a.png"}], "annotations": []})),
        ("createml.json", json.dumps([{"image": "a.png", "annotations": [{"label": "x", "coordinates": {"x": 1}}]}])),
        ("boxes.csv", "filename,width,height,class,xmin,ymin,xmax,ymax\na.png,8,6,cat,1,1,3,3\n"),
        ("pairs.csv", "image,mask\n" + "".join(f"{name}.png,masks/{name}_m.png\n" for name in NAMES)),
        ("captions.csv", "image,caption\n" + "".join(f"{name}.png,the letter {name}\n" for name in NAMES)),
        ("folds.csv", "image,fold\n" + "".join(f"{name}.png,{number % 3}\n" for number, name in enumerate(NAMES))),
        ("label_studio.csv", 'image,label\na.png,"[{""x"": 1}]"\nb.png,"[{""x"": 2}]"\n'),
        ("other.csv", "file,class\nx.png,cat\ny.png,dog\n"),
        ("train.txt", "images/a.png\nimages/b.png\n"),
        ("solution.csv", "ImageId,PredictionString\n" + "".join(f"{name},cat 1 1 3 3\n" for name in NAMES)),
        ("export.csv", "TRAIN,gs://b/a.png,cat,0.1,0.1,,,0.5,0.5,,\nTEST,gs://b/b.png,dog,0.1,0.1,,,0.5,0.5,,\n"),
        ("boxes.json", json.dumps({f"{name}.png": [number, 3, 8, 9] for number, name in enumerate(NAMES)})),
        ("points.json", json.dumps({f"{name}.png": [number + 0.5, 3] for number, name in enumerate(NAMES)})),
        (
            "one_hot.json",
            json.dumps({f"{name}.png": [number % 2, (number + 1) % 2, 0] for number, name in enumerate(NAMES)}),
        ),
        ("boxes.txt", "".join(f"{name}.png {number} 3 8 9\n" for number, name in enumerate(NAMES))),
        (
            "landmarks.csv",
            "name,0,1,2\n" + "".join(f"{name}.png,{number % 2},3,8\n" for number, name in enumerate(NAMES)),
        ),
        ("times.csv", "name,timestamp,shapes\n" + "".join(f'{name}.png,1000,"[{{""x"": 1}}]"\n' for name in NAMES)),
        (
            "via.csv",
            "filename,region_count,region_id,region_shape_attributes\n"
            + "".join(f'{name}.png,1,0,"{{""name"": ""rect""}}"\n' for name in NAMES),
        ),
    ],
)
def test_table_leaves_other_files_to_others(tmp_path: Path, name: str, text: str) -> None:
    assert [detection.kinds for detection in detections(write(tmp_path, name, text))] == []


@pytest.mark.parametrize("folders", [("train", "test"), ("train_images", "test_images"), ("x_training", "x_testing")])
def test_table_of_a_split_names_its_own_images(tmp_path: Path, folders: tuple[str, str]) -> None:
    for folder in folders:
        write_images(tmp_path / folder)
    (tmp_path / "train.csv").write_text("id,label\n" + "".join(f"{name},{'xy'[name in 'abc']}\n" for name in NAMES))
    found = read_once(FORMAT, tmp_path, "classes").splits["train"]
    assert [Path(file).parent.name for file in found.files] == [folders[0]] * 6


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("identity.txt", "attributes.txt"),  # neither has column names
        ("colors.csv", "shapes.csv"),
        ("a/label_one.csv", "b/label_two.csv"),
    ],
)
def test_table_asks_for_a_choice_among_several(tmp_path: Path, first: str, second: str) -> None:
    write_images(tmp_path / "images")
    for path, classes in ((first, "xy"), (second, "pq")):
        (tmp_path / path).parent.mkdir(exist_ok=True)
        mark, head = (" ", "") if path.endswith(".txt") else (",", "file,class\n")
        rows = "".join(f"{name}.png{mark}{classes[number % 2]}\n" for number, name in enumerate(NAMES))
        (tmp_path / path).write_text(head + rows)
    assert sorted(detection.variant for detection in detections(tmp_path)) == sorted([first, second])
    assert recognize(str(tmp_path), val_fraction=0.3, seed=0).train is None
    chosen = recognize(str(tmp_path), val_fraction=0.3, seed=0, format=f"table:{second}")
    assert chosen.classes == ("p", "q")


def test_table_of_a_few_of_the_images_is_doubtful(tmp_path: Path) -> None:
    for name in ("cat", "dog"):
        write_images(tmp_path / name, [f"{name}{number}" for number in range(20)])
    (tmp_path / "checked.csv").write_text("file,label\ncat1.png,good\ncat2.png,bad\ndog3.png,good\n")
    (detection,) = detections(tmp_path)
    assert detection.confidence < Confidence.CERTAIN
    assert "only 3 of 40 images" in detection.against[0]
    assert recognize(str(tmp_path), val_fraction=0.3, seed=0).format == "imagefolder"


@pytest.mark.parametrize(
    ("names", "count"), [(("a", "b"), 0), (("a",), 1), (("a", "b", "x", "y"), 0), (("a", "b", "x", "y", "z"), 1)]
)
def test_table_is_doubtful_if_it_names_other_images(tmp_path: Path, names: tuple[str, ...], count: int) -> None:
    rows = "".join(f"{name}.png,{number % 2}\n" for number, name in enumerate(names))
    (detection,) = detections(write(tmp_path, "labels.csv", f"file,label\n{rows}"))
    assert len(detection.against) == count


def test_table_of_splits_is_no_table_of_labels(tmp_path: Path) -> None:
    rows = "".join(f"{name}.png {number % 3}\n" for number, name in enumerate(NAMES))
    assert detections(write(tmp_path, "list_eval_partition.txt", rows)) == []


def test_table_of_measured_values_is_refused(tmp_path: Path) -> None:
    rows = "".join(f"{name}.png,{0.37 * number}\n" for number, name in enumerate(NAMES))
    (detection,) = detections(write(tmp_path, "train.csv", "image,score\n" + rows))
    assert detection.kinds == ()
    assert "classes" in detection.remedy


MANY = [f"image{number}" for number in range(24)]


@pytest.mark.parametrize(
    ("head", "cells"),
    [
        ("file,age", lambda number: str(20 + number % 12)),
        ("file,price,rooms", lambda number: f"{1000 + 7 * number},{number % 3}"),
        ("file,blurred,near,points", lambda number: f"{number % 2},{number // 2 % 2},{7 * number}"),
    ],
)
def test_table_with_measured_values_is_a_question(tmp_path: Path, head: str, cells: Callable[[int], str]) -> None:
    write_images(tmp_path / "photos", MANY)
    rows = "".join(f"{name}.png,{cells(number)}\n" for number, name in enumerate(MANY))
    (tmp_path / "train.csv").write_text(f"{head}\n{rows}")
    (detection,) = detections(tmp_path)
    assert detection.confidence is Confidence.WEAK
    assert "measured values" in detection.against[0]
    assert recognize(str(tmp_path), val_fraction=0.3, seed=0, kinds=("classes", "labels")).train is None


@pytest.mark.parametrize("name", ["class_number", "label", "species_id"])
def test_table_with_many_numbered_classes_is_read(tmp_path: Path, name: str) -> None:
    write_images(tmp_path / "photos", MANY)
    (tmp_path / "train.csv").write_text(
        f"file,{name}\n" + "".join(f"{each}.png,{int(each[5:]) % 12}\n" for each in MANY)
    )
    assert detections(tmp_path)[0].against == ()


@pytest.mark.parametrize("column", ["age", "site", "camera"])
def test_table_of_test_images_does_not_add_labels(tmp_path: Path, column: str) -> None:
    write_images(tmp_path / "train")
    write_images(tmp_path / "test", ("p", "q"))
    rows = "".join(f"{name},{'xy'[name in 'abc']},4\n" for name in NAMES)
    (tmp_path / "train.csv").write_text(f"id,diagnosis,{column}\n{rows}")
    (tmp_path / "test.csv").write_text(f"id,{column}\np,4\nq,4\n")
    found = read_once(FORMAT, tmp_path, "classes")
    assert (found.classes, set(found.splits)) == (("x", "y"), {"train"})


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ("a,cat,1\nb,cat,0\nc,dog,1\n", {"a": {"cat"}, "b": set(), "c": {"dog"}}),
        ("a,cat,1\na,dog,0\nb,cat,0\nb,dog,1\n", {"a": {"cat"}, "b": {"dog"}}),
        ("a,cat,0.5\nb,cat,0.0\nc,dog,0.7\n", {"a": {"cat"}, "b": {"cat"}, "c": {"dog"}}),  # scores, not flags
        ("a,cat,1.0\na,dog,1.0\nb,dog,0.0\n", {"a": {"cat", "dog"}, "b": set()}),
    ],
)
def test_table_leaves_out_labels_verified_absent(tmp_path: Path, rows: str, expected: dict[str, set[str]]) -> None:
    write(tmp_path, "human-imagelabels.csv", "ImageID,LabelName,Confidence\n" + rows)
    assert list_annotations(read_once(FORMAT, tmp_path, "labels")) == expected


@pytest.mark.parametrize("column", ["color", "place", "side"])
def test_table_of_another_fact_than_the_folders_asks(tmp_path: Path, column: str) -> None:
    for name in ("cat", "dog"):
        write_images(tmp_path / name, [f"{name}{number}" for number in range(12)])
    rows = "".join(f"{name}{number}.png,{'pq'[number % 2]}\n" for name in ("cat", "dog") for number in range(12))
    (tmp_path / "facts.csv").write_text(f"file,{column}\n{rows}")
    found = recognize(str(tmp_path), val_fraction=0.3, seed=0)
    assert found.train is None
    chosen = [choice.values.get("format") for choice in found.problems[0].choices]
    assert {"table", "imagefolder"} <= set(chosen)


@pytest.mark.parametrize(
    ("cells", "count"),
    [
        (("haze primary", "clear primary water", "clear primary"), 4),
        (("primary", "haze primary", "haze primary road"), 3),
        (("golden retriever", "siamese cat", "bull terrier"), 3),
    ],
)
def test_table_separates_tags_that_most_images_share(tmp_path: Path, cells: tuple[str, ...], count: int) -> None:
    rows = "".join(f"{name}.png,{cells[number % 3]}\n" for number, name in enumerate(NAMES))
    found = read_once(FORMAT, write(tmp_path, "train.csv", "image_name,tags\n" + rows), "labels")
    assert len(found.classes) == count


def test_table_called_labels_is_preferred(tmp_path: Path) -> None:
    write(tmp_path, "labels.csv", FLAGS)
    for name in ("cameras", "lights"):
        (tmp_path / f"{name}.csv").write_text("file,tags\n" + "".join(f"{name}.png,left\n" for name in NAMES))
    found = read_once(FORMAT, tmp_path, "labels")
    assert list_annotations(found) == LABELS
    assert "not used: cameras.csv, lights.csv" in messages(found)


def test_tables_of_splits_may_have_different_layouts(tmp_path: Path) -> None:
    write_images(tmp_path / "train", NAMES[:5])
    write_images(tmp_path / "val", ("a", "f"))
    (tmp_path / "train/labels.csv").write_text(FLAGS)
    (tmp_path / "val/labels.csv").write_text("file,labels\na.png,sea\nf.png,tree;sky\nb.pn")
    (tmp_path / "train/e.png").write_bytes(b"torn")
    report = inspect(str(tmp_path), val_fraction=0.2, seed=0, progress=lambda *_: None, kinds=("labels",))
    assert (report.format, report.classes, report.channels) == ("table", ("sea", "sky", "tree"), 3)
    assert [split.counts for split in report.splits] == [
        {"sea": 2, "sky": 1, "tree": 1},
        {"sea": 1, "sky": 1, "tree": 1},
    ]
    assert [split.images for split in report.splits] == [4, 2]
    assert report.unreadable_count == 1
    assert any("cut off" in problem.message for problem in report.problems)


def test_table_puts_rare_labels_into_both_parts(tmp_path: Path) -> None:
    names = [f"{number:02}" for number in range(40)]
    write_images(tmp_path, names)
    rows = "".join(f"{name}.png,{'common' if number > 3 else 'common;rare'}\n" for number, name in enumerate(names))
    (tmp_path / "labels.csv").write_text("file,labels\n" + rows)
    found = recognize(str(tmp_path), val_fraction=0.25, seed=0, kinds=("labels",))
    for split, count in ((found.train, 3), (found.val, 1)):
        assert isinstance(split, LabelSplit)
        assert split.labels.sum(0)[1] == count


def test_table_gives_the_loader_numbers(tmp_path: Path) -> None:
    write_images(tmp_path, NAMES[:5])
    (tmp_path / "labels.csv").write_text(FLAGS)
    splits = open_splits(str(tmp_path), val_fraction=0.4, seed=0, kinds=("labels",))
    for split in (splits.train, splits.val):
        for place, target in enumerate(split.targets.tolist()):
            assert target == [float(name in LABELS[Path(split.path(place)).stem]) for name in ("sea", "sky", "tree")]


def test_table_shows_half_a_character_by_its_number(tmp_path: Path) -> None:
    write(tmp_path, "labels.json", '{"a.png": ["\\ud800"], "b.png": ["sea"], "c.png": ["sea"]}')
    assert read_once(FORMAT, tmp_path, "labels").classes == ("sea", "\\ud800")


def test_table_too_large_for_csv_is_named(tmp_path: Path) -> None:
    for name in ("labels.csv", "more.csv"):
        write(tmp_path, name, "file,class\na.png,cat\nb.png,dog\n" + 'c.png,"' + "x" * 200_000 + '"\n')
    found = recognize(str(tmp_path), val_fraction=0.2, seed=0, kinds=("classes",))
    assert any("labels.csv" in problem.message for problem in found.problems)
    (detection,) = detections(tmp_path)
    assert (detection.confidence, len(detection.evidence)) == (Confidence.LIKELY, 2)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("train.txt", "a.png 0\nb.png 1 2\nc.png 0 2\nd.png 1\n"),
        ("labels.txt", "a.png 0 2\nb.png 1\nc.png\nd.png 0 1 2\n"),
        ("labels.csv", "a.png,0\nb.png,1,2\nc.png,0,2\nd.png,1\n"),
        ("labels.csv", "a.png,0,2\nb.png,1\nc.png,0,1,2\nd.png,1"),
        ("labels.tsv", "a.png\t0\t2\nb.png\t1\t\nc.png\t0\t1\t2\nd.png\t1\n"),
        ("labels.csv", "file,labels\na.png,0\nb.png,1,2\nc.png,0,2\nd.png,1\n"),
        ("labels.csv", "file,labels\na.png,0,,\nb.png,1,2,\nc.png,0,1,2\nd.png,1,,\n"),
    ],
)
def test_table_reads_lists_of_different_lengths(tmp_path: Path, name: str, text: str) -> None:
    folder = write_images(tmp_path, NAMES[:4])
    (folder / name).write_text(text)
    truth = {}
    for line in text.replace("\t", ",").replace(" ", ",").splitlines():
        file, *labels = line.split(",")
        truth[file.removesuffix(".png")] = {label for label in labels if label}
    truth.pop("file", None)
    (detection,) = detections(folder)
    assert detection.kinds[0] == "labels"
    found = read_once(FORMAT, folder, "labels")
    assert list_annotations(found) == truth
    assert found.classes == ("0", "1", "2")


@pytest.mark.parametrize(
    ("head", "row"),
    [
        ("MaskPath,ImageID,LabelName,BoxID", "masks/{name}.png,{name},{label},1"),
        ("image,mask,label", "{name}.png,{name}_mask.png,{label}"),
        ("id,mask_file,class", "{name},{name}.tif,{label}"),
    ],
)
def test_table_of_masks_is_no_table_of_labels(tmp_path: Path, head: str, row: str) -> None:
    rows = "".join(row.format(name=name, label="cat" if name in "ace" else "dog") + "\n" for name in NAMES)
    write_images(tmp_path / "masks")
    assert detections(write(tmp_path, "train.csv", f"{head}\n{rows}")) == []


def test_table_with_a_label_named_mask_is_read(tmp_path: Path) -> None:
    rows = "".join(f"{name}.png,{int(name in 'ace')},{int(name in 'ab')}\n" for name in NAMES)
    found = read_once(FORMAT, write(tmp_path, "labels.csv", f"file,mask,with_mask\n{rows}"), "labels")
    assert found.classes == ("mask", "with_mask")


def write_tables(folder: Path, **by_name: str) -> Path:
    """Write six images and some tables that label them with alternating classes.

    `by_name` maps the name of a table to the letters that name its images. The name of the label column may come
    before the letters, as in "tags:abc".
    """
    write_images(folder / "images")
    for name, value in by_name.items():
        head, _, letters = value.rpartition(":")
        rows = "".join(f"{letter}.png,{'xy'[NAMES.index(letter) % 2]}\n" for letter in letters)
        (folder / f"{name}.csv").write_text(f"file,{head or 'label'}\n{rows}")
    return folder


@pytest.mark.parametrize(
    ("by_name", "splits", "unused"),
    [
        ({"one": "abc", "two": "def"}, {"": 6}, []),
        ({"train": "abc", "val": "def", "all": "abcdef"}, {"train": 3, "val": 3}, ["all.csv"]),
        ({"train": "abc", "val": "def", "all": "class:abcdef"}, {"train": 3, "val": 3}, ["all.csv"]),
        ({"train": "abc", "val": "def", "a": "abcdef", "b": "abcdef"}, {"train": 3, "val": 3}, ["a.csv", "b.csv"]),
        (
            {"train_labels": "abc", "val_labels": "tags:de", "val_more": "class:f"},
            {"train": 3, "val": 2},
            ["val_more.csv"],
        ),
        ({"train": "abc", "more": "def"}, {"train": 3}, ["more.csv"]),
        ({"train_labels": "abc", "val_labels": "de", "val_more": "tags:def"}, {"train": 3, "val": 2}, ["val_more.csv"]),
        ({"train": "abc", "val": "de", "test": "tags:f"}, {"train": 3, "val": 2, "test": 1}, []),
        ({"train": "abc", "val": "de", "test": "site:f"}, {"train": 3, "val": 2}, ["test.csv"]),
    ],
)
def test_tables_of_different_splits_are_joined(
    tmp_path: Path, by_name: dict[str, str], splits: dict[str, int], unused: list[str]
) -> None:
    found = read_once(FORMAT, write_tables(tmp_path, **by_name), "classes")
    assert {name: len(split.files) for name, split in found.splits.items()} == splits
    assert [name for name in unused if name in messages(found)] == unused
    evidence = " ".join(detections(tmp_path)[0].evidence)
    assert {f"{name}.csv" for name in by_name if f"{name}.csv" in evidence} == {f"{name}.csv" for name in by_name} - {
        *unused
    }
    assert [name for name in by_name if name in messages(found).split(" not used: ")[-1] and not unused] == []


def test_table_that_is_broken_leaves_the_others(tmp_path: Path) -> None:
    folder = write_tables(tmp_path, train="abc", val="de", test="f")
    for name in ("val", "test"):
        with (folder / f"{name}.csv").open("a") as stream:
            stream.write('f.png,"' + "x" * 200_000 + '"\n')
    found = recognize(str(folder), val_fraction=0.2, seed=0, kinds=("classes",))
    assert [problem.message.split()[0] for problem in errors(found.problems)] == ["test.csv", "val.csv"]
    (detection,) = detections(folder)
    assert ["train.csv" in each for each in detection.evidence] == [True]


@pytest.mark.parametrize(
    ("head", "cells", "kinds", "confidence"),
    [
        ("label", "xyxyxy", ("classes", "labels"), Confidence.CERTAIN),
        ("color", "xyxyxy", ("classes", "labels"), Confidence.LIKELY),
        ("p,q", ("1,0", "0,1", "1,0", "0,1", "1,0", "0,1"), ("classes", "labels"), Confidence.CERTAIN),
        ("p,q", ("1,0", "0,1", "1,0", "0,1", "1,0", "0,0"), ("labels", "classes"), Confidence.CERTAIN),
        ("p,q", ("1,0", "0,1", "1,0", "0,1", "1,0", "1,1"), ("labels",), Confidence.CERTAIN),
        ("tags", ("x;y", "x", "y", "x", "y", "z"), ("labels",), Confidence.CERTAIN),
    ],
)
def test_table_distinguishes_classes_and_labels(
    tmp_path: Path, head: str, cells: Sequence[str], kinds: tuple[str, ...], confidence: Confidence
) -> None:
    rows = "".join(f"{name}.png,{cell}\n" for name, cell in zip(NAMES, cells, strict=True))
    (found,) = detections(write(tmp_path, "list.csv", f"file,{head}\n{rows}"))
    assert (found.kinds, found.confidence) == (kinds, confidence)
    assert any(each.isdigit() for each in found.evidence[0]) == (head != "tags")
    if kinds == ("labels", "classes"):
        content = read_once(FORMAT, tmp_path, "classes")
        assert ["1 image without a class: f.png" in each.message for each in content.problems] == [True]


def test_table_of_training_images_need_not_name_test_images(tmp_path: Path) -> None:
    write_images(tmp_path / "train_images", "abc")
    write_images(tmp_path / "test_images", [f"t{number}" for number in range(12)])
    (tmp_path / "train.csv").write_text("file,label\na.png,x\nb.png,y\nc.png,x\n")
    assert detections(tmp_path)[0].against == ()


def test_table_of_measures_of_other_images_is_passed_over(tmp_path: Path) -> None:
    assert detections(write(tmp_path, "scores.csv", "file,score\nx.png,0.37\ny.png,0.74\n")) == []


@pytest.mark.parametrize(("head", "cells"), [("label", ("sea", "sky")), ("sea,sky", ("1,0", "0,1"))])
def test_table_column_of_splits_outranks_the_folder(tmp_path: Path, head: str, cells: tuple[str, str]) -> None:
    write_images(tmp_path / "train")
    write_images(tmp_path / "val", "a")
    split = dict(zip(NAMES, ("val", "val", "train", "train", "train", ""), strict=True))
    rows = "".join(f"{name}.png,{split[name]},{cells[name in 'bcd']}\n" for name in NAMES)
    (tmp_path / "train_labels.csv").write_text(f"file,split,{head}\n{rows}")
    found = read_once(FORMAT, tmp_path, "classes")
    sea, sky = "sea", "sky"
    assert list_annotations_by_split(found) == {
        "train": {"c": sky, "d": sky, "e": sea, "f": sea},
        "val": {"a": sea, "b": sky},
    }
    assert [Path(path).parent.name for path in found.splits["val"].files] == ["train", "val"]
