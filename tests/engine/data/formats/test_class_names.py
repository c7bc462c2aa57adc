"""Warnings about names of classes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from engine.data.formats.class_names import similar_names
from engine.data.formats.registry import recognise
from tests.support import boxed
from tests.support.boxed import SPLITS, text


@pytest.mark.parametrize(
    ("classes", "phrases"),
    [
        (("Cat", "cat", "dog"), ("“Cat” and “cat”",)),
        (("caf\u00e9", "cafe\u0301"), ("“caf\u00e9” and “cafe\\u0301”",)),
        (("traffic light", "traffic_light", "Traffic-Light"), ("“traffic light” and “traffic_light” and",)),
        (("dog ", "dog"), ("“dog ” and “dog”",)),
        (("a1", "A1", "b1", "B1"), ("“a1” and “A1”; “b1” and “B1”",)),
    ],
)
def test_similar_names_are_reported_once(classes: tuple[str, ...], phrases: tuple[str, ...]) -> None:
    (problem,) = similar_names(classes)
    assert problem.severity == "warning"
    assert all(phrase in problem.message for phrase in phrases)


@pytest.mark.parametrize("classes", [(), ("cat", "cats"), ("a", "A", "b"), ("1", "11"), ("left eye", "lefteye")])
def test_other_names_are_not_reported(classes: tuple[str, ...]) -> None:
    assert similar_names(classes) == []


def test_similar_names_of_a_dataset_are_reported(tmp_path: Path) -> None:
    root = boxed.coco(tmp_path, SPLITS)
    for path in root.glob("annotations/*.json"):
        content = json.loads(path.read_text())
        content["categories"][1]["name"] = "Cat"
        text(path, json.dumps(content))
    found = recognise(str(root), val_fraction=0.2, seed=0, kinds=("boxes",))
    assert found.classes == ("cat", "Cat")
    assert "nearly the same name" in found.problems[0].message
