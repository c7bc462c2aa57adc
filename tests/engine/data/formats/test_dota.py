"""DOTA folders, read as upright boxes or as instances."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.data.formats.dota import FORMAT
from engine.data.formats.tree import Tree
from tests.support.boxed import ONE, DrawnImage, draw, text
from tests.support.read_formats import join_problems, list_boxes_by_split, read_once

PLANE = "10 20 30 10 40 30 20 40 large-vehicle 0"


def test_dota_reads_rotated_and_difficult_objects(tmp_path: Path) -> None:
    draw(tmp_path / "images/a.png", DrawnImage(60, 80, ()))
    text(
        tmp_path / "labelTxt/a.txt",
        f"ImageSource:x\ngsd:null\n{PLANE}\n{PLANE[:-1].replace('10', '12')}1\n{PLANE[:-2]}",
    )
    text(tmp_path / "labelTxt/classes.txt", "large-vehicle")
    content = read_once(FORMAT, tmp_path)
    (image,) = content.splits[""]
    assert [(tuple(box[:4]), box.ignored) for box in image.boxes] == [
        ((10.0, 10.0, 40.0, 40.0), False),
        ((12.0, 12.0, 40.0, 40.0), True),
    ]
    assert content.classes == ("large-vehicle",)
    (problem,) = content.problems
    assert "1 line repeating another" in problem.message


@pytest.mark.parametrize("line", ["1 2 3 plane 0", "10 20 30 10 40 30 20 x plane 0", "10 20 30 10 40 30 20 40 5 0"])
def test_dota_leaves_out_bad_lines_one_by_one(tmp_path: Path, line: str) -> None:
    draw(tmp_path / "images/a.png", DrawnImage(60, 80, ()))
    text(tmp_path / "labelTxt/a.txt", f"{PLANE}\n{line}")
    content = read_once(FORMAT, tmp_path)
    assert len(list_boxes_by_split(content)[""]["a"]) == 1
    assert "1 line that can't be read (a.txt: line 2" in join_problems(content)


@pytest.mark.parametrize("line", ["0 0.5 0.5 0.2 0.2", "cat 0.0 0 0.0 1 2 3 4 0 0 0 0 0 0 0", "some words", ""])
def test_dota_leaves_other_texts_to_others(tmp_path: Path, line: str) -> None:
    draw(tmp_path / "images/a.png", ONE)
    text(tmp_path / "labels/a.txt", line)
    assert not FORMAT.detect(Tree(str(tmp_path)))
