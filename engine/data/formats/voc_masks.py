"""Masks in PASCAL VOC format: SegmentationClass and SegmentationObject, with lists of names in ImageSets.

Torch-free.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass

from engine.data.decoding.masks import VOC_CLASSES, VOC_CODE, learn_meaning
from engine.data.decoding.reading import MAX_TABLE_BYTES, read_text_lines
from engine.data.formats.format import Content, Detection, Format
from engine.data.formats.shared.instances import ClassedMask, InstanceSplit
from engine.data.formats.shared.mask_sample import detect_masks, sample_masks
from engine.data.formats.shared.name_pairs import Pairs, make_mask_splits, pair_folders
from engine.data.formats.tree import Tree, split_named, stem
from engine.data.splits import MaskCode, dataset_error, printable
from engine.system.format import counted

LAYOUT = "Choose a folder with JPEGImages, SegmentationClass and lists of names in ImageSets/Segmentation."
_VOC_NAME = re.compile(r"20(0[7-9]|1[0-2])_\d{6}")
"""Pattern for the image names of VOC 2007 to 2012."""
_MASKS = ("SegmentationClassPNG", "SegmentationClass", "SegmentationClassAug")
"""Names of folders of masks. labelme writes arrays to SegmentationClass and images to SegmentationClassPNG."""
_OBJECTS = ("SegmentationObjectPNG", "SegmentationObject")
_LISTS = os.path.join("ImageSets", "Segmentation")
_ENDINGS = (".png", ".tif", ".bmp", ".gif")
_TABLES = frozenset(
    {"labelmap.txt", "class_names.txt", "classes.txt", "labels.txt", "class_dict.csv", "label_colors.txt"}
)


@dataclass(frozen=True)
class _Source:
    """Data that `detect` passes on to `read`.

    `masks` pairs the images in the folder `base` with masks of classes, and `objects` with masks that number the
    objects. `uses_voc_classes` is True if the mask values are the classes of PASCAL VOC.
    """

    base: str
    masks: Pairs
    objects: Pairs
    uses_voc_classes: bool


def detect(tree: Tree) -> list[Detection]:
    """Detect folders that contain JPEGImages and masks. Each of them is a separate detection."""
    bases = [base for base in tree.walk(depth=2) if "JPEGImages" in tree.folders(base)]
    found = [_detect_in(tree, base, base if len(bases) > 1 else "") for base in bases]
    return [each for each in found if each is not None]


def _detect_in(tree: Tree, base: str, variant: str) -> Detection | None:
    """Detect VOC masks in the folder `base`. Returns None if there are none, or they do not look like masks."""
    masks, objects = (_find_first_pairs(tree, base, names) for names in (_MASKS, _OBJECTS))
    sample = sample_masks(masks.matched)
    if not masks.matched or (sample.readable and not sample.are_labels):
        return None
    named_as_in_voc = sum(bool(_VOC_NAME.fullmatch(stem(image))) for image in masks.images)
    has_voc_values = not sample.colored and sample.values <= {*VOC_CODE.values, *VOC_CODE.ignored}
    has_class_table = not _TABLES.isdisjoint(tree.files(base))
    # A class table in the folder takes precedence over the known classes of VOC.
    uses_voc_classes = 2 * named_as_in_voc > len(masks.matched) and has_voc_values and not has_class_table
    evidence = [f"{counted(len(masks.matched), 'image')} in JPEGImages with masks in SegmentationClass"]
    if objects.matched:
        evidence.append(f"{len(objects.matched):,} with numbered objects in SegmentationObject")
    kinds = ("instances", "masks") if objects.matched else ("masks",)
    return detect_masks(
        sample, kinds, *evidence, variant=variant, source=_Source(base, masks, objects, uses_voc_classes)
    )


def _find_first_pairs(tree: Tree, base: str, names: tuple[str, ...]) -> Pairs:
    """Pair the images in JPEGImages with masks in the first of the folders `names` that contains any."""
    images = os.path.join(base, "JPEGImages")
    for name in names:
        pairs = Pairs()
        for folder in tree.walk(images) if name in tree.folders(base) else ():
            masks = os.path.normpath(os.path.join(base, name, os.path.relpath(folder, images)))
            if tree.exists(masks):
                pairs.add(pair_folders(tree, [folder], masks, endings=_ENDINGS, suffixes=("",)))
        if pairs.matched:
            return pairs
    return Pairs()


def read(tree: Tree, detection: Detection, kind: str) -> Content:
    """Return the listed images with their objects for the kind "instances", or else with their masks of classes."""
    source: _Source = detection.source
    if kind == "instances":
        return _read_instances(tree, source)
    splits, left_out = _divide_by_lists(tree, source.base, source.masks)
    masks, problems = make_mask_splits(splits), left_out.describe_unpaired("a mask", "masks")
    if source.uses_voc_classes:
        return Content(VOC_CLASSES, masks, problems, VOC_CODE)
    folders = dict.fromkeys(map(os.path.dirname, source.masks.files))
    # No classes: they are inferred from the masks and from class tables in these folders.
    return Content((), masks, problems, table_folders=(tree.path(source.base), *folders))


def _read_instances(tree: Tree, source: _Source) -> Content:
    """Return the listed images that have a mask of classes and a mask of objects, with their objects."""
    masks, objects = source.masks, dict(source.objects.matched)  # the mask of objects of each image
    without_objects = [image for image in masks.images if image not in objects]
    with_objects = [(image, mask) for image, mask in masks.matched if image in objects]
    unmatched_images = sorted([*masks.unmatched_images, *without_objects])
    pairs = Pairs(with_objects, unmatched_images, source.objects.unmatched_files)
    splits, left_out = _divide_by_lists(tree, source.base, pairs)
    problems = left_out.describe_unpaired("a mask of objects", "masks")
    classes, code, reason = _learn_meaning(tree, source)
    if code is None:
        problems.append(dataset_error(reason, "Save masks as PNG with a number, or a color, for each class."))
        return Content((), {}, problems)
    background = next((number for number, name in enumerate(classes) if "background" in name.lower()), None)
    if background is None and code.values[0] == 0:  # no class is called background
        background = 0
    instances = {
        split: InstanceSplit(
            each.images, [ClassedMask(objects[image], mask, code, background) for image, mask in each.matched]
        )
        for split, each in splits.items()
    }
    names = tuple(name for number, name in enumerate(classes) if number != background)
    return Content(names, instances, problems)


def _learn_meaning(tree: Tree, source: _Source) -> tuple[tuple[str, ...], MaskCode | None, str]:
    """Return the class names in masks, the value of each class, and "".

    If the values can't be determined, the second item is None, and the third is the reason.
    """
    if source.uses_voc_classes:
        return VOC_CLASSES, VOC_CODE, ""
    meaning = learn_meaning(tree.path(source.base), source.masks.files, [])
    return meaning.classes, meaning.code, meaning.failure


def _divide_by_lists(tree: Tree, base: str, pairs: Pairs) -> tuple[Mapping[str, Pairs], Pairs]:
    """Divide pairs into splits by the lists in ImageSets.

    Returns the pairs by split, and a `Pairs` for problems: listed images without a mask, and missing images. Without
    a list for training, there is only the split "", with all pairs.
    """
    lists = _read_lists(tree, os.path.join(base, _LISTS))
    if "train" not in lists:
        return {"": pairs}, pairs
    images = tree.path(base, "JPEGImages")
    by_name = {os.path.splitext(os.path.relpath(image, images))[0]: (image, mask) for image, mask in pairs.matched}
    unmatched = {os.path.splitext(os.path.relpath(image, images))[0]: image for image in pairs.unmatched_images}
    splits: dict[str, Pairs] = {}
    left_out = Pairs(several=pairs.several)
    for split, names in lists.items():
        splits[split] = Pairs([by_name[name] for name in names if name in by_name])
        left_out.unmatched_images += [unmatched[name] for name in names if name in unmatched]
        left_out.missing += [printable(name) for name in names if name not in by_name and name not in unmatched]
    return splits, left_out


def _read_lists(tree: Tree, folder: str) -> dict[str, list[str]]:
    """Return the names in the list of each split, for the lists in `folder`.

    If train.txt is missing, trainval.txt without the names in val.txt is used for training.
    """
    names = tree.files(folder, ".txt") if tree.exists(folder) else []
    files = {split: name for name in names if (split := split_named(os.path.splitext(name)[0]))}
    lists = {split: _read_list(tree.path(folder, name)) for split, name in files.items()}
    if "train" not in lists and "trainval.txt" in names:
        validation = set(lists.get("val", ()))
        lists["train"] = [name for name in _read_list(tree.path(folder, "trainval.txt")) if name not in validation]
    return lists


def _read_list(path: str) -> list[str]:
    """Return the distinct names in a list of images, relative to JPEGImages and without extensions."""
    names = (
        re.sub(r"\.(jpe?g|png|tif|bmp)$", "", line, flags=re.IGNORECASE)
        for line in read_text_lines(path, MAX_TABLE_BYTES)
    )
    return list(dict.fromkeys(name.removeprefix("/").removeprefix("JPEGImages/") for name in names))


FORMAT = Format("voc_masks", "PASCAL VOC masks", ("instances", "masks"), LAYOUT, detect, read)
