"""VoTT's JSON files."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from engine.data.formats.tree import Tree
from engine.data.formats.vott import FORMAT
from tests.support.dataset_formats import vott
from tests.support.dataset_formats.truth import TRUTH
from tests.support.read_formats import (
    detect_once,
    list_annotations,
    list_boxes,
    list_instances,
    list_true_boxes,
    list_true_sizes,
    read,
    read_once,
)


def get_entry(export: dict[str, Any], number: int = 0) -> dict[str, Any]:
    """Return the entry of the image with the given number in an export of all images."""
    entry: dict[str, Any] = export["assets"][f"{number:032x}"]
    return entry


def edit_export(folder: Path, edit: Callable[[dict[str, Any]], None]) -> None:
    """Apply `edit` to the content of fruit-export.json in `folder`, the export of all images."""
    path = folder / "vott-json-export" / "fruit-export.json"
    export = json.loads(path.read_text())
    edit(export)
    path.write_text(json.dumps(export))


def test_vott_prefers_the_export_of_all_images(tmp_path: Path) -> None:
    vott.write(TRUTH, tmp_path, "assets")
    found = detect_once(FORMAT, tmp_path)
    assert (found.kinds, len(found.source)) == (("boxes",), len(TRUTH.images))
    file = tmp_path / found.source[1]
    file.write_text(file.read_text().replace("RECTANGLE", "POLYGON"))
    assert detect_once(FORMAT, tmp_path).kinds == ("instances", "boxes")
    vott.write(TRUTH, tmp_path, "plain")
    assert [Path(name).name for name in detect_once(FORMAT, tmp_path).source] == ["fruit-export.json"]
    images = [image for name in TRUTH.images for image in tmp_path.glob(f"{name.name}.png")]
    for image in images:
        image.unlink()
    content = read(FORMAT, tmp_path, "boxes")
    assert (content.problems, list_boxes(content)) == ([], list_true_boxes(TRUTH.images))


def test_vott_leaves_out_images_that_were_never_opened(tmp_path: Path) -> None:
    vott.write(TRUTH, tmp_path, "plain")

    def close(export: dict[str, Any]) -> None:
        for number, state in enumerate((0, 1, 0)):
            get_entry(export, number)["asset"]["state"] = state
        for number in (0, 1):
            get_entry(export, number)["regions"] = []

    edit_export(tmp_path, close)
    content = read_once(FORMAT, tmp_path)
    first, second, *others = TRUTH.images
    assert list_boxes(content) == {second.name: [], **list_true_boxes(tuple(others))}
    assert content.problems == []
    assert {Path(image.path).stem: image.size for image in content.splits[""]} == {
        name: size for name, size in list_true_sizes(TRUTH).items() if name != first.name
    }


def test_vott_rectangles_without_a_box_have_corners(tmp_path: Path) -> None:
    vott.write(TRUTH, tmp_path, "polygons")

    def drop(export: dict[str, Any]) -> None:
        for region in get_entry(export)["regions"]:
            region["type"] = "RECTANGLE"
            del region["boundingBox"]

    expected = list_instances(read_once(FORMAT, tmp_path, "instances"), list_true_sizes(TRUTH))
    edit_export(tmp_path, drop)
    content = read_once(FORMAT, tmp_path, "instances")
    assert (content.problems, list_instances(content, list_true_sizes(TRUTH))) == ([], expected)


@pytest.mark.parametrize("variant", ["plain", "polygons"])
def test_vott_regions_of_several_tags_are_several_objects(tmp_path: Path, variant: str) -> None:
    vott.write(TRUTH, tmp_path, variant)
    edit_export(tmp_path, lambda export: get_entry(export)["regions"][0]["tags"].append("more"))
    boxes = list_annotations(read(FORMAT, tmp_path, "boxes"))["img_1"]
    assert boxes == [(name, boxes[0][1]) for name in ("apple", "more")]


HUGE = {"left": 10**400, "top": 1, "width": 1, "height": 1}


@pytest.mark.parametrize(
    "region",
    [{"tags": []}, {"tags": ["x"], "boundingBox": {"left": 1}}, {"tags": ["x"], "boundingBox": HUGE}, "torn"],
)
def test_vott_leaves_out_what_it_cannot_use(tmp_path: Path, region: object) -> None:
    vott.write(TRUTH, tmp_path, "plain")
    path = tmp_path / "vott-json-export" / "fruit-export.json"
    export = json.loads(path.read_text())
    export["assets"][f"{0:032x}"]["regions"].append(region)
    path.write_text(json.dumps(export))
    found = read_once(FORMAT, tmp_path, "boxes")
    assert [name for name, _ in list_annotations(found)["img_1"]] == ["apple"]
    assert "img_1.png" in found.problems[0].message


def test_vott_is_not_taken_for_other_exports(tmp_path: Path) -> None:
    (tmp_path / "x-export.json").write_text('{"images": [], "annotations": []}')
    assert FORMAT.detect(Tree(str(tmp_path))) == []
