"""Folders of images and masks, in the spellings in which people keep them. Torch-free."""

from __future__ import annotations

import os
from collections.abc import Sequence

from engine.contract.problems import Problem
from engine.data.decoding.image_files import EXTENSIONS
from engine.data.decoding.masks import learn_meaning
from engine.data.formats.pairing import Kind, Pair, by_lists, find_pairs, join
from engine.data.formats.splitting import divide
from engine.data.splits import MaskSplit, Recognised, counted, first, shown, warn, wrong

KIND = Kind(
    folders=("masks", "mask", "labels", "label", "annotations", "annotation", "gt", "segmentationclass", "targets"),
    endings=tuple(sorted(EXTENSIONS)),
    suffixes=("", "_mask", "_masks", "_label", "_labels", "_gt", "_seg", "_annotation", "_L", "-mask", "-label"),
    beside=("annot", "_annot", "_labels", "_masks", "_mask", "masks", "labels"),
)
"""A split's folder of masks may also lie beside that of its images, as CamVid's trainannot."""
LAYOUT = (
    "Choose a folder with images and masks, each optionally divided into train and val folders, with the masks as PNG."
)


def recognise_masks(folder: str, folders: Sequence[str], val_fraction: float, seed: int) -> Recognised | None:
    """The images and masks in `folder`, whose folders are `folders`; None where it is not of that kind."""
    pairs = find_masks(folder, folders)
    if not pairs:
        return None
    problems: list[Problem] = []
    splits = {name: join_masks(pair, problems) for name, pair in pairs.items()}
    nothing = f"{shown(folder)} has folders of images and of masks, but no training image has a mask."
    divided = divide(splits, folder, problems, val_fraction=val_fraction, seed=seed, layout=LAYOUT, nothing=nothing)
    if divided is None:
        return Recognised("masks", problems=tuple(problems))
    train, val, test = divided
    mask_folders = list(dict.fromkeys(os.path.dirname(pair.annotations) for pair in pairs.values()))
    told_by = train.masks or [*val.masks, *(test.masks if test else ())]
    meaning = learn_meaning(folder, told_by, [*mask_folders, *(pair.annotations for pair in pairs.values())])
    if meaning.trouble:
        problems.append(wrong(meaning.trouble, "Save masks as PNG with a number, or a color, for each class."))
    return Recognised("masks", meaning.classes, train, val, tuple(problems), meaning.code, test=test)


def find_masks(folder: str, folders: Sequence[str]) -> dict[str, Pair]:
    """The folders of images and of masks in `folder`, whose folders are `folders`: by split, or by "" where there are
    none. Those of PASCAL VOC are JPEGImages and SegmentationClass, with lists of names in ImageSets/Segmentation."""
    if {"JPEGImages", "SegmentationClass"} <= set(folders):
        images, masks = os.path.join(folder, "JPEGImages"), os.path.join(folder, "SegmentationClass")
        return by_lists(images, masks, os.path.join(folder, "ImageSets", "Segmentation"), ("train", "val", "test"))
    return find_pairs(folder, folders, KIND)


def join_masks(pair: Pair, problems: list[Problem]) -> MaskSplit:
    """Each image with its mask, in the order of the images' names. Adds what has no counterpart to `problems`."""
    joined = join(pair, KIND)
    if joined.alone:
        problems.append(
            warn(
                f"{counted(joined.alone, 'image')} in {shown(pair.images)} without a mask: {first(joined.alone)}.",
                "They are left out; add their masks under the same names.",
            )
        )
    if joined.spare:
        problems.append(
            warn(
                f"{counted(joined.spare, 'mask')} in {shown(pair.annotations)} without an image: "
                f"{first(joined.spare)}.",
                "They are not used; give image and mask the same name.",
            )
        )
    return MaskSplit([image for image, _ in joined.both], [mask for _, mask in joined.both])
