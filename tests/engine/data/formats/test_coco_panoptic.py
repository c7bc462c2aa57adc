"""COCO's panoptic segmentation."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from engine.contract.problems import errors
from engine.data.decoding.reading import Unfit
from engine.data.formats.coco_panoptic import FORMAT
from tests.support.dataset_formats import coco_panoptic
from tests.support.dataset_formats.truth import TRUTH
from tests.support.read_formats import list_instances, list_true_boxes, list_true_sizes, merge_splits, read

SIZES = list_true_sizes(TRUTH)


def read_boxes(root: Path) -> dict[str, Any]:
    return merge_splits(read(FORMAT, root), lambda found, split: list_instances(found, SIZES, split))


def edit(root: Path, change: Callable[[dict[str, Any]], None]) -> None:
    path = root / "annotations/panoptic.json"
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))


def test_crowds_have_no_label(tmp_path: Path) -> None:
    coco_panoptic.write(TRUTH, tmp_path)
    for value in (1, 0, None):

        def set_crowd(coco: dict[str, Any], value: int | None = value) -> None:
            coco["annotations"][0]["segments_info"][1].update(iscrowd=value)

        edit(tmp_path, set_crowd)
        source = read(FORMAT, tmp_path).splits[""].sources[0]
        assert len(source.labels()) == (value != 1)
        assert [each.ignored for each in source.instances(64, 96)] == [value == 1]


def test_names_of_images_are_those_in_their_list(tmp_path: Path) -> None:
    coco_panoptic.write(TRUTH, tmp_path)
    (tmp_path / "images/img_1.jpg").rename(tmp_path / "images/renamed.jpg")
    edit(tmp_path, lambda coco: coco["images"][0].update(id="1", file_name="renamed.jpg"))
    content = read(FORMAT, tmp_path)
    assert [Path(path).stem for path in content.splits[""].files] == [*(f"img_{n}" for n in range(2, 7)), "renamed"]
    assert content.problems == []


def test_images_without_an_entry_have_the_names_of_masks(tmp_path: Path) -> None:
    coco_panoptic.write(TRUTH, tmp_path)
    edit(tmp_path, lambda coco: coco["images"].clear())
    assert read_boxes(tmp_path) == list_true_boxes(TRUTH.images)


def test_a_bad_segment_costs_one_object(tmp_path: Path) -> None:
    coco_panoptic.write(TRUTH, tmp_path)
    edit(tmp_path, lambda coco: coco["annotations"][2]["segments_info"][1].update(category_id=77))
    expected = list_true_boxes(TRUTH.images)
    del expected["img_3"][0]
    assert read_boxes(tmp_path) == expected
    (problem,) = read(FORMAT, tmp_path).problems
    assert "annotations[2].segments_info[1].category_id" in problem.message


@pytest.mark.parametrize("place", ["a/lists/ids", "a/ids", "ids", "a/lists", "a/Panoptic_PNGs"])
def test_masks_are_found_near_their_list(tmp_path: Path, place: str) -> None:
    coco_panoptic.write(TRUTH, tmp_path / "a")
    (tmp_path / "a/annotations").rename(tmp_path / "a/lists")
    (tmp_path / "a/lists/panoptic.json").rename(tmp_path / "a/lists/ids.json")
    masks = list((tmp_path / "a/lists/panoptic").iterdir())
    (tmp_path / place).mkdir(exist_ok=True)
    for mask in masks:
        mask.rename(tmp_path / place / mask.name)
    if place.endswith("ids"):  # the name of the list is preferred
        TRUTH.images[0].save(tmp_path / "a/old_panoptic/img_1.png")
    assert read_boxes(tmp_path) == list_true_boxes(TRUTH.images)
    (tmp_path / place / "img_6.png").unlink()
    (problem,) = read(FORMAT, tmp_path).problems
    assert "1 image without the PNG of its segments: img_6.png" in problem.message


def test_categories_of_stuff_alone_are_refused(tmp_path: Path) -> None:
    coco_panoptic.write(TRUTH, tmp_path)
    edit(tmp_path, lambda coco: [each.update(isthing=0) for each in coco["categories"]])
    (problem,) = errors(read(FORMAT, tmp_path).problems)
    assert "no categories of things" in problem.message


def test_images_of_ids_of_another_size_are_refused(tmp_path: Path) -> None:
    coco_panoptic.write(TRUTH, tmp_path)
    source = read(FORMAT, tmp_path).splits[""].sources[0]
    with pytest.raises(Unfit, match="different size"):
        source.instances(10, 10)


def test_ids_may_be_gray_levels(tmp_path: Path) -> None:
    coco_panoptic.write(TRUTH, tmp_path)
    values = np.zeros((64, 96), np.uint8)
    values[8:32, 8:40] = 5
    Image.fromarray(values).save(tmp_path / "annotations/panoptic/img_1.png")
    edit(tmp_path, lambda coco: coco["annotations"][0]["segments_info"][1].update(id=5))
    before = read(FORMAT, tmp_path).splits[""].state()
    assert read_boxes(tmp_path) == list_true_boxes(TRUTH.images)
    edit(tmp_path, lambda coco: coco["annotations"][0]["segments_info"][1].update(category_id=2))
    assert read(FORMAT, tmp_path).splits[""].state() != before
