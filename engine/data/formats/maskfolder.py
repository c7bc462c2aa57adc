"""Folders of images and masks in many layouts. Torch-free."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import msgspec

from engine.contract.problems import Problem
from engine.data.decoding.image_files import EXTENSIONS
from engine.data.decoding.reading import Unfit
from engine.data.formats import (
    ade20k,
    arcgis_masks,
    change_detection,
    cityscapes,
    dsb2018,
    loveda,
    mapillary,
    mvtec,
    pets,
    voc_masks,
)
from engine.data.formats.format import Confidence, Content, Detection, Format
from engine.data.formats.shared.instances import NumberedMasks
from engine.data.formats.shared.json_files import parse_file
from engine.data.formats.shared.mask_sample import MaskSample, sample_masks
from engine.data.formats.shared.name_pairs import Pairs, make_instance_splits, make_mask_splits
from engine.data.formats.shared.paired_folders import Candidate, Roles, find_candidates
from engine.data.formats.tree import Tree
from engine.data.formats.unsupported import detect_videos
from engine.data.splits import abbreviate_names, dataset_warning, printable
from engine.system.format import counted
from engine.system.regular_files import UnusableFile

_LOSSLESS = (".png", ".tif", ".tiff", ".gif", ".bmp", ".npy")
ENDINGS = (*_LOSSLESS, *sorted(EXTENSIONS - {*_LOSSLESS}))
_SUFFIXES = tuple(
    f"{separator}{word}"
    for separator in "_-."
    for word in (
        *("mask", "masks", "label", "labels", "labelids", "gt", "seg", "segmentation", "annotation", "annot", "l"),
        *("manual1", "manual2", "1stho", "2ndho", "groundtruth", "ground_truth"),
    )
)
ROLES = Roles(
    words=frozenset({
        "mask", "masks", "label", "labels", "annotation", "annotations", "annot", "annots", "gt", "gts", "ground_truth",
        "groundtruth", "target", "targets", "segmentation", "segmentations", "seg", "segs", "segmentationclass", "trimap",
        "trimaps", "manual", "manual1", "manual2", "1st_manual", "2nd_manual", "1st_manuals", "2nd_manuals", "map", "maps",
        "matte", "mattes", "lbl", "lbls", "semantic", "semantics", "instance", "instances",
    }),
    glued=(
        *("segmentation_masks", "groundtruth", "ground_truth", "segmentation", "annotations", "annotation", "masks"),
        *("mask", "labels", "label", "annot", "gt"),
    ),
    endings=ENDINGS,
    suffixes=("", *_SUFFIXES),
    image_folder_suffixes=_SUFFIXES,
    excluded_words=(
        *("edge", "bound", "contour", "depth", "dispar", "disp_", "overlay", "visual", "preview", "color", "colour"),
        *("thumb", "flow", "normal", "image"),
    ),
)  # fmt: skip
LAYOUT = (
    "Choose a folder with images and masks, each optionally divided into train and val folders, with the masks as PNG."
)
_PREFERRED = re.compile(r"^(1st_?manuals?|manual1|_1stho|_manual1)$", re.IGNORECASE)
"""Names of masks by the first annotator in DRIVE, STARE, HRF and CHASE_DB1."""
_SECOND = re.compile(r"^(2nd_?manuals?|manual2|_2ndho|_manual2|masks?)$", re.IGNORECASE)
"""Names of masks by the second annotator, and of masks of the camera's field of view, in the same datasets."""
_COLORED = re.compile(r"colou?r|rgb|overlay|visual|preview", re.IGNORECASE)
"""Words in the names of folders that contain colored copies of masks for viewing."""
_NUMBERED = {"PedMasks": "pedestrian"}
"""Folders whose masks are known to number objects, with the class of these objects (PennFudan)."""

_OTHERS = (
    *(ade20k.FORMAT, arcgis_masks.FORMAT, change_detection.FORMAT, cityscapes.FORMAT, dsb2018.FORMAT, loveda.FORMAT),
    *(mapillary.FORMAT, mvtec.FORMAT, pets.FORMAT, voc_masks.FORMAT),
)
"""More specific formats. If one of them is certain, the folder is not detected here."""


class _Source(NamedTuple):
    """Folders to read, which `detect` passes on to `read`, and the sampled properties of the masks.

    `class_name` is the class of the objects if the masks number objects.
    """

    candidate: Candidate
    sample: MaskSample
    class_name: str


def detect(tree: Tree) -> list[Detection]:
    """Detect folders of masks. Each folder is a separate detection, and the most likely one comes first.

    Returns none if the folder certainly has another format, or contains videos.
    """
    if any(each.confidence is Confidence.CERTAIN for format in _OTHERS for each in format.detect(tree)):
        return []
    has_videos = next(detect_videos(tree), None) is not None
    if has_videos:  # their values number the objects of each video
        return []
    # Folders with unusual names are only considered if no folder with a usual name contains masks, and if their images
    # could hardly be anything else. Named folders without masks remain, so that the evidence against them is reported.
    sampled = [(candidate, sample_masks(candidate.pairs.matched)) for candidate in find_candidates(tree, ROLES)]
    named = [(candidate, sample) for candidate, sample in sampled if candidate.is_named]
    named_with_masks = [(candidate, sample) for candidate, sample in named if sample.are_labels]
    unusual_with_masks = [
        (candidate, sample)
        for candidate, sample in sampled
        if not candidate.is_named and sample.are_labels and sample.fit and not sample.colored
    ]
    chosen = named_with_masks or unusual_with_masks or named
    variants = [candidate.variant for candidate, _ in chosen]
    classes = _read_coco_classes(tree) if chosen else ()
    detections = [
        replace(each, variant=candidate.variant if len(chosen) > 1 else "")
        for candidate, sample in chosen
        for each in _interpret(candidate, sample, variants, classes)
    ]
    return sorted(detections, key=lambda each: -each.confidence)


def _interpret(
    candidate: Candidate, sample: MaskSample, variants: Sequence[str], classes: Sequence[str]
) -> tuple[Detection, Detection]:
    """Return two detections for a folder of masks, as masks of classes and as masks that number objects.

    The more likely detection comes first.

    Args:
        candidate: Pairing of the images with the masks in the folder.
        sample: Properties of a sample of the masks.
        variants: Names of all folders that may contain masks.
        classes: Classes in the COCO files of the dataset, or () without such files. With a single class, several values
            in a mask can only number objects. With several classes, numbered objects get a lower confidence, so that
            the format "coco" is preferred, which also contains their classes.
    """
    against = _find_doubts(candidate, sample, variants)
    # At least a third of the images have masks, and all masks have images.
    is_complete = (
        2 * len(candidate.pairs.matched) >= len(candidate.pairs.unmatched_images)
        and not candidate.pairs.unmatched_files
    )
    confidence = Confidence.CERTAIN if is_complete else Confidence.LIKELY
    if against:
        confidence = Confidence.WEAK
    is_suffix = candidate.variant[0] in "_-."
    location = f"named NAME{candidate.variant}" if is_suffix else f"in {candidate.variant}"
    evidence = (f"{counted(len(candidate.pairs.matched), 'image')} with masks {printable(location)}",)
    class_name = _NUMBERED.get(candidate.variant) or (classes[0] if len(classes) == 1 else "object")
    masks = Detection(("masks",), confidence, evidence, against, source=_Source(candidate, sample, class_name))
    if len(classes) > 1:  # the format "coco" is then preferred
        confidence = min(confidence, Confidence.LIKELY)
    has_one_class = len(classes) == 1 and sample.max_numbers > 1 and not sample.are_classes
    are_known_numbers = candidate.variant in _NUMBERED or has_one_class
    number_objects = sample.number_objects or are_known_numbers
    if are_known_numbers:  # otherwise the inspection warns
        against = (*against, "values that number the objects of each mask")
    elif sample.are_classes and not number_objects:
        against = (*against, "values that repeat from mask to mask like those of classes")
    # Of the two detections, the less likely one has a lower confidence.
    lower = Confidence.LIKELY if confidence is Confidence.CERTAIN and not against else Confidence.WEAK
    if number_objects:
        objects = replace(masks, kinds=("instances",), confidence=confidence)
        return objects, replace(masks, confidence=lower, against=against)
    return masks, replace(masks, kinds=("instances",), confidence=lower, against=against)


def _find_doubts(candidate: Candidate, sample: MaskSample, variants: Sequence[str]) -> tuple[str, ...]:
    """Return reasons, as noun phrases, why the files in a folder are probably not the masks of the images.

    `variants` are the names of all folders that may contain masks.
    """
    of_first_annotator = [each for each in variants if _PREFERRED.match(each)]
    uncolored = [each for each in variants if not _COLORED.search(each)]
    against = []
    if not candidate.is_named:
        against.append(f"masks in {printable(candidate.variant)}, an unusual name for a folder of masks")
    if not sample.readable:
        against.append(f"masks that can't be opened ({sample.failure})")
    elif not sample.are_labels and 2 * sample.lossy > sample.readable:
        against.append("noise in the masks, as if they had been saved as JPEG")
    elif not sample.are_labels:
        against.append(f"files in {printable(candidate.variant)} that look like photos or depth, not masks")
    elif not sample.fit:
        against.append("masks of other sizes than their images")
    if 2 * len(candidate.pairs.matched) < candidate.pairs.file_count:
        against.append(f"{counted(len(candidate.pairs.unmatched_files), 'mask')} without an image")
    # Masks of the second annotator and masks of the field of view are weaker if there are masks of the first annotator.
    is_alternative = candidate.variant not in of_first_annotator and _SECOND.match(candidate.variant)
    if of_first_annotator and is_alternative:
        against.append(f"masks of the first annotator in {printable(of_first_annotator[0])}")
    if uncolored and _COLORED.search(candidate.variant):
        against.append(f"masks that are not for viewing in {printable(uncolored[0])}")
    return tuple(against)


def read(tree: Tree, detection: Detection, kind: str) -> Content:
    """Return the images with their masks or, for the kind "instances", with the objects that the masks number."""
    candidate, sample, class_name = detection.source
    problems = candidate.pairs.describe_unpaired("a mask", "masks")
    if candidate.folders_without_pairs:
        message = f"The images in {abbreviate_names(candidate.folders_without_pairs)} have no masks."
        problems.append(dataset_warning(message, "They are left out; add their masks to use them."))
    splits = select_splits(candidate.splits, problems)
    if kind == "instances":
        return Content(
            (class_name,),
            make_instance_splits(splits, lambda mask: NumberedMasks([(mask, 0)])),  # all objects are of class 0
            problems + warn_about_numbers(sample),
        )
    return Content((), make_mask_splits(splits), problems, table_folders=find_table_folders(tree, candidate.folders))


def find_table_folders(tree: Tree, folders: Iterable[str]) -> tuple[str, ...]:
    """Return the full paths of folders and of their parents, the parents first."""
    folders = list(folders)
    return tuple(map(tree.path, dict.fromkeys([*map(os.path.dirname, folders), *folders])))


def select_splits(splits: Mapping[str, Pairs], problems: list[Problem]) -> dict[str, Pairs]:
    """Return `splits`, leaving out the pairs without a split (key "") if there is a training split.

    A warning about these pairs is appended to `problems`.
    """
    if "train" not in splits or "" not in splits:
        return dict(splits)
    count = len(splits[""].matched)
    if count:
        message = f"{counted(count, 'image')} in folders that belong to no split."
        problems.append(
            dataset_warning(message, "Such images are left out; move them to the train, val or test folder.")
        )
    return {name: pairs for name, pairs in splits.items() if name}


def warn_about_numbers(sample: MaskSample) -> list[Problem]:
    """Return a warning if the values of masks that number objects may be classes instead."""
    remedy = "If they mark regions rather than single objects, choose the task Semantic segmentation."
    if sample.max_numbers < 2:
        return [dataset_warning("The masks have at most one value besides 0, so each marks a single object.", remedy)]
    if sample.are_classes:
        return [dataset_warning("The values of the masks have gaps and repeat, like those of classes.", remedy)]
    return []


FORMAT = Format("masks", "Images with masks", ("masks", "instances"), LAYOUT, detect, read)


_MAX_COCO_FILES = 8


class _CocoCategory(msgspec.Struct):
    name: str


class _CocoFile(msgspec.Struct):
    categories: list[_CocoCategory]


_COCO = msgspec.json.Decoder(_CocoFile)


def _read_coco_classes(tree: Tree) -> tuple[str, ...]:
    """Return the sorted category names from the first COCO files in the dataset folder and its folder annotations."""
    names: set[str] = set()
    for folder in ("", *tree.named(("annotations", "annotation"))):
        for name in tree.files(folder, ".json")[:_MAX_COCO_FILES]:
            try:
                content = parse_file(tree.path(folder, name), _COCO)
            except (OSError, UnusableFile, Unfit):
                continue
            names.update(each.name for each in content.categories)
    return tuple(map(printable, sorted(names)))
