"""Formats that store the boxes of all images in one file: WIDER FACE, MOT Challenge and BDD100K."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from engine.contract.problems import errors
from engine.data.formats import bdd100k, mot, wider_face
from engine.data.formats.format import Format
from engine.data.formats.shared.boxes import ANY_CLASS
from engine.data.formats.tree import Tree
from tests.support.boxed import ONE, draw, text
from tests.support.dataset_formats import mot as mot_writer
from tests.support.dataset_formats import wider_face as wider_face_writer
from tests.support.dataset_formats.truth import TRUTH
from tests.support.read_formats import join_problems, list_boxes_by_split, read_once


def test_wider_face_gives_the_truth(tmp_path: Path) -> None:
    wider_face_writer.write(TRUTH, tmp_path)
    content = read_once(wider_face.FORMAT, tmp_path)
    assert (content.classes, content.problems) == (("face",), [])
    assert list_boxes_by_split(content) == {
        split: {
            image.name: [("face", tuple(map(float, each.box))) for each in image.objects]
            for image in TRUTH.get_images(split)
        }
        for split in ("train", "val")
    }


def test_mot_ignores_boxes_that_do_not_count(tmp_path: Path) -> None:
    for video, name, lines in (
        ("02", "cam7_0001", "1,1,2,3,10,20,1,1,1\n1,2,4,4,8,8,0,7,0.5\n7,1,2,3,4,5,1,1,1\n1,2,3\n"),
        ("03", "2", "2,1,1,1,2,2,1\n2 2 3 3 4 4 1 -1 0.5\n2,3,5,6,7,8,1,4.5,2.1,0\n2,4,1,1,2,2"),
    ):
        draw(tmp_path / f"MOT17-{video}/img1/{name}.png", ONE)
        text(tmp_path / f"MOT17-{video}/gt/gt.txt", lines)
    text(tmp_path / "MOT17-02/seqinfo.ini", "[Sequence]")
    draw(tmp_path / "MOT17-02/img1/cover.png", ONE)
    content = read_once(mot.FORMAT, tmp_path)
    assert content.classes == ("object", "pedestrian")
    assert [image.boxes for image in content.splits[""]] == [
        [(2, 3, 12, 23, 1, False), (4, 4, 12, 12, ANY_CLASS, True)],
        [],
        [(1, 1, 3, 3, 0, False), (3, 3, 7, 7, 0, False), (5, 6, 12, 14, 0, False)],
    ]
    assert "1 frame of MOT17-02 with boxes but no image: 7" in join_problems(content)
    assert "2 lines that can't be read: MOT17-02/gt/gt.txt, line 4 has 3 fields" in join_problems(content)


def test_mot_guesses_no_names(tmp_path: Path) -> None:
    mot_writer.write(TRUTH, tmp_path)
    lists = sorted(tmp_path.glob("*/gt/labels.txt"))
    lists[0].write_text("bear\napple\ncup")
    (problem,) = errors(read_once(mot.FORMAT, tmp_path).problems)
    assert "video-01/gt/labels.txt and video-02/gt/labels.txt name different classes" in problem.message
    (detection,) = mot.FORMAT.detect(Tree(str(lists[0].parents[1])))
    assert detection.evidence[0].endswith(", such as this")
    for path in lists:
        path.unlink()
    assert read_once(mot.FORMAT, tmp_path).classes == ("class 1", "class 2", "class 3")


def test_wider_face_ignores_invalid_faces_and_names_bad_lines(tmp_path: Path) -> None:
    draw(tmp_path / "WIDER_train/images/0--Parade/a.png", ONE)
    lines = ["0--Parade/a.png", "3", "1 2 10 20 0 0 0 0 0 0", "3 4 9 9 0 0 0 1 0 0", "5 6 x 8 0 0 0 0 0 0", "1 1 5 6"]
    text(
        tmp_path / "wider_face_split/wider_face_train_bbx_gt.TXT",
        "\n".join([*lines, "0--Parade/gone.png", "0", "0 0 0 0"]),
    )
    content = read_once(wider_face.FORMAT, tmp_path)
    (image,) = content.splits[""]
    assert [(tuple(box[:4]), box.ignored) for box in image.boxes] == [
        ((1, 2, 11, 22), False),
        ((3, 4, 12, 13), True),
        ((1, 1, 6, 7), False),
    ]
    assert "line 5 contains x" in join_problems(content)
    assert "1 image named in the annotations but not in the folder: gone.png" in join_problems(content)


def test_bdd100k_leaves_out_objects_that_it_cannot_read(tmp_path: Path) -> None:
    draw(tmp_path / "images/100k/train/a.png", ONE)
    box = {"x1": 1, "y1": 2, "x2": 3, "y2": 4}
    labels = [{"category": "car", "box2d": box}, {"category": "car", "box2d": {"x1": "left"}}, {"category": 3}]
    content = json.dumps([{"name": "a.png", "labels": labels}, {"name": "gone.png"}])
    text(tmp_path / "labels/det_train.json", content)
    read = read_once(bdd100k.FORMAT, tmp_path)
    assert list_boxes_by_split(read) == {"": {"a": [("car", (1.0, 2.0, 3.0, 4.0))]}}
    entries = "2 entries with a missing or unusable value in labels/det_train.json: a.png labels[1].box2d.x1"
    assert entries in join_problems(read)
    assert "1 image named in the annotations but not in the folder: gone.png" in join_problems(read)


@pytest.mark.parametrize("form", [bdd100k.FORMAT, mot.FORMAT, wider_face.FORMAT])
def test_lists_leave_other_folders_to_others(tmp_path: Path, form: Format) -> None:
    draw(tmp_path / "img1/000001.png", ONE)
    text(tmp_path / "gt/gt.txt", "1,2")
    text(tmp_path / "labels.json", '[{"name": "a.png", "label": "cat"}]')
    text(tmp_path / "notes_bbx_gt.txt", "nothing to see")
    text(tmp_path / "faces_per_image.txt", "a.png\n3\n")
    assert not form.detect(Tree(str(tmp_path)))
