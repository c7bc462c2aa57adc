"""Datasets that Footplate recognizes, although it has no task for them."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from engine.data.formats import change_detection, depth, mvtec
from engine.data.formats.format import Confidence
from engine.data.formats.registry import recognize
from tests.support.dataset_formats.pixels import save_mask
from tests.support.dataset_formats.truth import TRUTH
from tests.support.read_formats import detect

MODULES = (change_detection, depth, mvtec)


def write(folder: Path, *places: str) -> None:
    """Write the ground-truth images to paths in `folder`, once for each pattern in `places`.

    A pattern contains the placeholders "{split}", "{name}" or "{width}" of an image. If it starts with "mask:", the
    masks are written instead of the images.
    """
    for place in places:
        for image in TRUTH.images:
            path = folder / place.removeprefix("mask:").format(split=image.split, name=image.name, width=image.width)
            if place.startswith("mask:"):
                save_mask(path, np.where(image.draw_mask(), 255, 0).astype(np.uint8))
            else:
                image.save(path)


@pytest.mark.parametrize(
    ("module", "places"),
    [
        (change_detection, ("{split}/A/{name}.png", "{split}/B/{name}.png", "mask:{split}/label/{name}.png")),
        (change_detection, ("A/{name}.png", "B/{name}.png", "mask:label/{name}.png")),
        (change_detection, ("data/t1/{name}.png", "data/t2/{name}.png", "mask:data/change/{name}.tif")),
        (
            mvtec,
            (
                "bottle/train/good/{name}.png", "bottle/test/good/{name}.png", "bottle/test/broken/{name}.png",
                "mask:bottle/ground_truth/broken/{name}_mask.png",
            ),
        ),
        (
            mvtec,
            (
                "train/good/{name}.png", "test/bent/{name}.png", "test/cut/{name}.png",
                "mask:ground_truth/bent/{name}_mask.png", "mask:ground_truth/cut/{name}_mask.png",
            ),
        ),
        (depth, ("RGB/{name}.png", "mask:depth/{name}.png")),
        (depth, ("{split}/image/{name}.jpg", "mask:{split}/depth/{name}.npy")),
        (depth, ("training/image_2/{name}_10.png", "training/image_3/{name}_10.png", "mask:training/disp_occ_0/{name}_10.png")),
        (depth, ("left/{name}.png", "right/{name}.png", "mask:Disparity/{name}.png")),
    ],
)  # fmt: skip
def test_detect_refuses_by_name(tmp_path: Path, module: ModuleType, places: tuple[str, ...]) -> None:
    write(tmp_path, *places)
    for other in MODULES:
        found = detect(other.FORMAT, tmp_path)
        assert bool(found) == (other is module)
    (detection,) = detect(module.FORMAT, tmp_path)
    assert (detection.kinds, bool(detection.remedy)) == ((), True)
    assert "bent" not in " ".join(places) or " 2 kinds of defects" in detection.evidence[0]
    for kind in ("classes", "masks", "instances"):
        recognized = recognize(str(tmp_path), val_fraction=0.2, seed=0, kinds=(kind,))
        assert recognized.train is None
        assert module.FORMAT.title in " ".join(problem.message for problem in recognized.problems)


@pytest.mark.parametrize(
    ("places", "confidence"),
    [
        (("a/b/color/{name}.png", "mask:a/b/depth/{name}.png"), Confidence.LIKELY),
        (("rgb/{name}.png", "depth/{name}.png"), Confidence.WEAK),
        (("left/{name}.png", "right/{name}.png"), Confidence.WEAK),
        (("left/{name}.png", "right/{name}.png", "Calib/{name}.png"), Confidence.LIKELY),
    ],
)
def test_depth_is_likely_if_maps_are_gray_or_folders_typical(
    tmp_path: Path, places: tuple[str, ...], confidence: Confidence
) -> None:
    write(tmp_path, *places)
    assert [each.confidence for each in detect(depth.FORMAT, tmp_path)] == [confidence]
    maps = list(tmp_path.rglob("depth/*.png"))
    for path in maps:
        path.write_bytes(b"torn")
    assert [each.confidence for each in detect(depth.FORMAT, tmp_path)] == [Confidence.WEAK if maps else confidence]
    for path in maps:
        path.rename(path.with_suffix(".pfm"))
    assert [each.confidence for each in detect(depth.FORMAT, tmp_path)] == [Confidence.LIKELY if maps else confidence]


@pytest.mark.parametrize(
    "places",
    [
        ("A/{name}.png", "B/{width}.png", "mask:label/{name}.png"),
        ("A/{name}.png", "B/{name}.png", "label/{name}.png"),
        ("A/{name}.png", "mask:label/{name}.png"),
        ("train/good/{name}.png", "test/good/{name}.png"),
        ("train/{name}.png", "test/bent/{name}.png", "mask:ground_truth/bent/{name}.png"),
        ("images/{name}.png", "mask:masks/{name}.png"),
        ("train/left/{name}.png", "train/right/{width}.png"),
        ("left/{name}.png", "right/{name}.png", "up/{name}.png"),
        ("rgb/{name}.png", "mask:depth/{name}.png", "mask:depth/{width}.png", "mask:depth/x{width}.png"),
        ("train/good/{name}.png", "train/bent/{name}.png", "test/bent/{name}.png", "mask:ground_truth/bent/{name}.png"),
        ("train/good/{name}.png", "test/bent/{name}.png", "ground_truth/bent/{name}.png"),
    ],
)
def test_detect_passes_over_other_folders(tmp_path: Path, places: tuple[str, ...]) -> None:
    write(tmp_path, *places)
    assert [each for module in MODULES for each in detect(module.FORMAT, tmp_path)] == []
