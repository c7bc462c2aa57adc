"""CVAT's XML files for images."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from engine.contract.problems import errors
from engine.data.formats.cvat import FORMAT
from engine.data.formats.format import Confidence
from engine.data.formats.registry import recognize
from engine.data.formats.tree import Tree
from tests.support import read_formats
from tests.support.boxed import TWO, draw, text
from tests.support.read_formats import join_problems, list_boxes_by_split, list_instances_by_split
from tests.support.round_trip import list_rows

BOX = '<box label="cat" xtl="1" ytl="2" xbr="11" ybr="12" occluded="0"/>'
CAT = ("cat", (1.0, 2.0, 11.0, 12.0))


def image(shapes: str = "", name: str = "a.png", more: str = "") -> str:
    return f'<image id="0" name="{name}" width="80" height="60" {more}>{shapes}</image>'


def put(path: Path, *images: str, meta: str = "") -> Path:
    return text(path, f"<annotations><version>1.1</version><meta>{meta}</meta>{''.join(images)}</annotations>")


read_once = partial(read_formats.read_once, FORMAT)


@pytest.mark.parametrize(
    ("bad", "phrase"),
    [
        ('<polyline label="cat" points="1,2;3,4"/>', "drawn as polyline"),
        ('<points label="cat" points="1,2"/>', "drawn as points"),
        ('<cuboid label="cat" xtl1="1"/>', "drawn as cuboid"),
        ('<skeleton label="cat"><points label="eye"/></skeleton>', "drawn as skeleton"),
        ('<spiral label="cat"/>', "of an unknown shape"),
        ('<box label="" xtl="1"/>', "without a label"),
        ('<box label="cat" xtl="1" ytl="x" xbr="3" ybr="4"/>', "ytl is x"),
        ('<box label="cat" xtl="1"/>', "ytl is missing"),
        ('<polygon label="cat" points="1,2;3,4"/>', "it has 2 points"),
        ('<polygon label="cat" points="1,2;3;4,5"/>', "not pairs of numbers"),
        ('<mask label="cat" rle="5, 5" left="0" top="0" width="3" height="3"/>', "do not fill"),
        ('<mask label="cat" rle="9" left="0" top="0" width="3" height="3"/>', "it is empty"),
        ('<mask label="cat" rle="1" left="0" top="0" width="99999999" height="99999999"/>', "the image 80 x 60"),
        ('<mask label="cat" rle="0, 61" left="0" top="0" width="1" height="61"/>', "the image 80 x 60"),
        ('<mask label="cat" rle="a" left="0" top="0" width="3" height="3"/>', "rle"),
    ],
)
def test_cvat_loses_one_object_to_one_fault(tmp_path: Path, bad: str, phrase: str) -> None:
    draw(tmp_path / "images/a.png", TWO)
    draw(tmp_path / "images/b.png", TWO)
    put(tmp_path / "annotations.xml", image(bad + BOX), image(BOX, "b.png"))
    content = read_once(tmp_path)
    assert list_boxes_by_split(content)[""] == {"a": [CAT], "b": [CAT]}
    (problem,) = content.problems
    assert "There is 1 object" in problem.message
    assert "a.png" in problem.message
    assert phrase in problem.message


def test_cvat_shapes_keep_their_rotation(tmp_path: Path) -> None:
    draw(tmp_path / "a.png", TWO)
    turned = '<box label="cat" xtl="10" ytl="10" xbr="30" ybr="20" rotation="90"/>'
    oval = '<ellipse label=" cat " cx="40" cy="30" rx="20" ry="5" rotation="90"/>'
    put(tmp_path / "annotations.xml", image(turned + oval + '<polygon label="cat" points="1,2;11,2;11,12;1,12"/>'))
    expected = [("cat", (15.0, 5.0, 25.0, 25.0)), ("cat", (35.0, 10.0, 45.0, 50.0)), CAT]
    assert list_boxes_by_split(read_once(tmp_path))[""]["a"] == expected
    assert list_rows(read_once(tmp_path, "instances"), "instances")[""]["a"] == sorted(expected)


TASKS = (
    "<project><tasks><task><id>1</id><subset>Train</subset></task>"
    "<task><id>2</id><subset>Validation</subset></task></tasks></project>"
)


def test_cvat_mask_is_read_row_by_row_from_its_corner(tmp_path: Path) -> None:
    draw(tmp_path / "a.png", TWO)
    mask = '<mask label="cat" rle="1, 2, 3" left="10" top="20" width="3" height="2"/>'
    wide = '<mask label="cat" rle="0, 80" left="0" top="59" width="80" height="1"/>'
    draw(tmp_path / "b.png", TWO)
    put(tmp_path / "annotations.xml", image(mask + wide), f'<image id="1" name="b.png">{mask}</image>')
    expected = [("cat", (11, 20, 13, 21)), ("cat", (0, 59, 80, 60))]
    content = read_once(tmp_path, "instances")
    assert list_instances_by_split(content)[""] == {"a": expected, "b": []}
    assert "the size of its image is unknown" in join_problems(content)


@pytest.mark.parametrize(
    ("xml", "more", "meta", "image_at"),
    [
        ("annotations.xml", 'subset="Validation"', "", "images/Validation/a.png"),
        ("annotations.xml", 'subset="val"', "", "images/a.png"),
        ("annotations.xml", "", "<task><id>1</id><subset>Validation</subset></task>", "images/a.png"),
        ("annotations.xml", 'task_id="2"', TASKS, "images/a.png"),
        ("annotations.xml", "", TASKS, "images/val/a.png"),
        ("annotations_test.xml", 'subset="val"', "", "images/a.png"),
        ("val/annotations.xml", "", "", "val/images/a.png"),
        ("annotations_val.xml", "", "", "images/a.png"),
        ("annotations.xml", "", "", "images/val/a.png"),
    ],
)
def test_cvat_splits_are_subsets_or_folders(tmp_path: Path, xml: str, more: str, meta: str, image_at: str) -> None:
    draw(tmp_path / image_at, TWO)
    draw(tmp_path / "train/images/b.png", TWO)
    put(tmp_path / xml, image(BOX, more=more), meta=meta)
    put(tmp_path / "train/annotations.xml", image(BOX, "b.png"))
    assert list_boxes_by_split(read_once(tmp_path)) == {"train": {"b": [CAT]}, "val": {"a": [CAT]}}


def test_cvat_reads_all_tasks_and_subsets_of_a_folder(tmp_path: Path) -> None:
    names = [*(f"task_{number}/images/0.png" for number in range(3)), "images/Monday/0.png", "images/Tuesday/0.png"]
    images = []
    for number, name in enumerate(names, 1):
        draw(tmp_path / name, TWO)
        subset = Path(name).parent.name if number > 3 else ""
        images.append(image(BOX.replace("1", str(number), 1), "0.png", f'subset="{subset}"'))
        put(tmp_path / name.replace("images/0.png", "annotations.xml"), *images[-1:])
    put(tmp_path / "annotations.xml", *images[3:])
    lefts = {each.path: each.boxes[0].left for each in read_once(tmp_path).splits[""]}
    assert lefts == {str(tmp_path / name): number for number, name in enumerate(names, 1)}


def test_cvat_classes_are_in_the_order_of_its_labels(tmp_path: Path) -> None:
    draw(tmp_path / "a.png", TWO)
    labels = "".join(f"<label><name> {name}</name></label>" for name in ("dog", "unused", "Cat"))
    put(
        tmp_path / "annotations.xml",
        image(BOX.replace("cat", "Cat") + BOX.replace("cat", "dog")),
        meta=f"<task><labels>{labels}</labels></task>",
    )
    put(tmp_path / "a.xml", image(BOX))  # files with the usual name come first
    assert read_once(tmp_path).classes == ("dog", "Cat")


def test_cvat_tags_next_to_boxes_are_a_further_kind(tmp_path: Path) -> None:
    for name in ("a", "b"):
        draw(tmp_path / f"{name}.png", TWO)
    put(tmp_path / "annotations.xml", image('<tag label="sunny"/><tag label="wet"/>' + BOX), image())
    put(tmp_path / "annotations_2.xml", image('<tag label="wet"/>', "val/b.png"))
    (detection,) = FORMAT.detect(Tree(str(tmp_path)))
    assert detection.kinds == ("boxes", "labels")
    rows = list_rows(read_once(tmp_path, "labels"), "labels")
    assert rows == {"train": {"a": ["sunny", "wet"]}, "val": {"b": ["wet"]}}
    put(tmp_path / "annotations.xml", *[image()] * 1000, image('<tag label="wet"/>'))
    (tmp_path / "annotations_2.xml").unlink()
    assert FORMAT.detect(Tree(str(tmp_path)))[0].kinds == ("classes", "labels")


TRACK = '<track id="0" label="cat"><box frame="0" xtl="1" ytl="2" xbr="3" ybr="4" outside="0"/></track>'


def test_cvat_tracks_of_videos_are_refused_with_a_remedy(tmp_path: Path) -> None:
    put(tmp_path / "annotations.xml", TRACK)
    draw(tmp_path / "images/frame_000000.png", TWO)
    (detection,) = FORMAT.detect(Tree(str(tmp_path)))
    assert detection.kinds == ()
    recognized = recognize(str(tmp_path), val_fraction=0.2, seed=0, kinds=("boxes",))
    (problem,) = errors(recognized.problems)
    assert "CVAT XML" in problem.message
    assert "CVAT for images 1.1" in problem.remedy


def test_cvat_file_with_an_entity_bomb_is_refused(tmp_path: Path) -> None:
    draw(tmp_path / "a.png", TWO)
    entities = "".join(f'<!ENTITY e{n + 1} "{f"&e{n};" * 10}">' for n in range(12))
    start = f'<!DOCTYPE annotations [<!ENTITY e0 "x">{entities}]>'
    put(tmp_path / "annotations.xml", image(BOX), image("&e12;", "b.png"))
    path = tmp_path / "annotations.xml"
    text(path, start + path.read_text())
    (problem,) = errors(read_once(tmp_path).problems)
    assert "annotations.xml can't be read" in problem.message


def test_cvat_reports_images_that_are_missing_or_not_annotated(tmp_path: Path) -> None:
    for name in ("a", "lonely"):
        draw(tmp_path / f"images/{name}.png", TWO)
    put(tmp_path / "annotations.xml", image(BOX), image(BOX, "gone.png"), TRACK, image(BOX))
    content = read_once(tmp_path)
    assert list(list_boxes_by_split(content)[""]) == ["a"]
    assert "1 annotation without an image: gone.png" in join_problems(content)
    assert "1 image without an annotation: lonely.png" in join_problems(content)
    assert "1 annotation of an image that has one already: a.png" in join_problems(content)
    assert "1 object in tracks of videos, in annotations.xml" in join_problems(content)


def test_cvat_files_are_found_among_many_of_another_format(tmp_path: Path) -> None:
    for number in range(60):
        text(tmp_path / f"Annotations/{number:03}.xml", "<annotation><object/></annotation>")
    for stem, path in (("a", "annotations.xml"), ("b", "Annotations/021.xml")):
        draw(tmp_path / f"images/{stem}.png", TWO)
        text(tmp_path / path, f"<annotations>{image(BOX, f'{stem}.png')}</annotations>")
    assert list(list_boxes_by_split(read_once(tmp_path))[""]) == ["a", "b"]


def test_cvat_detection_refuses_other_xml_files(tmp_path: Path) -> None:
    text(tmp_path / "voc/a.xml", "<annotation><object/></annotation>")
    text(tmp_path / "own/a.xml", "<annotations><thing/></annotations>")
    text(tmp_path / "broken/annotations.xml", "<annotations><oops")
    text(tmp_path / "empty/annotations.xml", "")
    for name in ("voc", "own", "broken", "empty"):
        assert FORMAT.detect(Tree(str(tmp_path / name))) == []
    put(tmp_path / "bare/annotations.xml", image())
    (detection,) = FORMAT.detect(Tree(str(tmp_path / "bare")))
    assert (detection.kinds, detection.confidence) == (("boxes",), Confidence.WEAK)
