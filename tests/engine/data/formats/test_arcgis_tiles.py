"""Labeled tiles of ArcGIS."""

from __future__ import annotations

from pathlib import Path

from engine.data.formats.arcgis_tiles import FORMAT
from engine.data.formats.tree import Tree
from tests.support.dataset_formats import arcgis_tiles
from tests.support.dataset_formats.truth import TRUTH
from tests.support.read_formats import content_of, names_of


def test_arcgis_tiles_of_unknown_encoding_are_left_out(tmp_path: Path) -> None:
    arcgis_tiles.write(TRUTH, tmp_path, "several")
    path = tmp_path / "labels" / "img_1.xml"
    path.write_text(f'<?xml version="1.0" encoding="x"?>{path.read_text()}')
    found = content_of(FORMAT, tmp_path, "labels")
    assert "img_1" not in names_of(found)[""]
    assert "img_1.xml" in found.problems[0].message


def test_arcgis_tiles_with_boxes_are_of_another_format(tmp_path: Path) -> None:
    arcgis_tiles.write(TRUTH, tmp_path, "plain")
    box = "<bndbox><xmin>1</xmin><ymin>1</ymin><xmax>5</xmax><ymax>5</ymax></bndbox>"
    for path in (tmp_path / "labels").iterdir():
        path.write_text(path.read_text().replace("</object>", f"{box}</object>"))
    assert FORMAT.detect(Tree(str(tmp_path))) == []
