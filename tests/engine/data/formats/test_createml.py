"""Create ML's JSON files with boxes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from engine.data.formats.createml import FORMAT
from tests.support.boxed import ONE, TWO, draw, text
from tests.support.read_formats import detect, list_boxes, read

BOX = {"x": 20, "y": 30, "width": 10, "height": 20}


def write_entries(root: Path, entries: list[object]) -> Path:
    draw(root / "a.png", TWO)
    draw(root / "b.png", ONE)
    text(root / "boxes.json", json.dumps(entries))
    return root


@pytest.mark.parametrize(
    ("bad", "place"),
    [
        ({"label": "cat", "coordinates": {"x": 1, "y": 2, "width": 3}}, "[0].annotations[1]"),
        ({"label": "cat", "coordinates": BOX | {"x": None}}, "[0].annotations[1]"),
        ({"label": "cat"}, "[0].annotations[1]"),
        ({"coordinates": BOX}, "[0].annotations[1]"),
        ({"label": "", "coordinates": BOX}, "[0].annotations[1]"),
        ("cat", "[0].annotations[1]"),
    ],
)
def test_a_bad_object_costs_itself_alone(tmp_path: Path, bad: object, place: str) -> None:
    good = {"label": "cat", "coordinates": BOX}
    content = read(FORMAT, write_entries(tmp_path, [{"image": "a.png", "annotations": [good, bad, good]}]))
    assert list_boxes(content) == {"a": [("cat", 15, 20, 25, 40)] * 2}
    (problem,) = content.problems
    assert f"boxes.json: {place}." in problem.message


def test_entries_without_an_image_are_reported(tmp_path: Path) -> None:
    entries = [
        {"annotations": []},
        {"image": "a.png", "annotations": [{"label": 0, "coordinates": BOX}]},
        {"image": "gone.png", "annotations": []},
        "nonsense",
    ]
    content = read(FORMAT, write_entries(tmp_path, entries))
    assert list_boxes(content) == {"a": [("0", 15, 20, 25, 40)]}
    messages = " ".join(problem.message for problem in content.problems)
    assert all(phrase in messages for phrase in ("[0]", "[3]", "gone.png"))


def test_entries_of_one_image_are_joined(tmp_path: Path) -> None:
    entries = [{"image": "a.png", "annotations": [{"label": label, "coordinates": BOX}]} for label in ("cat", "dog")]
    content = read(FORMAT, write_entries(tmp_path, entries))
    assert list_boxes(content) == {"a": [("cat", 15, 20, 25, 40), ("dog", 15, 20, 25, 40)]}


def test_centered_fractions_are_recognized(tmp_path: Path) -> None:
    box = {"x": 0.5, "y": 0.5, "width": 0.2, "height": 0.4}
    content = read(
        FORMAT, write_entries(tmp_path, [{"image": "a.png", "annotations": [{"label": "cat", "coordinates": box}]}])
    )
    (image,) = content.splits[""]
    assert image.fractions
    assert image.boxes[0][:4] == pytest.approx((0.4, 0.3, 0.6, 0.7))
    assert "fractions" in content.problems[0].message


def test_corners_instead_of_centers_are_refused(tmp_path: Path) -> None:
    objects = [{"label": "cat", "coordinates": {"x": step, "y": step, "width": 20, "height": 30}} for step in range(6)]
    content = read(FORMAT, write_entries(tmp_path, [{"image": "a.png", "annotations": objects}]))
    (problem,) = content.problems
    assert problem.severity == "error"
    assert "seem to be a corner" in problem.message


@pytest.mark.parametrize(
    "entries",
    [
        [],
        [{"image": "a.png", "annotations": []}],
        [{"image": "a.png", "label": "cat"}],
        [{"file": "a.png", "annotations": [{"label": "cat", "coordinates": BOX}]}],
        [{"image": "a.png", "annotations": [{"label": "cat", "points": [1, 2]}]}],
        [{"image": "a.png", "annotations": [{"coordinates": BOX}]}],
        {"image": "a.png", "annotations": [{"label": "cat", "coordinates": BOX}]},
    ],
)
def test_other_files_are_not_detected(tmp_path: Path, entries: list[object]) -> None:
    assert detect(FORMAT, write_entries(tmp_path, entries)) == []
