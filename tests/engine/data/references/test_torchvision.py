"""Folders read by torchvision and pycocotools."""

from __future__ import annotations

import contextlib
import io
from pathlib import Path

import numpy as np
import pytest

from engine.data.inspection.samples import list_samples
from tests.support.dataset_formats import cityscapes
from tests.support.dataset_formats.annotations import (
    list_true_annotations,
    measure_areas,
    measure_true_areas,
    recognize_folder,
)
from tests.support.dataset_formats.pixels import draw_object_numbers
from tests.support.dataset_formats.truth import CLASSES, TRUTH
from tests.support.images import write_idx
from tests.support.references import Boxes, assert_alike, check_reading, list_true_boxes, write_truth


@pytest.mark.filterwarnings("ignore:__array__:DeprecationWarning")  # warning of pycocotools
@pytest.mark.parametrize(
    "variant", ["splits", "packed_runs", "plain_runs", "ids_differ", "categories_first", "float_ids"]
)
def test_pycocotools_reads_coco_as_footplate_does(tmp_path: Path, variant: str) -> None:
    from pycocotools.coco import COCO

    folder = write_truth("coco", variant, tmp_path / "coco")
    boxes: Boxes = {}
    areas: dict[str, dict[str, int]] = {}
    for split in ("train", "val"):
        with contextlib.redirect_stdout(io.StringIO()):
            coco = COCO(str(folder / f"annotations/instances_{split}2017.json"))
        for image in coco.imgs.values():
            name = Path(image["file_name"]).stem
            annotations = coco.loadAnns(coco.getAnnIds(imgIds=image["id"]))
            boxes[name], areas[name] = [], {}
            for each in annotations:
                label = coco.cats[each["category_id"]]["name"]
                x, y, width, height = map(float, each["bbox"])
                boxes[name].append((label, x, y, x + width, y + height))
                areas[name][label] = areas[name].get(label, 0) + int(coco.annToMask(each).sum())
            boxes[name].sort()
    assert_alike(boxes, list_true_boxes())
    assert areas == measure_true_areas(TRUTH)
    check_reading(folder, "coco", "boxes")
    check_reading(folder, "coco", "instances")
    found = recognize_folder(folder)
    assert found is not None
    assert measure_areas(found, folder) == areas


def test_torchvision_reads_voc_as_footplate_does(tmp_path: Path) -> None:
    from torchvision.datasets import VOCDetection

    folder = write_truth("voc", "devkit", tmp_path / "VOCdevkit")
    for path in folder.rglob("*.png"):
        path.rename(path.with_suffix(".jpg"))  # the only name that torchvision looks for
    found: Boxes = {}
    for split in ("train", "val"):
        for _, target in VOCDetection(str(tmp_path), "2012", split):
            content = target["annotation"]
            found[Path(content["filename"]).stem] = sorted(
                (each["name"], *(float(each["bndbox"][edge]) for edge in ("xmin", "ymin", "xmax", "ymax")))
                for each in content.get("object", ())
            )
    assert_alike(found, list_true_boxes())
    check_reading(folder, "voc")


def test_torchvision_reads_voc_masks_as_footplate_does(tmp_path: Path) -> None:
    from torchvision.datasets import VOCSegmentation

    folder = write_truth("voc_masks", "nested", tmp_path)
    for split in ("train", "val"):
        dataset = VOCSegmentation(str(tmp_path), "2012", split)
        assert [Path(name).stem for name in dataset.images] == [image.name for image in TRUTH.get_images(split)]
        for (_, mask), image in zip(dataset, TRUTH.get_images(split), strict=True):
            np.testing.assert_array_equal(np.asarray(mask), image.draw_mask())
    check_reading(folder, "voc_masks", "instances")
    check_reading(folder, "voc_masks", "masks")


def test_torchvision_reads_cityscapes_as_footplate_does(tmp_path: Path) -> None:
    from torchvision.datasets import Cityscapes

    folder = write_truth("cityscapes", "plain", tmp_path)
    numbers = {
        name: next(each.id for each in Cityscapes.classes if each.name == other)
        for name, other in cityscapes.NAMES.items()
    }
    for split in ("train", "val"):
        dataset = Cityscapes(str(folder), split, target_type=["semantic", "instance"])
        by_name = {Path(path).stem.removesuffix("_leftImg8bit"): index for index, path in enumerate(dataset.images)}
        assert by_name.keys() == {image.name for image in TRUTH.get_images(split)}
        for image in TRUTH.get_images(split):
            _, (semantic, numbered) = dataset[by_name[image.name]]
            instances = np.asarray(numbered)
            table = np.array([cityscapes.ROAD, *(numbers[name] for name in CLASSES)])
            np.testing.assert_array_equal(np.asarray(semantic), table[image.draw_mask()])
            objects = {
                tuple(np.unique(instances[draw_object_numbers(image) == n])) for n in range(1, 1 + len(image.objects))
            }
            assert len(objects) == len(image.objects)
    for kind in ("masks", "instances"):
        check_reading(folder, "cityscapes", kind, truth=list_true_annotations(TRUTH, kind, cityscapes.expect))


def test_torchvision_reads_kitti_as_footplate_does(tmp_path: Path) -> None:
    from torchvision.datasets import Kitti

    folder = write_truth("kitti", "lists", tmp_path / "Kitti/raw")
    dataset = Kitti(str(tmp_path))
    found: Boxes = {}
    for path, (image, target) in zip(dataset.images, dataset, strict=True):
        image.load()  # closes the file
        found[Path(path).stem] = sorted((each["type"], *each["bbox"]) for each in target)
    assert_alike(found, list_true_boxes())
    check_reading(folder, "kitti")


def test_torchvision_reads_idx_files_as_footplate_does(tmp_path: Path) -> None:
    from torchvision.datasets import MNIST

    raw = tmp_path / "MNIST/raw"
    raw.mkdir(parents=True)
    for name, count in (("train", 12), ("t10k", 7)):
        write_idx(raw / f"{name}-images-idx3-ubyte", np.random.default_rng(count).integers(0, 256, (count, 28, 28)))
        write_idx(raw / f"{name}-labels-idx1-ubyte", np.arange(count) % 5)
    found = recognize_folder(tmp_path)
    assert found is not None
    assert found.format == "idx"
    theirs = {split: MNIST(str(tmp_path), train=split == "train").targets.tolist() for split in ("train", "val")}
    labels: dict[str, list[int]] = {"train": [], "val": []}
    for sample in list_samples(found, str(tmp_path), 100):
        labels[sample.split].append(int(sample.label or ""))
    assert labels == theirs
