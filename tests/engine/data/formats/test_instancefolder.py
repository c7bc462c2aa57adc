"""Image folders with outlined objects, and their masks."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from engine.data.decoding.reading import Unfit
from engine.data.formats.registry import recognize
from engine.data.formats.shared.instances import InstanceSplit
from engine.data.splits import RecognizedDataset
from tests.support import boxed
from tests.support.boxed import ONE, SPLITS, TWO, DrawnImage, draw, text, write_numbered_mask


def recognize_folder(folder: Path, *formats: str) -> RecognizedDataset:
    return recognize(str(folder), val_fraction=0.25, seed=0, kinds=formats or ("instances",))


def list_things(recognized: RecognizedDataset, split: object) -> dict[str, set[tuple[str, int, int, int, int]]]:
    """Return the class and the edges of each object, by file stem of the image."""
    assert isinstance(split, InstanceSplit)
    found = {}
    for path, source in zip(split.files, split.sources, strict=True):
        with Image.open(path) as image:
            width, height = image.size
        found[Path(path).stem] = {
            (
                recognized.classes[each.label],
                each.window.left,
                each.window.top,
                each.window.left + each.window.pixels.shape[1],
                each.window.top + each.window.pixels.shape[0],
            )
            for each in source.instances(height, width)
        }
    return found


def list_drawn_things(images: dict[str, DrawnImage], name: str = "") -> dict[str, set[tuple[str, int, int, int, int]]]:
    return {stem: {(name or each.name, *each[:4]) for each in drawn.rectangles} for stem, drawn in images.items()}


def write_numbered_masks(root: Path) -> Path:
    """Write images and masks with numbered objects to folders per split in `root`, and return `root`."""
    for split, images in SPLITS.items():
        for stem, drawn in images.items():
            draw(root / f"images/{split}/{stem}.png", drawn)
            write_numbered_mask(root / f"masks/{split}/{stem}.png", drawn)
    return root


def test_colors_and_large_numbers_separate_objects(tmp_path: Path) -> None:
    root = write_numbered_masks(tmp_path)
    colors = np.zeros((60, 80, 3), np.uint8)
    for (left, top, right, bottom, _), color in zip(TWO.rectangles, ((9, 0, 200), (200, 1, 9)), strict=True):
        colors[top:bottom, left:right] = color
    Image.fromarray(colors).save(root / "masks/train/a.png")
    deep = np.zeros((80, 60), np.uint16)
    deep[20:70, 10:30] = 40_000
    Image.fromarray(deep).save(root / "masks/train/b.png")
    recognized = recognize_folder(root)
    assert list_things(recognized, recognized.train) == list_drawn_things(SPLITS["train"], "object")


def test_ambiguous_object_masks_need_a_choice(tmp_path: Path) -> None:
    for stem in "abcd":
        draw(tmp_path / f"images/{stem}.png", ONE)
        write_numbered_mask(tmp_path / f"masks/{stem}.png", ONE)
    (problem,) = recognize_folder(tmp_path).problems
    assert problem.severity == "warning"
    assert "choose the task Semantic segmentation" in problem.remedy
    assert recognize_folder(tmp_path, "masks").problems == ()


def test_folder_for_several_tasks_names_them(tmp_path: Path) -> None:
    (problem,) = recognize_folder(boxed.coco(tmp_path, SPLITS), "masks").problems
    assert "holds images with outlined objects" in problem.message
    assert "Object detection" in problem.remedy
    assert "Instance segmentation" in problem.remedy
    boxes = boxed.yolo(tmp_path / "boxes", SPLITS)
    (problem,) = recognize_folder(boxes).problems
    assert "not images with outlined objects" in problem.message


def test_objects_of_another_size_are_refused(tmp_path: Path) -> None:
    split = recognize_folder(write_numbered_masks(tmp_path / "masks")).train
    assert isinstance(split, InstanceSplit)
    with pytest.raises(Unfit, match="a different size \\(80 x 60 pixels, the image has 60 x 80\\)"):
        split.sources[0].instances(80, 60)
    split = recognize_folder(boxed.coco(tmp_path / "coco", SPLITS)).train
    assert isinstance(split, InstanceSplit)
    with pytest.raises(Unfit, match="different size"):
        split.sources[0].instances(80, 60)


def test_changed_outlines_change_cache_key(tmp_path: Path) -> None:
    root = boxed.coco(tmp_path / "coco", SPLITS)

    def state() -> str:
        split = recognize_folder(root).train
        assert isinstance(split, InstanceSplit)
        return split.state()

    before = state()
    assert state() == before
    content = boxed.coco_json(SPLITS["train"])
    content["annotations"][0]["segmentation"][0][0] += 1
    text(root / "annotations/instances_train2017.json", json.dumps(content))
    assert state() != before
