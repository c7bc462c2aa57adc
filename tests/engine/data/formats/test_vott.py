"""VoTT's JSON files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from engine.data.formats.registry import recognize
from engine.data.formats.tree import Tree
from engine.data.formats.vott import FORMAT
from tests.support.dataset_formats import vott
from tests.support.dataset_formats.truth import TRUTH
from tests.support.read_formats import content_of, merged_names


def test_vott_outlines_are_read(tmp_path: Path) -> None:
    vott.write(TRUTH, tmp_path, "polygons")
    split = content_of(FORMAT, tmp_path, "instances").splits[""]
    areas = {
        Path(path).stem: [instance.area for instance in source.instances(image.height, image.width)]
        for path, source, image in zip(split.files, split.sources, TRUTH.images, strict=True)
    }
    assert areas["img_1"] == [32 * 24]


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
    found = content_of(FORMAT, tmp_path, "boxes")
    assert [name for name, _ in merged_names(found)["img_1"]] == ["apple"]
    assert "img_1.png" in found.problems[0].message


def test_vott_names_missing_images(tmp_path: Path) -> None:
    vott.write(TRUTH, tmp_path, "plain")
    (image,) = tmp_path.rglob("img_1.png")
    image.unlink()
    found = content_of(FORMAT, tmp_path, "boxes")
    assert "img_1" not in merged_names(found)
    (problem,) = found.problems
    assert "img_1.png" in problem.message


def test_vott_names_a_torn_export(tmp_path: Path) -> None:
    vott.write(TRUTH, tmp_path, "plain")
    path = tmp_path / "vott-json-export" / "fruit-export.json"
    path.write_text(path.read_text()[:-20])
    found = recognize(str(tmp_path), val_fraction=0.2, seed=0, kinds=("boxes",))
    assert any("fruit-export.json" in problem.message for problem in found.problems)


def test_vott_is_not_taken_for_other_exports(tmp_path: Path) -> None:
    (tmp_path / "x-export.json").write_text('{"images": [], "annotations": []}')
    assert FORMAT.detect(Tree(str(tmp_path))) == []
