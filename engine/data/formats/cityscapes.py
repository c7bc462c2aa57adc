"""Cityscapes, and the semantic masks of KITTI, which use the same labels. Torch-free.

Sources: helpers/labels.py in cityscapesScripts for the labels, its README for the files, and the development kit of
KITTI.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace

from engine.contract.problems import Problem
from engine.data.formats.format import Content, Detection, Format
from engine.data.formats.shared.instances import NumberedLabels, Numbering
from engine.data.formats.shared.mask_sample import detect_masks, sample_masks
from engine.data.formats.shared.name_pairs import Pairs, make_instance_splits, make_mask_splits
from engine.data.formats.tree import Tree
from engine.data.splits import MaskCode
from engine.system.format import counted

LAYOUT = "Choose the folder with leftImg8bit and gtFine (or gtCoarse), or KITTI's with training/image_2 and semantic."
CLASSES = {
    "road": 7, "sidewalk": 8, "building": 11, "wall": 12, "fence": 13, "pole": 17, "traffic light": 19,
    "traffic sign": 20, "vegetation": 21, "terrain": 22, "sky": 23, "person": 24, "rider": 25, "car": 26, "truck": 27,
    "bus": 28, "train": 31, "motorcycle": 32, "bicycle": 33,
}  # fmt: skip
"""Id of each label that the benchmark evaluates, in the order of their train ids."""
THINGS = ("person", "rider", "car", "truck", "bus", "train", "motorcycle", "bicycle")
"""Classes whose objects are annotated one by one."""
LAST_LABEL = 33
_IGNORED_LABELS = tuple(sorted({*range(LAST_LABEL + 1), 255} - set(CLASSES.values())))
BY_LABEL = MaskCode(tuple(CLASSES.values()), ignored=_IGNORED_LABELS)
BY_TRAIN_ID = MaskCode(tuple(range(len(CLASSES))), ignored=(255,))
_SPLITS = {"train": "train", "train_extra": "train", "val": "val", "test": "test"}
_IMAGES = "leftImg8bit"


@dataclass(frozen=True)
class _Files:
    """Images and masks of one detection.

    `masks` pairs images with masks of classes, whose values `code` describes. `instances` pairs images with masks of
    objects, whose values `numbering` describes. Both are grouped by split.
    """

    masks: dict[str, Pairs]
    code: MaskCode
    instances: dict[str, Pairs]
    numbering: Numbering


def detect(tree: Tree) -> list[Detection]:
    """Detect Cityscapes or the masks of KITTI. Fine and coarse annotations of Cityscapes are separate detections."""
    found: list[Detection] = []
    for base in tree.walk(depth=2):
        inner = tree.folders(base)
        for name in ("gtFine", "gtCoarse"):
            if _IMAGES in inner and name in inner:
                found += _make_detections(name, _find_cityscapes_files(tree, base, name))
        split_folders = {split: os.path.join(base, name) for split, name in tree.splits(base).items()}
        kitti_folders = {
            split: folder
            for split, folder in split_folders.items()
            if {"image_2", "semantic"} <= set(tree.folders(folder))
        }
        if "train" in kitti_folders:
            found += _make_detections("", _find_kitti_files(tree, kitti_folders))
    return found if len(found) > 1 else [replace(each, variant="") for each in found]


def _make_detections(variant: str, files: _Files) -> list[Detection]:
    """Return a list with one detection, or [] if no image has a mask or no mask is readable."""
    mask_pairs, instance_pairs = (Pairs.join(each.values()).matched for each in (files.masks, files.instances))
    sample = sample_masks(mask_pairs or instance_pairs)
    if not sample.readable:
        return []
    unknown_values = sample.values - {*files.code.values, *files.code.ignored}
    against = ""
    if mask_pairs and unknown_values:
        against = f"values of no label of Cityscapes in the masks, such as {min(unknown_values)}"
    kinds = (*(["masks"] if mask_pairs else []), *(["instances"] if instance_pairs else []))
    evidence = f"{counted(len(mask_pairs or instance_pairs), 'image')} with masks of Cityscapes' labels"
    return [detect_masks(sample, kinds, evidence, against=against, variant=variant, source=files)]


def read(tree: Tree, detection: Detection, kind: str) -> Content:
    """Return the images with their objects for the kind "instances", or else with masks of the evaluated labels."""
    files: _Files = detection.source
    if kind == "instances":
        classes = {CLASSES[name]: number for number, name in enumerate(THINGS)}
        splits = make_instance_splits(files.instances, lambda path: NumberedLabels(path, files.numbering, classes))
        return Content(THINGS, splits, _report_unpaired(files.instances))
    return Content(tuple(CLASSES), make_mask_splits(files.masks), _report_unpaired(files.masks), files.code)


def _report_unpaired(splits: Mapping[str, Pairs]) -> list[Problem]:
    """Return warnings about images and masks without a counterpart."""
    return Pairs.join(splits.values()).describe_unpaired("a mask", "masks")


def _find_cityscapes_files(tree: Tree, base: str, name: str) -> _Files:
    """Return the images in leftImg8bit and their masks in the folder `name` (gtFine or gtCoarse), both inside `base`."""
    train_ids, labels, instances = (
        _pair_by_split(tree, base, name, kind) for kind in ("labelTrainIds", "labelIds", "instanceIds")
    )
    train_id_count, label_count = (len(Pairs.join(each.values()).matched) for each in (train_ids, labels))
    numbering = Numbering(1000, bare_labels=True)  # of instanceIds
    # Use the kind of masks that more images have.
    if train_id_count and train_id_count >= label_count:
        return _Files(train_ids, BY_TRAIN_ID, instances, numbering)
    return _Files(labels, BY_LABEL, instances, numbering)


def _pair_by_split(tree: Tree, base: str, name: str, kind: str) -> dict[str, Pairs]:
    """Return the pairs of images and masks by split, in the folder `base`.

    `name` is the folder of the masks, such as "gtFine", and `kind` the end of their names, such as "labelIds".
    """
    found: dict[str, Pairs] = {}
    for split in tree.folders(os.path.join(base, _IMAGES)):
        if split.lower() not in _SPLITS or split not in tree.folders(os.path.join(base, name)):
            continue
        pairs = Pairs()
        for images in tree.walk(os.path.join(base, _IMAGES, split)):
            masks = os.path.join(base, name, os.path.relpath(images, os.path.join(base, _IMAGES)))
            pairs.add(_pair(tree, images, masks, f"_{name}_{kind}.png"))
        if pairs.matched and not _is_empty(pairs, kind):
            found.setdefault(_SPLITS[split.lower()], Pairs()).add(pairs)
    return found


def _is_empty(pairs: Pairs, kind: str) -> bool:
    """Return True if masks whose names end with `kind`, such as "labelIds", contain no classes.

    This is the case for the test images of Cityscapes, whose masks mark only the hood of the car and the borders.
    """
    sample = sample_masks(pairs.matched)
    factor = 1000 if kind == "instanceIds" else 1
    # An object has the value label * factor + number. A lower value is a label itself.
    labels = {value // factor if value >= factor else value for value in sample.values}
    classes = BY_TRAIN_ID.values if kind == "labelTrainIds" else BY_LABEL.values
    has_class_0 = kind == "labelTrainIds" and sample.has_zero  # `sample.values` lacks 0
    return bool(sample.readable) and not has_class_0 and not labels & set(classes)


def _find_kitti_files(tree: Tree, splits: Mapping[str, str]) -> _Files:
    """Return the images and masks of KITTI. `splits` maps each split to the folder with its images and masks."""
    masks, instances = (
        {
            split: _pair(tree, os.path.join(folder, "image_2"), os.path.join(folder, name), ".png")
            for split, folder in splits.items()
        }
        for name in ("semantic", "instance")
    )
    return _Files(masks, BY_LABEL, instances, Numbering(256, first_number=1))


def _pair(tree: Tree, images: str, masks: str, end: str) -> Pairs:
    """Pair the images in the folder `images` with the masks in the folder `masks`.

    A mask is named like its image, with the suffix `end` in place of "_leftImg8bit" and the extension.
    """
    names = set(tree.files(masks)) if tree.exists(masks) else set()
    pairs = Pairs()
    for image in tree.images(images):
        mask = os.path.splitext(image)[0].removesuffix(f"_{_IMAGES}") + end
        if mask in names:
            pairs.matched.append((tree.path(images, image), tree.path(masks, mask)))
        else:
            pairs.unmatched_images.append(tree.path(images, image))
    return pairs


FORMAT = Format("cityscapes", "Cityscapes", ("masks", "instances"), LAYOUT, detect, read)
