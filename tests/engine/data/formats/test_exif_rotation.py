"""Annotations of images that have an EXIF orientation, in coordinates of the unrotated pixels."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageOps

from engine.data.datasets.open_splits import open_splits
from engine.data.decoding.orientation import turn_edges_upright, turn_upright
from engine.data.formats.registry import recognize
from engine.data.formats.shared.boxes import Box, BoxedImage, BoxSplit
from engine.data.formats.shared.exif_rotation import Drawn as Verdict
from engine.data.formats.shared.exif_rotation import RotatedSource, RotationReport, rotate_boxes, rotate_instances
from engine.data.formats.shared.instances import InstanceSplit, Polygons
from engine.data.inspection.inspector import inspect
from engine.data.splits import RecognizedDataset
from tests.support.boxed import COLORS, TWO, DrawnImage, Rectangle, coco_json, draw, text, voc_xml

RAW = TWO
SPLITS = {"train": 4, "val": 2}
QUARTERS = (5, 6, 7, 8)


def write_turned_image(path: Path, orientation: int) -> Path:
    """Write the image `RAW` with an EXIF orientation, but without rotating its pixels. Return `path`."""
    with Image.open(draw(path.with_suffix(".png"), RAW)) as image:
        exif = Image.Exif()
        exif[0x0112] = orientation
        image.save(path, quality=95, exif=exif)
    path.with_suffix(".png").unlink()
    return path


def voc(folder: Path, orientation: int, *, size: bool = True, annotated: DrawnImage = RAW) -> Path:
    for split, count in SPLITS.items():
        for number in range(count):
            write_turned_image(path := folder / "images" / split / f"{number}.jpg", orientation)
            text(folder / "annotations" / split / f"{path.stem}.xml", voc_xml(annotated, size=size))
    return folder


def coco(folder: Path, orientation: int, *, outlines: bool = False) -> Path:
    for split, count in SPLITS.items():
        images = {f"{number}": RAW for number in range(count)}
        for stem in images:
            write_turned_image(folder / split / f"{stem}.jpg", orientation)
        content = coco_json(images, file_name="{}.jpg", outlines=outlines)
        text(folder / "annotations" / f"instances_{split}.json", json.dumps(content))
    return folder


def recognize_folder(folder: Path, kind: str = "boxes") -> RecognizedDataset:
    return recognize(str(folder), val_fraction=0.25, seed=0, kinds=(kind,))


def boxes_match_colors(recognized: RecognizedDataset) -> bool:
    """Return True if each box in the rotated training images surrounds an area in the color of its class."""
    split = recognized.train
    assert isinstance(split, BoxSplit)
    for index, path in enumerate(split.files):
        with Image.open(path) as image:
            pixels = np.asarray(ImageOps.exif_transpose(image).convert("RGB")).astype(int)
        if split.sizes[index].tolist() != list(pixels.shape[:2]):
            return False
        rows = split.rows_of(index)
        assert rows.stop - rows.start == 2
        for (left, top, right, bottom), label in zip(split.boxes[rows].astype(int), split.labels[rows], strict=True):
            center = pixels[top + 4 : bottom - 4, left + 4 : right - 4]
            if abs(center.mean((0, 1)) - COLORS[recognized.classes[label]]).max() > 12:
                return False
    return True


def texts(recognized: RecognizedDataset) -> str:
    return " ".join(map(str, recognized.problems))


@pytest.mark.parametrize("orientation", range(1, 9))
def test_edges_turn_as_the_pixels_do(orientation: int) -> None:
    pixels = np.zeros((6, 9), bool)
    pixels[1:3, 2:7] = True
    rows, columns = np.nonzero(turn_upright(pixels, orientation))
    expected = [columns.min(), rows.min(), columns.max() + 1, rows.max() + 1]
    edges = turn_edges_upright(np.array([[2.0, 1, 7, 3]]), orientation, 6, 9)
    assert edges.tolist() == [expected]


@pytest.mark.parametrize("orientation", QUARTERS)
@pytest.mark.parametrize("write", [voc, coco], ids=["voc", "coco"])
def test_boxes_of_the_unturned_size_are_turned(tmp_path: Path, orientation: int, write: object) -> None:
    recognized = recognize_folder(write(tmp_path, orientation))  # type: ignore[operator]
    assert boxes_match_colors(recognized)
    assert "6 images with an EXIF orientation" in texts(recognized)


@pytest.mark.parametrize("orientation", QUARTERS)
def test_boxes_without_a_size_are_turned_if_they_only_fit_unturned(tmp_path: Path, orientation: int) -> None:
    recognized = recognize_folder(voc(tmp_path, orientation, size=False))
    assert boxes_match_colors(recognized)


@pytest.mark.parametrize("orientation", QUARTERS)
def test_boxes_of_the_upright_size_stay(tmp_path: Path, orientation: int) -> None:
    raw = np.array([each[:4] for each in RAW.rectangles], np.float64)
    edges = turn_edges_upright(raw, orientation, RAW.height, RAW.width).astype(int).tolist()
    rectangles = [Rectangle(*row, each.name) for row, each in zip(edges, RAW.rectangles, strict=True)]
    recognized = recognize_folder(
        voc(tmp_path, orientation, annotated=DrawnImage(RAW.width, RAW.height, tuple(rectangles)))
    )
    assert boxes_match_colors(recognized)
    assert "EXIF" not in texts(recognized)


def test_images_turned_by_180_follow_the_others_of_their_tool(tmp_path: Path) -> None:
    voc(tmp_path, 6)
    write_turned_image(tmp_path / "images/train/9.jpg", 3)
    text(tmp_path / "annotations/train/9.xml", voc_xml(RAW))
    assert boxes_match_colors(recognize_folder(tmp_path))


@pytest.mark.parametrize("orientation", [2, 3, 4])
def test_an_ambiguous_orientation_is_reported(tmp_path: Path, orientation: int) -> None:
    recognized = recognize_folder(voc(tmp_path, orientation))
    assert "nothing tells" in texts(recognized)


def test_only_images_with_another_size_name_no_orientation(tmp_path: Path) -> None:
    voc(tmp_path, 6, annotated=RAW._replace(height=70))
    report = inspect(str(tmp_path), val_fraction=0.25, seed=0, progress=lambda a, b: None, kinds=("boxes",))
    assert report.unreadable_count == 6
    assert "EXIF" in report.unreadable[0].reason


@pytest.mark.parametrize("orientation", QUARTERS)
def test_outlines_of_the_unturned_size_are_turned(tmp_path: Path, orientation: int) -> None:
    folder = coco(tmp_path, orientation, outlines=True)
    split = recognize_folder(folder, "instances").train
    (first, *_), source = split.files, split.sources[0]  # type: ignore[union-attr]
    with Image.open(first) as image:
        pixels = np.asarray(ImageOps.exif_transpose(image).convert("RGB")).astype(int)
    assert source.sizes() == [pixels.shape[:2]]
    for each in source.instances(*pixels.shape[:2]):
        inside = pixels[each.window.slices][each.window.pixels]
        assert abs(inside.mean(0) - COLORS[("cat", "dog")[each.label]]).max() < 20
    report = inspect(str(folder), val_fraction=0.25, seed=0, progress=lambda a, b: None, kinds=("instances",))
    assert report.unreadable_count == 0
    assert "EXIF" in " ".join(map(str, report.problems))


@pytest.mark.parametrize("orientation", QUARTERS)
def test_masks_of_the_unturned_size_are_turned(tmp_path: Path, orientation: int) -> None:
    for split, count in SPLITS.items():
        for number in range(count):
            write_turned_image(tmp_path / "images" / split / f"{number}.jpg", orientation)
            mask = np.zeros((RAW.height, RAW.width), np.uint8)
            for value, (left, top, right, bottom, _) in enumerate(RAW.rectangles, 1):
                mask[top:bottom, left:right] = value
            path = tmp_path / "masks" / split / f"{number}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(mask).save(path)
    opened = open_splits(str(tmp_path), val_fraction=0.25, seed=0, kinds=("masks",))
    planes = opened.train.load(0, RAW.width, 3).numpy().astype(int)  # type: ignore[call-arg, arg-type, union-attr]
    for value, name in ((1, "dog"), (2, "cat")):
        inside = planes[:3, planes[3] == value]
        assert inside.shape[1] > 100
        assert abs(np.median(inside, 1) - COLORS[name]).max() < 12
    report = inspect(str(tmp_path), val_fraction=0.25, seed=0, progress=lambda a, b: None, kinds=("masks",))
    assert report.unreadable_count == 0
    assert "EXIF" in " ".join(map(str, report.problems))


@pytest.mark.parametrize(
    ("verdicts", "turned", "raw", "unknown"),
    [
        (["raw", "unknown", "other"], {0, 1}, "ab", ""),
        (["upright", "unknown", "other"], set(), "", ""),
        (["raw", "unknown", "upright"], {0}, "a", "b"),
        (["unknown", "unknown", "other"], set(), "", "ab"),
    ],
)
def test_verdicts_that_agree_decide_the_unknown_ones(
    verdicts: list[Verdict], turned: set[int], raw: str, unknown: str
) -> None:
    report = RotationReport()
    assert report.record_and_select(dict(enumerate(verdicts)), "abc") == turned
    assert ("".join(report.raw), "".join(report.unknown)) == (raw, unknown)
    named = [each.message.rpartition(": ")[2] for each in report.problems("boxes")]
    assert named == [f"{', '.join(each)}." for each in (raw, unknown) if each]
    noted = RotationReport()
    noted.record(dict(enumerate(verdicts)), "abc")
    assert "".join(noted.raw) == "".join("abc"[place] for place, verdict in enumerate(verdicts) if verdict == "raw")
    expected = [] if "upright" in verdicts else ["abc"[place] for place in range(3) if verdicts[place] == "unknown"]
    assert noted.unknown == expected


@pytest.mark.parametrize(
    ("boxes", "size", "expected"),
    [
        ([], None, (80, 60)),
        ([], (60, 80), (80, 60)),
        ([], (80, 60), (80, 60)),
        ([], (5, 6), (5, 6)),
        ([Box(1, 2, 81, 50, 0)], None, (80, 60)),
        ([Box(1, 2, 50, 81, 0)], None, (80, 60)),
        ([Box(1, 2, 70, 50, 0)], (5, 6), (5, 6)),
    ],
)
def test_sizes_of_boxed_images_are_those_of_upright_images(
    tmp_path: Path, boxes: list[Box], size: tuple[int, int] | None, expected: tuple[int, int]
) -> None:
    path = str(write_turned_image(tmp_path / "a.jpg", 6))
    (found,) = rotate_boxes([BoxedImage(path, boxes, size)], RotationReport())
    assert found.size == expected


def test_boxes_in_fractions_are_turned(tmp_path: Path) -> None:
    path = str(write_turned_image(tmp_path / "a.jpg", 6))
    image = BoxedImage(path, [Box(0.1, 0.2, 0.5, 0.4, 0)], (60, 80), fractions=True)
    (found,) = rotate_boxes([image], RotationReport())
    assert found.boxes[0][:4] == pytest.approx((0.6, 0.1, 0.8, 0.5))


def test_only_instances_drawn_on_the_unturned_image_are_turned(tmp_path: Path) -> None:
    class Sized(Polygons):
        def sizes(self) -> list[tuple[int, int]]:
            return [(80, 60)]

    class Torn(Polygons):
        def sizes(self) -> list[tuple[int, int]]:
            raise ValueError

    files = [str(write_turned_image(tmp_path / f"{name}.jpg", 6)) for name in "abc"]
    upright_source = Sized([])
    raw_source = Polygons([])
    raw_source.sizes = lambda: [(60, 80)]  # type: ignore[method-assign]
    split = rotate_instances(InstanceSplit(files, [raw_source, upright_source, Torn([])]), RotationReport())
    assert [isinstance(each, RotatedSource) for each in split.sources] == [True, False, False]
