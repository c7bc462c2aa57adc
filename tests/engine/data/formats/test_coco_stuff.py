"""COCO-Stuff's pixel maps."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from engine.data.formats.coco_stuff import FORMAT
from engine.data.formats.format import Content
from tests.support.dataset_formats import coco_stuff
from tests.support.dataset_formats.truth import TRUTH
from tests.support.read_formats import detect, read


def list_pixel_classes(content: Content, split: str) -> dict[str, np.ndarray]:
    """Return the class number of each pixel, by file stem of the image."""
    found = content.splits[split]
    assert content.code is not None
    return {
        Path(file).stem: np.vectorize(content.code.values.index)(np.asarray(Image.open(mask)))
        for file, mask in zip(found.files, found.masks, strict=True)
    }


@pytest.mark.parametrize("variant", coco_stuff.VARIANTS)
def test_read_returns_the_truth(tmp_path: Path, variant: str) -> None:
    coco_stuff.write(TRUTH, tmp_path, variant)
    (path,) = tmp_path.rglob("labels.txt")
    path.write_text("\n".join(reversed(path.read_text().splitlines())))
    (next(tmp_path.rglob("stuff*")) / "labels.txt").write_text("0: unlabeled\n")
    content = read(FORMAT, tmp_path)
    assert (content.classes, content.problems) == (("background", *TRUTH.classes), [])
    for split in ("train", "val"):
        classes = list_pixel_classes(content, split)
        assert classes.keys() == {image.name for image in TRUTH.get_images(split)}
        assert all((classes[image.name] == image.draw_mask()).all() for image in TRUTH.get_images(split))


@pytest.mark.parametrize(
    ("variant", "count", "expected", "ignored"),
    [
        ("splits", 171, {0: "person", 15: "bird", 91: "banner", 181: "wood"}, (255,)),
        ("numbers", 92, {92: "banner", 183: "other"}, (0, 255)),  # one class for all things
    ],
)
def test_names_are_those_of_the_dataset_without_a_table(
    tmp_path: Path, variant: str, count: int, expected: dict[int, str], ignored: tuple[int, ...]
) -> None:
    coco_stuff.write(TRUTH, tmp_path, variant)
    (tmp_path / "labels.txt").unlink()
    content = read(FORMAT, tmp_path)
    assert content.code is not None
    names = dict(zip(content.code.values, content.classes, strict=True))
    assert (len(names), {value: names[value] for value in expected}) == (count, expected)
    assert content.code.ignored == ignored


@pytest.mark.parametrize("folder", ["a/b/StuffThingMaps_trainval2017", "stuff_val2017_pixelmaps"])
def test_folders_are_detected_by_their_names(tmp_path: Path, folder: str) -> None:
    TRUTH.images[0].save(tmp_path / folder / "a.png")
    assert [(each.variant, each.source.folders) for each in detect(FORMAT, tmp_path)] == [("", (folder,))]


@pytest.mark.parametrize("folder", ["masks/train2017", "stuff", "pixelmaps/train"])
def test_other_folders_are_not_detected(tmp_path: Path, folder: str) -> None:
    TRUTH.images[0].save(tmp_path / folder / "a.png")
    assert detect(FORMAT, tmp_path) == []
