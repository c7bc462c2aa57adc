"""Regions from the VGG Image Annotator."""

from __future__ import annotations

import csv
import json
import math
from pathlib import Path
from typing import Any

import pytest

from engine.data.formats.format import Confidence
from engine.data.formats.via import FORMAT, ONLY_CLASS, read_shape
from tests.support.boxed import ONE, TWO, draw, text
from tests.support.dataset_formats import via
from tests.support.dataset_formats.truth import TRUTH
from tests.support.read_formats import detect, list_boxes, list_true_boxes, read

RECT = {"name": "rect", "x": 10, "y": 20, "width": 30, "height": 5}
EDGES = (10, 20, 40, 25)


def write_regions(root: Path, *regions: tuple[Any, Any]) -> Path:
    draw(root / "a.png", TWO)
    content = [{"shape_attributes": shape, "region_attributes": attributes} for shape, attributes in regions]
    text(root / "via.json", json.dumps({"a.png9": {"filename": "a.png", "size": 9, "regions": content}}))
    return root


@pytest.mark.parametrize("regions", [5, "text", True])
def test_regions_of_a_wrong_type_are_no_regions(tmp_path: Path, regions: Any) -> None:
    write_regions(tmp_path, (RECT, {"class": "cat"}))
    draw(tmp_path / "b.png", TWO)
    content = json.loads((tmp_path / "via.json").read_text()) | {"b.png9": {"filename": "b.png", "regions": regions}}
    (tmp_path / "via.json").write_text(json.dumps(content | {"c.png9": {"size": 9}}))
    found = read(FORMAT, tmp_path)
    assert list_boxes(found) == {"a": [("cat", *EDGES)], "b": []}
    assert "c.png9" in found.problems[0].message


@pytest.mark.parametrize(
    ("shape", "edges"),
    [
        (RECT, EDGES),
        ({"name": "circle", "cx": 20, "cy": 30, "r": 8}, (12, 22, 28, 38)),
        ({"name": "ellipse", "cx": 20, "cy": 30, "rx": 8, "ry": 4}, (12, 26, 28, 34)),
        ({"name": "ellipse", "cx": 20, "cy": 30, "rx": 8, "ry": 4, "theta": math.pi / 2}, (16, 22, 24, 38)),
        ({"name": "polyline", "all_points_x": [1, 9, 5], "all_points_y": [2, 2, 8]}, (1, 2, 9, 8)),
        ({"name": "polygon", "all_points_x": ["1", 9, 5], "all_points_y": [2, 2, 8]}, (1, 2, 9, 8)),
    ],
)
def test_shapes_have_their_edges(shape: dict[str, Any], edges: tuple[float, ...]) -> None:
    found = read_shape("cat", shape)
    assert found is not None
    assert found.box == pytest.approx(edges)
    assert (found.outline is None) == (shape["name"] == "rect")


@pytest.mark.parametrize(
    "shape",
    [
        {},
        {"name": "point", "cx": 1, "cy": 2},
        {"name": "rect", "x": 1},
        {"name": "rect", "x": None, "y": 1, "width": 1, "height": 1},
        {"name": "polygon", "all_points_x": [1, 2, 3], "all_points_y": [1, 2]},
        {"name": "polyline", "all_points_x": [1, 2], "all_points_y": [1, 2]},
        {"name": "circle", "cx": 1, "cy": 1, "r": "large"},
        {"name": "circle", "cx": 10**400, "cy": 1, "r": 1},
    ],
)
def test_a_bad_shape_costs_one_region(tmp_path: Path, shape: dict[str, Any]) -> None:
    content = read(FORMAT, write_regions(tmp_path, (RECT, {"class": "cat"}), (shape, {"class": "cat"})), "boxes")
    assert list_boxes(content) == {"a": [("cat", *EDGES)]}
    (problem,) = content.problems
    assert "a.png regions[1]" in problem.message


def test_regions_without_or_with_several_classes_are_reported(tmp_path: Path) -> None:
    values = [{"class": "cat"}, {"class": ""}, {}, {"class": {"cat": True, "dog": True}}]
    values.append({"class": {"dog": True, "cat": False}})
    content = read(FORMAT, write_regions(tmp_path, *((RECT, each) for each in values)), "boxes")
    assert list_boxes(content) == {"a": [("cat", *EDGES), ("dog", *EDGES)]}
    none, several = (problem.message for problem in content.problems)
    assert "2 regions without a class" in none
    assert "1 region of several classes" in several


def test_regions_without_attributes_are_of_one_class(tmp_path: Path) -> None:
    content = read(FORMAT, write_regions(tmp_path, (RECT, {}), (RECT, {})))
    assert content.classes == (ONLY_CLASS,)
    assert "no attributes" in content.problems[0].message


@pytest.mark.parametrize(
    ("attributes", "expected"),
    [
        ({"breed": "pug"}, [("", Confidence.CERTAIN)]),
        ({"breed": "pug", "Label": "dog"}, [("Label", Confidence.CERTAIN), ("breed", Confidence.WEAK)]),
        ({"breed": "pug", "age": "3"}, [("age", Confidence.LIKELY), ("breed", Confidence.LIKELY)]),
    ],
)
def test_attributes_that_may_be_the_class_are_distinguished(
    tmp_path: Path, attributes: dict[str, str], expected: list[tuple[str, Confidence]]
) -> None:
    found = detect(FORMAT, write_regions(tmp_path, (RECT, attributes)))
    assert [(each.variant, each.confidence) for each in found] == expected
    assert found[0].kinds == ("boxes",)


def test_project_with_outlines_and_rectangles_is_read_as_either(tmp_path: Path) -> None:
    circle = {"name": "circle", "cx": 20, "cy": 30, "r": 8}
    found = detect(FORMAT, write_regions(tmp_path, (RECT, {}), (circle, {})))
    assert found[0].kinds == ("instances", "boxes")


def test_the_most_frequent_attribute_comes_first(tmp_path: Path) -> None:
    attributes = [
        {"breed": "pug", "age": "3"},
        {"breed": "pug", "age": ""},
        {"size": "5", "age": ""},
        {"size": "4", "age": ""},
        {"size": "2"},
    ]
    found = detect(FORMAT, write_regions(tmp_path, *((RECT, each) for each in attributes)))
    assert [each.variant for each in found] == ["size", "breed", "age"]


def test_settings_are_distinguished_from_entries_without_a_file(tmp_path: Path) -> None:
    path = write_regions(tmp_path, (RECT, {"class": "cat"})) / "via.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"_via_settings": {}, "b.png5": {"regions": []}}))
    (problem,) = read(FORMAT, tmp_path).problems
    assert ("b.png5" in problem.message, "_via" in problem.message) == (True, False)


@pytest.mark.parametrize("shape", [{"x": 0.1, "y": 0.2, "width": 0.3, "height": 0.4}, RECT])
def test_rectangles_may_be_in_fractions(tmp_path: Path, shape: dict[str, Any]) -> None:
    content = read(FORMAT, write_regions(tmp_path, (RECT | shape, {"class": "cat"})))
    (image,) = content.splits[""]
    assert (image.fractions, len(content.problems)) == ((False, 0) if shape is RECT else (True, 1))


@pytest.mark.parametrize("mark", ["", "#"])  # VIA 1 writes #filename
def test_a_bad_line_of_a_table_costs_one_region(tmp_path: Path, mark: str) -> None:
    via.write(TRUTH, tmp_path, "csv")
    path = tmp_path / "via_region_data.csv"
    path.write_text(mark + path.read_text().replace('""name""', "name", 1).replace("filename", "FileName", 1))
    content = read(FORMAT, tmp_path, "boxes")
    assert sum(map(len, list_boxes(content).values())) == sum(len(image.objects) for image in TRUTH.images) - 1
    assert "img_1.png" in content.problems[0].message


@pytest.mark.parametrize(("delimiter", "encoding"), [(";", "utf-8"), ("\t", "utf-16"), (",", "utf-8-sig")])
def test_tables_may_come_from_a_spreadsheet(tmp_path: Path, delimiter: str, encoding: str) -> None:
    via.write(TRUTH, tmp_path, "csv")
    path = tmp_path / "via_region_data.csv"
    rows = list(csv.reader(path.read_text().splitlines()))
    with path.open("w", encoding=encoding, newline="") as stream:
        csv.writer(stream, delimiter=delimiter).writerows(rows)
    assert list_boxes(read(FORMAT, tmp_path, "boxes")) == list_true_boxes(TRUTH.images)


def test_lines_of_a_table_without_a_file_are_reported(tmp_path: Path) -> None:
    via.write(TRUTH, tmp_path, "csv")
    path = tmp_path / "via_region_data.csv"
    path.write_text(path.read_text().replace("img_1.png", "", 1))
    content = read(FORMAT, tmp_path, "boxes")
    assert "img_1" not in list_boxes(content)
    (problem,) = content.problems
    assert ("line 2" in problem.message, "JSON" in problem.message) == (True, False)


def test_an_export_next_to_its_project_is_used_once(tmp_path: Path) -> None:
    via.write(TRUTH, tmp_path, "project")
    (tmp_path / "via_region_data.json").rename(tmp_path / "via_project.json")
    via.write(TRUTH, tmp_path, "csv")
    content = read(FORMAT, tmp_path, "boxes")
    assert list_boxes(content) == list_true_boxes(TRUTH.images)
    assert "6 images annotated in several files" in content.problems[0].message


def test_a_project_of_version_3_is_recognized_but_not_read(tmp_path: Path) -> None:
    draw(tmp_path / "a.png", ONE)
    content = {"project": {"data_format_version": "3.1.1", "vid_list": ["1"]}, "file": {}, "metadata": {}}
    text(tmp_path / "project.json", json.dumps(content))
    (detection,) = detect(FORMAT, tmp_path)
    assert detection.kinds == ()
    assert "COCO" in detection.remedy


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.json", '{"shapes": [], "imagePath": "a.png"}'),
        ("a.json", '{"a.png": ["cat"]}'),
        ("a.json", '{"metadata": {}, "file": {}}'),
        ("a.csv", "filename,width,height,class,xmin,ymin,xmax,ymax\na.png,1,1,cat,1,2,3,4"),
    ],
)
def test_other_files_are_not_detected(tmp_path: Path, name: str, content: str) -> None:
    text(tmp_path / name, content)
    assert detect(FORMAT, tmp_path) == []


def test_rectangles_beyond_the_left_edge_are_read_by_their_corners(tmp_path: Path) -> None:
    beyond = RECT | {"x": -10, "y": 5, "width": 20, "height": 20}
    content = read(FORMAT, write_regions(tmp_path, *[(beyond, {"class": "cat"})] * 4))
    assert not content.problems
    assert len(content.splits[""]) == 1
