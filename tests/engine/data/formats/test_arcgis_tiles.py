"""Labeled tiles of ArcGIS."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from engine.data.formats import arcgis_masks
from engine.data.formats.arcgis_tiles import FORMAT
from engine.data.formats.tree import Tree
from tests.support.dataset_formats import arcgis_tiles
from tests.support.dataset_formats.pixels import save_mask
from tests.support.dataset_formats.truth import TRUTH
from tests.support.read_formats import list_annotations_by_split, read_once


def test_arcgis_tiles_of_unknown_encoding_are_left_out(tmp_path: Path) -> None:
    arcgis_tiles.write(TRUTH, tmp_path, "several")
    path = tmp_path / "labels" / "img_1.xml"
    path.write_text(f'<?xml version="1.0" encoding="x"?>{path.read_text()}')
    (tmp_path / "labels" / "img_2.xml").write_text("<annotation>")
    found = read_once(FORMAT, tmp_path, "labels")
    assert not {"img_1", "img_2"} & list_annotations_by_split(found)[""].keys()
    assert "img_1.xml, img_2.xml (it is not valid XML (unknown encoding" in found.problems[0].message


def test_arcgis_tiles_with_a_box_are_of_another_format(tmp_path: Path) -> None:
    arcgis_tiles.write(TRUTH, tmp_path, "plain")
    box = "<bndbox><xmin>1</xmin><ymin>1</ymin><xmax>5</xmax><ymax>5</ymax></bndbox>"
    path = tmp_path / "labels" / "img_1.xml"
    path.write_text(path.read_text().replace("</object>", f"{box}</object>"))
    assert FORMAT.detect(Tree(str(tmp_path))) == []


@pytest.mark.parametrize("several", [0, 1, None])
def test_arcgis_tiles_with_several_classes_have_labels(tmp_path: Path, several: int | None) -> None:
    for number in range(2):
        TRUTH.images[number].save(tmp_path / f"images/{number}.png")
        names = ("2", "1") if number == several else ("1",)
        (tmp_path / "labels").mkdir(exist_ok=True)
        objects = "".join(f"<object><name>{name}</name></object>" for name in names)
        (tmp_path / f"labels/{number}.xml").write_text(f"<annotation>{objects}</annotation>")
    (detection,) = FORMAT.detect(Tree(str(tmp_path)))
    assert detection.kinds == (("classes", "labels") if several is None else ("labels",))
    classes = [{"Value": value, "Name": name} for value, name in ((1, "oak"), (2, "elm"))]
    (tmp_path / "esri_model_definition.emd").write_text(json.dumps({"Classes": classes}))
    found = read_once(FORMAT, tmp_path, "labels")
    assert found.classes == ("oak", "elm")
    assert list_annotations_by_split(found)[""] == {
        str(number): {"oak", "elm"} if number == several else {"oak"} for number in range(2)
    }


def test_arcgis_masks_without_images_are_reported(tmp_path: Path) -> None:
    TRUTH.images[0].save(tmp_path / "images/a.png")
    for name in ("cat/a", "cat/b", "dog/c"):
        save_mask(tmp_path / f"labels/{name}.png", np.eye(64, 96, dtype=np.uint8))
    found = read_once(arcgis_masks.FORMAT, tmp_path, "instances")
    assert [problem.message.rpartition(": ")[2] for problem in found.problems] == ["b.png, c.png."]
    assert found.splits[""].sources[0].labels() == [0]
