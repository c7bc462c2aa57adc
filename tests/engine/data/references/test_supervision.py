"""Datasets written and read by supervision."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.dataset_formats.truth import CLASSES, TRUTH, TrueImage
from tests.support.references import Boxes, assert_alike, check_reading, list_true_boxes, make_marks, write_truth

pytestmark = make_marks("supervision")

ROUNDED = 0.01
"""Rounding error of boxes in pixels. In YOLO's text files, supervision writes five decimals."""
CONTOUR = 1.01
"""Pixels that supervision's polygons lack at the right and bottom, because they connect centers of border pixels."""
FROM_ONE = 1.0
"""Offset of boxes in PASCAL VOC files: supervision counts pixels from 1, Footplate and CVAT from 0."""


def detections(image: TrueImage, *, with_masks: bool) -> Any:
    import supervision

    if not image.objects:
        return supervision.Detections.empty()
    masks = np.zeros((len(image.objects), image.height, image.width), bool)
    for mask, each in zip(masks, image.objects, strict=True):
        left, top, right, bottom = each.box
        mask[top:bottom, left:right] = True
    return supervision.Detections(
        xyxy=np.array([each.box for each in image.objects], float),
        class_id=np.array([CLASSES.index(each.name) for each in image.objects]),
        mask=masks if with_masks else None,
    )


def detection_dataset(folder: Path, *, with_masks: bool) -> Any:
    import supervision

    paths = {image: str(image.save(folder / f"{image.name}.png")) for image in TRUTH.images}
    annotations = {path: detections(image, with_masks=with_masks) for image, path in paths.items()}
    return supervision.DetectionDataset(classes=list(CLASSES), images=list(paths.values()), annotations=annotations)


@pytest.mark.parametrize("with_masks", [False, True])
def test_coco_of_supervision_is_read(tmp_path: Path, with_masks: bool) -> None:
    dataset = detection_dataset(tmp_path / "source", with_masks=with_masks)
    folder = tmp_path / "coco"
    dataset.as_coco(images_directory_path=str(folder / "images"), annotations_path=str(folder / "annotations.json"))
    check_reading(folder, "coco", "boxes", has_splits=False)
    if with_masks:
        check_reading(folder, "coco", "instances", tolerance=CONTOUR, has_splits=False)


@pytest.mark.parametrize(("with_masks", "tolerance"), [(False, ROUNDED), (True, CONTOUR)])
def test_yolo_of_supervision_is_read(tmp_path: Path, with_masks: bool, tolerance: float) -> None:
    dataset = detection_dataset(tmp_path / "source", with_masks=with_masks)
    folder = tmp_path / "yolo"
    dataset.as_yolo(
        images_directory_path=str(folder / "images"),
        annotations_directory_path=str(folder / "labels"),
        data_yaml_path=str(folder / "data.yaml"),
    )
    check_reading(folder, "yolo", tolerance=tolerance, has_splits=False)


def test_voc_of_supervision_is_read(tmp_path: Path) -> None:
    dataset = detection_dataset(tmp_path / "source", with_masks=False)
    folder = tmp_path / "voc"
    dataset.as_pascal_voc(
        images_directory_path=str(folder / "images"), annotations_directory_path=str(folder / "annotations")
    )
    check_reading(folder, "voc", tolerance=FROM_ONE, has_splits=False)


def test_class_folders_of_supervision_are_read(tmp_path: Path) -> None:
    import supervision

    paths = {image: str(image.save(tmp_path / "source" / f"{image.name}.png")) for image in TRUTH.images}
    annotations = {
        path: supervision.Classifications(class_id=np.array([CLASSES.index(image.tags[0])]))
        for image, path in paths.items()
    }
    dataset = supervision.ClassificationDataset(
        classes=list(CLASSES), images=list(paths.values()), annotations=annotations
    )
    dataset.as_folder_structure(str(tmp_path / "folders"))
    check_reading(tmp_path / "folders", "imagefolder", has_splits=False)


def list_boxes(dataset: Any) -> Boxes:
    """Return the boxes that supervision has read, by image."""
    return {
        Path(path).stem: sorted(
            (dataset.classes[number], *(round(float(edge), 3) for edge in edges))
            for edges, number in zip(each.xyxy, each.class_id, strict=True)
        )
        for path, each in dataset.annotations.items()
    }


@pytest.mark.parametrize("variant", ["splits", "packed_runs", "plain_runs", "categories_first"])
def test_supervision_reads_coco_as_footplate_does(tmp_path: Path, variant: str) -> None:
    import supervision

    folder = write_truth("coco", variant, tmp_path / "coco")
    found: Boxes = {}
    for split in ("train", "val"):
        annotations = str(folder / f"annotations/instances_{split}2017.json")
        dataset = supervision.DetectionDataset.from_coco(str(folder / f"{split}2017"), annotations)
        assert dataset.classes == list(CLASSES)
        found |= list_boxes(dataset)
    assert_alike(found, list_true_boxes())
    check_reading(folder, "coco", "boxes")


@pytest.mark.parametrize("variant", ["splits", "outlines"])
def test_supervision_reads_yolo_as_footplate_does(tmp_path: Path, variant: str) -> None:
    import supervision

    folder = write_truth("yolo", variant, tmp_path / "yolo")
    found: Boxes = {}
    for split in ("train", "val"):
        dataset = supervision.DetectionDataset.from_yolo(
            str(folder / f"images/{split}"), str(folder / f"labels/{split}"), str(folder / "data.yaml")
        )
        found |= list_boxes(dataset)
    assert_alike(found, list_true_boxes(), ROUNDED)
    check_reading(folder, "yolo")


@pytest.mark.parametrize("variant", ["plain", "odd_fields", "devkit"])
def test_supervision_reads_voc_as_footplate_does(tmp_path: Path, variant: str) -> None:
    import supervision

    folder = write_truth("voc", variant, tmp_path / "voc")
    root = folder / ("VOC2012" if variant == "devkit" else "")
    dataset = supervision.DetectionDataset.from_pascal_voc(str(root / "JPEGImages"), str(root / "Annotations"))
    assert_alike(list_boxes(dataset), list_true_boxes(), FROM_ONE)
    check_reading(folder, "voc")
