"""CSV tables of boxes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from engine.data.formats.csv_boxes import FORMAT
from engine.data.formats.format import Confidence, Content, Detection
from engine.data.formats.registry import recognize
from engine.data.formats.shared.boxes import BoxSplit
from engine.data.formats.tree import Tree
from tests.support.dataset_formats import csv_boxes
from tests.support.dataset_formats.truth import TRUTH
from tests.support.read_formats import list_annotations, list_annotations_by_split, read_once

HEAD = "filename,width,height,class,xmin,ymin,xmax,ymax\n"


def write(folder: Path, name: str, text: str) -> Path:
    """Write images/a.png, b.png and c.png of 60 x 40 pixels, and the table `text` to the file `name`. Return `folder`."""
    (folder / "images").mkdir(parents=True, exist_ok=True)
    for number, image in enumerate("abc"):
        pixels = np.random.default_rng(number).integers(0, 256, (40, 60, 3), np.uint8)
        Image.fromarray(pixels).save(folder / "images" / f"{image}.png")
    (folder / name).write_text(text)
    return folder


def detections(folder: Path) -> Sequence[Detection]:
    return FORMAT.detect(Tree(str(folder)))


def messages(found: Content) -> str:
    return "\n".join(problem.message for problem in found.problems)


def test_csv_boxes_without_classes_have_one(tmp_path: Path) -> None:
    csv_boxes.write(TRUTH, tmp_path, csv_boxes.ONE_CLASS)
    found = read_once(FORMAT, tmp_path, "boxes")
    assert found.classes == ("object",)
    assert list_annotations(found) == {
        image.name: [("object", each.box) for each in image.objects] for image in TRUTH.images
    }


@pytest.mark.parametrize(
    ("boxes", "forms"),
    [
        (["[51, 1, 10, 40]", "[2, 2, 20, 20]", "[1, 1, 5, 5]"], ["xywh"]),  # no corner is left of the other
        (["[30, 20, 61, 41]", "[2, 2, 20, 20]", "[1, 1, 5, 5]"], ["xyxy"]),  # 30 + 61 is beyond the image
        (["[2, 20, 20, 39]", "[2, 2, 20, 20]", "[1, 1, 5, 5]"], ["xyxy"]),  # 20 + 39 is beyond the image
        (["[2, 2, 20, 20]", "[1, 1, 5, 5]", "[3, 3, 9, 9]"], ["xywh", "xyxy"]),
        (["[2, 2, 20, 45]", "[2, 2, 20, 20]", "[1, 1, 5, 5]"], ["xywh", "xyxy"]),  # beyond the image in any order
    ],
)
def test_csv_boxes_in_one_cell_are_asked_about(tmp_path: Path, boxes: list[str], forms: list[str]) -> None:
    rows = "".join(f'{name},"{box}"\n' for name, box in zip("abc", boxes, strict=True))
    found = detections(write(tmp_path, "train.csv", "image_id,bbox\n" + rows))
    assert [each.source.form for each in found] == forms
    assert [each.variant for each in found] == (forms if len(forms) > 1 else [""])
    result = recognize(str(tmp_path), val_fraction=0.4, seed=0, kinds=("boxes",))
    assert (result.train is None) == (len(forms) > 1)


def test_csv_boxes_of_another_table_decide_the_order(tmp_path: Path) -> None:
    folder = write(tmp_path, "train.csv", 'image_id,bbox\na,"[2, 2, 20, 20]"\n')
    (folder / "val.csv").write_text('image_id,width,height,bbox\nb,60,40,"[30, 20, 59, 39]"\n')
    assert [each.source.form for each in detections(folder)] == ["xyxy"]


@pytest.mark.parametrize(
    ("row", "place"),
    [("b.png,60,40,dog,1,,5,6", "row 3"), ("b.png,60,40,dog,1,two,5,6", "row 3"), ("b.png,60,40,,1,2,5,6", "row 3")],
)
def test_csv_boxes_names_the_row_of_a_fault(tmp_path: Path, row: str, place: str) -> None:
    text = f"{HEAD}a.png,60,40,cat,1,2,30,20\n{row}\nb.png,60,40,dog,5,6,7,8\n"
    found = read_once(FORMAT, write(tmp_path, "boxes.csv", text), "boxes")
    assert list_annotations(found) == {"a": [("cat", (1, 2, 30, 20))], "b": [("dog", (5, 6, 7, 8))]}
    assert f"boxes.csv, {place}" in messages(found)


def test_deleted_table_of_boxes_is_reported(tmp_path: Path) -> None:
    for name in ("boxes.csv", "more.csv"):
        tree = Tree(str(write(tmp_path, name, f"{HEAD}a.png,60,40,cat,1,2,30,20\n")))
    (detection,) = FORMAT.detect(tree)
    for name in ("boxes.csv", "more.csv"):
        (tmp_path / name).unlink()
    found = messages(FORMAT.read(tree, detection, "boxes"))
    assert "boxes.csv can't be read" in found
    assert "more.csv can't be read" in found
    assert "No image that the tables of boxes name" in found


def test_csv_boxes_without_a_header_count_rows_from_1(tmp_path: Path) -> None:
    text = "a.png,1,2,3,4,cat\nb.png,1,x,3,4,dog\nc.png,1,2,3,4,cat\n"
    assert "boxes.csv, row 2" in messages(read_once(FORMAT, write(tmp_path, "boxes.csv", text), "boxes"))


def test_csv_boxes_of_splits_may_have_other_columns(tmp_path: Path) -> None:
    folder = write(tmp_path, "train.csv", "file,class,x1,y1,x2,y2\na.png,cat,1,2,3,4\n")
    (folder / "val.csv").write_text("file,class,x,y,w,h,split\nb.png,cat,1,2,3,4,\nc.png,cat,1,2,3,4,test\n")
    assert list_annotations_by_split(read_once(FORMAT, folder, "boxes")) == {
        "train": {"a": [("cat", (1, 2, 3, 4))]},
        "val": {"b": [("cat", (1, 2, 4, 6))]},
        "test": {"c": [("cat", (1, 2, 4, 6))]},
    }


def test_csv_boxes_groups_of_open_images_are_ignored(tmp_path: Path) -> None:
    text = "ImageID,LabelName,XMin,XMax,YMin,YMax,IsGroupOf\na,cat,0.1,0.5,0.25,0.75,1\nb,cat,0.1,0.5,0.25,0.75,0\n"
    write(tmp_path, "train-annotations-bbox.csv", text)
    found = recognize(str(tmp_path), val_fraction=0, seed=0, kinds=("boxes",))
    assert isinstance(found.train, BoxSplit)
    assert found.train.ignored.tolist() == [True, False]
    assert found.train.boxes.tolist() == [[6, 10, 30, 30]] * 2


def test_csv_boxes_never_confuses_images_of_one_name(tmp_path: Path) -> None:
    for site in ("x", "y"):
        write(tmp_path / site, "notes.txt", "")
    text = HEAD + "x/images/a.png,60,40,cat,1,2,30,20\ny/images/a.png,60,40,dog,1,2,9,9\nb.png,60,40,cow,1,2,9,9\n"
    (tmp_path / "boxes.csv").write_text(text)
    found = read_once(FORMAT, tmp_path, "boxes")
    paths = {Path(image.path).relative_to(tmp_path).as_posix(): image.boxes[0].right for image in found.splits[""]}
    assert paths == {"x/images/a.png": 30, "y/images/a.png": 9}
    assert "may mean several images: b.png" in messages(found)
    assert "can't be found" not in messages(found)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("labels.csv", "file,class\na.png,cat\nb.png,dog\n"),
        ("boxes.csv", HEAD + "x.png,60,40,cat,1,2,3,4\n"),
        ("empty.csv", HEAD),
        ("words.csv", HEAD + "a.png,60,40,cat,one,two,three,four\n"),
        ("sizes.csv", "file,width,height\na.png,60,40\n"),
        ("words.csv", "a.png,1,2,3,4,cat\nb.png,,,,,dog\n"),
        ("words.csv", "a.png,1,2,3,4,cat\nb.png,1,2,3,4,\n"),
        ("words.csv", "a.png,1,2,3,4,cat,x\nb.png,1,2,3,4,dog,y\n"),
    ],
)
def test_csv_boxes_leaves_other_files_to_others(tmp_path: Path, name: str, text: str) -> None:
    assert detections(write(tmp_path, name, text)) == []


@pytest.mark.parametrize(
    "last", ["b.png,60,40,cat,5,6,7,8", "b.png,60,40,cat,5,6,7,9", "b.png,60,40,cat,5,6", "b.png,60,40,ca"]
)
def test_csv_boxes_leave_out_a_line_that_is_cut_off(tmp_path: Path, last: str) -> None:
    text = f"{HEAD}a.png,60,40,cat,1,2,30,20\nb.png,60,40,dog,1,2,9,9\n{last}"
    found = read_once(FORMAT, write(tmp_path, "boxes.csv", text), "boxes")
    assert list_annotations(found) == {"a": [("cat", (1, 2, 30, 20))]}
    assert "seems to be cut off" in messages(found)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("filename,name,xmin,ymin,xmax,ymax,class\na.png,x,1,2,3,4,cat\n", {"a": [("cat", (1, 2, 3, 4))]}),
        ("filename,xmin,ymin,xmax,ymax,name\na.png,1,2,3,4,cat\n", {"a": [("cat", (1, 2, 3, 4))]}),
        ("name,width,xmin,ymin,xmax,ymax\na.png,60,1,2,3,4\n", {"a": [("object", (1, 2, 3, 4))]}),
        ("file;class;xmin;ymin;xmax;ymax\na.png;cat;1,5;2;3;4\n", {"a": [("cat", (1.5, 2, 3, 4))]}),
        ("file,class,cx,cy,w,h\na.png,cat,10,20,6,8\n", {"a": [("cat", (7, 16, 13, 24))]}),
        ("file,class,x,y,width,height\na.png,cat,10,20,6,8\n", {"a": [("cat", (10, 20, 16, 28))]}),
        ("file,class,x1,y1,x2,y2\na.png,cat,0,0,1,1\n", {"a": [("cat", (0, 0, 1, 1))]}),
        ("file,class,x1,y1,x2,y2\na.png,cat,0,0,0.5,1\n", {"a": [("cat", (0, 0, 30, 40))]}),
        ("file,class,x1,y1,x2,y2\na.png,cat,0,0,0.5,1.01\n", {"a": [("cat", (0, 0, 30, 40.4))]}),
        ("file,x1,y1,x2,y2,class\na.png,1,2,3,4,1.0\nb.png,1,2,3,4,2\nc.png,1,2,3,4,1",
         {"a": [("1", (1, 2, 3, 4))], "b": [("2", (1, 2, 3, 4))], "c": [("1", (1, 2, 3, 4))]}),
        ("file,label,class_name,x1,y1,x2,y2\na.png,-1,cat,1,2,3,4\nb.png,1.5,7,1,2,3,4\n",
         {"a": [("cat", (1, 2, 3, 4))], "b": [("7", (1, 2, 3, 4))]}),
        ("a.png,1,2,3,4,cat\nb.png,,,,,\nc.png,x,y,z,w,dog\n", {"a": [("cat", (1, 2, 3, 4))], "b": [], "c": []}),
        ("file,boxes_string\na.png,1 2 3 4; 5 6 7 8\nb.png,no_box\nc.png,?\n",
         {"a": [("object", (1, 2, 3, 4)), ("object", (5, 6, 7, 8))], "b": [], "c": []}),
        ("file,boxes_string\na.png,1 2 3 4\nb.png,1 2 x 3 4\nc.png,[]\n",
         {"a": [("object", (1, 2, 3, 4))], "b": [], "c": []}),
        ("file,boxes_string\na.png,1 2 3 4\nb.png,1 2 3 4 5\n", {"a": [("object", (1, 2, 3, 4))], "b": []}),
    ],
)  # fmt: skip
def test_csv_boxes_are_read_from_any_columns(tmp_path: Path, text: str, found: object) -> None:
    content = read_once(FORMAT, write(tmp_path, "boxes.csv", text), "boxes")
    assert list_annotations(content) == found
    assert {image.size for image in content.splits[""]} == {None}
    assert ("1 box without" in messages(content)) == any(each in text for each in ("z,w", "?", "2 x", "4 5"))


@pytest.mark.parametrize(
    ("listed", "classes"),
    [
        ("cat,10\ndog,9\n", ("dog", "cat")),
        ("cat,10\n", ("cat", "dog")),
        ("hen,Henne\ncat,Katze\ndog,Hund\n", ("Hund", "Katze")),
    ],
)
def test_csv_boxes_are_named_by_a_list_of_all_classes(tmp_path: Path, listed: str, classes: tuple[str, ...]) -> None:
    text = HEAD + "a.png,60,40,cat,1,2,3,4\nb.png,60,40,dog,1,2,3,4\n"
    (write(tmp_path, "boxes.csv", text) / "images/Class_list.csv").write_text(listed)
    content = read_once(FORMAT, tmp_path, "boxes")
    assert content.classes == classes
    assert [image.size for image in content.splits[""]] == [(40, 60)] * 2
    (tmp_path / "boxes.csv").write_text(text.replace("cat", "10").replace("dog", "9"))
    assert read_once(FORMAT, tmp_path, "boxes").classes == ("9", "10")


def test_csv_boxes_of_other_columns_are_not_used(tmp_path: Path) -> None:
    folder = write(tmp_path, "a.csv", HEAD + "a.png,60,40,cat,1,2,3,4\nx.png,60,40,cat,1,2,3,4\n")
    (folder / "b.csv").write_text(
        "file,class,x1,y1,x2,y2\nb.png,cat,1,2,3,4\n" + "".join(f"x{n}.png,cat,1,2,3,4\n" for n in range(5))
    )
    (detection,) = detections(folder)
    assert (detection.confidence, detection.against) == (Confidence.CERTAIN, ())
    content = read_once(FORMAT, folder, "boxes")
    assert list(list_annotations(content)) == ["a"]
    assert "not used: b.csv" in messages(content)


@pytest.mark.parametrize(
    ("flag", "is_ignored"), [("1", True), ("1.0", True), ("True", True), ("no", False), ("", False)]
)
def test_csv_boxes_are_ignored_by_a_flag(tmp_path: Path, flag: str, is_ignored: bool) -> None:
    text = f"file,class,x1,y1,x2,y2,iscrowd\na.png,cat,1,2,3,4,{flag}\n"
    (image,) = read_once(FORMAT, write(tmp_path, "boxes.csv", text), "boxes").splits[""]
    assert [box.ignored for box in image.boxes] == [is_ignored]
