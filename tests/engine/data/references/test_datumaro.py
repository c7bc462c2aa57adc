"""Datasets written and read by Datumaro, which CVAT uses for exports."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine.data.formats.registry import detect_kind, find_readings
from engine.data.inspection.samples import list_samples
from tests.support.dataset_formats import cityscapes
from tests.support.dataset_formats.annotations import list_true_annotations, read_annotations, recognize_folder
from tests.support.dataset_formats.truth import CLASSES, TRUTH, TrueImage
from tests.support.references import Boxes, assert_alike, check_reading, list_true_boxes, make_marks, write_truth

pytestmark = make_marks("datumaro")

WITH_BACKGROUND = ("background", *CLASSES)
COLORS = ((0, 0, 0), (200, 10, 10), (10, 200, 10), (10, 10, 200))
CONTOUR = 1.01
"""Pixels that Datumaro's polygons lack at the right and bottom, because they connect the centers of border pixels."""
EMPTY = ("img_4",)
"""Ground-truth image without objects.

In some formats, Datumaro writes no file for this image. Footplate then leaves it out with a warning.
"""


@pytest.fixture(autouse=True)
def without_log() -> Any:
    """Silence the log of Datumaro, which mentions each attribute that a format can't represent."""
    logging.disable(logging.ERROR)
    yield
    logging.disable(logging.NOTSET)


def make_annotations(image: TrueImage, kind: str, labels: Mapping[str, int]) -> list[Any]:
    """Return an image's annotations as Datumaro's objects.

    `kind` selects their class: "box", "rotated" (a rotated box), "polygon", "mask" (a mask per object), "plane" (a mask
    per class and one for the background), "class" or "labels". `labels` maps class names to numbers.
    """
    from datumaro.components import annotation

    if kind in ("class", "labels"):
        return [annotation.Label(labels[tag]) for tag in (image.tags[:1] if kind == "class" else image.tags)]
    if kind == "plane":  # one mask for each class, with the background
        plane = image.draw_mask()
        return [annotation.Mask(plane == value, label=int(value), z_order=int(value)) for value in np.unique(plane)]
    dataset = []
    for number, each in enumerate(image.objects, 1):
        left, top, right, bottom = each.box
        common: dict[str, Any] = {"label": labels[each.name], "id": number, "group": number}
        match kind:
            case "box":
                dataset.append(annotation.Bbox(left, top, right - left, bottom - top, **common))
            case "rotated":
                center = (left + right) / 2, (top + bottom) / 2
                dataset.append(annotation.RotatedBbox(*center, right - left, bottom - top, 0, **common))
            case "polygon":
                dataset.append(annotation.Polygon([float(v) for point in each.polygon for v in point], **common))
            case _:
                mask = np.zeros((image.height, image.width), bool)
                mask[top:bottom, left:right] = True
                dataset.append(annotation.Mask(mask, attributes={"is_crowd": False}, **common))
    return dataset


def make_dataset(kind: str, names: Sequence[str] = CLASSES, other_names: Mapping[str, str] | None = None) -> Any:
    """Convert the ground truth to a Datumaro dataset whose annotations are of `kind`, as in `make_annotations`.

    `names` are the classes of the dataset. `other_names` maps those ground-truth classes that have another name in the
    dataset to this name.
    """
    import datumaro
    from datumaro.components.annotation import AnnotationType, LabelCategories, MaskCategories
    from datumaro.components.media import Image

    labels = {name: list(names).index((other_names or {}).get(name, name)) for name in CLASSES}
    items = [
        datumaro.DatasetItem(
            image.name,
            subset=image.split,
            media=Image.from_numpy(data=np.ascontiguousarray(image.draw_pixels()[..., ::-1])),
            annotations=make_annotations(image, kind, labels),
        )
        for image in TRUTH.images
    ]
    colors = COLORS if len(names) == len(COLORS) else [(number, number, number) for number in range(len(names))]
    return datumaro.Dataset.from_iterable(
        items,
        categories={
            AnnotationType.label: LabelCategories.from_iterable(list(names)),
            AnnotationType.mask: MaskCategories(dict(enumerate(colors[: len(names)]))),
        },
    )


@pytest.mark.parametrize(
    ("theirs", "kind", "format", "left_out"),
    [
        ("coco_instances", "polygon", "coco", ()),
        ("coco_instances", "box", "coco", ()),
        ("coco_labels", "class", "coco", ()),
        ("voc_detection", "box", "voc", EMPTY),
        ("yolo", "box", "yolo", ()),
        ("yolo_ultralytics", "box", "yolo", ()),
        ("cvat", "polygon", "cvat", ()),
        ("cvat", "box", "cvat", ()),
        ("cvat", "mask", "cvat", ()),
        ("cvat", "class", "cvat", ()),
        ("label_me", "polygon", "voc", ()),
        ("label_me", "mask", "voc", ()),
        ("kitti_detection", "box", "kitti", EMPTY),
        ("dota", "rotated", "dota", ()),
        ("open_images", "box", "csv_boxes", EMPTY),
        ("imagenet", "class", "imagefolder", ()),
        ("imagenet_with_subset_dirs", "class", "imagefolder", ()),
        ("imagenet_txt", "class", "table", ()),
        ("imagenet_txt", "labels", "table", ()),
        ("vgg_face2", "class", "imagefolder", ()),
    ],
)
def test_exports_of_datumaro_are_read(
    tmp_path: Path, theirs: str, kind: str, format: str, left_out: tuple[str, ...]
) -> None:
    make_dataset(kind).export(str(tmp_path / "export"), theirs, save_media=True)
    with_splits = theirs not in ("label_me", "imagenet")
    check_reading(tmp_path / "export", format, left_out=left_out, has_splits=with_splits)


def test_voc_masks_of_datumaro_are_read(tmp_path: Path) -> None:
    dataset = make_dataset("mask", WITH_BACKGROUND)
    dataset.export(str(tmp_path / "export"), "voc_segmentation", save_media=True, label_map="source")
    check_reading(tmp_path / "export", "voc_masks", "instances", left_out=EMPTY)


def test_camvid_of_datumaro_is_read(tmp_path: Path) -> None:
    dataset = make_dataset("plane", WITH_BACKGROUND)
    dataset.export(str(tmp_path / "export"), "camvid", save_media=True, label_map="source")
    check_reading(tmp_path / "export", "masks", "masks")
    found = recognize_folder(tmp_path / "export")
    assert found is not None
    assert found.classes == WITH_BACKGROUND


@pytest.mark.parametrize("theirs", ["cityscapes", "kitti_segmentation"])
def test_cityscapes_labels_of_datumaro_are_read(tmp_path: Path, theirs: str) -> None:
    from datumaro.plugins.data_formats.cityscapes import CITYSCAPES_LABEL_MAP

    dataset = make_dataset("mask", list(CITYSCAPES_LABEL_MAP), cityscapes.NAMES)
    dataset.export(str(tmp_path / "export"), theirs, save_media=True, label_map=theirs.removesuffix("_segmentation"))
    # Datumaro writes no object numbers for Cityscapes, so its objects are read as groups, which are ignored.
    kinds = ("masks",) if theirs == "cityscapes" else ("masks", "instances")
    for kind in kinds:
        truth = list_true_annotations(TRUTH, kind, cityscapes.expect)
        check_reading(tmp_path / "export", "cityscapes", kind, truth=truth, left_out=EMPTY)


def test_coco_masks_of_datumaro_are_read(tmp_path: Path) -> None:
    make_dataset("mask").export(str(tmp_path / "export"), "coco_instances", save_media=True)
    check_reading(tmp_path / "export", "coco", "boxes", tolerance=CONTOUR)
    check_reading(tmp_path / "export", "coco", "instances", tolerance=CONTOUR)


def test_wider_face_of_datumaro_is_read(tmp_path: Path) -> None:
    make_dataset("box").export(str(tmp_path / "export"), "wider_face", save_media=True)
    truth = {name: [("face", *box[1:]) for box in boxes] for name, boxes in list_true_boxes().items()}
    truth = {name: sorted(boxes) for name, boxes in truth.items()}
    check_reading(tmp_path / "export", "wider_face", truth=truth)


def test_videos_of_datumaro_are_read(tmp_path: Path) -> None:
    make_dataset("box").export(str(tmp_path / "export"), "mot_seq_gt", save_media=True)
    found = recognize_folder(tmp_path / "export")
    assert found is not None
    assert (found.format, found.certain) == ("mot", True)
    renamed = {f"img_{int(name)}": boxes for name, boxes in read_annotations(found, tmp_path / "export").items()}
    assert_alike(renamed, list_true_boxes())


def test_idx_files_of_datumaro_are_read(tmp_path: Path) -> None:
    make_dataset("class").export(str(tmp_path / "export"), "mnist", save_media=True)
    found = recognize_folder(tmp_path / "export")
    assert found is not None
    assert (found.format, found.classes, found.certain) == ("idx", CLASSES, True)
    samples = list_samples(found, str(tmp_path / "export"), 100)
    assert [sample.label for sample in samples] == [image.tags[0] for image in TRUTH.images]


@pytest.mark.parametrize(
    ("theirs", "kind", "variant"),
    [
        ("datumaro", "box", "unsupported:datumaro"),
        ("datumaro", "polygon", "unsupported:datumaro"),
        ("arrow", "box", "unsupported:arrow"),
        ("image_zip", "class", "unsupported:zip"),
        ("cifar", "class", "unsupported:pickle"),
    ],
)
def test_other_exports_of_datumaro_are_named(tmp_path: Path, theirs: str, kind: str, variant: str) -> None:
    make_dataset(kind).export(str(tmp_path / "export"), theirs, save_media=True)
    best = find_readings(str(tmp_path / "export"))[0]
    assert (best.name, best.kind) == (variant, "")
    assert best.detection.remedy


@pytest.mark.parametrize(
    ("theirs", "kind"),
    [
        ("coco_panoptic", "mask"),  # Datumaro doesn't write its categories as things
        ("market1501", "class"),
        ("lfw", "class"),
        ("image_dir", "class"),
        ("icdar_text_localization", "box"),
        ("segment_anything", "mask"),
        ("mnist_csv", "class"),
        ("voc_classification", "class"),
    ],
)
def test_no_export_of_datumaro_is_mistaken(tmp_path: Path, theirs: str, kind: str) -> None:
    make_dataset(kind).export(str(tmp_path / "export"), theirs, save_media=True)
    for each in ("classes", "boxes", "instances", "masks"):
        assert recognize_folder(tmp_path / "export", each) is None
    assert detect_kind(str(tmp_path / "export")) in (None, "instances")


def read_boxes(folder: Path, format_name: str) -> Boxes:
    """Return the boxes in each image as Datumaro reads them, except boxes of the background.

    `format_name` is Datumaro's name of the format.
    """
    import datumaro
    from datumaro.components.annotation import AnnotationType

    dataset = datumaro.Dataset.import_from(str(folder), format_name)
    names = [label.name for label in dataset.categories()[AnnotationType.label]]
    found: Boxes = {}
    for item in dataset:
        boxes = []
        for each in item.annotations:
            if each.type == AnnotationType.rotated_bbox:
                x, y, width, height = each.cx - each.w / 2, each.cy - each.h / 2, each.w, each.h
            else:
                x, y, width, height = each.get_bbox()
            edges = (round(float(edge), 3) for edge in (x, y, x + width, y + height))
            boxes.append((names[each.label], *edges))
        # COCO's objects have a polygon and a box.
        found[Path(item.id).name.removesuffix("_leftImg8bit")] = sorted(set(boxes))
    return found


@pytest.mark.parametrize(
    ("writer", "variant", "theirs", "left_out"),
    [
        ("voc_masks", "cvat", "voc_instance_segmentation", ()),
        ("cvat", "plain", "cvat", ()),
        ("cvat", "boxes", "cvat", ()),
        ("cvat", "masks", "cvat", ()),
        ("kitti", "lists", "kitti_detection", ()),
        ("dota", "splits", "dota", ()),
        ("vott", "plain", "vott_json", ()),
        ("csv_boxes", "vott", "vott_csv", EMPTY),
        ("yolo", "roboflow", "roboflow_yolo", EMPTY),  # Datumaro skips empty text files
    ],
)
def test_datumaro_reads_folders_as_footplate_does(
    tmp_path: Path, writer: str, variant: str, theirs: str, left_out: tuple[str, ...]
) -> None:
    folder = write_truth(writer, variant, tmp_path / "data")
    truth = {name: boxes for name, boxes in list_true_boxes().items() if name not in left_out}
    assert_alike(read_boxes(folder, theirs), truth)
    check_reading(
        folder,
        writer,
        left_out=EMPTY if variant == "vott" else (),
        has_splits=variant in ("splits", "roboflow", "cvat"),
    )


@pytest.mark.parametrize("variant", ["splits", "packed_runs", "plain_runs"])
def test_datumaro_reads_coco_as_footplate_does(tmp_path: Path, variant: str) -> None:
    folder = write_truth("coco", variant, tmp_path / "data")
    (folder / "images").mkdir()  # Datumaro requires the folder
    for split in ("train", "val"):
        (folder / f"{split}2017").rename(folder / f"images/{split}2017")
    assert_alike(read_boxes(folder, "coco_instances"), list_true_boxes())
    check_reading(folder, "coco")


def test_datumaro_reads_cityscapes_as_footplate_does(tmp_path: Path) -> None:
    folder = write_truth("cityscapes", "plain", tmp_path / "data")
    found = read_boxes(folder, "cityscapes")
    truth = list_true_annotations(TRUTH, "instances", cityscapes.expect)
    check_reading(folder, "cityscapes", "instances", truth=truth)
    del found["img_5"], truth["img_5"]  # Datumaro merges the objects of a class
    assert_alike(found, truth)
