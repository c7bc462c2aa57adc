"""PASCAL VOC's XML files, in the variants that tools and people write."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from engine.data.formats.format import Confidence, Content
from engine.data.formats.registry import recognize
from engine.data.formats.tree import Tree
from engine.data.formats.voc import FORMAT, _count_files_and_objects
from engine.data.splits import RecognizedDataset
from engine.system.regular_files import UnusableFile
from tests.support import boxed
from tests.support.boxed import ONE, TWO, draw, text
from tests.support.read_formats import join_problems, list_boxes_by_split

OBJECT = (
    "<object><name>cat</name>{}<bndbox><xmin>1</xmin><ymin>2</ymin><xmax>30</xmax><ymax>40</ymax></bndbox></object>"
)
CAT = ("cat", (1.0, 2.0, 30.0, 40.0))


def content_of(folder: Path) -> Content:
    tree = Tree(str(folder))
    (detection,) = FORMAT.detect(tree)
    return FORMAT.read(tree, detection, "boxes")


def one_split(content: Content) -> dict[str, list[tuple[str, tuple[float, ...]]]]:
    (rows,) = list_boxes_by_split(content).values()
    return rows  # type: ignore[return-value]


def write_folder(folder: Path, xml: dict[str, str], images: tuple[str, ...] = ()) -> Path:
    """Write XML files into Annotations, and images into JPEGImages.

    `xml` maps the stem of each XML file to its content, and `images` are the stems of the images, by default the same
    ones. Returns `folder`.
    """
    for name in images or tuple(xml):
        draw(folder / f"JPEGImages/{name}.png", TWO)
    for name, content in xml.items():
        text(folder / f"Annotations/{name}.xml", f"<annotation>{content}</annotation>")
    return folder


def recognize_folder(folder: Path) -> RecognizedDataset:
    return recognize(str(folder), val_fraction=0.25, seed=0, kinds=("boxes",))


@pytest.mark.parametrize(
    ("difficult", "is_ignored"),
    [("1", True), (" 1 ", True), ("true", True), ("True", True)]
    + [(text, False) for text in ("Unspecified", "0", "", "no", "maybe")],
)
def test_voc_ignores_difficult_objects(tmp_path: Path, difficult: str, is_ignored: bool) -> None:
    content = content_of(write_folder(tmp_path, {"a": OBJECT.format(f"<difficult>{difficult}</difficult>")}))
    assert [box.ignored for box in content.splits[""][0].boxes] == [is_ignored]
    assert content.problems == []


@pytest.mark.parametrize(
    ("size", "expected"),
    [
        ("<size><width>80</width><height>60</height></size>", (60, 80)),
        ("<size><width>80.0</width><height>60.0</height></size>", (60, 80)),
        ("<size><width>0</width><height>0</height></size>", None),
        ("<size><width>1e999</width><height>60</height></size>", None),
        ("<imagesize><nrows>60</nrows><ncols>80</ncols></imagesize>", (60, 80)),
        ("<size/>", None),
        (f"<size><width>{10**20}</width><height>60</height></size>", None),
        ("", None),
    ],
)
def test_voc_gives_the_size_in_the_xml(tmp_path: Path, size: str, expected: tuple[int, int] | None) -> None:
    content = content_of(write_folder(tmp_path, {"a": size + OBJECT.format("")}))
    assert content.splits[""][0].size == expected
    assert content.problems == []


@pytest.mark.parametrize(
    ("bad", "phrase"),
    [
        ("<object><name>cat</name><bndbox><xmin>ten</xmin></bndbox></object>", "xmin is ten"),
        ("<object><name>cat</name><bndbox><xmin>nan</xmin></bndbox></object>", "xmin is nan"),
        ("<object><name>cat</name><bndbox><xmin>1</xmin><ymin/></bndbox></object>", "ymin is missing"),
        ("<object><name>cat</name></object>", "without a box"),
        ("<object><name> </name><bndbox/></object>", "without a name"),
        ("<object><name>cat</name><polygon><pt><x>1</x><y>2</y></pt></polygon></object>", "no three points"),
    ],
)
def test_voc_loses_one_object_to_one_fault(tmp_path: Path, bad: str, phrase: str) -> None:
    content = content_of(write_folder(tmp_path, {"a": bad + OBJECT.format(""), "b": OBJECT.format("")}))
    assert one_split(content) == {"a": [CAT], "b": [CAT]}
    (problem,) = content.problems
    assert (problem.severity, "There is 1 object" in problem.message) == ("warning", True)
    assert "a.xml" in problem.message
    assert phrase in problem.message


@pytest.mark.parametrize(
    "broken", ["<annotation><object>", '<?xml version="1.0" encoding="klingon"?><annotation/>', "<other/>", ""]
)
def test_voc_loses_one_image_to_a_broken_file(tmp_path: Path, broken: str) -> None:
    write_folder(tmp_path, {"a": "", "b": OBJECT.format(""), "c": OBJECT.format("")})
    text(tmp_path / "Annotations/a.xml", broken)
    content = content_of(tmp_path)
    assert list(one_split(content)) == ["b", "c"]
    (problem,) = content.problems
    assert "1 annotation that can't be read (a.xml: " in problem.message


def test_voc_prefers_the_image_with_the_name_of_the_file(tmp_path: Path) -> None:
    stale = f"<filename>b.png</filename>{OBJECT.format('')}"
    content = content_of(write_folder(tmp_path, {"a": stale, "b": "", "0": stale}, ("a", "b")))
    assert one_split(content) == {"a": [CAT], "b": []}
    assert "1 annotation that names another image: a.xml" in join_problems(content)
    assert "1 annotation without an image: 0.xml" in join_problems(content)


def test_voc_filename_chooses_among_images_of_one_name(tmp_path: Path) -> None:
    for stem, name in (("a", "a.png"), ("b", "b.jpg"), ("c", "c.gif")):
        write_folder(tmp_path, {stem: f"<filename> {name} </filename>{OBJECT.format('')}"})
        draw(tmp_path / f"JPEGImages/{stem}.jpg", TWO)
    content = content_of(tmp_path)
    assert [Path(each.path).name for each in content.splits[""]] == ["a.png", "b.jpg", "c.jpg"]
    assert "3 images without an annotation: a.jpg, b.png, c.png" in join_problems(content)


def test_voc_keeps_equal_names_of_mirrored_folders_apart(tmp_path: Path) -> None:
    for folder, left in (("cam1", 1), ("cam2", 5), ("cam 3/night", 9)):
        draw(tmp_path / f"annotations/images/{folder}/0001.png", TWO)
        content = OBJECT.format("").replace("<xmin>1<", f"<xmin>{left}<")
        text(tmp_path / f"annotations/annotations/{folder}/0001.xml", f"<annotation>{content}</annotation>")
    lefts = {Path(each.path).parent.name: each.boxes[0].left for each in content_of(tmp_path).splits[""]}
    assert lefts == {"cam1": 1, "cam2": 5, "night": 9}


def test_voc_reads_several_folders_of_annotations(tmp_path: Path) -> None:
    for year, split in (("VOC2007", "train"), ("VOC2012", "train"), ("VOC2012", "val")):
        stem = f"{year}_{split}"
        write_folder(tmp_path / year, {stem: OBJECT.format("")})
        text(tmp_path / year / f"ImageSets/Main/{split}.txt", stem)
    text(tmp_path / "VOC2012/ImageSets/Main/cat_train.txt", "VOC2012_train  1\nVOC2012_val -1\n")
    content = content_of(tmp_path)
    assert {split: list(rows) for split, rows in list_boxes_by_split(content).items()} == {
        "train": ["VOC2007_train", "VOC2012_train"],
        "val": ["VOC2012_val"],
    }
    assert content.problems == []


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ("a\nb c\n", ["a", "b c"]),
        ("a  1\nb c -1\n", ["a", "b c"]),
        ("b c\na\nb c\n", ["a", "b c"]),
        ("JPEGImages\\a.png Annotations/a.xml\nd.1\n", ["a"]),
        ("\ufeff./b c.png\r\na.XML", ["a", "b c"]),
    ],
)
def test_voc_reads_lists_of_names(tmp_path: Path, lines: str, expected: list[str]) -> None:
    write_folder(tmp_path, {"a": OBJECT.format(""), "b c": OBJECT.format(""), "d": OBJECT.format("")})
    text(tmp_path / "ImageSets/Main/train.txt", lines)
    content = content_of(tmp_path)
    assert list(list_boxes_by_split(content)["train"]) == expected
    assert f"{3 - len(expected)} annotation" in join_problems(content)
    assert "in no list of a split" in join_problems(content)


def test_voc_reads_all_files_of_a_listed_name(tmp_path: Path) -> None:
    write_folder(tmp_path, {"x/a": OBJECT.format(""), "y/a": OBJECT.format("")})
    text(tmp_path / "ImageSets/Main/train.txt", "a\n")
    assert [Path(each.path).parent.name for each in content_of(tmp_path).splits["train"]] == ["x", "y"]


def test_voc_reports_listed_names_without_a_file(tmp_path: Path) -> None:
    write_folder(tmp_path, {"a": OBJECT.format("")})
    text(tmp_path / "ImageSets/Main/train.txt", "a\nz\n")
    assert "1 image named in a list but without an annotation: z" in join_problems(content_of(tmp_path))


def test_voc_takes_no_mask_for_an_image(tmp_path: Path) -> None:
    named = f"<filename>c.png</filename>{OBJECT.format('')}"
    write_folder(tmp_path, {"a": OBJECT.format(""), "b": OBJECT.format(""), "d": named}, ("a", "c"))
    for name in ("b", "d"):
        draw(tmp_path / f"SegmentationClass/{name}.png", TWO)
    content = content_of(tmp_path)
    assert list(one_split(content)) == ["a", "c"]
    assert "1 annotation without an image: b.xml" in join_problems(content)


def test_voc_detection_needs_boxes_in_files_of_this_format(tmp_path: Path) -> None:
    text(tmp_path / "gdal/images/a.tif.aux.xml", "<PAMDataset/>")
    text(tmp_path / "tags/a.xml", "<annotation><object><name>cat</name></object></annotation>")
    text(tmp_path / "cvat/annotations.xml", "<annotations><version>1.1</version></annotations>")
    text(tmp_path / "broken/a.xml", "<annotation>")
    for name in ("gdal", "tags", "cvat", "broken"):
        assert FORMAT.detect(Tree(str(tmp_path / name))) == []


def test_voc_survey_refuses_a_special_file_only_without_others(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "broken.xml")
    text(tmp_path / "other.xml", "<project/>")
    tree = Tree(str(tmp_path))
    assert _count_files_and_objects(tree, ["broken.xml", "other.xml"]) == (0, 1, 0, 0)
    with pytest.raises(UnusableFile, match="FIFO"):
        _count_files_and_objects(tree, ["broken.xml"])


def test_voc_detection_reads_several_files(tmp_path: Path) -> None:
    backgrounds = {f"a{number:03}": "" for number in range(60)}
    write_folder(tmp_path / "backgrounds", {**backgrounds, "b": OBJECT.format("")})
    write_folder(tmp_path / "first_broken", {"a": "", "b": OBJECT.format(""), "c": OBJECT.format("")})
    text(tmp_path / "first_broken/Annotations/a.xml", "<oops")
    write_folder(tmp_path / "others", {"b": OBJECT.format(""), "c": OBJECT.format("")})
    text(tmp_path / "others/Annotations/a.xml", "<project/>")
    for name, count in (("backgrounds", 61), ("first_broken", 3), ("others", 3)):
        (detection,) = FORMAT.detect(Tree(str(tmp_path / name)))
        assert detection.evidence == (f"{count} XML files in VOC's format",)
        assert detection.confidence == Confidence.CERTAIN
        assert not detection.against


def test_voc_detection_doubts_files_of_mixed_formats(tmp_path: Path) -> None:
    write_folder(tmp_path, {"a": OBJECT.format("")})
    found = []
    for number in range(2):
        text(tmp_path / f"Annotations/x{number}.xml", "<project/>")
        found += FORMAT.detect(Tree(str(tmp_path)))
    assert [each.confidence for each in found] == [Confidence.CERTAIN, Confidence.LIKELY]
    assert [each.against for each in found] == [(), ("2 of 3 XML files of another format",)]


def test_voc_classes_of_arcgis_have_its_names_and_order(tmp_path: Path) -> None:
    images = {f"{number:09d}": TWO if number % 2 else ONE for number in range(8)}
    recognized = recognize_folder(boxed.arcgis_voc(tmp_path, images))
    assert (recognized.classes, recognized.problems, recognized.format) == (("cat", "dog"), (), "voc")
    assert one_split(content_of(tmp_path))["000000001"][0] == ("dog", (8.0, 4.0, 40.0, 28.0))


def cats(*names: str) -> dict[str, str]:
    return dict.fromkeys(names, OBJECT.format(""))


@pytest.mark.parametrize(
    ("lists", "expected"),
    [
        ({"ImageSets/Main/train": "a", "ImageSets/Main/trainval": "a\nb"}, {"train": ["a"]}),
        ({"ImageSets/Main/train": "a\nb", "ImageSets/Main/val": "b"}, {"train": ["a", "b"], "val": ["b"]}),
        ({"ImageSets/Main/train": "x", "ImageSets/Train": "a"}, {"train": ["a"]}),
        ({"ImageSets/trainval": "a\nb", "ImageSets/val": "b"}, {"train": ["a"], "val": ["b"]}),
        ({"train": "a\nx\ny", "val": "b"}, {"val": ["b"]}),
        ({"train": "a\nx", "val": "b"}, {"val": ["b"]}),
        ({"train": "a\nb\nx", "val": "c"}, {"train": ["a", "b"], "val": ["c"]}),
        ({"notes": "a"}, {"": ["a", "b", "c"]}),
    ],
)
def test_voc_uses_lists_that_name_images(tmp_path: Path, lists: dict[str, str], expected: dict[str, list[str]]) -> None:
    write_folder(tmp_path, cats("a", "b", "c"))
    for name, lines in lists.items():
        text(tmp_path / f"{name}.txt", lines)
    assert {split: sorted(rows) for split, rows in list_boxes_by_split(content_of(tmp_path)).items()} == expected


def test_voc_reports_unlisted_files_of_every_folder(tmp_path: Path) -> None:
    for base in ("x", "y"):
        write_folder(tmp_path / base, cats(f"{base}1", f"{base}2"))
        text(tmp_path / base / "ImageSets/Main/train.txt", f"{base}1")
    assert "2 annotations in no list of a split: x2.xml, y2.xml" in join_problems(content_of(tmp_path))


def test_voc_takes_splits_from_the_folders_of_images(tmp_path: Path) -> None:
    for name, split in (("a", "train"), ("b", "val")):
        draw(tmp_path / f"images/{split}/{name}.png", TWO)
        text(tmp_path / f"Annotations/{name}.xml", f"<annotation>{OBJECT.format('')}</annotation>")
    assert list_boxes_by_split(content_of(tmp_path)) == {"train": {"a": [CAT]}, "val": {"b": [CAT]}}


def test_voc_prefers_the_image_next_to_the_file(tmp_path: Path) -> None:
    for folder in ("Annotations", "other"):
        draw(tmp_path / f"{folder}/a.png", TWO)
    text(tmp_path / "Annotations/a.xml", f"<annotation>{OBJECT.format('')}</annotation>")
    (image,) = content_of(tmp_path).splits[""]
    assert image.path == str(tmp_path / "Annotations/a.png")


POINTS = "<pt><x>{}</x><y>2</y></pt><pt><x>9</x><y>{}</y></pt><pt><x>5</x><y>8</y></pt>"


@pytest.mark.parametrize(
    ("inner", "boxes", "faults"),
    [
        (f"<polygon>{POINTS.format(1, 3)}</polygon>", [(1, 2, 9, 8)], 0),
        (f"<polygon>{POINTS.format('', 3)}</polygon>", [], 1),
        (f"<polygon>{POINTS.format(1, 'x')}</polygon>", [], 1),
        ("<polygon><x1>1</x1><y1>2</y1><x2>9</x2><y2>3</y2></polygon>", [], 1),
        ("<polygon><x1>1</x1><y1>2</y1><x2>9</x2><y2>3</y2><x3>5</x3></polygon>", [], 1),
        (f"<bndbox><xmin>1</xmin><ymin>2</ymin><xmax>3</xmax><ymax>4</ymax></bndbox><polygon>{POINTS.format(1, 3)}</polygon>",
         [(1, 2, 3, 4)], 0),
        ("<bndbox><xmin>1</xmin><ymin>2</ymin><xmax>3</xmax><ymax>4</ymax></bndbox>" * 2, [(1, 2, 3, 4)] * 2, 0),
        (f"<deleted>true</deleted><polygon>{POINTS.format(1, 3)}</polygon>", [], 0),
        (f"<deleted>0</deleted><polygon>{POINTS.format(1, 3)}</polygon>", [(1, 2, 9, 8)], 0),
    ],
)  # fmt: skip
def test_voc_polygons_have_a_bounding_box(
    tmp_path: Path, inner: str, boxes: list[tuple[int, ...]], faults: int
) -> None:
    content = content_of(
        write_folder(tmp_path, {"a": f"<object><name>cat</name>{inner}</object>", "b": OBJECT.format("")})
    )
    assert list_boxes_by_split(content) == {"": {"a": [("cat", box) for box in boxes], "b": [CAT]}}
    assert len(content.problems) == faults


@pytest.mark.parametrize(
    ("names", "classes"), [("1", ("oak", "cat")), ("elm", ("cat", "elm")), ("1 elm", ("1", "cat", "elm"))]
)
def test_voc_of_arcgis_needs_its_names(tmp_path: Path, names: str, classes: tuple[str, ...]) -> None:
    write_folder(tmp_path, {name: OBJECT.format("").replace("cat", name) for name in ("cat", *names.split())})
    text(
        tmp_path / "esri_model_definition.emd",
        '{"Classes": [{"Value": 1, "Name": "oak"}, {"Value": 2, "Name": "cat"}]}',
    )
    assert content_of(tmp_path).classes == classes


@pytest.mark.parametrize(
    ("objects", "confidence"),
    [
        ("", Confidence.LIKELY),
        (OBJECT.format(""), Confidence.CERTAIN),
        ("<object><name>cat</name><polygon/></object>", Confidence.CERTAIN),
        ("<object><name>cat</name><segm><box/></segm></object>", Confidence.CERTAIN),
    ],
)
def test_voc_is_certain_with_boxes(tmp_path: Path, objects: str, confidence: Confidence) -> None:
    (detection,) = FORMAT.detect(Tree(str(write_folder(tmp_path, {"a": objects, "b": ""}))))
    assert detection.confidence is confidence
