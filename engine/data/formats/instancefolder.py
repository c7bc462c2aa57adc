"""Folders of images in which every single thing is outlined, in the ways in which people keep them. Torch-free."""

from __future__ import annotations

import os
from collections.abc import Sequence

from engine.contract.problems import Problem
from engine.data.decoding.image_files import is_image
from engine.data.decoding.masks import NO_CLASS, learn_meaning, read_values
from engine.data.decoding.reading import read_image
from engine.data.formats.folders import subfolders
from engine.data.formats.instances import ClassedMask, InstanceSplit, NumberedMasks, object_numbers
from engine.data.formats.maskfolder import find_masks, join_masks
from engine.data.formats.pairing import IMAGES, classes_of, named
from engine.data.formats.rotated import RotationReport, rotate_instances
from engine.data.formats.splitting import divide
from engine.data.splits import Recognised, counted, first, spread_evenly, warn, wrong

LAYOUT = (
    "Choose a folder with images and outlines in YOLO's text files; or with images and masks in "
    "which each object has its own number; or with ArcGIS's RCNN masks."
)
LOOKED_AT = 20
"""Masks that are opened to see whether they number things."""

Found = tuple[tuple[str, ...], dict[str, InstanceSplit], list[Problem]]


def recognise_instances(folder: str, folders: Sequence[str], val_fraction: float, seed: int) -> Recognised | None:
    """The images and outlines in `folder`, whose folders are `folders`; None where it is not of that kind."""
    found = _classed(folder, folders) or (_numbered(folder, folders) or _by_class(folder, folders))
    if found is None:
        return None
    classes, splits, problems = found
    if len(classes) >= NO_CLASS:
        problems.append(
            wrong(f"There are {len(classes):,} classes; instance segmentation supports at most {NO_CLASS - 1}.", LAYOUT)
        )
    rotations = RotationReport()
    splits = {name: rotate_instances(each, rotations) for name, each in splits.items()}
    problems += rotations.problems("outlines")
    divided = divide(splits, folder, problems, val_fraction=val_fraction, seed=seed, layout=LAYOUT)
    train, val, test = divided or (None, None, None)
    return Recognised("instances", classes, train, val, tuple(problems), test=test)


def _classed(folder: str, folders: Sequence[str]) -> Found | None:
    """PASCAL VOC: what SegmentationObject numbers is of the class that SegmentationClass has there."""
    if "SegmentationObject" not in folders:
        return None
    problems: list[Problem] = []
    joined = {name: join_masks(pair, problems) for name, pair in find_masks(folder, folders).items()}
    masks = [mask for split in joined.values() for mask in split.masks]
    meaning = learn_meaning(folder, masks, [])
    if meaning.code is None:
        return None
    numbers = os.path.join(folder, "SegmentationObject")
    splits = {
        name: InstanceSplit(
            split.files,
            [ClassedMask(os.path.join(numbers, os.path.basename(mask)), mask, meaning.code) for mask in split.masks],
        )
        for name, split in joined.items()
    }
    return meaning.classes[1:], splits, problems


def _numbered(folder: str, folders: Sequence[str]) -> Found | None:
    """Return images and masks in which objects are numbered."""
    pairs = find_masks(folder, folders)
    if not pairs:
        return None
    problems: list[Problem] = []
    joined = {name: join_masks(pair, problems) for name, pair in pairs.items()}
    masks = [mask for split in joined.values() for mask in split.masks]
    most = _most_in_one([masks[index] for index in spread_evenly(len(masks), LOOKED_AT)])
    if most < 2:
        problems.append(
            warn(
                "The masks have at most one value besides 0, so each marks a single object.",
                "If they mark regions rather than single objects, choose the task Semantic segmentation.",
            )
        )
    splits = {
        name: InstanceSplit(split.files, [NumberedMasks([(mask, 0)]) for mask in split.masks])
        for name, split in joined.items()
    }
    return ("object",), splits, problems


def _most_in_one(masks: Sequence[str]) -> int:
    """Return the number of objects in the mask with most of them."""
    most = 0
    for path in masks:
        try:
            numbers = object_numbers(read_values(read_image(path)))
        except Exception:
            continue  # a decoder may raise nearly anything; whoever loads the image names it
        most = max(most, len(numbers))
    return most


def _by_class(folder: str, folders: Sequence[str]) -> Found | None:
    """ArcGIS's RCNN masks: images, and in labels a folder for each class with a mask for each image that shows it."""
    inputs, labels = named(folders, IMAGES), named(folders, ("labels",))
    if inputs is None or labels is None:
        return None
    inputs, labels = os.path.join(folder, inputs), os.path.join(folder, labels)
    by_class = {name: _images(os.path.join(labels, name)) for name in subfolders(labels)}
    by_class = {name: masks for name, masks in by_class.items() if masks}
    images = _images(inputs)
    if not any(stem in images for masks in by_class.values() for stem in masks):
        return None
    classes, indices = classes_of(folder, by_class)
    problems: list[Problem] = []
    spare = [path for masks in by_class.values() for stem, path in masks.items() if stem not in images]
    if spare:
        message = f"{counted(spare, 'mask')} without an image: {first(spare)}."
        problems.append(warn(message, "They are not used; give image and mask the same name."))
    sources = [
        NumberedMasks([(masks[stem], indices[name]) for name, masks in by_class.items() if stem in masks])
        for stem in images
    ]
    return classes, {"": InstanceSplit(list(images.values()), sources)}, problems


def _images(folder: str) -> dict[str, str]:
    """The images in a folder by their names without endings, in their order."""
    with os.scandir(folder) as entries:
        names = sorted(entry.name for entry in entries if is_image(entry.name) and not entry.name.startswith("."))
    return {os.path.splitext(name)[0]: os.path.join(folder, name) for name in names}
